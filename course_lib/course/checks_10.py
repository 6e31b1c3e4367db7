"""Checks of notebook 10: what right looks like, and every wrong turn we know by name."""

from itertools import pairwise

import numpy as np

from course_lib.course.checks import exercise


def _scrape(rounds, drafted, accepted):
    return {"drafts": rounds, "draft_tokens": drafted, "accepted_tokens": accepted}


_SCRAPES = [
    (_scrape(100, 300, 120), _scrape(180, 540, 200)),
    (_scrape(0, 0, 0), _scrape(50, 350, 75)),
    (_scrape(1000, 5000, 100), _scrape(1010, 5046, 132)),  # k = 5, and two short rounds
]


def _parts(before, after):
    return tuple(after[name] - before[name] for name in ("drafts", "draft_tokens", "accepted_tokens"))


def _between(before, after, length=lambda r, d, a: 1 + a / r, rate=lambda r, d, a: a / d):
    return length(*_parts(before, after)), rate(*_parts(before, after))


_NOTHING = _scrape(0, 0, 0)


@exercise(
    "10.1",
    inputs=_SCRAPES,
    right="in between: {got[0]:.2f} tokens per round, acceptance rate {got[1]:.2f}",
    wrong={
        "since the start": (
            lambda before, after: _between(_NOTHING, after),
            "that is since the engine started: whatever ran before is in it. Subtract `before`."),
        "difference of the quotients": (
            lambda before, after: tuple(
                b - a for a, b in zip(_between(_NOTHING, before), _between(_NOTHING, after), strict=True)
            ),
            "you subtracted two rates. Subtract the counters first, then divide."),
        "no bonus token": (
            lambda before, after: _between(before, after, length=lambda r, d, a: a / r),
            "{got[0]:.2f} are the accepted drafts of a round. Every round emits one token of the target as "
            "well."),
        "bonus in the rate": (
            lambda before, after: _between(before, after, rate=lambda r, d, a: (a + r) / d),
            "your rate counts the bonus token as accepted. Nobody drafted it."),
        "rate by rounds": (
            lambda before, after: _between(before, after, rate=lambda r, d, a: a / r),
            "your rate divides by rounds. It is a share of the *drafted* tokens."),
        "filled share": (
            lambda before, after: _between(before, after, rate=lambda r, d, a: (a + r) / (d + r)),
            "your rate is emitted ÷ (drafted + rounds), the filled share. Asked was accepted ÷ drafted."),
        "swapped": (
            lambda before, after: _between(before, after)[::-1],
            "the right two numbers, in the other order: tokens per round first."),
    },
    raised={"KeyError": 'the keys are "drafts", "draft_tokens" and "accepted_tokens".'},
)
def between(before, after):
    return _between(before, after)


_POSITIONS = [([60, 30, 20], 100), ([400, 350, 340, 200, 20], 500), ([7], 10)]


@exercise(
    "10.2",
    inputs=_POSITIONS,
    right="of {rounds} rounds with {positions} accepted: {got}",
    wrong={
        "unconditional": (
            lambda positions, rounds: [n / rounds for n in positions],
            "those are the unconditional rates: you divided by all rounds. Only rounds that accepted at the "
            "position before came this far."),
        "by drafted": (
            lambda positions, rounds: [n / (rounds * len(positions)) for n in positions],
            "you divided by all drafted tokens. Divide each by the rounds that came to it."),
        "first left out": (
            lambda positions, rounds: [b / a for a, b in pairwise(positions)],
            "the first position is missing: all {rounds} rounds came to it."),
        "first is 1": (
            lambda positions, rounds: [1.0, *(b / a for a, b in pairwise(positions))],
            "your first rate is 1. All {rounds} rounds came to position 0; {positions[0]} accepted there."),
        "rejected": (
            lambda positions, rounds: [
                1 - b / a for a, b in zip([rounds, *positions[:-1]], positions, strict=True)
            ],
            "those are the shares that were *rejected* there. One minus that."),
        "difference": (
            lambda positions, rounds: [
                (a - b) / rounds for a, b in zip([rounds, *positions[:-1]], positions, strict=True)
            ],
            "those are the shares of rounds that *ended* at each position."),
    },
    raised={"IndexError": "position 0 has no position before it: all rounds came to it."},
)
def conditional(positions, rounds):
    return [n / came for n, came in zip(positions, [rounds, *positions[:-1]], strict=True)]


def _alpha(rate, k, first=1):
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        total = sum(middle**i for i in range(first, k + 1))
        low, high = (middle, high) if total < k * rate else (low, middle)
    return (low + high) / 2


def _nearly(answer):
    """What to say of an α that is right to two digits on every input, and not to four."""
    far = [(rate, k, answer(rate, k)) for rate, k in _RATES
           if abs(answer(rate, k) - _alpha(rate, k)) > 1e-4 * _alpha(rate, k)]
    if far and all(abs(answer(rate, k) - _alpha(rate, k)) < 0.02 for rate, k in _RATES):
        rate, k, got = far[0]
        return (f"rate {rate}, k = {k}: {got:.6g} is near, and not exact; expected {_alpha(rate, k):.6g}. "
                "A grid is too coarse, and a few halvings are too few: go on halving.")
    return None


_RATES = [(0.36, 5), (0.5, 3), (0.28, 9), (0.7, 1)]


@exercise(
    "10.3",
    inputs=_RATES,
    right="a rate of {rate} at k = {k} means α = {got:.3f}",
    wrong={
        "the rate": (
            lambda rate, k: rate,
            "that is the rate itself. They are equal at k = 1 only: late drafts need all earlier ones."),
        "endless": (
            lambda rate, k: k * rate / (1 + k * rate),
            "you used α ÷ (1 − α), which has no end. A round stops after {k} drafts, so the sum does."),
        "root": (
            lambda rate, k: rate ** (1 / k),
            "you took the k-th root. That inverts αᵏ, the chance that *all* {k} are accepted."),
        "bonus": (
            lambda rate, k: _alpha(rate, k, first=0),
            "your sum begins with 1, the bonus token. The rate counts accepted drafts: begin with α."),
        "not divided": (
            lambda rate, k: _alpha(rate / k, k),
            "your sum gives the rate, not k × the rate: a round accepts {k} × {rate} drafts on average."),
        "filled share": (
            lambda rate, k: _alpha(max(rate * (k + 1) - 1, 0) / k, k),
            "you read the rate as emitted ÷ (k + 1). It is accepted ÷ drafted."),
        "lower end": (
            lambda rate, k: 0.0,
            "your interval never moves up. Is the sum at the middle too small? Then α lies above it."),
        "upper end": (
            lambda rate, k: 1.0,
            "your interval never moves down. Is the sum at the middle too large? Then α lies below it."),
    },
    diagnose={
        "too coarse": (
            _nearly,
            lambda rate, k: round(_alpha(rate, k), 3)),
    },
    rtol=1e-4,
)
def alpha_of(rate, k):
    return _alpha(rate, k)


_LINES = [
    ([(200, 300), (3, 30), (5, 10)],),
    ([(0, 3), (90, 100)],),
    ([(7, 20)],),
]


@exercise(
    "10.4",
    inputs=_LINES,
    right="{got:.3f} for the whole time",
    wrong={
        "mean of rates": (
            lambda lines: float(np.mean([a / d for a, d in lines])),
            "you averaged the rates ({got:.3f}), so an interval with 10 drafted tokens weighs as much as one "
            "with 300. Add the counts."),
        "last line": (
            lambda lines: lines[-1][0] / lines[-1][1],
            "that is the last line. V1's lines are intervals, not counts since the start."),
        "upside down": (
            lambda lines: sum(d for _, d in lines) / sum(a for a, _ in lines),
            "{got:.2f} is upside down: accepted ÷ drafted."),
        "median": (
            lambda lines: float(np.median([a / d for a, d in lines])),
            "you took the median of the rates. Add the counts."),
        "rejected": (
            lambda lines: 1 - sum(a for a, _ in lines) / sum(d for _, d in lines),
            "{got:.3f} is the share that was rejected."),
    },
)
def whole_time(lines):
    return sum(accepted for accepted, _ in lines) / sum(drafted for _, drafted in lines)


_PRINTED = [(2.53, 0.51, 3), (2.53, 0.63, 3), (1.57, 0.19, 3), (1.57, 0.39, 3), (2.5, 0.1, 3),
            (3.36, 0.48, 5), (1.0, 0.0, 4), (1.0, 0.2, 4), (2.17, 0.29, 4)]


def _which(length, rate, k, prefix=lambda n, k: (n - 1) / k, share=lambda n, k: n / (k + 1), near=0.01):
    if abs(prefix(length, k) - rate) <= near:
        return "prefix rate"
    return "filled share" if abs(share(length, k) - rate) <= near else "neither"


@exercise(
    "10.5",
    inputs=_PRINTED,
    right="length {length} and rate {rate} with k = {k}: {got}",
    wrong={
        "exactly": (
            lambda length, rate, k: _which(length, rate, k, near=1e-9),
            "length {length}, rate {rate}, k = {k}: you found {got}. Both are rounded to two digits: allow a "
            "difference of 0.01."),
        "equal": (
            lambda length, rate, k: _which(length, rate, k, near=0),
            "length {length}, rate {rate}, k = {k}: you found {got}, for you compare with ==. Both "
            "numbers were rounded: let a difference of 0.01 pass."),
        "rounded, then equal": (
            lambda length, rate, k: _which(length, rate, k, prefix=lambda n, k: round((n - 1) / k, 2),
                                           share=lambda n, k: round(n / (k + 1), 2), near=0),
            "length {length}, rate {rate}, k = {k}: rounding your own number is not enough, since `length` "
            "was rounded, too. Let a difference of 0.01 pass."),
        "bonus kept": (
            lambda length, rate, k: _which(length, rate, k, prefix=lambda n, k: n / k),
            "your prefix rate is length ÷ k. One of the `length` tokens is the target's own."),
        "by k + 1": (
            lambda length, rate, k: _which(length, rate, k, prefix=lambda n, k: (n - 1) / (k + 1)),
            "your prefix rate divides by k + 1. The target's own token was not drafted: k."),
        "share by k": (
            lambda length, rate, k: _which(length, rate, k, share=lambda n, k: n / k),
            "your filled share divides by k. A round can emit k + 1 tokens."),
        "no neither": (
            lambda length, rate, k: "prefix rate"
            if _which(length, rate, k) == "prefix rate"
            else "filled share",
            "length {length}, rate {rate}, k = {k} is neither: a tree, or a k that varies. Test both."),
        "swapped": (
            lambda length, rate, k: {"prefix rate": "filled share", "filled share": "prefix rate"}.get(
                _which(length, rate, k), "neither"
            ),
            "you have the two names the wrong way round."),
    },
)
def which(length, rate, k):
    return _which(length, rate, k)


_TEXTS = [
    ("the cat sat".split(), "the cat sat".split(), [0, 0, 0]),
    ("a b c d".split(), "a x y z".split(), [0, 0.02, 5.0, 9.0]),  # what follows proves nothing
    ("a b c d".split(), "a x c d".split(), [0, 3.1, 0, 0]),
    ("a b c".split(), "a b".split(), [0, 0, 0]),
    ("a b".split(), "a b c".split(), [0, 0, 0]),
    ("a b c".split(), "q b c".split(), [0.1, 0, 0]),
    ("a b c".split(), "a b z".split(), [4.0, 4.0, 0.05]),
    ("a x y".split(), "a z".split(), [0, 0.02, 5.0]),  # they part before one of them ends
    ("a z".split(), "a x y".split(), [0, 0.02]),
    ("a b c".split(), "a x c".split(), [0, 0.3, 0], 0.5),  # another tie
    ("a b c".split(), "a x c".split(), [0, 0.07, 0], 0.05),
]


def _verdict(ours, theirs, margins, tie=0.1, at_tie=True, lengths=True, every=False):
    apart = [m for a, b, m in zip(ours, theirs, margins, strict=False) if a != b]
    if apart:
        margin = max(apart) if every else apart[0]
        return "near-tie" if (margin <= tie if at_tie else margin < tie) else "different"
    return "same" if len(ours) == len(theirs) or not lengths else "different"


@exercise(
    "10.6",
    inputs=_TEXTS,
    right="the first pair is {got}",
    wrong={
        "any difference": (
            lambda ours, theirs, margins, tie=0.1: "same" if ours == theirs else "different",
            "{theirs} instead of {ours}: you call every difference an error. Ask for the margin where they "
            "part."),
        "all places": (
            lambda ours, theirs, margins, tie=0.1: _verdict(ours, theirs, margins, tie, every=True),
            "you looked behind the first difference. There the two continue different texts, and margins "
            "mean nothing."),
        "length": (
            lambda ours, theirs, margins, tie=0.1: _verdict(ours, theirs, margins, tie, lengths=False),
            "{ours} and {theirs}: one ends early, and you found no difference."),
        "below": (
            lambda ours, theirs, margins, tie=0.1: _verdict(ours, theirs, margins, tie, at_tie=False),
            "a margin of exactly `tie` is a near-tie: at *most* that much."),
        "tie not used": (
            lambda ours, theirs, margins, tie=0.1: _verdict(ours, theirs, margins),
            "right while `tie` is 0.1. Compare the margin with `tie`, not with a number of your own."),
        "lengths first": (
            lambda ours, theirs, margins, tie=0.1: "different" if len(ours) != len(theirs)
            else _verdict(ours, theirs, margins, tie),
            "{theirs} instead of {ours}: you asked for the lengths first. Texts that part at a near-tie "
            "seldom end together. Look for the first difference; only where there is none do the lengths "
            "decide."),
        "everything is a tie": (
            lambda ours, theirs, margins, tie=0.1: _verdict(ours, theirs, margins, tie=np.inf),
            "{theirs} instead of {ours}: the margin there is far above the tie, and you let it pass."),
        "first margin": (
            lambda ours, theirs, margins, tie=0.1: _verdict(ours, theirs, [margins[0]] * len(margins), tie),
            "you asked for the margin at the first token. Ask where the texts part."),
    },
    raised={"IndexError": "one list may be shorter than the other: compare as far as both go."},
)
def verdict(ours, theirs, margins, tie=0.1):
    return _verdict(ours, theirs, margins, tie)


@exercise(
    "10.7",
    inputs=[(1.85, 0.12, 0.09), (2.4, 0.03, 0.04), (1.2, 0.05, 0.05)],
    right="{length} tokens per round; break-even {got:.2f}",
    wrong={
        "upside down": (
            lambda length, tpot, plain: length * plain / tpot,
            "your quotient is upside down: the slower the engine with speculation, the more tokens a round "
            "must emit."),
        "slowdown": (
            lambda length, tpot, plain: tpot / plain,
            "{got:.2f} compares a token with a token. A round has {length} of them."),
        "speedup": (
            lambda length, tpot, plain: plain / tpot,
            "{got:.2f} is the speedup. Break-even is the number of tokens at which it would be 1."),
        "accepted": (
            lambda length, tpot, plain: (length - 1) * tpot / plain,
            "you left the target's own token out. It is in `length`, and it took its time, too."),
        "no length": (
            lambda length, tpot, plain: 1 + tpot / plain,
            "{got:.2f}: where is the length? A round takes length × tpot."),
        "seconds": (
            lambda length, tpot, plain: length * tpot,
            "{got:.3f} are the seconds of a round. How many tokens does plain decoding write in them?"),
    },
)
def break_even(length, tpot, plain):
    return length * tpot / plain
