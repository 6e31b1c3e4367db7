"""Closed forms in alpha and k, and the conversions between every definition of acceptance.

One model, from Leviathan et al. 2023 (arXiv 2211.17192; their gamma is our k): a round drafts k
tokens, each is accepted with the same probability alpha, independently, until the first rejection.
The accepted count is then a truncated geometric: at most k. A round always emits one token more
than it accepts, the resampled one after a rejection or the bonus token after k acceptances.

Four different numbers are called "acceptance rate" in the wild:

    alpha                the chance that a draft is accepted, given that the ones before it were
    prefix rate          accepted / drafted, where nothing after the first rejection is accepted;
                         lower than alpha as soon as k > 1
    unconditional rate   at position i: accepted there / all rounds (what engines print)
    conditional rate     at position i: accepted there / rounds that got there (alpha, if i.i.d.)

Real acceptance is neither equal nor independent: `replay` measures instead of assuming.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.whole import whole

_ROUNDING = 1e-9  # how far outside its range a number may lie and still be taken for rounding


def expected_accepted(alpha: float, k: int) -> float:
    """Drafts one round accepts on average: alpha + alpha^2 + ... + alpha^k.

    alpha: acceptance probability of one draft, in [0, 1]. k: drafts per round, an integer >= 0.
    Raises ValueError outside those ranges.
    """
    # The i-th draft is accepted with probability alpha^i, which is also P(at least i accepted).
    alpha, k = _check(alpha, k)
    return _powers(alpha, k) * alpha


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens one round emits on average: the accepted drafts and one more.

    alpha: acceptance probability of one draft, in [0, 1]. k: drafts per round, an integer >= 0
    (0 is plain decoding: exactly 1 token).
    Raises ValueError outside those ranges.
    Source: Leviathan et al. 2023, eq. 1: (1 - alpha^(k+1)) / (1 - alpha).
    """
    alpha, k = _check(alpha, k)
    return _powers(alpha, k + 1)


def accepted_pmf(alpha: float, k: int) -> np.ndarray:
    """P(exactly n drafts accepted) for n = 0 ... k, as an array of k + 1 numbers that add up to 1.

    alpha: in [0, 1]. k: an integer >= 0. Raises ValueError outside those ranges.
    """
    alpha, k = _check(alpha, k)
    chances = alpha ** np.arange(k + 1)
    chances[:k] *= 1 - alpha  # the last entry keeps alpha^k: after k accepted nothing is left to reject
    return chances


def prefix_rate(alpha: float, k: int) -> float:
    """Accepted / drafted when tokens after the first rejection do not count: E[accepted] / k.

    alpha: in [0, 1]. k: an integer >= 1. Raises ValueError outside those ranges.
    """
    alpha, k = _check(alpha, k, least=1)
    return expected_accepted(alpha, k) / k


def alpha_from_prefix_rate(rate: float, k: int) -> float:
    """The alpha whose prefix rate is `rate`; the inverse of `prefix_rate`.

    rate: accepted / drafted, in [0, 1]. k: drafts in every round, an integer >= 1.
    Raises ValueError outside those ranges.
    """
    _, k = _check(0.0, k, least=1)
    if rate > 1 + _ROUNDING:
        raise ValueError(
            f"rate is {rate:g}, above 1: accepted exceeds drafted: the bonus token is being counted as "
            "accepted. Subtract one accepted token for each round."
        )
    if not rate >= -_ROUNDING:
        raise ValueError(f"rate is {rate:g}: accepted / drafted must lie between 0 and 1.")
    return _solve(lambda alpha: prefix_rate(alpha, k) - rate)


def alpha_from_tokens(tokens: float, k: int) -> float:
    """The alpha that emits `tokens` per round; the inverse of `expected_tokens`.

    tokens: emitted per round, the extra token included, in [1, k + 1]. k: an integer >= 1.
    Raises ValueError outside those ranges.
    """
    _, k = _check(0.0, k, least=1)
    if tokens > k + 1 + _ROUNDING:
        raise ValueError(
            f"tokens per round is {tokens:g}, but a round with k={k} emits at most {k + 1}: "
            "k is wrong, or the bonus token was added twice."
        )
    if math.isnan(tokens):
        raise ValueError("tokens per round is nan, not a number: was anything measured, or 0 divided by 0?")
    if tokens < 1 - _ROUNDING:
        raise ValueError(
            f"tokens per round is {tokens:g}, but every round emits at least 1: "
            "this counts accepted drafts only; add the one token each round adds itself."
        )
    return _solve(lambda alpha: expected_tokens(alpha, k) - tokens)


def arithmetic_growth(alpha: float, k: int, c: float) -> float:
    """Arithmetic done per emitted token, as a multiple of plain decoding.

    c: arithmetic of one draft step / arithmetic of one target step, >= 0.
    alpha: in [0, 1]. k: an integer >= 0. Raises ValueError outside those ranges.
    Source: Leviathan et al. 2023, theorem 3.11: (1 - alpha)(k c + k + 1) / (1 - alpha^(k+1)).
    """
    if not 0 <= c < math.inf:
        raise ValueError(f"c is {c}: the draft's share of the target's arithmetic must be 0 or more.")
    return (k * c + k + 1) / expected_tokens(alpha, k)


def conditional_from_unconditional(rates: Sequence[float]) -> np.ndarray:
    """Per position, accepted / reached, from accepted / all rounds.

    rates: unconditional rates of positions 1 ... k, each in [0, 1], never increasing.
    Returns k numbers; nan where no round gets that far, since nothing was observed there.
    Raises ValueError for rates that increase: those cannot be unconditional.
    """
    rates = _rates(rates)
    before = np.concatenate([[1.0], rates[:-1]])
    if (rates > before + _ROUNDING).any():
        at = int(np.argmax(rates > before + _ROUNDING))
        raise ValueError(
            f"the rate rises from {before[at]:g} to {rates[at]:g} at position {at + 1}: unconditional rates "
            "never rise, because a token counts only if all before it were accepted. "
            "Are these conditional rates already?"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(before > 0, np.minimum(rates / before, 1.0), np.nan)


def unconditional_from_conditional(rates: Sequence[float]) -> np.ndarray:
    """Per position, accepted / all rounds, from accepted / reached; the running product.

    rates: conditional rates of positions 1 ... k, each in [0, 1]; nan is allowed after a zero only,
    where no round arrives. Raises ValueError otherwise.
    """
    rates = np.array(rates, float)
    blocked = np.cumsum(rates == 0) > 0
    return np.cumprod(_rates(np.where(blocked, 0.0, rates)))


def tokens_from_unconditional(rates: Sequence[float]) -> float:
    """Tokens emitted per round, from unconditional rates: 1 + their sum, for any acceptance law.

    rates: as in `conditional_from_unconditional`. Raises ValueError likewise.
    """
    conditional_from_unconditional(rates)  # refuses rates that are not unconditional
    return 1.0 + float(np.sum(rates))


def conditional_from_rounds(drafted: Sequence[int], accepted: Sequence[int]) -> np.ndarray:
    """Conditional rate per position, from the rounds themselves, whose draft lengths may differ.

    drafted, accepted: per round, how many tokens were drafted and how many of them accepted.
    Returns one rate for each position up to the longest draft; nan where no round got that far.
    Raises ValueError when a round accepts more than it drafted, or for counts that are not whole.
    """
    drafted, accepted = _whole(drafted, "drafted"), _whole(accepted, "accepted")
    if drafted.shape != accepted.shape or drafted.ndim != 1:
        raise ValueError("drafted and accepted must be two lists of one number a round, equally long.")
    for d, a in zip(drafted, accepted, strict=True):
        Counts(rounds=1, drafted=d, accepted=a)
    position = np.arange(1, drafted.max(initial=0) + 1)[:, None]
    # A position that was never drafted is unobserved, not rejected: such rounds leave the denominator.
    reached = ((accepted >= position - 1) & (drafted >= position)).sum(axis=1)
    passed = (accepted >= position).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return passed / np.where(reached > 0, reached, np.nan)


def accepted_prefix(flags: Sequence[bool]) -> int:
    """Drafts a round accepts, given whether each would match: those before the first rejection."""
    for count, flag in enumerate(flags):
        if not flag:
            return count
    return len(flags)


@dataclass(frozen=True)
class Counts:
    """What a server or a decoder counted: rounds, drafted tokens, tokens accepted before a rejection.

    Raises ValueError for counts that cannot be, with the likely reason.
    """

    rounds: float
    drafted: float
    accepted: float

    def __post_init__(self) -> None:
        finite = all(map(math.isfinite, (self.rounds, self.drafted, self.accepted)))
        if not finite or self.rounds <= 0 or self.drafted < 0 or self.accepted < 0:
            raise ValueError(f"{self}: counts must be 0 or more, with at least one round.")
        if self.accepted > self.drafted:
            raise ValueError(
                f"{self.accepted:g} accepted of {self.drafted:g} drafted: accepted exceeds drafted: "
                "the bonus token is being counted as accepted. Subtract one for each round."
            )

    @property
    def tokens_per_round(self) -> float:
        """Emitted per round: the accepted drafts and one more."""
        return 1.0 + self.accepted / self.rounds

    @property
    def prefix_rate(self) -> float:
        """Accepted / drafted; nan when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else math.nan


def counts_from_histogram(rounds_by_accepted: Sequence[int]) -> Counts:
    """Counts from a histogram: entry n is how many rounds accepted exactly n of k drafts, n = 0 ... k."""
    rounds = np.asarray(rounds_by_accepted, float)
    if rounds.ndim != 1 or not ((rounds >= 0) & (rounds < math.inf)).all():
        raise ValueError("the histogram must be k + 1 counts of rounds, for 0, 1, ... k accepted drafts.")
    k, total = len(rounds) - 1, rounds.sum()
    return Counts(rounds=float(total), drafted=float(k * total), accepted=float(rounds @ np.arange(k + 1)))


def counts_from_v0(k: int, drafted: int, accepted: int, emitted: int) -> tuple[Counts, str | None]:
    """Counts from vLLM V0's line of metrics, whose `accepted` may also hold tokens after a rejection.

    V0 judged each position by itself, so its accepted / drafted estimates alpha. `emitted` counts only
    what reached the text, and gives the accepted prefix back: emitted - rounds.
    Returns the counts, and a note when `accepted` is of that kind, else None.
    Raises ValueError when the numbers do not fit k drafts in every round.
    """
    _, k = _check(0.0, k, least=1)
    if drafted % k:
        raise ValueError(
            f"{drafted} drafted are not a whole number of rounds of k={k}: k is wrong, or varied."
        )
    rounds = drafted // k
    if emitted < rounds:
        raise ValueError(
            f"{emitted} emitted in {rounds} rounds (drafted / k): every round emits at least 1 token: "
            "k is wrong, or the numbers are of different times."
        )
    if emitted > accepted + rounds:
        raise ValueError(
            f"{emitted} emitted by {accepted} accepted drafts in {rounds} rounds (drafted / k): a round adds "
            "only 1 token of its own: k is wrong, or the numbers are of different times."
        )
    given = Counts(rounds, drafted, accepted)
    counts = Counts(rounds, drafted, emitted - rounds)
    if accepted + rounds == emitted:
        return counts, None
    return counts, (
        "accepted + rounds != emitted: this counter counts positions after the first rejection, so "
        f"accepted/drafted ({given.prefix_rate:.3f}) estimates alpha, not the prefix rate "
        f"({counts.prefix_rate:.4f})"
    )


def _powers(alpha: float, n: int) -> float:
    """1 + alpha + ... + alpha^(n-1), without the cancellation of 1 - alpha^n near alpha = 1."""
    if alpha == 1 or n <= 1:
        return float(n)
    return -math.expm1(n * math.log(alpha)) / (1 - alpha) if alpha > 0 else 1.0


def _check(alpha: float, k: int, least: int = 0) -> tuple[float, int]:
    try:
        alpha = float(alpha)  # also of numpy's float32, whose own arithmetic would lose digits
    except (TypeError, ValueError):
        raise ValueError(f"alpha is {alpha!r}: a probability must be a number.") from None
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}: a probability must lie between 0 and 1.")
    k = whole("k", k, least)
    if k > 2**53:  # from here on floats skip whole numbers
        raise ValueError("k has more than 15 digits: no round drafts that many.")
    return alpha, k


def _whole(values: Sequence[int], name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers of tokens, one a round, not {array.dtype}.")
    return array.astype(int)


def _rates(rates: Sequence[float]) -> np.ndarray:
    rates = np.array(rates, float)
    if rates.ndim != 1 or not ((rates >= -_ROUNDING) & (rates <= 1 + _ROUNDING)).all():
        raise ValueError(f"rates are {rates}: one number between 0 and 1 for each position is needed.")
    return np.clip(rates, 0.0, 1.0)


def _solve(excess) -> float:
    """The alpha in [0, 1] where an increasing function crosses zero."""
    if excess(0.0) >= 0:
        return 0.0
    if excess(1.0) <= 0:
        return 1.0
    from scipy.optimize import brentq  # here, since it takes longer to load than the rest of this module

    return float(brentq(excess, 0.0, 1.0, xtol=1e-15))
