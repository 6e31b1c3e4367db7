"""Rounds that differ: the beta-geometric law, one parameter more than the geometric formula.

The formula gives every round the same alpha. Here each round draws its own, from a beta law, and keeps it
for all its drafts. Rounds that come far are then the ones that drew a high alpha, so the conditional rate
rises from position to position though no draft is better at a later place. Its odds, accepted to rejected,
rise along a straight line.

The law describes rounds as they start at one k. With another k other places start rounds, so it does not
replace `replay`; it says how far two numbers carry.
Source: Weinberg and Gladen 1986 (Biometrics 42, 547-560), who count menstrual cycles to conception; for
acceptance the counting stops at k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from course_lib.whole import whole


class BetaGeometric(NamedTuple):
    """mean: of alpha over rounds, which is the rate at position 1. spread: how much alpha differs.

    Both in [0, 1]. Spread 0 is the geometric formula; with spread 1 a round accepts all its drafts or none.
    The variance of alpha is spread * mean * (1 - mean). The beta law's own parameters are mean * s and
    (1 - mean) * s with s = 1 / spread - 1.
    """

    mean: float
    spread: float

    def rates(self, k: int) -> np.ndarray:
        """Conditional rate at positions 1 ... k: accepted / reached. k: an integer >= 0."""
        k = _check(self, k)
        before = np.arange(k)  # drafts already accepted; each one makes a high alpha likelier
        if self.spread == 1:
            return np.where(before == 0, self.mean, 1.0)
        seen = self.spread / (1 - self.spread) * before
        return (self.mean + seen) / (1 + seen)

    def expected_tokens(self, k: int) -> float:
        """Tokens one round emits on average, its own token included. k: an integer >= 0."""
        return 1.0 + float(np.cumprod(self.rates(k)).sum())


def fit_beta_geometric(reached: Sequence[float], accepted: Sequence[float]) -> BetaGeometric:
    """The law under which what was counted at positions 1 ... k is likeliest.

    reached: rounds whose draft at that position was judged; accepted: those of them that accepted it. Counts,
    or expected counts from `replay.position_rates` (accepted = reached * conditional). Positions that nobody
    reached may be there and count for nothing.
    Where the rates do not rise from position to position, the spread is 0 and the mean is accepted / reached.
    Raises ValueError where fewer than two positions were reached: one rate says nothing about a spread.
    """
    reached, accepted = np.asarray(reached, float), np.asarray(accepted, float)
    if reached.ndim != 1 or reached.shape != accepted.shape:
        raise ValueError("reached and accepted must be two lists of one number for each position.")
    if not ((accepted >= 0) & (accepted <= reached + 1e-9) & np.isfinite(reached)).all():
        raise ValueError("at each position accepted must lie between 0 and reached.")
    if (reached > 0).sum() < 2:
        raise ValueError("only one position was reached: one rate says nothing about a spread. Draft more.")
    rejected = np.maximum(reached - accepted, 0)
    if not accepted.any() or not rejected.any():
        return BetaGeometric(float(accepted.any()), 0.0)
    from scipy.optimize import minimize  # here, since it takes longer to load than the rest of this module
    from scipy.special import xlogy

    before, total = np.arange(len(reached)), reached.sum()

    def surprise(parameters):
        odds = parameters[0] + parameters[1] * before  # the straight line
        return (xlogy(reached, 1 + odds) - xlogy(accepted, odds)).sum() / total

    flat = accepted.sum() / rejected.sum()
    start = np.array([flat, 0.0])
    found = minimize(surprise, start + [0, 0.1], bounds=[(1e-12, None), (0, None)], tol=1e-14)
    odds, slope = found.x if found.fun < surprise(start) else start
    mean = odds / (1 + odds)
    scaled = slope * (1 - mean)  # spread / (1 - spread)
    return BetaGeometric(float(mean), float(scaled / (1 + scaled)))


def _check(law: BetaGeometric, k: int) -> int:
    if not (0 <= law.mean <= 1 and 0 <= law.spread <= 1):
        raise ValueError(f"mean {law.mean} and spread {law.spread} must both lie between 0 and 1.")
    return whole("k", k)
