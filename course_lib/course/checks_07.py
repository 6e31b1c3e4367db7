"""Checks of notebook 07: what right looks like, and every wrong turn we know by name."""

import math

import numpy as np

from course_lib.course.checks import exercise
from course_lib.intervals import Interval, mean_interval


def _softmax(values):
    powers = np.exp(values - np.max(values))
    return powers / powers.sum()


def _sums_to_one(at_temperature):
    total = float(np.sum(at_temperature(np.array([0.7, 0.2, 0.1]), 0.5)))
    if abs(total - 1) > 1e-6:
        return f"at T = 0.5 your chances add up to {total:.3f}, not 1. Divide by their sum at the end."
    return None


@exercise(
    "7.1",
    inputs=[
        (np.array([0.7, 0.2, 0.1]), 0.5),
        (np.array([0.7, 0.2, 0.1]), 2.0),
        (np.array([0.5, 0.5, 0.0]), 1.2),
        (np.array([0.6, 0.4]), 1.0),
    ],
    right="at T = {T} the favourite's 0.7 becomes {got[0]:.3f}",
    wrong={
        "wrong way": (
            lambda p, T: p**T / np.sum(p**T),
            "at T = {T} your favourite has {got[0]:.2f}; below T = 1 a law must get sharper. The power is "
            "1/T, not T.",
        ),
        "divided chances": (
            lambda p, T: (p / T) / np.sum(p / T),
            "dividing all chances by T and normalising changes nothing. It is the *logits* that are "
            "divided by T.",
        ),
        "softmax of chances": (
            lambda p, T: _softmax(p / T),
            "you took the chances for logits. The logits are log p.",
        ),
    },
    diagnose={"not normalised": (_sums_to_one, lambda p, T: p ** (1 / T))},
    raised={"ZeroDivisionError": "T is above 0 here: why divide by 0?"},
)
def at_temperature(p, T):
    powered = p ** (1 / T)
    return powered / powered.sum()


@exercise(
    "7.2",
    inputs=[
        (np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.7, 0.1])),
        (np.array([0.8, 0.1, 0.1]), np.array([0.4, 0.3, 0.3])),
        (np.array([0.4, 0.3, 0.3]), np.array([0.4, 0.3, 0.3])),
        (np.array([0.0, 0.3, 0.7]), np.array([0.6, 0.3, 0.1])),
    ],
    right="sampling {got[0]:.2f}, greedy {got[1]:.2f}",
    wrong={
        "swapped": (
            lambda p, q: (float(p[np.argmax(q)]), float(np.minimum(p, q).sum())),
            "both numbers are right, the order is not: the sampling draft's first.",
        ),
        "softmax q": (
            lambda p, q: (
                float(np.minimum(p, q).sum()),
                float(min(1.0, p[np.argmax(q)] / q[np.argmax(q)])),
            ),
            "for the greedy draft you divided by q of its favourite. It proposes that token with chance 1: "
            "divide by 1.",
        ),
        "overlap at the favourite": (
            lambda p, q: (
                float(np.minimum(p, q).sum()),
                float(min(p[np.argmax(q)], q[np.argmax(q)])),
            ),
            "min(p, q) at the favourite is the chance that a *sampling* draft proposes it and keeps it. A "
            "greedy one "
            "always proposes it.",
        ),
        "target's favourite": (
            lambda p, q: (float(np.minimum(p, q).sum()), float(np.max(p))),
            "you took the chance of the *target's* favourite. The draft proposes its own, which may be "
            "another token.",
        ),
        "match": (
            lambda p, q: (float(np.minimum(p, q).sum()), float(np.argmax(p) == np.argmax(q))),
            "do the favourites agree? That is greedy drafting at temperature 0. Here the target samples "
            "from p.",
        ),
        "not weighed": (
            lambda p, q: (float(np.minimum(1, p / q).sum()), float(p[np.argmax(q)])),
            "you added up min(1, p/q) over all tokens. Each is drafted with chance q only: weigh it "
            "with that.",
        ),
        "plain mean of min(1, p/q)": (
            lambda p, q: (float(np.minimum(1, p / q).mean()), float(p[np.argmax(q)])),
            "you took the plain mean of min(1, p/q), as if every token were drafted equally often. Weigh it "
            "with q.",
        ),
        "both drafts sample from p": (
            lambda p, q: (float((p * q).sum()), float(p[np.argmax(q)])),
            "the sum of p·q is the chance that two independent draws are equal. The draft's token is "
            "*judged*, with "
            "min(1, p/q): it is kept more often than that.",
        ),
    },
)
def two_alphas(p, q):
    return float(np.minimum(p, q).sum()), float(p[np.argmax(q)])


_COLD = {"a": 0.30, "b": 0.52, "c": 0.61, "d": 0.45, "x": 0.9}
_HOT = {"d": 0.50, "y": 0.1, "c": 0.68, "b": 0.55, "a": 0.38}


def _unpaired(cold, hot):
    one, two = (mean_interval([side[i] for i in cold if i in hot]) for side in (cold, hot))
    half = math.hypot(one.half_width, two.half_width)
    return Interval(two.mean - one.mean, two.mean - one.mean - half, two.mean - one.mean + half)


def _in_order(cold, hot):
    return [h - c for c, h in zip(cold.values(), hot.values(), strict=False)]


def _shared_in_order(cold, hot):
    return _in_order({i: cold[i] for i in cold if i in hot}, {i: hot[i] for i in hot if i in cold})


def _differences(cold, hot):
    return [hot[i] - cold[i] for i in cold if i in hot]


def _forgot_the_interval(paired):
    got = paired(dict(_COLD), dict(_HOT))
    got = list(got.values()) if isinstance(got, dict) else list(np.ravel(got))
    if np.allclose(sorted(got), sorted(_differences(_COLD, _HOT))):
        return "these are the right differences. Give them to mean_interval, and return what it returns."
    return None


@exercise(
    "7.3",
    inputs=[
        (_COLD, _HOT),
        ({"a": 0.2, "b": 0.9, "c": 0.5}, {"c": 0.4, "b": 0.7, "a": 0.25}),
        ({"a": 0.2, "b": 0.9}, {"b": 0.7, "a": 0.25, "q": 0.5}),
    ],
    right="{got.mean:+.4f} [{got.low:+.4f}, {got.high:+.4f}] over the shared prompts",
    wrong={
        "by order": (
            lambda cold, hot: mean_interval(_in_order(cold, hot)),
            "you paired the first with the first. The two dictionaries are not in the same order: go by "
            "the prompt's id.",
        ),
        "by order, shared only": (
            lambda cold, hot: mean_interval(_shared_in_order(cold, hot)),
            "you kept the shared prompts and then paired them by their order. Go by the prompt's id.",
        ),
        "sign": (
            lambda cold, hot: mean_interval([cold[i] - hot[i] for i in cold if i in hot]),
            "that is cold minus hot.",
        ),
        "unpaired": (
            _unpaired,
            "the mean is right, but your interval is {got.half_width:.3f} wide to each side instead of "
            "{want.half_width:.3f}. Subtract prompt by prompt *before* you take the interval.",
        ),
        "missing is zero": (
            lambda cold, hot: mean_interval([hot.get(i, 0.0) - cold.get(i, 0.0) for i in {**cold, **hot}]),
            "a prompt that was measured on one side only has no difference. You counted the missing side "
            "as 0.",
        ),
        "relative": (
            lambda cold, hot: mean_interval([hot[i] / cold[i] - 1 for i in cold if i in hot]),
            "that is the change in per cent of cold. Asked is the difference of the two α.",
        ),
        "mean only": (
            lambda cold, hot: float(np.mean(_differences(cold, hot))),
            "{got:+.4f} is the mean of the differences, without its ends. Return what mean_interval returns.",
        ),
    },
    diagnose={"the differences": (_forgot_the_interval, _differences)},
    raised={"KeyError": "some prompts are in one of the dictionaries only: leave them out."},
)
def paired(cold, hot):
    return mean_interval(_differences(cold, hot))


_P = np.array([0.5, 0.3, 0.2])


def _emitted(p, drawn, believed, ratio=None, residual=None, mass=None):
    kept = drawn * np.minimum(1, p / (believed if ratio is None else ratio))
    left = np.maximum(p - (believed if residual is None else residual), 0)
    replacement = left / left.sum() if left.sum() > 0 else p
    return kept + (1 - (kept.sum() if mass is None else mass)) * replacement


def _law_adds_up(emitted_law):
    total = float(np.sum(emitted_law(_P, np.array([0.1, 0.8, 0.1]), np.array([0.2, 0.6, 0.2]))))
    if abs(total - 1) > 1e-6:
        return (
            f"your law adds up to {total:.3f}, not 1. A rejected draft is always replaced: its share is "
            "1 − the sum of what was kept."
        )
    return None


@exercise(
    "7.4",
    inputs=[
        (_P, np.array([0.0, 1.0, 0.0]), np.array([0.2, 0.7, 0.1])),
        (_P, np.array([0.2, 0.7, 0.1]), np.array([0.2, 0.7, 0.1])),
        (_P, np.array([0.1, 0.1, 0.8]), np.array([0.3, 0.3, 0.4])),
        (_P, np.array([0.4, 0.4, 0.2]), _P),
    ],
    right="p is {p}, and this verifier emits [{got[0]:.2f} {got[1]:.2f} {got[2]:.2f}]: it believed in the "
    "wrong draft",
    wrong={
        "always p": (
            lambda p, drawn, believed: p * 1.0,
            "p comes out only if the verifier believes in the law that was drawn from. Here the tokens "
            "come from `drawn`, and the judging and the replacing use `believed`.",
        ),
        "honest residual": (
            lambda p, drawn, believed: _emitted(p, drawn, believed, residual=drawn),
            "you judge with `believed`, but replace with the true draft. The verifier does not know `drawn`.",
        ),
        "replacement from p": (
            lambda p, drawn, believed: _emitted(p, drawn, believed, residual=np.zeros_like(p)),
            "after a rejection you draw from p itself. It is drawn from max(p − believed, 0), normalised.",
        ),
        "no guard": (
            lambda p, drawn, believed: (
                drawn * np.minimum(1, p / believed)
                + (1 - (drawn * np.minimum(1, p / believed)).sum())
                * np.maximum(p - believed, 0)
                / np.maximum(p - believed, 0).sum()
            ),
            "where `believed` is p itself, p − believed is nowhere positive, and you divided 0 by 0. There "
            "the replacement is drawn from p.",
        ),
        "rejections counted by belief": (
            lambda p, drawn, believed: _emitted(p, drawn, believed, mass=np.minimum(p, believed).sum()),
            "how often a draft is rejected depends on what was *drawn*: 1 − the sum of what was kept. You "
            "took the overlap "
            "of p and `believed`.",
        ),
    },
    diagnose={
        "adds up": (_law_adds_up, lambda p, drawn, believed: drawn * np.minimum(1, p / believed)),
    },
)
def emitted_law(p, drawn, believed):
    return _emitted(p, drawn, believed)


@exercise(
    "7.5",
    inputs=[
        ([0.5, 0.25, 0.25], [1.0, 2.0, 4.0]),
        ([0.7, 0.3], [1.1, 1.6]),
        ([0.2, 0.2, 0.6], [0.9, 1.3, 2.0]),
    ],
    right="shares {shares}, speedups {speedups}: {got:.3f} times for all",
    wrong={
        "arithmetic": (
            lambda shares, speedups: sum(s * v for s, v in zip(shares, speedups, strict=True)),
            "you averaged the speedups ({got:.3f}). The slow route takes longer than its share of the "
            "tokens: add up *times*.",
        ),
        "plain mean": (
            lambda shares, speedups: sum(speedups) / len(speedups),
            "you left the shares out: a route with little traffic counts little.",
        ),
        "harmonic without shares": (
            lambda shares, speedups: len(speedups) / sum(1 / v for v in speedups),
            "the right kind of mean, without the shares: each route's time is its share ÷ its speedup.",
        ),
        "time": (
            lambda shares, speedups: sum(s / v for s, v in zip(shares, speedups, strict=True)),
            "{got:.3f} is the time that is left of 1. The speedup is 1 ÷ that.",
        ),
        "geometric": (
            lambda shares, speedups: math.prod(v**s for s, v in zip(shares, speedups, strict=True)),
            "that is the geometric mean. Times add up, so the mean is harmonic.",
        ),
    },
)
def whole_speedup(shares, speedups):
    return 1 / sum(share / speedup for share, speedup in zip(shares, speedups, strict=True))


@exercise(
    "7.6",
    inputs=[
        (Interval(1.45, 1.38, 1.52), 1.40),
        (Interval(1.45, 1.41, 1.49), 1.40),
        (Interval(1.30, 1.25, 1.35), 1.40),
        (Interval(2.40, 2.25, 2.55), 1.40),
        (Interval(1.30, 0.98, 1.62), 1.25),
        (Interval(1.90, math.nan, math.nan), 1.40),
        (Interval(1.50, 1.40, 1.60), 1.40),
    ],
    right="{tokens.mean} tokens [{tokens.low}, {tokens.high}] at a cost of {cost}: {got}",
    wrong={
        "mean": (
            lambda tokens, cost: "speculate" if tokens.mean / cost > 1 else "off",
            "you went by the mean, {tokens.mean} ÷ {cost}. The lower end, {tokens.low}, does not pay for "
            "the round.",
        ),
        "no cost": (
            lambda tokens, cost: "speculate" if tokens.low > 1 else "off",
            "tokens per round are nearly always above 1: a round emits at least one. Speedup is tokens ÷ "
            "cost.",
        ),
        "accepted": (
            lambda tokens, cost: "speculate" if (tokens.low - 1) / cost > 1 else "off",
            "you asked the *accepted* drafts to pay for the round. All emitted tokens count: {tokens.low}, "
            "not one fewer.",
        ),
        "upper end": (
            lambda tokens, cost: "speculate" if tokens.high / cost > 1 else "off",
            "the upper end says what is possible at best. The lower end must clear 1.",
        ),
        "nan": (
            lambda tokens, cost: "off" if tokens.low / cost <= 1 else "speculate",
            "with one prompt the ends are nan, and nothing is known. Your test is False for nan and falls "
            "through to "
            '"speculate". Turn it round.',
        ),
        "nan, and 1 itself": (
            lambda tokens, cost: "off" if tokens.low / cost < 1 else "speculate",
            "with one prompt the ends are nan, and nothing is known. Your test is False for nan and falls "
            'through to "speculate". Turn it round. And a lower end of exactly 1 is not above 1.',
        ),
        "1 itself": (
            lambda tokens, cost: "speculate" if tokens.low / cost >= 1 else "off",
            "a lower end of {tokens.low} at a cost of {cost} is a speedup of exactly 1. The rule says "
            "*above* 1.",
        ),
    },
)
def decide(tokens, cost):
    return "speculate" if tokens.low / cost > 1 else "off"


@exercise(
    "7.7",
    right="the dashboard says {got:.2f}, down from 0.66, although both routes got better",
    wrong={
        "unweighted": (
            lambda: 0.62,
            "0.62 is the plain mean of the two routes. They do not have equal shares.",
        ),
        "yesterday's shares": (
            lambda: 0.8 * 0.72 + 0.2 * 0.52,
            "0.68 is today's draft with *yesterday's* shares.",
        ),
        "yesterday's rates": (
            lambda: 0.25 * 0.70 + 0.75 * 0.50,
            "0.55 is yesterday's draft with today's shares. The draft has changed, too.",
        ),
        "shares swapped": (
            lambda: 0.75 * 0.72 + 0.25 * 0.52,
            "you swapped the shares: today 25 % of the drafts are JSON.",
        ),
        "unchanged": (lambda: 0.66, "0.66 was yesterday. Both the rates and the shares have moved."),
    },
)
def dashboard():
    return 0.57
