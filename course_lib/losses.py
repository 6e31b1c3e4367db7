"""What a draft is trained to bring down, by name: KL(p ‖ q), total variation, or the one and then the other.

Total variation is 1 - Σ min(p, q): the rate of rejection itself (Leviathan et al. 2023, arXiv 2211.17192,
corollary 3.6).
"""

from __future__ import annotations

from collections.abc import Callable


def turn(progress: float) -> float:
    """KL alone, then a slow turn, then total variation."""
    return min(1.0, max(0.0, (progress - 0.4) / 0.4))


LOSSES: dict[str, Callable[[float], float]] = {
    "turn": turn, "kl": lambda progress: 0.0, "tv": lambda progress: 1.0}


def tv_weight(loss: str) -> Callable[[float], float]:
    """The weight of total variation in a loss, the rest being KL's, as a function of how far the training is,
    from 0 to 1. Raises ValueError for a loss that is not there."""
    if loss not in LOSSES:
        raise ValueError(f"there is no loss {loss!r}: choose from {', '.join(LOSSES)}")
    return LOSSES[loss]
