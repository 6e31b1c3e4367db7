"""Checks of notebook 06: what right looks like, and every wrong turn we know by name."""

from itertools import product

import numpy as np

from course_lib.course.checks import exercise
from course_lib.theory import expected_accepted, expected_tokens

_TEXTS = [
    (np.array([0.9, 0.8, 0.2, 0.1, 0.7, 0.95]),),
    (np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]),),
    (np.array([0.3, 0.6]),),
]
_TOSSED = (np.array([0.9, 0.8, 0.2, 0.1, 0.7, 0.95]), np.array([0.5, 0.9, 0.3, 0.6]))


def _pooled(accept):
    tails = 1 - accept[:-1]
    return (tails * accept[1:]).sum() / tails.sum()


def _mean_of_shares(accept):
    """The share of heads after tails in each way the coins can fall, averaged over those that have a tail."""
    total = weight = 0.0
    for heads in product((0, 1), repeat=len(accept)):
        coins = np.array(heads)
        chance = np.prod(np.where(coins, accept, 1 - accept))
        if (coins[:-1] == 0).any():
            total, weight = total + chance * coins[1:][coins[:-1] == 0].mean(), weight + chance
    return total / weight


def _tossed(accept, times=4000):
    heads = np.random.default_rng(0).random((times, len(accept))) < accept
    return heads[:, 1:][~heads[:, :-1]].mean()


def _near(answer, exact):
    return all(abs(float(answer(accept.copy())) - exact(accept)) < 0.025 for accept in _TOSSED)


def _single_tosses(answer):
    if _near(answer, _mean_of_shares):
        return (
            f"{float(answer(_TOSSED[0].copy())):.3f} is the mean of the shares of single tosses, and a "
            "toss with one tail counts as much as a toss with five. Count over all tosses together: expected "
            "pairs ÷ expected tails."
        )
    return None


def _by_luck(answer):
    if _near(answer, _pooled):
        return (
            f"{float(answer(_TOSSED[0].copy())):.3f} is near, as a result of tossing would be. Work it out "
            "from the chances, without tossing: expected pairs ÷ expected tails."
        )
    return None


@exercise(
    "6.1",
    inputs=_TEXTS,
    right="chances {accept}: {got:.3f} of the places after tails show heads",
    wrong={
        "after heads": (
            lambda accept: (accept[:-1] * accept[1:]).sum() / accept[:-1].sum(),
            "{got:.3f} is the rate after *heads*. After a rejection, weigh with 1 − a_t.",
        ),
        "every place": (
            lambda accept: accept[1:].mean(),
            "that is the mean over all places, whatever came before. Weigh each by the chance that the coin "
            "before it showed tails.",
        ),
        "below one half": (
            lambda accept: (
                accept[1:][accept[:-1] < 0.5].mean() if (accept[:-1] < 0.5).any() else accept[1:].mean()
            ),
            "you took a chance below 0.5 for tails. A coin with 0.4 still shows heads four times in ten: "
            "weigh, do not round.",
        ),
        "same place": (
            lambda accept: ((1 - accept) * accept).sum() / (1 - accept).sum(),
            "you multiplied 1 − a_t with a_t of the *same* place. Asked was the next one.",
        ),
        "the place before": (
            lambda accept: ((1 - accept[1:]) * accept[:-1]).sum() / (1 - accept[1:]).sum(),
            "you looked at the place *before* tails. Shift the other way.",
        ),
        "last place counted": (
            lambda accept: ((1 - accept[:-1]) * accept[1:]).sum() / (1 - accept).sum(),
            "below the line you counted the tails of the last place as well. Nothing comes after it.",
        ),
        "not given": (
            lambda accept: ((1 - accept[:-1]) * accept[1:]).mean(),
            "{got:.3f} is the share of pairs that are tails, then heads, among *all* pairs. Divide by the "
            "expected number of tails.",
        ),
    },
    diagnose={"single tosses": (_single_tosses, _mean_of_shares), "tossed": (_by_luck, _tossed)},
)
def after_rejection(accept):
    return _pooled(accept)


def _moment(alphas, shares, power):
    return sum(share * alpha**power for alpha, share in zip(alphas, shares, strict=True))


@exercise(
    "6.2",
    inputs=[([0.5, 0.9], [0.5, 0.5], 3), ([0.5, 0.9], [0.5, 0.5], 1), ([0.2, 0.6, 1.0], [0.5, 0.3, 0.2], 4)],
    right="kinds with α {alphas}, position {position}: {got:.3f}",
    wrong={
        "mean": (
            lambda alphas, shares, position: _moment(alphas, shares, 1),
            "that is the mean α, {got:.3f}: right at position 1 only. Further on, fewer rounds of the hard "
            "kind are left.",
        ),
        "unconditional": (
            _moment,
            "{got:.3f} is the share of *all* rounds that are accepted at position {position}. Divide by the "
            "share that got there.",
        ),
        "power of the mean": (
            lambda alphas, shares, position: _moment(alphas, shares, 1) ** position,
            "you raised the mean α to a power. Raise each kind's α, then take the mean: the two are not the "
            "same.",
        ),
        "one late": (
            lambda alphas, shares, position: (
                _moment(alphas, shares, position + 1) / _moment(alphas, shares, position)
            ),
            "that is position {position} + 1. A draft at position i is judged after i − 1 acceptances.",
        ),
        "mean of rates": (
            lambda alphas, shares, position: sum(alphas) / len(alphas),
            "each kind's rate is its α at every position, but their plain mean ({got:.3f}) counts rounds "
            "that never got there, and forgets the shares.",
        ),
        "the best kind": (
            lambda alphas, shares, position: max(alphas),
            "only the best kind survives in the long run. At position {position} the others are still there.",
        ),
    },
)
def survivor_rate(alphas, shares, position):
    return _moment(alphas, shares, position) / _moment(alphas, shares, position - 1)


def _weighted(alphas, weights):
    return sum(alpha * weight for alpha, weight in zip(alphas, weights, strict=True)) / sum(weights)


@exercise(
    "6.3",
    inputs=[([0.5, 0.9], 8), ([0.5, 0.9], 1), ([0.3, 0.6, 0.8], 4), ([0.7, 0.7], 5)],
    right="kinds with α {alphas}, k = {k}: {got:.3f} at position 1",
    wrong={
        "mean": (
            lambda alphas, k: sum(alphas) / len(alphas),
            "{got:.3f} is the mean over tokens. The engine divides by rounds, and the hard kind has more of "
            "them.",
        ),
        "easy weighed up": (
            lambda alphas, k: _weighted(alphas, [expected_tokens(alpha, k) for alpha in alphas]),
            "you weighed with tokens per round, so the kind with *fewer* rounds counts more. Rounds per "
            "token: turn it round.",
        ),
        "no extra token": (
            lambda alphas, k: _weighted(alphas, [1 / expected_accepted(alpha, k) for alpha in alphas]),
            "you counted rounds as tokens ÷ accepted drafts. A round also emits the target's own token.",
        ),
        "no limit": (
            lambda alphas, k: _weighted(alphas, [1 - alpha for alpha in alphas]),
            "you counted rejections: rounds without a limit. With k = {k} some rounds end because all drafts "
            "were kept.",
        ),
        "tokens per round": (
            lambda alphas, k: len(alphas) / sum(1 / expected_tokens(alpha, k) for alpha in alphas),
            "that is the tokens per round of the whole traffic. Asked was the rate at position 1.",
        ),
    },
)
def first_position(alphas, k):
    return _weighted(alphas, [1 / expected_tokens(alpha, k) for alpha in alphas])


@exercise(
    "6.4",
    rtol=2e-3,
    right="300 rejections end 300 rounds: {got:.2f} tokens per round",
    wrong={
        "mean of the halves": (
            lambda: (1 / 0.05 + 1 / 0.55) / 2,
            "you averaged 20 and 1.82, the tokens per round of the two halves. The hard half has eleven "
            "times as many rounds.",
        ),
        "no extra token": (
            lambda: 700 / 300,
            "those are the accepted drafts per round. Each round also emits the token that replaces the "
            "rejected one.",
        ),
        "one decimal": (lambda: 3.3, "right, but to two decimals, please."),
        "rounds": (lambda: 300.0, "300 is the number of rounds. Tokens per round: divide the 1,000 by it."),
        "acceptances end": (
            lambda: 1000 / 700,
            "you divided by the acceptances. A *rejection* ends a round.",
        ),
        "k of five": (
            lambda: expected_tokens(0.7, 5),
            "2.94 is the formula at k = 5. Here the draft goes on until a rejection.",
        ),
        "with a limit": (
            lambda: 2 / (1 / expected_tokens(0.95, 5) + 1 / expected_tokens(0.45, 5)),
            "that is for k = 5. Here the draft goes on until a rejection.",
        ),
    },
    diagnose={
        "other number": (
            lambda answer: "how many rejections are to be expected in 500 places at 0.95, and in 500 at "
            "0.45? Each ends one round.",
            lambda: 5.0,
        ),
    },
)
def no_limit():
    return 1000 / 300


def _beta(a, b, k, first=0, extra=1.0):
    steps = np.arange(first, first + k)
    return extra + float(np.cumprod((a + steps) / (a + b + steps)).sum())


@exercise(
    "6.5",
    inputs=[(2.8, 1.2, 4), (2.8, 1.2, 0), (0.5, 0.5, 1), (1.0, 2.0, 6), (40.0, 10.0, 8)],
    right="a = {a}, b = {b}, k = {k}: {got:.3f} tokens per round",
    wrong={
        "formula": (
            lambda a, b, k: expected_tokens(a / (a + b), k),
            "that is the geometric formula at the mean, {got:.3f}. After each acceptance the rate rises: "
            "(a + j)/(a + b + j).",
        ),
        "accepted": (
            lambda a, b, k: _beta(a, b, k, extra=0.0),
            "those are the accepted drafts. A round emits one token more.",
        ),
        "one late": (
            lambda a, b, k: _beta(a, b, k, first=1),
            "your first rate is (a + 1)/(a + b + 1). Before the first draft nothing has been accepted: j = "
            "0.",
        ),
        "sum of conditionals": (
            lambda a, b, k: 1 + sum((a + j) / (a + b + j) for j in range(k)),
            "you added the conditional rates. A draft counts if *all* before it were accepted, too: multiply "
            "them up first.",
        ),
        "rejections learned": (
            lambda a, b, k: 1 + float(np.cumprod([a / (a + b + j) for j in range(k)]).sum()),
            "your rates fall: a/(a + b + j). An acceptance adds one to a, above *and* below the line.",
        ),
        "k + 1 drafts": (
            lambda a, b, k: _beta(a, b, k + 1),
            "you let k + 1 drafts be judged. The extra token is the target's own and needs no luck.",
        ),
    },
)
def beta_tokens(a, b, k):
    return _beta(a, b, k)


def _decision(alpha, measured, cost, tokens=expected_tokens, least=0):
    ks = range(least, len(cost))
    promised = {k: tokens(alpha, k) / cost[k] for k in ks}
    speed = {k: measured[k] / cost[k] for k in ks}
    picked, best = max(ks, key=promised.get), max(ks, key=speed.get)
    return picked, best, promised, speed


def _price(*arguments, **options):
    picked, best, _, speed = _decision(*arguments, **options)
    return picked, best, 1 - speed[picked] / speed[best]


def _promise_against_best(*arguments):
    picked, best, promised, speed = _decision(*arguments)
    return picked, best, 1 - speed[best] / promised[picked]


def _promise_against_got(*arguments):
    picked, best, promised, speed = _decision(*arguments)
    return picked, best, 1 - speed[picked] / promised[picked]


def _turned(*arguments):
    picked, best, _, speed = _decision(*arguments)
    return picked, best, speed[best] / speed[picked] - 1


def _difference(*arguments):
    picked, best, _, speed = _decision(*arguments)
    return picked, best, speed[best] - speed[picked]


def _most_tokens(alpha, measured, cost):
    picked, best = len(cost) - 1, int(np.argmax(measured))
    return picked, best, 1 - measured[picked] / measured[best]


def _in_per_cent(*arguments):
    picked, best, lost = _price(*arguments)
    return picked, best, 100 * lost


def _promise_over_best(*arguments):
    picked, best, promised, speed = _decision(*arguments)
    return picked, best, promised[picked] / speed[best] - 1


def _promise_over_got(*arguments):
    picked, best, promised, speed = _decision(*arguments)
    return picked, best, promised[picked] / speed[picked] - 1


_MEASURED = [1.0, 1.52, 1.80, 1.97, 2.08, 2.15]
_DECISIONS = [
    (0.72, _MEASURED, [1 + 0.15 * k for k in range(6)]),
    (0.72, _MEASURED, [1 + 0.05 * k for k in range(6)]),
    (0.4, [1.0, 1.21, 1.26, 1.27], [1.0, 1.3, 1.6, 1.9]),  # plain decoding is best; the formula says k = 1
    (0.2, [1.0, 1.21, 1.26, 1.27], [1.0, 1.3, 1.6, 1.9]),  # the formula says 0
]


@exercise(
    "6.6",
    inputs=_DECISIONS,
    right="the formula picks k = {got[0]}, best is k = {got[1]}: {got[2]:.1%} of the speed is lost",
    wrong={
        "most tokens": (
            _most_tokens,
            "you took the k with the most tokens per round. Tokens must be paid for: divide by the cost.",
        ),
        "accepted drafts": (
            lambda *arguments: _price(*arguments, tokens=expected_accepted),
            "your formula counts accepted drafts. Each round also emits the target's own token: "
            "expected_tokens.",
        ),
        "no plain decoding": (
            lambda *arguments: _price(*arguments, least=1),
            "k = 0 is a choice, too: here plain decoding can beat every draft.",
        ),
        "promise against best": (
            _promise_against_best,
            "you compared the best speed with what the formula *promised*. Nobody ever had that speed: "
            "compare what its k gets with what the best k gets.",
        ),
        "promise against got": (
            _promise_against_got,
            "that is how much too much the formula promised. Asked was what its k loses against the best k.",
        ),
        "promise over best": (
            _promise_over_best,
            "you compared what the formula *promised* with the best. What it loses compares two measured "
            "speeds.",
        ),
        "promise over got": (
            _promise_over_got,
            "that is how much too much the formula promised. What it loses compares two measured speeds.",
        ),
        "per cent": (
            _in_per_cent,
            "both k are right, and so is the loss, in per cent. Asked was a share: not "
            "{got[2]:.2f}, but {want[2]:.4f}.",
        ),
        "turned": (
            _turned,
            "you divided by the speed of the picked k ({got[2]:.4f}). A share *of the best speed*: 1 − "
            "picked ÷ best.",
        ),
        "difference": (
            _difference,
            "you subtracted two speedups ({got[2]:.4f}). Asked was a share: divide by the best one.",
        ),
    },
    raised={"IndexError": "k runs from 0 to len(cost) − 1, and measured[k] belongs to k."},
)
def price_of_formula(alpha, measured, cost):
    return _price(alpha, measured, cost)
