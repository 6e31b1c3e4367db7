"""The quiz of notebook 05."""

from course_lib.course.quiz import question

question(
    "5.a",
    "Why does one scoring pass suffice for every k?",
    right=(
        "A place's coin depends on the text before it, not on k or on where the round began",
        "p and q at a place are laws given the text so far. k only decides which coins are looked at.",
    ),
    wrong=[
        (
            "Because acceptance is the same at every place",
            "It is not, and need not be: each place has its own coin.",
        ),
        (
            "Because the formula is good enough",
            "The formula is not used. It knows one α; the replay knows every coin.",
        ),
        ("Because at temperature 1 the text does not matter", "It does: the coins belong to this very text."),
    ],
)
question(
    "5.b",
    "A round with k = 3 accepts all three drafts. What happens to the coin of the fourth token?",
    right=(
        "Nothing: it is the bonus token, and nobody looks at its coin",
        "The target wrote it itself. The next round starts after it.",
    ),
    wrong=[
        (
            "It is tossed; on tails the round emits three tokens",
            "No draft stands there that could be rejected.",
        ),
        (
            "It is the first coin of the next round",
            "The bonus token is emitted already; the next round starts behind it.",
        ),
        ("It counts as heads in α", "It was not judged. Counting it as accepted would make α too high."),
    ],
)
question(
    "5.c",
    "At temperature 0 one of 50 prompts has other rounds in the decoder than in the replay. Your first look?",
    right=(
        "Whether the decoder wrote the same text for that prompt",
        "A near-tie decided by rounding makes another text, and other rounds. With the same text they must "
        "be equal.",
    ),
    wrong=[
        (
            "At the interval: one in 20 may be outside",
            "There is no chance at temperature 0. Equal means equal.",
        ),
        ("Whether k was too large", "The replay is exact at every k."),
        ("Nothing: replay is right on average only", "At temperature 0 it is right round for round."),
    ],
)
question(
    "5.d",
    "Averaging 1 + a_t + a_t·a_(t+1) + … over all places t gives too many tokens per round on sticky text. "
    "Why?",
    right=(
        "Rounds mostly start after a rejection, in hard text; all places include the middle of easy runs",
        "So the average gives easy starts more weight than the decoder does.",
    ),
    wrong=[
        ("It counts the bonus token twice", "The 1 is counted once for each start. That part is right."),
        (
            "It must be weighted by p",
            "The text was drawn from p. The weights that lack are those of round starts.",
        ),
        ("The products underflow", "At k = 8 they do not. It would be wrong in exact fractions."),
    ],
)
question(
    "5.e",
    "Σ min(p, q) is less noisy than min(1, q/p) and has the same mean. Why not replay with it?",
    right=(
        "The next overlap depends on the token, and accepted drafts lead to other tokens than the text "
        "does on average",
        "min(1, q/p) is high for the tokens that drafts lead to, and so weighs the next place rightly.",
    ),
    wrong=[
        ("Because it can exceed 1", "It cannot: it is at most the sum of p."),
        (
            "Because the mean is not the same after all",
            "It is, at every single place. Products are another matter.",
        ),
        (
            "One may: only the interval changes",
            "In the toy it gave 0.36 in place of 0.48, with no noise at all.",
        ),
    ],
)
question(
    "5.f",
    "You have logs of answers that the target wrote at temperature 1. For which plan is one scoring pass "
    "enough?",
    right=(
        "A smaller draft from the same family, k from 1 to 12, at temperature 1",
        "Score the logs with target and draft, then replay each k. The text is the target's own under "
        "these settings.",
    ),
    wrong=[
        (
            "The same draft at temperature 0.3",
            "At 0.3 the target writes other texts, and p and q are other laws.",
        ),
        ("A tree of drafts with k = 4", "There several drafts compete at a place; the coin is another."),
        (
            "An EAGLE head, k from 1 to 5",
            "Its q depends on the position in the round, not on the text alone.",
        ),
    ],
)
