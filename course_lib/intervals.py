"""Intervals over prompts.

Tokens of one prompt resemble each other, so they are not independent data: a thousand tokens of one
prompt are one observation. Every interval here treats the prompt as the unit that was drawn.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats takes a second to load


class Interval(NamedTuple):
    """An estimate with the ends of its interval; the ends are nan where one prompt is all there is."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def __format__(self, spec: str) -> str:
        """f"{interval:.2f}" is "3.76 ± 0.95": both numbers in the format given; "± ?" for one prompt."""
        if not spec:
            return str(self)
        half = format(self.half_width, spec.replace("+", "")) if math.isfinite(self.half_width) else "?"
        return f"{self.mean:{spec}} ± {half}"


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Student's t interval for the mean of one value a prompt.

    values: one finite number for each prompt, at least one. Repeats of a prompt must be averaged first.
    level: share of such intervals that cover the true mean, in (0, 1).
    One prompt gives (mean, nan, nan): nothing is known about how prompts differ.
    Raises ValueError on other input.
    """
    return ratio_interval(values, np.ones_like(np.asarray(values, float)), level)


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], level: float = 0.95
) -> Interval:
    """Interval for sum(numerators) / sum(denominators), with the prompt as the cluster.

    This is how a rate is pooled (tokens / rounds, accepted / drafted): a mean of the prompts' own ratios
    would give a short prompt the weight of a long one.
    numerators, denominators: one finite number a prompt; denominators >= 0 and not all 0.
    level, one prompt and errors: as in `mean_interval`.
    Source: Cochran, Sampling Techniques, chapter 6 (linearised variance of a ratio), with n - 1
    degrees of freedom.
    """
    top, bottom = np.asarray(numerators, float), np.asarray(denominators, float)
    if top.ndim != 1 or top.shape != bottom.shape or top.size == 0:
        raise ValueError("an interval needs one number for each prompt, and at least one prompt.")
    if not (np.isfinite(top).all() and np.isfinite(bottom).all()):
        raise ValueError("the values hold nan or infinity: leave out prompts that measured nothing.")
    if (bottom < 0).any() or bottom.sum() == 0:
        raise ValueError("the denominators must be 0 or more, and not all 0.")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}: use a share between 0 and 1, such as 0.95.")
    n = len(top)
    ratio = float(top.sum() / bottom.sum())
    if n == 1:
        return Interval(ratio, math.nan, math.nan)
    residual = top - ratio * bottom  # how much each prompt pulls the ratio away
    error = math.sqrt(n / (n - 1) * float(residual @ residual)) / float(bottom.sum())
    half = float(stdtrit(n - 1, (1 + level) / 2)) * error
    return Interval(ratio, ratio - half, ratio + half)


def ratio_difference(
    first: tuple[Sequence[float], Sequence[float]],
    second: tuple[Sequence[float], Sequence[float]],
    level: float = 0.95,
) -> Interval:
    """Interval for the difference of two ratios measured on the same prompts: first minus second.

    first, second: numerators and denominators, as in `ratio_interval`, with the same prompts in the same
    order. What makes a prompt easy or hard for both drops out, so this is narrower than the two
    intervals side by side. level and errors: as in `mean_interval`.
    Source: as `ratio_interval`; the linearised values of the two ratios are subtracted prompt by prompt.
    """
    pulls = []
    for top, bottom in (first, second):
        ratio = ratio_interval(top, bottom, level).mean
        top, bottom = np.asarray(top, float), np.asarray(bottom, float)
        pulls.append(ratio + (top - ratio * bottom) / bottom.mean())  # their mean is the ratio
    if len(pulls[0]) != len(pulls[1]):
        raise ValueError(f"{len(pulls[0])} and {len(pulls[1])} prompts: a difference needs the same prompts.")
    return mean_interval(pulls[0] - pulls[1], level)
