"""Checks of notebook 12: what right looks like, and every wrong turn we know by name."""

import math

from course_lib.course.checks import exercise

_FILES = [
    ("\ufeffName a river.\r\n\r\nWhy is the sky blue?\r\nName a river.\r\n",),
    ("b\na\n\n  b  \nA\n",),
    ("\ufeff\r\nonly one\r\n",),
]


def _lines(text, mark=True, ends=True, blank=True, repeated=True):
    """The lines of a file, with one precaution or another left out."""
    lines = (text.removeprefix("\ufeff") if mark else text).split("\n")
    lines = [line.strip() if ends else line for line in lines]
    lines = [line for line in lines if line.strip() or not blank]
    return list(dict.fromkeys(lines)) if repeated else lines


def _padded(answer):
    """What to say of a list in which a prompt begins or ends with white space."""
    padded = [line for (text,) in _FILES for line in answer(text) if line != line.strip()]
    return padded and (
        f"you kept {padded[0]!r}. White space at either end of a line does not count: strip each line "
        "before you look for repeats.")


@exercise(
    "12.1",
    inputs=_FILES,
    right="prompts that count: {got}",
    wrong={
        "mark kept": (
            lambda text: _lines(text, mark=False),
            "the byte-order mark is still in your first prompt. The model would read it, and the same prompt "
            "further down no longer looks the same: strip() does not take it away.",
        ),
        "line ends kept": (
            lambda text: _lines(text, ends=False),
            'your prompts still end with "\\r" or spaces. Windows ends a line with "\\r\\n": strip each '
            "line.",
        ),
        "blank lines kept": (
            lambda text: _lines(text, blank=False),
            "an empty line is in your list. It asks nothing.",
        ),
        "repeats kept": (
            lambda text: _lines(text, repeated=False),
            "a prompt is there twice. That is one observation, and an interval would count two.",
        ),
        "nothing but lines": (
            lambda text: text.splitlines(),
            "those are all the lines. Look at the first, at the blank one and at the last: which of them "
            "count?",
        ),
        "return kept": (
            lambda text: list(dict.fromkeys(filter(None, text.removeprefix("\ufeff").split("\n")))),
            'your lines still end with "\\r", and a line of nothing but "\\r" looks as if it held something. '
            "Strip each line, then see what is left.",
        ),
        "sorted": (
            lambda text: sorted(set(_lines(text))),
            "the right prompts, sorted. Keep the order of the file, so that line numbers can be found again.",
        ),
        "small letters": (
            lambda text: list(dict.fromkeys(line.lower() for line in _lines(text))),
            "you changed capital letters to small ones. To a model these are other tokens: leave the "
            "prompt as "
            "it is.",
        ),
    },
    diagnose={
        "white space kept": (
            _padded,
            lambda text: list(dict.fromkeys(
                line for line in text.removeprefix("\ufeff").splitlines() if line.strip())),
        ),
    },
)
def usable(text):
    return _lines(text)


@exercise(
    "12.2",
    # No quotient here is close to a whole number, so that rounding errors decide nothing; the last is exact.
    inputs=[(8, 0.2, 0.06), (12, 0.13, 0.05), (20, 0.31, 0.1), (10, 0.1, 0.3), (8, 0.5, 0.25)],
    right="from ± {half_width} with {pilot} prompts to ± {wished:.3f}: {got} prompts",
    wrong={
        "no square": (
            lambda pilot, half_width, wished: math.ceil(pilot * half_width / wished),
            "your half-width falls like 1/n ({got} prompts). It falls like 1/√n: half the width takes "
            "four times "
            "the prompts.",
        ),
        "rounded down": (
            lambda pilot, half_width, wished: int(pilot * (half_width / wished) ** 2),
            "you rounded down, to {got}: that is just too few. Round up.",
        ),
        "one added": (
            lambda pilot, half_width, wished: int(pilot * (half_width / wished) ** 2) + 1,
            "from ± {half_width} with {pilot} prompts to ± {wished}: {got} is one too many. Where the "
            "product is a whole number, it suffices.",
        ),
        "rounded": (
            lambda pilot, half_width, wished: round(pilot * (half_width / wished) ** 2),
            "you rounded to the nearest number, {got} here: that may be just too few. Round up.",
        ),
        "not rounded": (
            lambda pilot, half_width, wished: pilot * (half_width / wished) ** 2,
            "{got:.2f} prompts: make it a whole number that suffices.",
        ),
        "upside down": (
            lambda pilot, half_width, wished: math.ceil(pilot * (wished / half_width) ** 2),
            "your quotient is upside down: a narrower interval takes more prompts, and you need {got} of "
            "{pilot}.",
        ),
        "more": (
            lambda pilot, half_width, wished: math.ceil(pilot * (half_width / wished) ** 2) - pilot,
            "{got} are the prompts still to come. Asked were all, the pilot's {pilot} included.",
        ),
        "root": (
            lambda pilot, half_width, wished: math.ceil(pilot * math.sqrt(half_width / wished)),
            "you took a root ({got} prompts). The width has a root of n, so n has a square of the width.",
        ),
        "pilot forgotten": (
            lambda pilot, half_width, wished: math.ceil((half_width / wished) ** 2),
            "{got} is how many *times* as many prompts it takes. Times the pilot's {pilot}.",
        ),
    },
)
def prompts_needed(pilot, half_width, wished):
    return math.ceil(pilot * (half_width / wished) ** 2)


def _row(k, tokens, predicted, half):
    low, high = (None, None) if half is None else (predicted - half, predicted + half)
    return {
        "k": k,
        "tokens_per_round": tokens,
        "predicted": predicted,
        "predicted_low": low,
        "predicted_high": high,
    }


_TABLES = [
    ([_row(3, 2.0, 1.25, 0.2), _row(1, 1.5, 1.15, 0.1), _row(4, 2.2, 1.22, 0.05), _row(2, 1.8, 1.3, 0.2),
      _row(8, 2.4, 0.9, 0.2)],),
    ([_row(2, 1.6, 1.08, 0.2), _row(1, 1.4, 1.06, 0.1), _row(4, 1.7, 1.02, 0.1)],),  # the mean is above 1
    ([_row(1, 1.3, 1.05, 0.01), _row(2, 1.4, 1.1, 0.2)],),  # only a lesser k is safe
    ([_row(1, 1.2, 0.9, 0.05), _row(2, 1.25, 0.8, 0.05)],),
    ([_row(1, 1.6, 1.4, None), _row(2, 1.8, 1.5, None)],),  # one prompt
    ([_row(1, 1.5, 1.2, 0.25), _row(2, 1.6, 1.25, 0.25)],),  # a lower end of exactly 1
]


def _most(rows, by, low):
    """The k that is best by one column, on if another is above 1."""
    row = max(rows, key=lambda row: -math.inf if row[by] is None else row[by])
    return row["k"] if row[low] is not None and row[low] > 1 else 0


@exercise(
    "12.3",
    inputs=_TABLES,
    right="the first table gives k = {got}",
    wrong={
        "mean": (
            lambda rows: _most(rows, "predicted", "predicted"),
            "you decided by the mean. Here it is above 1, but that is not shown: what is the lower end "
            "of its interval?",
        ),
        "upper end": (
            lambda rows: _most(rows, "predicted", "predicted_high"),
            "you compared the *upper* end with 1. That asks whether it might pay. Ask whether it does: "
            "the lower end.",
        ),
        "tokens": (
            lambda rows: max(rows, key=lambda row: row["tokens_per_round"])["k"],
            "you took the most tokens per round. They are above 1 always, and a round costs more than a "
            "step: "
            "take the speedup.",
        ),
        "most tokens": (
            lambda rows: _most(rows, "tokens_per_round", "predicted_low"),
            "you took the k with the most tokens per round (k = {got}). The longest round is not the "
            "fastest: take the "
            "k that predicts the most speedup.",
        ),
        "always on": (
            lambda rows: max(rows, key=lambda row: row["predicted"])["k"],
            "you return the best k even where it does not pay. 0 is an answer, too.",
        ),
        "safest": (
            lambda rows: _most(rows, "predicted_low", "predicted_low"),
            "you took the k with the highest *lower end*. A cautious rule, and a fair one; but the one "
            "asked for picks "
            "the k by its mean, then asks whether it is safe.",
        ),
        "any safe": (
            lambda rows: max(
                (row for row in rows if (row["predicted_low"] or 0) > 1),
                key=lambda row: row["predicted"],
                default={"k": 0},
            )["k"],
            "you first left out what is not safe and took the best of the rest. With six k to look at, "
            "one or the "
            "other seems safe by luck. Pick first, then ask once.",
        ),
        "exactly 1": (
            lambda rows: (lambda row: row["k"] if (row["predicted_low"] or 0) >= 1 else 0)(
                max(rows, key=lambda row: row["predicted"])),
            "a lower end of exactly 1 is not *above* 1: off.",
        ),
        "first row": (
            lambda rows: rows[0]["k"] if (rows[0]["predicted_low"] or 0) > 1 else 0,
            "you look at the first row only. The rows are in no order: find the one that predicts the most.",
        ),
        "smallest safe": (
            lambda rows: min((row["k"] for row in rows if (row["predicted_low"] or 0) > 1), default=0),
            "you took the smallest k that is safe. Take the one that predicts the most.",
        ),
    },
    raised={
        "TypeError": "with one prompt the ends are None, and None > 1 is an error. One prompt is no "
        "proof: off."
    },
)
def choose(rows):
    return _most(rows, "predicted", "predicted_low")


_COUNTERS = [
    ((1_000, 900), (1_500, 1_050), 1.4),  # good for long, bad since: 1.30 in the window, 1.70 since the start
    ((1_000, 200), (1_500, 700), 1.4),  # the other way round
    ((0, 0), (100, 80), 1.5),
    ((200, 100), (300, 110), 1.05),
    ((0, 0), (100, 30), 1.4),
    ((0, 0), (100, 40), 1.1),
]


@exercise(
    "12.4",
    inputs=_COUNTERS,
    right="from {before} to {now}, a round costs {cost}: alarm {got}",
    wrong={
        "since the start": (
            lambda before, now, cost: 1 + now[1] / now[0] < cost,
            "you used all rounds since the engine started. Good months hide a bad hour: take the "
            "difference of the two "
            "readings.",
        ),
        "no bonus": (
            lambda before, now, cost: (now[1] - before[1]) / (now[0] - before[0]) < cost,
            "you compared the *accepted* drafts of a round with its cost. A round emits one token more: "
            "the target's "
            "own.",
        ),
        "against 1": (
            lambda before, now, cost: 1 + (now[1] - before[1]) / (now[0] - before[0]) < 1,
            "you compared with 1. Tokens per round are never below 1, so this never rings. The round's "
            "cost is {cost}.",
        ),
        "against the accepted": (
            lambda before, now, cost: (now[1] - before[1]) / (now[0] - before[0]) < 1,
            "it rings when less than one draft a round is accepted. What pays depends on the cost of the "
            "round.",
        ),
        "turned": (
            lambda before, now, cost: 1 + (now[1] - before[1]) / (now[0] - before[0]) > cost,
            "yours rings when it pays. It should ring when the length is *below* the cost.",
        ),
        "speed": (
            lambda before, now, cost: (1 + (now[1] - before[1]) / (now[0] - before[0])) / cost < cost,
            "you divided by the cost and then compared with the cost again. Either length < cost, or "
            "speedup < 1.",
        ),
        "number": (
            lambda before, now, cost: 1 + (now[1] - before[1]) / (now[0] - before[0]),
            "that is the mean acceptance length, {got:.2f}, and it is right. Does it pay? Return True or "
            "False.",
        ),
    },
    raised={"ZeroDivisionError": "divide by the rounds in between, which are never 0 here."},
)
def alarm(before, now, cost):
    return 1 + (now[1] - before[1]) / (now[0] - before[0]) < cost


_MIXES = [([900, 100], [3.0, 1.5]), ([100, 300, 200], [1.2, 2.0, 4.0]), ([50, 50], [1.0, 5.0])]


@exercise(
    "12.5",
    inputs=_MIXES,
    right="{tokens} tokens with lengths {lengths}: the engine shows {got:.3f}",
    wrong={
        "mean": (
            lambda tokens, lengths: sum(lengths) / len(lengths),
            "you averaged the lengths ({got:.3f}) as if every route had as much traffic.",
        ),
        "by tokens": (
            lambda tokens, lengths: (
                sum(n * each for n, each in zip(tokens, lengths, strict=True)) / sum(tokens)
            ),
            "you weighed the lengths by tokens ({got:.3f}). The counter divides by *rounds*, and the "
            "harder route makes "
            "more rounds of its tokens.",
        ),
        "harmonic, equal": (
            lambda tokens, lengths: len(lengths) / sum(1 / each for each in lengths),
            "a harmonic mean is the right idea, but of equal parts ({got:.3f}). Weigh by tokens.",
        ),
        "rounds": (
            lambda tokens, lengths: sum(n / each for n, each in zip(tokens, lengths, strict=True)),
            "{got:.1f} are the rounds. Divide all tokens by them.",
        ),
        "per route": (
            lambda tokens, lengths: [n / each for n, each in zip(tokens, lengths, strict=True)],
            "those are the rounds of each route. Add them up, and divide all tokens by the sum.",
        ),
        "upside down": (
            lambda tokens, lengths: (
                sum(n / each for n, each in zip(tokens, lengths, strict=True)) / sum(tokens)
            ),
            "that is rounds per token ({got:.3f}). Turn it round.",
        ),
    },
)
def shown(tokens, lengths):
    return sum(tokens) / sum(n / each for n, each in zip(tokens, lengths, strict=True))
