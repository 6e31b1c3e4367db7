"""From logits to the law that is sampled, and the three random steps of a speculative round.

Both models' logits go through the same `probabilities`: the proof that speculative decoding keeps
the target's law needs p and q to be the laws that were really sampled, after temperature, top-k
and top-p. Nothing here knows about models or caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import torch


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. temperature 0 is greedy; top_k 0 and top_p 1 keep every token."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        # Below 1e-6 logits over the temperature overflow, and the law is greedy anyway.
        if self.temperature != 0 and not 1e-6 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 (greedy) or at least 0.000001, not {self.temperature}")
        if not isinstance(self.top_k, Integral) or self.top_k < 0:
            raise ValueError(f"top_k must be a whole number, 0 for no limit, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], not {self.top_p}")


GREEDY = Sampling(temperature=0.0)


def probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The law [..., vocabulary] that `sampling` draws from, given logits of the same shape.

    Temperature first, then top-k, then top-p, each on what the one before left (the order of
    transformers and vLLM). Temperature 0 is a point mass on the largest logit, the first of ties.
    float64 logits give float64 probabilities, every other type float32.
    """
    if sampling.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        dtype = logits.dtype if logits.dtype == torch.float64 else torch.float32
        return torch.zeros(logits.shape, dtype=dtype, device=logits.device).scatter_(-1, best, 1.0)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        smallest_kept = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < smallest_kept, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = logits.sort(dim=-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1).roll(1, -1)
        before[..., 0] = 0.0
        # A token stays while the mass before it has not reached top_p, so the first one always does.
        drop = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= sampling.top_p)
        logits = logits.masked_fill(drop, -torch.inf)
    return logits.softmax(-1)


def with_guesses(law: torch.Tensor, guess: torch.Tensor) -> torch.Tensor:
    """The law [..., vocabulary], but a point mass on guess [...] wherever that is a token (0 or more).

    Whoever drafts and whoever scores must replace the same laws in the same way, or p/q is of another q.
    """
    sure = torch.zeros_like(law).scatter_(-1, guess.clamp(min=0)[..., None], 1.0)
    return torch.where((guess < 0)[..., None], law, sure)


def draw(probs: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """One token for each law in probs [..., vocabulary]; returns [...]."""
    cumulated = probs.cumsum(-1, dtype=torch.float64)
    point = _uniform(cumulated[..., -1], generator)
    # The first token whose cumulated chance exceeds the point, so one of chance zero is never drawn.
    # Scaling by the total keeps the point inside although float sums are not exactly one.
    point = point * cumulated[..., -1]
    return torch.searchsorted(cumulated, point[..., None], right=True)[..., 0]


def flip(chances: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """One coin for each chance in [0, 1]; True with that chance. Same shape."""
    return _uniform(chances, generator) < chances


def accept_chance(p: torch.Tensor, q: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
    """min(1, p(d)/q(d)) for drafted tokens d [...], under laws p and q [..., vocabulary].

    q must be the law that d was drawn from: for a greedy draft that is the point mass on its
    argmax, not the softmax behind it, and the chance is then p(d).
    Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
    """
    p_drafted = p.gather(-1, drafted[..., None])[..., 0]
    q_drafted = q.gather(-1, drafted[..., None])[..., 0]
    return (p_drafted / q_drafted).clamp(max=1.0)


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The law of the token after a rejection: max(p - q, 0), normalised. Shape [..., vocabulary].

    Drawing from p itself here would return mass that acceptance has already given to the tokens
    q likes. Where p equals q nothing can be rejected, and p is returned.
    Source: Leviathan et al. 2023, algorithm 1 (their p').
    """
    left = (p - q).clamp(min=0.0)
    total = left.sum(-1, keepdim=True)
    return torch.where(total > 0, left / total, p)


def _uniform(like: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    # Made where the generator lives, so that one made on the CPU serves a model on a GPU.
    device = like.device if generator is None else generator.device
    return torch.rand(like.shape, generator=generator, device=device, dtype=like.dtype).to(like.device)
