"""Rounds of coins: the geometric model acted out, and coins that break its assumption.

There is no language model here. A coin stands for one drafted token; heads means the target accepts it.
`simulate_rounds` starts every round afresh, as the formula assumes. `rounds_along_text` gives every place
of a text its coin and lets each round start where the last one ended, as a real decoder does. For fair
coins the two agree; for `sticky_coins` they do not.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from course_lib.whole import whole


class Rounds(NamedTuple):
    """What each round did: three arrays with one integer a round."""

    drafted: np.ndarray
    accepted: np.ndarray  # drafts before the first rejection
    emitted: np.ndarray  # the accepted drafts, and one token of the target


def simulate_rounds(alpha: float | Sequence[float], k: int, n: int, seed: int) -> Rounds:
    """n independent rounds of k drafts.

    alpha: the chance that a draft is accepted, given that the ones before it were, in [0, 1]; one number
    for all drafts, or k numbers, one for each position. k, n: integers >= 0 and >= 1.
    Raises ValueError on other input.
    """
    k, n = whole("k", k, 0), whole("n", n, 1)
    chances = np.asarray(alpha, float)
    if chances.shape not in ((), (k,)) or not ((chances >= 0) & (chances <= 1)).all():
        raise ValueError(f"alpha is {alpha}: give one probability, or one for each of the k={k} drafts.")
    heads = np.random.default_rng(seed).random((n, k)) < chances
    # The running product is 0 from the first rejection on.
    accepted = np.cumprod(heads, axis=1, dtype=int).sum(axis=1)
    return Rounds(np.full(n, k), accepted, accepted + 1)


def sticky_coins(stay: float, leave: float, n: int, seed: int) -> np.ndarray:
    """n coins in a row, each leaning on the one before: an array of bool, True for heads.

    stay: chance of heads after heads. leave: chance of heads after tails. Both in [0, 1]. With
    stay = leave the coins are independent. In the long run leave / (1 - stay + leave) of them are heads,
    and the first is drawn with that chance. n: an integer >= 1.
    Raises ValueError on other input, or when stay = 1 and leave = 0: such coins never change.
    """
    n = whole("n", n, 1)
    if not (0 <= stay <= 1 and 0 <= leave <= 1) or (stay == 1 and leave == 0):
        raise ValueError(f"stay={stay} and leave={leave} must be probabilities, and not 1 with 0.")
    draws = np.random.default_rng(seed).random(n)
    coins = np.empty(n, bool)
    chance = leave / (1 - stay + leave)
    for t in range(n):
        coins[t] = draws[t] < chance
        chance = stay if coins[t] else leave
    return coins


def rounds_along_text(coins: Sequence[bool], k: int) -> Rounds:
    """The rounds of k drafts that write one text, given the coin at each of its places.

    coins: 1-D, at least one; coins[t] says whether a draft for place t would be accepted. k: an integer >= 0.
    A round moves past its accepted drafts and one more place: the rejected one, or the bonus token's, whose
    coin nobody looks at. Drafting stops at the end of the text, so the last round may draft less and may
    have no room for the extra token. The emitted tokens add up to len(coins).
    Raises ValueError on other input. `replay.expected_rounds` counts the same rounds from chances.
    """
    k, coins = whole("k", k, 0), np.asarray(coins)
    if coins.ndim != 1 or coins.size == 0 or not np.isin(coins, (0, 1)).all():
        raise ValueError("coins must be a list of True and False, at least one.")
    end = len(coins)
    # For each place, how many heads follow one another from there on.
    run = np.zeros(end + 1, int)
    for t in range(end - 1, -1, -1):
        run[t] = run[t + 1] + 1 if coins[t] else 0
    drafted, accepted, emitted = [], [], []
    t = 0
    while t < end:
        drafted.append(min(k, end - t))
        accepted.append(min(drafted[-1], int(run[t])))
        emitted.append(min(accepted[-1] + 1, end - t))
        t += emitted[-1]
    return Rounds(np.array(drafted), np.array(accepted), np.array(emitted))
