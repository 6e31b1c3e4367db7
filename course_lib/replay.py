"""One scoring pass, every k: rounds replayed on the target's own text.

Take a text x_1 ... x_T that the target wrote. Given that text, the draft at position t is accepted with
chance a_t = min(1, q(x_t) / p(x_t)), independently across t; at temperature 0, or with a greedy draft,
a_t is 1 where the draft's argmax is x_t and 0 elsewhere. Nothing in a_t depends on k, so each k is a
matter of replaying: a round emits its accepted drafts, then one token, and the next round starts after it.

Two traps, both of which look right:

- *Every position as the start of a round.* Averaging the length of a round over all positions is
  length-biased: a long round has more positions inside it, and they sit in easy text, while rounds really
  start just after something was hard. At k=8, with a_t .97 in easy runs and .70 in
  hard ones (a run goes on with chance .92), tokens per round are truly 4.634; this way they come out as
  5.362, and by the i.i.d. formula as 4.865. So follow the rounds.
- *The product of sum(min(p, q)) along the text.* The overlap at t+1 belongs to the prefix the target
  wrote, which is not distributed as the prefixes that drafts lead to. Only the chances given the tokens,
  min(1, q/p), may be multiplied along the text.

Not covered: tree drafts, block verification, drafts that carry the target's hidden states across rounds.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from course_lib.intervals import ratio_interval
from course_lib.whole import whole


def expected_rounds(accept: Sequence[float], k: int) -> float:
    """Rounds that k drafts a round need on average to write one text.

    accept: 1-D, the chance a_t that the draft at t is accepted, in [0, 1]. k: an integer >= 0.
    Tokens per round are len(accept) / expected_rounds(accept, k). Raises ValueError on other input.
    """
    return float(replay_rounds([accept], [k])[0, 0])


def replay_rounds(accepts: Sequence[np.ndarray], ks: Sequence[int]) -> np.ndarray:
    """Expected rounds of every prompt for every k, as an array [prompts, len(ks)].

    accepts: one 1-D array of a_t for each prompt, of any lengths. ks: integers >= 0.
    Drafting stops at the end of the text, so the last round may be shorter.
    Raises ValueError on other input, naming the prompt.

    Backward over t, with V(t) the rounds still needed when one starts at t, and U(t, r) those still needed
    after the current one when it has come to t with r drafts left:
        U(t, r) = (1 - a_t) V(t+1) + a_t U(t+1, r-1)     U(t, 0) = V(t+1)     V(t) = 1 + U(t, k)
    and all are 0 past the end. A rejection at t and a bonus token at t both emit x_t: V(t+1) follows.
    """
    if np.ndim(ks) != 1:
        raise ValueError(f"ks is {ks!r}: give a list of whole numbers, such as [1, 2, 4].")
    a, starts = _end_aligned(accepts)
    rounds = np.empty((len(starts), len(ks)))
    for column, k in enumerate(ks):
        k = whole("k", k)
        value = _backward(a, np.arange(k, k + 1), np.ones((1, 1, 1)))
        rounds[:, column] = value[starts, np.arange(len(starts))]
    return rounds


def round_starts(accepts: Sequence[np.ndarray], k: int) -> np.ndarray:
    """The chance that a round starts at each position, as an array [prompts, longest text], 0 past the end.

    accepts, k: as in `replay_rounds`, whose expected rounds are the sums of these rows. They are needed
    where rounds differ in cost: those near the end have fewer drafts.
    """
    a, starts = _end_aligned(accepts)
    k = whole("k", k)
    chance = np.zeros((len(starts), len(a)))
    here = np.zeros((k + 1, len(starts)))  # as in `position_rates`
    for t in range(len(a)):
        here[0, starts == t] = 1.0  # each text opens with a round
        chance[:, t] = here[0]
        passed = here[:k] * a[t]
        ended = here.sum(axis=0) - passed.sum(axis=0)
        here[1:], here[0] = passed, ended
    columns = np.arange(len(a)) + starts[:, None]  # from aligned at the end to aligned at the start
    return np.take_along_axis(np.pad(chance, ((0, 0), (0, len(a)))), columns, axis=1)


def adaptive_cost(accepts: Sequence[np.ndarray], round_cost: Sequence) -> np.ndarray:
    """Least expected cost of each text [prompts] over all ways to choose k anew at each round.

    The chooser knows every a_t of the text but not the coins, so no real controller does better: this
    bounds what adapting k can gain over `fixed_cost`.
    accepts: as in `replay_rounds`. round_cost: 1-D, the cost of a round with k drafts at index k = 0 ... K,
    in any unit, finite and >= 0; where rounds cost more in one place than in another, a list of arrays
    [len(accept), K + 1], one a text. Raises ValueError on other input.

    The recursion of `replay_rounds`, with V(t) = min over k of round_cost[k] + U(t, k): exact, since what
    follows depends on where the next round starts and on nothing before.
    """
    a, starts = _end_aligned(accepts)
    if len(round_cost) and np.ndim(round_cost[0]) == 2:
        cost = _cost_by_place(round_cost, [len(accept) for accept in accepts])
    else:
        cost = _check_cost(round_cost)[:, None, None]
    return _backward(a, np.arange(len(cost)), cost)[starts, np.arange(len(starts))]


def fixed_cost(accepts: Sequence[np.ndarray], ks: Sequence[int], round_cost: Sequence[float]) -> np.ndarray:
    """Expected cost of each text with the same k throughout, as an array [prompts, len(ks)].

    Arguments as in `adaptive_cost`; every k in ks needs its entry in round_cost. A last round cut short by
    the end of the text costs as much as any other.
    """
    cost = _check_cost(round_cost)
    for k in ks:
        if whole("k", k) >= len(cost):
            raise ValueError(f"round_cost ends at k={len(cost) - 1}, but k={k} was asked for: add its cost.")
    return replay_rounds(accepts, ks) * cost[np.asarray(ks, int)]


def tokens_per_round(traces, ks: Sequence[int], level: float = 0.95) -> pd.DataFrame:
    """Tokens per round of each route at each k, with an interval over prompts.

    traces: one Trace or several; only their rows (route, prompt, t, accept) are used. Texts of one prompt,
    in one trace or in several, are one cluster of the interval, not independent data.
    Returns columns route, k, prompts, tokens, mean, low, high, routes in order of appearance. The mean is
    all tokens / all expected rounds; low and high are nan where a route has one prompt.
    """
    traces = traces if isinstance(traces, list | tuple) else [traces]
    texts = [
        (route, prompt, rows.sort_values("t", kind="stable")["accept"].to_numpy())
        for trace in traces
        for (route, prompt), rows in trace.rows.groupby(["route", "prompt"], sort=False, observed=True)
    ]
    if not texts:
        raise ValueError("the traces hold no rows: measure at least one prompt first.")
    rounds = replay_rounds([accept for _, _, accept in texts], ks)
    table = pd.DataFrame(rounds, columns=range(len(ks)))
    table["route"], table["prompt"], _ = zip(*texts, strict=True)
    table["tokens"] = [len(accept) for _, _, accept in texts]
    rows = []
    for route, group in table.groupby("route", sort=False):
        prompts = group.groupby("prompt", sort=False).sum(numeric_only=True)
        for column, k in enumerate(ks):
            interval = ratio_interval(prompts["tokens"], prompts[column], level)
            rows.append((route, int(k), len(prompts), int(prompts["tokens"].sum()), *interval))
    return pd.DataFrame(rows, columns=["route", "k", "prompts", "tokens", "mean", "low", "high"])


def position_rates(accepts: Sequence[np.ndarray], k: int) -> pd.DataFrame:
    """Expected acceptance at each position of a round, over all texts.

    accepts, k: as in `replay_rounds`.
    Returns one row for each position 1 ... k: `reached`, the expected number of rounds whose draft at that
    position is judged; `conditional`, accepted / reached; `unconditional`, accepted / all rounds, as engines
    print it. Positions cut off by the end of a text are unobserved: they lower `reached`, not `conditional`.
    Conditional is nan where nothing is reached.

    Forward over t: here[j] is the chance that x_t comes at position j + 1 of its round; here[0] is the
    chance that a round starts at t.
    """
    a, starts = _end_aligned(accepts)
    k = whole("k", k)
    here = np.zeros((k + 1, len(starts)))
    reached, accepted = np.zeros(k + 1), np.zeros(k)
    for t in range(len(a)):
        here[0, starts == t] = 1.0  # each text opens with a round
        passed = here[:k] * a[t]
        reached += here.sum(axis=1)
        accepted += passed.sum(axis=1)
        # Rejected anywhere, or past the last draft (the bonus token): the next round starts at t + 1.
        ended = here.sum(axis=0) - passed.sum(axis=0)
        here[1:], here[0] = passed, ended
    rounds, reached = reached[0], reached[:k]
    return pd.DataFrame(
        {
            "position": np.arange(1, k + 1),
            "reached": reached,
            "conditional": np.divide(accepted, reached, out=np.full(k, np.nan), where=reached > 0),
            "unconditional": accepted / rounds if rounds else np.full(k, np.nan),
        }
    )


def _backward(a: np.ndarray, choices: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """V for every t [T + 1, prompts], where a round picks the cheapest of `choices` (k) at their `cost`
    [choices, T or 1, prompts or 1]."""
    length, prompts = a.shape
    cost = np.broadcast_to(cost, (len(choices), length, prompts))
    value = np.zeros((length + 1, prompts))
    rest = np.zeros((int(choices[-1]) + 1, prompts))  # U(t+1, r), r = 0 ... k
    spare = np.empty_like(rest)
    for t in range(length - 1, -1, -1):
        after = value[t + 1]
        spare[0] = after
        np.subtract(rest[:-1], after, out=spare[1:])  # (1-a) V + a U = V + a (U - V)
        spare[1:] *= a[t]
        spare[1:] += after
        rest, spare = spare, rest
        value[t] = (rest[choices[0] :] + cost[:, t]).min(axis=0)
    return value


def _end_aligned(accepts: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """a_t as [T, prompts], each text's last token in the last row, and the row where each text starts."""
    arrays = [np.asarray(accept, float) for accept in accepts]
    for i, accept in enumerate(arrays):
        if accept.ndim != 1:
            raise ValueError(f"prompt {i}: expected a 1-D array of chances, got {accept.ndim} dimensions.")
    flat = np.concatenate(arrays) if arrays else np.empty(0)
    lengths = np.array([len(accept) for accept in arrays], int)
    bad = np.flatnonzero(~((flat >= 0) & (flat <= 1)))
    if bad.size:
        prompt = int(np.searchsorted(np.cumsum(lengths), bad[0], side="right"))
        raise ValueError(f"prompt {prompt}: {flat[bad[0]]} is not a chance: accept must lie in [0, 1].")
    longest = int(lengths.max(initial=0))
    starts = longest - lengths
    padded = np.zeros((len(arrays), longest))
    padded[np.arange(longest) >= starts[:, None]] = flat
    return np.ascontiguousarray(padded.T), starts


def _check_cost(round_cost: Sequence[float]) -> np.ndarray:
    cost = np.asarray(round_cost, float)
    if cost.ndim != 1 or cost.size == 0 or not ((cost >= 0) & (cost < np.inf)).all():
        raise ValueError("round_cost must be 1-D: the cost, finite and >= 0, of a round with k = 0, 1, ...")
    return cost


def _cost_by_place(costs: Sequence[np.ndarray], lengths: Sequence[int]) -> np.ndarray:
    """One array [len, K + 1] a text as [K + 1, T, prompts], aligned at the end as in `_end_aligned`."""
    cost = np.zeros((costs[0].shape[1], max(lengths), len(lengths)))
    if len(costs) != len(lengths):
        raise ValueError(f"{len(lengths)} texts need as many arrays of round costs, not {len(costs)}.")
    for i, (each, length) in enumerate(zip(costs, lengths, strict=True)):
        if np.shape(each) != (length, len(cost)) or not ((each >= 0) & (each < np.inf)).all():
            raise ValueError(f"prompt {i}: its round costs must be [{length}, {len(cost)}], finite and >= 0.")
        cost[:, cost.shape[1] - length:, i] = each.T
    return cost
