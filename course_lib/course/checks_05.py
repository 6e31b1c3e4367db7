"""Checks of notebook 05: what right looks like, and every wrong turn we know by name."""

import numpy as np

from course_lib.course.checks import exercise
from course_lib.replay import expected_rounds
from course_lib.theory import expected_tokens

_P, _Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])


@exercise(
    "5.1",
    inputs=[(1, _P, _Q), (0, _P, _Q), (2, _P, _Q), (0, np.array([0.9, 0.1]), np.array([0.6, 0.4]))],
    right="the favourite of q = {q} is token 1: its coin always shows heads, any other's never",
    wrong={
        "softmax q": (
            lambda token, p, q: min(1.0, q[token] / p[token]),
            "you used the q behind the favourite: min(1, q/p) = {got:.2f}. A greedy draft is drawn from a "
            "law with all its mass on one token; that is the q to put in.",
        ),
        "p of the favourite": (
            lambda token, p, q: float(p[int(np.argmax(q))]),
            "p(favourite) = {got:.2f} is the chance *before* the token is known. The text says which token "
            "it is: then the draft proposed it or did not.",
        ),
        "p if it matches": (
            lambda token, p, q: float(p[token]) if token == np.argmax(q) else 0.0,
            "where the token is the favourite, the draft proposed it and it was kept, since it stands "
            "there. The chance is 1, not p.",
        ),
        "both favourites": (
            lambda token, p, q: 1.0 if np.argmax(p) == np.argmax(q) else 0.0,
            "you compared the two favourites. The target samples: what counts is the token that it wrote.",
        ),
        "target's favourite": (
            lambda token, p, q: 1.0 if token == np.argmax(p) else 0.0,
            "you compared with the *target's* favourite. The draft proposes its own.",
        ),
    },
)
def greedy_coin(token, p, q):
    return 1.0 if token == np.argmax(q) else 0.0


def _rounds(coins, k, step=1, judge_bonus=False, reach=None):
    t, rounds = 0, 0
    while t < len(coins):
        accepted = 0
        limit = len(coins) if reach == "no k" else k
        while accepted < limit and t + accepted < len(coins) and coins[t + accepted]:
            accepted += 1
        if judge_bonus and accepted == k and t + k < len(coins) and not coins[t + k]:
            rounds += 1  # as if the bonus token could be rejected and need a round of its own
        t += accepted + step if accepted + step > 0 else 1
        rounds += 1
    return rounds


_FALLS = [
    ([True, True, False, True, False, False], 2),
    ([True] * 7, 3),
    ([False] * 4, 5),
    ([True, True, True, False, True, True], 4),
    ([], 3),
]


@exercise(
    "5.2",
    inputs=_FALLS,
    right="six tokens, k = {k}: {got} rounds",
    wrong={
        "no extra token": (
            lambda coins, k: _rounds(coins, k, step=0),
            "your next round starts right after the accepted drafts. Each round emits one token more: the "
            "correction or the bonus.",
        ),
        "extra only after a rejection": (
            lambda coins, k: _no_bonus(coins, k),
            "after k accepted drafts you start at the next token. The verification has scored that place, "
            "too: the bonus token is emitted in this round.",
        ),
        "bonus judged": (
            lambda coins, k: _rounds(coins, k, judge_bonus=True),
            "you looked at the coin of the bonus token. Nobody drafted it, so it cannot be rejected.",
        ),
        "no k": (
            lambda coins, k: _rounds(coins, k, reach="no k"),
            "your rounds run on over all heads. After k = {k} drafts a round is over.",
        ),
        "fixed stride": (
            lambda coins, k: -(-len(coins) // (k + 1)),
            "you let every round emit k + 1 tokens. A rejection ends it earlier.",
        ),
        "tails": (
            lambda coins, k: coins.count(False),
            "you counted the rejections. Rounds that accept all their drafts have none, and a bonus "
            "token's coin is no rejection.",
        ),
    },
    raised={"IndexError": "the text may end in the middle of a round: look no further than its last token."},
)
def count_rounds(coins, k):
    return _rounds(coins, k)


def _no_bonus(coins, k):
    t, rounds = 0, 0
    while t < len(coins):
        accepted = 0
        while accepted < k and t + accepted < len(coins) and coins[t + accepted]:
            accepted += 1
        t += accepted + (accepted < k)
        rounds += 1
    return rounds


@exercise(
    "5.3",
    right="2.05 rounds for three tokens: {got:.3f}",
    wrong={
        "k = 2": (
            lambda: 1.6,
            "1.6 is the answer for k = 2, from the text. With k = 1 a round drafts one token.",
        ),
        "no bonus": (
            lambda: 1 + 0.1 * 2.0 + 0.9 * 2.0,
            "you gave no bonus token: after heads the next round starts *two* places on.",
        ),
        "formula": (
            lambda: 3 / expected_tokens(2.2 / 3, 1),
            "that is 3 ÷ (1 + the mean of the coins), the formula. The places are not equal, and a round "
            "does not start at each.",
        ),
        "tokens per round": (
            lambda: 3 / 2.05,
            "that is the tokens per round, 3 ÷ V(0). Asked was V(0), the rounds.",
        ),
        "V(1)": (lambda: 1.5, "1.5 is V(1), the rounds from the second token on. One more step: V(0)."),
        "first coin turned": (
            lambda: 1 + 0.9 * 1.5 + 0.1 * 1.0,
            "you took 0.9 for tails. The coin shows heads with chance 0.9, and then the next round starts "
            "at place 2.",
        ),
    },
)
def rounds_k1():
    return 2.05


def _needed(accept, k, bonus=1, stop=True, tails=True):
    end = len(accept)
    value = [0.0] * (end + k + 2)
    for t in range(end - 1, -1, -1):
        here, run = 1.0, 1.0
        for j in range(min(k, end - t)):
            here += run * ((1 - accept[t + j]) if tails else 1) * value[t + j + 1]
            run *= accept[t + j]
        value[t] = here + run * value[min(t + k + bonus, len(value) - 1)]
    return value[0]


def _every_place(accept, k):
    lengths = []
    for t in range(len(accept)):
        run = np.cumprod(accept[t : t + k])
        lengths.append(min(1 + run.sum(), len(accept) - t))
    return len(accept) / np.mean(lengths)


_CHANCES = [
    (np.array([0.9, 0.5, 0.8]), 2),
    (np.array([0.9, 0.5, 0.8]), 1),
    (np.array([0.2, 0.9, 0.95, 0.6, 0.99, 0.4, 0.7]), 3),
    (np.array([1.0, 1.0, 1.0, 0.0, 1.0]), 2),
    (np.array([0.3, 0.6]), 8),
]


@exercise(
    "5.4",
    inputs=_CHANCES,
    right="three tokens with k = {k}: {got:.3f} rounds",
    wrong={
        "bonus forgotten": (
            lambda accept, k: _needed(accept, k, bonus=0),
            "after k accepted drafts your next round starts at t + k. The bonus token stands there "
            "already: t + k + 1.",
        ),
        "rejection without chance": (
            lambda accept, k: _needed(accept, k, tails=False),
            "a round ends at place t + j only if that coin shows tails: the factor 1 − a is missing.",
        ),
        "formula": (
            lambda accept, k: len(accept) / expected_tokens(float(np.mean(accept)), k),
            "that is the formula at the mean chance. The coins of a text differ, and their order matters: "
            "follow V(t).",
        ),
        "every place": (
            _every_place,
            "you averaged the length of a round over all places as its start. Rounds do not start just "
            "anywhere: they start where one has ended.",
        ),
        "tokens per round": (
            lambda accept, k: len(accept) / _needed(accept, k),
            "that is T / V(0), the tokens per round ({got:.3f}). Asked was V(0).",
        ),
    },
    raised={
        "IndexError": "past the end V is 0 and there are no coins: make the list of V longer than the text "
        "by k + 2, and let j stop at the last token."
    },
)
def rounds_needed(accept, k):
    return _needed(accept, k)


def _three_texts():
    texts = [np.array([0.9, 0.5, 0.8]), np.full(12, 0.95), np.array([0.1, 0.2, 0.1, 0.3, 0.9])]
    return [(texts, 3), (texts[:2], 1), (texts, 8)]


@exercise(
    "5.5",
    inputs=_three_texts,
    right="three texts, k = {k}: {got:.3f} tokens per round",
    wrong={
        "mean of quotients": (
            lambda texts, k: float(np.mean([len(a) / expected_rounds(a, k) for a in texts])),
            "you averaged the prompts' own quotients ({got:.3f}). A prompt of 3 tokens then weighs as much "
            "as one of 12: add up tokens and rounds first.",
        ),
        "joined": (
            lambda texts, k: sum(map(len, texts)) / expected_rounds(np.concatenate(texts), k),
            "you joined the texts into one. Then a round can run from one prompt into the next.",
        ),
        "rounds": (
            lambda texts, k: sum(expected_rounds(a, k) for a in texts),
            "those are the rounds. Tokens per round: divide all tokens by them.",
        ),
        "formula": (
            lambda texts, k: expected_tokens(float(np.concatenate(texts).mean()), k),
            "that is the formula at the mean chance, which knows nothing of the order.",
        ),
    },
)
def tokens_of_all(texts, k):
    return sum(len(accept) for accept in texts) / sum(expected_rounds(accept, k) for accept in texts)


@exercise(
    "5.6",
    right="following the rounds {got[0]:.2f}; every place a start {got[1]:.2f}",
    wrong={
        "swapped": (
            lambda: (10 / 3, 3.0),
            "both numbers are right, the order is not: first the one that follows the rounds.",
        ),
        "no extra": (
            lambda: (2.0, 21 / 9),
            "you counted accepted drafts. Each round, real or imagined, emits one token more.",
        ),
        "bonus forgotten": (
            lambda: (9 / 4, 10 / 3),
            "the second is right. In the first, the seventh token is the bonus of the first round: its "
            "coin, a 0, does not cost a round.",
        ),
        "only heads": (
            lambda: (3.0, 27 / 6),
            "every place is a start in that average, also the three with a 0: their rounds emit 1 token "
            "each.",
        ),
    },
    rtol=2e-3,  # two decimals
)
def answers():
    return (3.0, 10 / 3)


_TOYS = [
    (
        np.array([0.5, 0.5]),
        np.array([0.9, 0.1]),
        np.array([[0.8, 0.2], [0.3, 0.7]]),
        np.array([[0.7, 0.3], [0.9, 0.1]]),
        np.array([[0.9, 0.5], [0.6, 0.2]]),
    ),
    (
        np.array([0.6, 0.3, 0.1]),
        np.array([0.2, 0.2, 0.6]),
        np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2]]),
        np.array([[0.6, 0.4, 0.0], [0.3, 0.1, 0.6], [0.1, 0.1, 0.8]]),
        np.array([[0.9, 0.5, 0.1], [0.6, 0.2, 0.7], [0.3, 0.8, 0.4]]),
    ),
]


def _both(p, q, p_next, q_next):
    """The chance that x and then y are drafted and accepted, for all pairs x, y."""
    return np.minimum(p, q)[:, None] * np.minimum(p_next, q_next)


@exercise(
    "5.7",
    inputs=_TOYS,
    right="three in a row: {got:.3f}",
    wrong={
        "overlaps": (
            lambda p, q, p_next, q_next, last_overlap: (
                np.minimum(p, q).sum()
                * (p @ np.minimum(p_next, q_next).sum(axis=1))
                * np.sum(p[:, None] * p_next * last_overlap)
            ),
            "you multiplied three mean overlaps along the target's text ({got:.3f}). After accepted drafts "
            "the text stands elsewhere than the target's text on average.",
        ),
        "last along the text": (
            lambda p, q, p_next, q_next, last_overlap: (
                _both(p, q, p_next, q_next).sum() * np.sum(p[:, None] * p_next * last_overlap)
            ),
            "the first two are right. But the last overlap must be weighed by where accepted drafts lead, "
            "pair by pair, not by the target's text.",
        ),
        "last averaged": (
            lambda p, q, p_next, q_next, last_overlap: (
                np.sum(_both(p, q, p_next, q_next).sum(axis=1) * last_overlap.mean(axis=1))
            ),
            "you took the plain mean of the last overlap over y, as if every y were equally likely.",
        ),
        "draft's text": (
            lambda p, q, p_next, q_next, last_overlap: np.sum(q[:, None] * q_next * last_overlap),
            "you weighed the last overlap with q and q_next, as if every draft were accepted.",
        ),
        "two": (
            lambda p, q, p_next, q_next, last_overlap: _both(p, q, p_next, q_next).sum(),
            "that is two in a row ({got:.3f}). The third has its overlap: `last_overlap`.",
        ),
        "first forgotten": (
            lambda p, q, p_next, q_next, last_overlap: np.sum(
                p[:, None] * np.minimum(p_next, q_next) * last_overlap
            ),
            "the first draft must be accepted, too: p in place of min(p, q) forgets that.",
        ),
        "second forgotten": (
            lambda p, q, p_next, q_next, last_overlap: np.sum(
                np.minimum(p, q)[:, None] * p_next * last_overlap
            ),
            "the second draft must be accepted, too: p_next in place of min(p_next, q_next) forgets that.",
        ),
        "given the first two": (
            lambda p, q, p_next, q_next, last_overlap: (
                np.sum(_both(p, q, p_next, q_next) * last_overlap)
                / max(_both(p, q, p_next, q_next).sum(), 1e-300)
            ),
            "{got:.3f} is the chance of the third *given* the first two. Asked was the chance of all three: "
            "leave the division out.",
        ),
        "columns and rows": (
            lambda p, q, p_next, q_next, last_overlap: float(
                np.sum(np.minimum(p, q) * np.minimum(p_next, q_next) * last_overlap)
            ),
            "min(p, q) runs over x, the *rows*. Without `[:, None]` numpy lays it along y.",
        ),
    },
)
def three_accepted(p, q, p_next, q_next, last_overlap):
    return float(np.sum(_both(p, q, p_next, q_next) * last_overlap))
