"""Checks of notebook 02: what right looks like, and every wrong turn we know by name."""

import math

from course_lib.course.checks import exercise
from course_lib.theory import alpha_from_prefix_rate, alpha_from_tokens, expected_accepted, expected_tokens


def _accepted(flags):
    return count(flags)[0]


@exercise(
    "2.1",
    inputs=[([True, False, True, True],), ([True, True, True],), ([False, True],), ([True, True, False],)],
    right="{flags}: {got[0]} accepted, {got[1]} emitted",
    wrong={
        "after the rejection": (
            lambda flags: (sum(flags), sum(flags) + 1),
            "you counted matches after the first rejection. They continue a text that does not exist.",
        ),
        "bonus as accepted": (
            lambda flags: (_accepted(flags) + 1, _accepted(flags) + 1),
            "you counted the bonus token as accepted. It is emitted, but the draft did not propose it.",
        ),
        "no extra": (
            lambda flags: (_accepted(flags), _accepted(flags)),
            "accepted is right, but you forgot the token that the target adds to every round.",
        ),
        "extra only after all": (
            lambda flags: (_accepted(flags), _accepted(flags) + all(flags)),
            "the extra token comes in every round: after a rejection it is the replacement.",
        ),
        "extra only after a rejection": (
            lambda flags: (_accepted(flags), _accepted(flags) + (not all(flags))),
            "the extra token comes in every round: when all drafts are accepted it is the bonus token.",
        ),
        "all emitted": (
            lambda flags: (_accepted(flags), len(flags)),
            "you emitted every drafted token; those after the rejection are thrown away.",
        ),
        "swapped": (
            lambda flags: count(flags)[::-1],
            "the two numbers are right, the order is not: (accepted, emitted).",
        ),
    },
    raised={"IndexError": "stop at the end of the list too: every draft may be accepted."},
)
def count(flags):
    accepted = 0
    while accepted < len(flags) and flags[accepted]:
        accepted += 1
    return accepted, accepted + 1


def _adds_up(exactly):
    total = sum(exactly(0.8, 4, n) for n in range(5))
    message = f"your chances add up to {total:.3f}, not 1: what stops the round after k accepted drafts?"
    return message if abs(total - 1) > 1e-6 else None


@exercise(
    "2.2",
    inputs=[(0.8, 4, 2), (0.8, 4, 4), (0.5, 3, 0), (0.9, 2, 1), (1.0, 2, 2)],
    right="P(exactly {n} of {k}) = {got:.3f}",
    wrong={
        "at least": (
            lambda alpha, k, n: alpha**n,
            'that is "at least {n}" ({got:.3f}). After {n} accepted drafts the next must be rejected.',
        ),
        "any order": (
            lambda alpha, k, n: math.comb(k, n) * alpha**n * (1 - alpha) ** (k - n),
            "that is the binomial: {n} heads of {k} in any order ({got:.3f}). The heads must come first.",
        ),
        "one order": (
            lambda alpha, k, n: alpha**n * (1 - alpha) ** (k - n),
            "you asked every draft after the {n} accepted ones to be rejected. One rejection ends the round; "
            "the rest may be anything.",
        ),
        "rescaled": (
            lambda alpha, k, n: alpha**n / sum(alpha**power for power in range(k + 1)),
            "you rescaled the plain geometric to add up to 1. Long runs are not left out: they end at k.",
        ),
    },
    diagnose={"adds up": (_adds_up, lambda alpha, k, n: alpha**n * (1 - alpha))},
)
def exactly(alpha, k, n):
    return alpha**n * (1 - alpha) if n < k else alpha**k


@exercise(
    "2.3",
    right="the last draft is counted twice. At α = 0.8 and K = 4 that adds α^K = 0.4096 to 2.3616.",
    wrong={
        "own token": (
            lambda: "a",
            "the token that every round adds would be a 1, not α^K. (The bonus token does come with chance "
            "α^K. But nobody proposed it, so it is emitted, not accepted.)",
        ),
        "first": (lambda: "c", "the first draft is accepted with chance α, like any other. Its term is α."),
        "equal": (lambda: "d", "at α = 0.8 and K = 4 the left side is 2.7712 and the right side 2.3616."),
    },
    same=lambda got, want: isinstance(got, str) and got.strip(" .").lower() == want,
)
def culprit():
    return "b"


def _sum(alpha, first, last):
    return sum(alpha**power for power in range(first, last + 1))


_FORGOT = "that is {got:.3f}: the accepted drafts alone. Every round also emits one token of the target."
_SHORT = "you wrote k for k + 1: 1 + α + … + α^k has k + 1 terms, so α^(k+1) is what is left of S − αS."


@exercise(
    "2.4",
    inputs=[(0.8, 4), (0.5, 1), (0.3, 7), (0.9, 0), (1.0, 3)],
    right="a round emits {got:.4f} tokens at α = {alpha} and k = {k}",
    wrong={
        "accepted": (lambda alpha, k: _sum(alpha, 1, k), _FORGOT),
        "accepted, no limit": (lambda alpha, k: alpha * (1 - alpha**k) / (1 - alpha), _FORGOT),
        "k for k + 1": (lambda alpha, k: _sum(alpha, 0, k - 1), _SHORT),
        "k for k + 1, no limit": (lambda alpha, k: (1 - alpha**k) / (1 - alpha), _SHORT),
        "one too many": (
            lambda alpha, k: _sum(alpha, 0, k + 1),
            "you have one term too many: k drafts and one more token end at α^k.",
        ),
        "extra only after all": (
            lambda alpha, k: _sum(alpha, 1, k) + alpha**k,
            "you add the extra token only when all k are accepted (chance α^k). It comes in every round.",
        ),
        "last draft twice": (
            lambda alpha, k: 1 + _sum(alpha, 1, k) + (alpha**k if k else 0),
            "you counted the last draft twice, as the article's first line does.",
        ),
        "plain geometric": (
            lambda alpha, k: 1 / (1 - alpha),
            "that is the plain geometric, {got:.3f}: it never runs out of drafts. A round stops after k.",
        ),
        "no order": (
            lambda alpha, k: 1 + k * alpha,
            "{got:.3f} counts every draft the target agrees with. A draft counts only if all before it do.",
        ),
    },
    raised={"ZeroDivisionError": "α = 1 is a limit: every draft is accepted. How many tokens is that?"},
)
def mean_emitted(alpha, k):
    return expected_tokens(alpha, k)


_PRINTED = {1: 1.80, 2: 2.44, 3: 2.95, 4: 3.36, 5: 3.69, 8: 4.40, 12: 4.82, 20: 4.99}
_WRONG_ROWS = {K: expected_tokens(0.8, K) for K in (8, 12, 20)}


def _about(got, want):
    return abs(got - want) < 0.0055  # a value of two decimals, rounded either way


def _same_rows(got, want):
    return isinstance(got, dict) and got.keys() == want.keys() and all(_about(got[K], want[K]) for K in want)


def _not_rows(corrections):
    rows = corrections()
    if isinstance(rows, dict) and not any(isinstance(K, str) for K in rows):
        return None
    return "make it a dictionary from K, a number without quotes, to the right value, such as {1: 1.80}."


def _rounding(corrections):
    for K, value in corrections().items():
        if K in _PRINTED and K not in _WRONG_ROWS and _about(value, _PRINTED[K]):
            return f"row K = {K} is right: {expected_tokens(0.8, K):.4f} rounds to what is printed."
    return None


def _other_formula(corrections):
    for K, value in corrections().items():
        if K in _PRINTED and K not in _WRONG_ROWS:
            return f"row K = {K} is right, and you have {value:.2f} there. Is your exponent K + 1?"
    return None


def _kept(corrections):
    kept = any(_about(corrections().get(K, 0), _PRINTED[K]) for K in _WRONG_ROWS)
    return "these are the printed values. Give the right ones." if kept else None


def _excess(corrections):
    small = any(abs(value) < 0.2 for value in corrections().values())
    return "these are the errors. Give the right values." if small else None


def _coarse(corrections):
    rows = corrections()
    off = [K for K in _WRONG_ROWS if K in rows and 0.0055 <= abs(rows[K] - _WRONG_ROWS[K]) < 0.05]
    return f"K = {off[0]} is among the wrong rows; give its value to two decimals." if off else None


def _missing(corrections):
    found = len(corrections())
    return f"you have found {found} of {len(_WRONG_ROWS)} wrong rows." if found < len(_WRONG_ROWS) else None


@exercise(
    "2.5",
    right="K = 8, 12 and 20 are wrong: 4.329, 4.725 and 4.954 are right. The printed ones are too high.",
    diagnose={
        "not rows": (_not_rows, lambda: [8, 12, 20]),
        "rounding": (_rounding, lambda: {K: expected_tokens(0.8, K) for K in (3, 4, 5, 8, 12, 20)}),
        "another formula": (_other_formula, lambda: {K: (1 - 0.8**K) / 0.2 for K in _PRINTED}),
        "printed values": (_kept, lambda: {K: _PRINTED[K] for K in _WRONG_ROWS}),
        "excess": (_excess, lambda: {K: _PRINTED[K] - value for K, value in _WRONG_ROWS.items()}),
        "one decimal": (_coarse, lambda: {8: 4.3, 12: 4.7, 20: 5.0}),
        "missing": (_missing, lambda: {20: expected_tokens(0.8, 20)}),
    },
    same=_same_rows,
)
def corrections():
    return dict(_WRONG_ROWS)


@exercise(
    "2.6",
    inputs=[(0.8, 0.9), (0.9, 0.9), (0.5, 0.74), (0.95, 0.5), (0.3, 0.6)],
    right="{got} drafts reach {share:.0%} of the ceiling at α = {alpha}",
    wrong={
        "k + 1": (
            lambda alpha, share: math.ceil(math.log(1 - share) / math.log(alpha)),
            "{got} is the exponent k + 1, or the k at which the *accepted* drafts get there. "
            "The extra token brings k down by one.",
        ),
        "starts at one": (
            lambda alpha, share: max(1, drafts_for(alpha, share)),
            "k = 0 counts too: at α = {alpha} one token without any draft is {share:.0%} of the ceiling.",
        ),
        "rounded down": (
            lambda alpha, share: math.floor(math.log(1 - share) / math.log(alpha)) - 1,
            "{got} drafts do not quite reach {share:.0%}. Round up, not down.",
        ),
        "not whole": (
            lambda alpha, share: math.log(1 - share) / math.log(alpha) - 1,
            "{got:.2f} is where the curve crosses. Drafts come whole: round up.",
        ),
    },
)
def drafts_for(alpha, share):
    k = 0
    while 1 - alpha ** (k + 1) < share:
        k += 1
    return k


def _per_round(accepted, drafted, k):
    return accepted / (drafted / k)


@exercise(
    "2.7",
    inputs=[(208, 260, 5), (5904, 10_000, 4), (400, 1000, 3)],
    right="{accepted} of {drafted} with k = {k} is α = {got:.4f}",
    wrong={
        "prefix rate": (
            lambda accepted, drafted, k: accepted / drafted,
            "{got:.3f} is the prefix rate, not α: `drafted` holds the drafts behind a rejection, "
            "which nobody judged.",
        ),
        "plain geometric": (
            lambda accepted, drafted, k: 1 - 1 / (1 + _per_round(accepted, drafted, k)),
            "that inverts the plain geometric, tokens = 1 / (1 − α), as if rounds never ran out of drafts.",
        ),
        "no extra": (
            lambda accepted, drafted, k: alpha_from_tokens(_per_round(accepted, drafted, k), k),
            "you set tokens per round to accepted ÷ rounds. Tokens per round is one more.",
        ),
        "bonus as accepted": (
            lambda accepted, drafted, k: alpha_from_prefix_rate(min(1, accepted / drafted + 1 / k), k),
            "you counted the bonus token as accepted: `accepted` has it not, and must not get it.",
        ),
        "all accepted": (
            lambda accepted, drafted, k: (accepted / drafted) ** (1 / k),
            "you solved α^k = accepted ÷ drafted, but α^k is the chance that *all* k are accepted.",
        ),
    },
    raised={"ZeroDivisionError": "a search also tries α = 1; `expected_accepted` knows that limit."},
    rtol=1e-3,
)
def alpha_from_counts(accepted, drafted, k):
    return alpha_from_prefix_rate(accepted / drafted, k)


def _mean(values):
    values = list(values)
    return sum(values) / len(values)


@exercise(
    "2.8",
    inputs=[((0.5, 0.9), 5), ((0.3, 0.6, 0.9), 4), ((0.8, 0.8), 3)],
    right="{got:.3f} tokens per round: the slow route takes most of the rounds, so it weighs most",
    wrong={
        "arithmetic mean": (
            lambda alphas, k: _mean(expected_tokens(alpha, k) for alpha in alphas),
            "{got:.3f} is the mean of the routes' values: right for the same number of *rounds* on each. "
            "With the same number of tokens the slow route needs more rounds.",
        ),
        "mean alpha": (
            lambda alphas, k: expected_tokens(_mean(alphas), k),
            "{got:.3f} is the formula at the mean α. No route has that α.",
        ),
        "harmonic alpha": (
            lambda alphas, k: expected_tokens(1 / _mean(1 / alpha for alpha in alphas), k),
            "the harmonic mean is the right idea, but take it of the tokens per round, not of α.",
        ),
        "rounds per token": (
            lambda alphas, k: _mean(1 / expected_tokens(alpha, k) for alpha in alphas),
            "{got:.3f} is rounds per token. Turn it over.",
        ),
        "accepted": (
            lambda alphas, k: 1 / _mean(1 / expected_accepted(alpha, k) for alpha in alphas),
            "that is the harmonic mean of the *accepted* drafts. Every round emits one more.",
        ),
    },
)
def server_tokens(alphas, k):
    return 1 / _mean(1 / expected_tokens(alpha, k) for alpha in alphas)
