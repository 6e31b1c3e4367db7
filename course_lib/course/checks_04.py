"""Checks of notebook 04: what right looks like, and every wrong turn we know by name."""

import numpy as np

from course_lib.course.checks import exercise
from course_lib.intervals import mean_interval, ratio_interval

_LAWS = [([0.5, 0.3, 0.2], [0.2, 0.4, 0.4]), ([1.0, 0.0], [0.0, 1.0]), ([0.6, 0.4], [0.6, 0.4])]


@exercise(
    "4.1",
    inputs=_LAWS,
    right="the overlap of {p} and {q} is {got:.2f}",
    wrong={
        "same token twice": (
            lambda p, q: sum(a * b for a, b in zip(p, q, strict=True)),
            "Σ p·q ({got:.2f}) is the chance that two free draws are the same token. The verifier is "
            "kinder: it keeps a draft with chance min(1, p/q) even if it would have drawn another.",
        ),
        "half forgotten": (
            lambda p, q: 1 - sum(abs(a - b) for a, b in zip(p, q, strict=True)),
            "1 − Σ|p − q| ({got:.2f}) counts every difference twice, once where p is larger and once where "
            "q is: halve the sum.",
        ),
        "distance": (
            lambda p, q: sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2,
            "that is the distance of the two laws, the chance of a *rejection*. The overlap is 1 minus it.",
        ),
        "favourites": (
            lambda p, q: float(np.argmax(p) == np.argmax(q)),
            "that asks whether the favourites agree: the answer at temperature 0. Here both sides sample.",
        ),
        "p of the favourite": (
            lambda p, q: p[int(np.argmax(q))],
            "p of the draft's favourite ({got:.2f}) is the rate of a greedy draft. This draft is drawn "
            "from q.",
        ),
        "larger": (
            lambda p, q: sum(max(a, b) for a, b in zip(p, q, strict=True)),
            "you took the larger of the two each time, and got {got:.2f}: more than 1 is no chance.",
        ),
    },
)
def overlap(p, q):
    return sum(min(a, b) for a, b in zip(p, q, strict=True))


@exercise(
    "4.2",
    inputs=[
        (np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.4, 0.2])),
        (np.array([0.9, 1e-3]), np.array([0.0, 0.5])),
    ],
    right="for p = {p_token} and q = {q_token}: {got}",
    wrong={
        "verifier's test": (
            lambda p_token, q_token: np.minimum(1, p_token / np.maximum(q_token, 1e-300)),
            "min(1, p/q) is the test for a token that the *draft* wrote. The target wrote this one: turn the "
            "ratio round.",
        ),
        "no limit": (
            lambda p_token, q_token: q_token / p_token,
            "a chance cannot exceed 1: where q > p every such token came from the draft.",
        ),
        "q alone": (
            lambda p_token, q_token: q_token,
            "q is the chance that the draft proposes this token. You know more: the token stands there, "
            "and p says how often it does.",
        ),
        "the smaller": (
            lambda p_token, q_token: np.minimum(p_token, q_token),
            "min(p, q) is the chance that the token is drafted *and* accepted, before the text is known. "
            "Given that it stands there, divide by p.",
        ),
    },
)
def accepted_given_text(p_token, q_token):
    return np.minimum(1, q_token / p_token)


def _texts():
    random = np.random.default_rng(4)
    unequal = [random.random(n) ** (1 + n / 10) for n in (5, 12, 30, 9, 20, 24)]
    return [(unequal,), ([np.array([1.0, 0.5]), np.array([0.2, 0.4, 0.0])],)]


@exercise(
    "4.3",
    inputs=_texts,
    right="α = {got[0]:.3f}, 95 % from {got[1]:.3f} to {got[2]:.3f}, over prompts",
    wrong={
        "over tokens": (
            lambda texts: mean_interval(np.concatenate(texts)),
            "the mean is right, but you took every token for an observation of its own. Tokens of one "
            "prompt resemble each other: give ratio_interval one sum and one length a prompt.",
        ),
        "mean of means": (
            lambda texts: mean_interval([text.mean() for text in texts]),
            "you averaged the prompts' own means, so a short prompt weighs as much as a long one. Pool: "
            "sums over lengths.",
        ),
        "mean only": (
            lambda texts: float(np.concatenate(texts).mean()),
            "that is the mean alone ({got:.3f}). How sure are you of it?",
        ),
        "means over lengths": (
            lambda texts: ratio_interval([text.mean() for text in texts], [len(text) for text in texts]),
            "the numerator must be each prompt's *sum*; its mean has been divided by the length already.",
        ),
    },
)
def alpha_interval(texts):
    return ratio_interval([text.sum() for text in texts], [len(text) for text in texts])


@exercise(
    "4.4",
    inputs=[
        ([5, 5, 5, 2], [5, 0, 3, 2], [6, 1, 4, 3]),
        ([4, 4, 4], [4, 2, 3], [5, 3, 3]),  # the last text ended inside its accepted drafts
    ],
    right="prefix rate {got[0]:.3f}, tokens per round {got[1]:.2f}",
    wrong={
        "bonus accepted": (
            lambda drafted, accepted, emitted: (sum(emitted) / sum(drafted), sum(emitted) / len(emitted)),
            "your rate counts the target's own tokens as accepted: it is emitted ÷ drafted, {got[0]:.3f}. "
            "Nobody drafted those.",
        ),
        "swapped": (
            lambda drafted, accepted, emitted: (sum(emitted) / len(emitted), sum(accepted) / sum(drafted)),
            "both numbers are right, the order is not: first the rate, then the tokens per round.",
        ),
        "mean of rates": (
            lambda drafted, accepted, emitted: (
                sum(a / d for a, d in zip(accepted, drafted, strict=True)) / len(drafted),
                sum(emitted) / len(emitted),
            ),
            "you averaged the rounds' own rates ({got[0]:.3f}). A round that drafted 2 then weighs as much "
            "as one that drafted 5: divide the sums.",
        ),
        "accepted per round": (
            lambda drafted, accepted, emitted: (sum(accepted) / sum(drafted), sum(accepted) / len(accepted)),
            "the rate is right. Per round you counted the accepted drafts ({got[1]:.2f}); the target's "
            "token is emitted as well.",
        ),
        "one more in every round": (
            lambda drafted, accepted, emitted: (
                sum(accepted) / sum(drafted),
                1 + sum(accepted) / len(accepted),
            ),
            "1 + accepted ÷ rounds is right unless a text ends inside accepted drafts: that round emitted "
            "no token of the target's. You were given `emitted`.",
        ),
    },
    raised={"ZeroDivisionError": "a quotient of sums never divides by a single round's count."},
)
def prefix_rate_and_tokens(drafted, accepted, emitted):
    return sum(accepted) / sum(drafted), sum(emitted) / len(emitted)


def _reached(accepted, position):
    return sum(count >= position for count in accepted)


@exercise(
    "4.5",
    inputs=[([3, 0, 1, 3, 2, 0], 3), ([2, 2, 1, 0], 2), ([4, 1], 4)],
    right="of rounds that accepted {accepted}: {got[0]:.2f}, {got[1]:.2f}, {got[2]:.2f}",
    wrong={
        "unconditional": (
            lambda accepted, k: [_reached(accepted, i) / len(accepted) for i in range(1, k + 1)],
            "you divided by all rounds: those are the unconditional rates. Divide by the rounds that got "
            "there.",
        ),
        "exactly": (
            lambda accepted, k: [
                accepted.count(i) / max(1, _reached(accepted, i - 1)) for i in range(1, k + 1)
            ],
            "you counted rounds that accepted *exactly* i drafts. A round that accepted more has accepted "
            "the i-th, too.",
        ),
        "survivors only": (
            lambda accepted, k: [
                _reached(accepted, i + 1) / max(1, _reached(accepted, i)) for i in range(1, k + 1)
            ],
            "you are one position late: the draft at position i is judged in rounds that accepted at least "
            "i − 1.",
        ),
        "from position 0": (
            lambda accepted, k: (
                [1.0] + [_reached(accepted, i) / _reached(accepted, i - 1) for i in range(1, k)]
            ),
            "you began at position 0, which nobody drafts (its rate is always 1). Positions run from 1 to k.",
        ),
        "one number": (
            lambda accepted, k: sum(accepted) / sum(min(k, count + 1) for count in accepted),
            "that is one rate over all positions, accepted ÷ judged. A list of k rates was asked for.",
        ),
    },
    raised={"ZeroDivisionError": "in these examples every position is reached: look at your denominator."},
)
def conditional_rates(accepted, k):
    return [_reached(accepted, i) / _reached(accepted, i - 1) for i in range(1, k + 1)]


def _histogram(histogram, k=None, first=0, extra=1):
    k = len(histogram) - 1 if k is None else k
    rounds = sum(histogram)
    accepted = sum(n * count for n, count in enumerate(histogram, first))
    return rounds, accepted, k * rounds, accepted / (k * rounds), extra + accepted / rounds


@exercise(
    "4.6",
    inputs=[([39, 1, 0, 3],), ([0, 0, 7],), ([2, 5],)],
    right="{got[0]} rounds, prefix rate {got[3]:.3f}, {got[4]:.3f} tokens per round",
    wrong={
        "k from entries": (
            lambda histogram: _histogram(histogram, k=len(histogram)),
            "the entries stand for 0 … k accepted, so there are k + 1 of them. You took k for their number "
            "and got {got[2]} drafted instead of {want[2]}.",
        ),
        "counted from one": (
            lambda histogram: _histogram(histogram, first=1),
            "the first entry is for rounds that accepted none. You counted it as 1 accepted each.",
        ),
        "bonus forgotten": (
            lambda histogram: _histogram(histogram, extra=0),
            "all right up to the last: a round also emits the target's own token, so tokens per round is 1 "
            "more.",
        ),
        "entries are tokens": (
            lambda histogram: (
                len(histogram),
                sum(histogram),
                len(histogram) * (len(histogram) - 1),
                sum(histogram) / (len(histogram) * (len(histogram) - 1)),
                1 + sum(histogram) / len(histogram),
            ),
            "you read {histogram} as four rounds with so many accepted tokens each. It is a histogram: 39 "
            "rounds accepted 0.",
        ),
        "without zeros": (
            lambda histogram: _histogram([0, *histogram[1:]]),
            "you left out the rounds that accepted nothing. They drafted as much as the others, and "
            "emitted one token each.",
        ),
    },
)
def from_histogram(histogram):
    return _histogram(histogram)


@exercise(
    "4.7",
    inputs=[(4, 53716, 32594, 34244), (2, 20, 8, 18), (5, 50, 30, 25)],
    right="{got[0]:.3f} tokens per round, prefix rate {got[1]:.4f}",
    wrong={
        "trusted": (
            lambda k, drafted, accepted, emitted: (1 + accepted / (drafted / k), accepted / drafted),
            "you trusted the counter: {accepted} accepted + {drafted}/{k} rounds should be {emitted} "
            "emitted, and is not. It counts tokens behind a rejection.",
        ),
        "half trusted": (
            lambda k, drafted, accepted, emitted: (emitted / (drafted / k), accepted / drafted),
            "tokens per round is right. But {accepted} ÷ {drafted} is not a prefix rate: this counter also "
            "counts matches behind a rejection. Get the accepted prefix from the emitted tokens.",
        ),
        "bonus accepted": (
            lambda k, drafted, accepted, emitted: (emitted / (drafted / k), emitted / drafted),
            "your rate counts every emitted token as accepted. One in each round is the target's own: take "
            "the rounds away.",
        ),
        "per draft": (
            lambda k, drafted, accepted, emitted: (emitted / drafted, (emitted - drafted) / drafted),
            "{drafted} is the number of *drafts*; a round makes {k} of them.",
        ),
        "efficiency": (
            lambda k, drafted, accepted, emitted: (
                emitted / (drafted / k),
                emitted / (drafted / k * (k + 1)),
            ),
            "emitted ÷ (rounds × (k + 1)) is what that engine called efficiency: the share of the most "
            "that rounds could emit. The prefix rate leaves the target's own tokens out, above and below.",
        ),
    },
)
def from_v0(k, drafted, accepted, emitted):
    rounds = drafted / k
    return emitted / rounds, (emitted - rounds) / drafted
