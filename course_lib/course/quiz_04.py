"""The quiz of notebook 04."""

from course_lib.course.quiz import question

question(
    "4.a",
    "The target wrote a token with p = 0.4 and q = 0.1. With which chance was it an accepted draft?",
    right=(
        "0.25",
        "min(1, q/p). Of a mass of 0.4 that this token has in the text, the draft supplies 0.1.",
    ),
    wrong=[
        (
            "1",
            "That is min(1, p/q), the test for a token the draft wrote: had it been drafted, it would be "
            "kept.",
        ),
        (
            "0.1",
            "That is the chance that it is drafted and kept, before the text is known. Divide by p = 0.4.",
        ),
        (
            "0.04",
            "p times q is the chance that two free draws both give this token. Nothing here is drawn twice.",
        ),
    ],
)
question(
    "4.b",
    "In 80 of 100 places target and draft have the same favourite. What do you know?",
    right=(
        "At temperature 0 a draft is accepted in 80 % of these places",
        "There the target always writes its favourite. At temperature 1 the rate may be higher or lower.",
    ),
    wrong=[
        (
            "Σ min(p, q) is about 0.8",
            "Two laws may share a favourite and little else, or differ only in which is first.",
        ),
        (
            "A round of k = 5 emits 1 + 5 × 0.8 tokens",
            "A draft counts only if all before it in the round were accepted.",
        ),
        (
            "A greedy draft at temperature 1 is kept in 80 %",
            "It is kept with chance p(its favourite), averaged over places.",
        ),
    ],
)
question(
    "4.c",
    "A log shows per-position rates 0.80, 0.60, 0.45, and below it a mean length of 2.85. Which rates are "
    "they?",
    right=(
        "Unconditional: accepted at the position ÷ all rounds",
        "1 + 0.80 + 0.60 + 0.45 = 2.85. The conditional rates are 0.80, 0.75, 0.75.",
    ),
    wrong=[
        (
            "Conditional: accepted ÷ rounds that got there",
            "Then the length would be 1 + 0.8 + 0.48 + 0.216 = 2.50.",
        ),
        (
            "They cannot be told apart from outside",
            "The mean length tells: 1 + the sum of the unconditional rates.",
        ),
        ("Prefix rates", "There is one prefix rate in a run: here (0.80 + 0.60 + 0.45) / 3 = 0.617."),
    ],
)
question(
    "4.d",
    "You measured 2,000 tokens: 4 prompts with 500 each. How many observations has your interval?",
    right=("4", "Tokens of one prompt resemble each other. What you do not know is how prompts differ."),
    wrong=[
        (
            "2,000",
            "Then 1 prompt with 2,000 tokens would do as well, and say nothing about the second prompt.",
        ),
        ("500", "Each prompt's length makes that prompt's own mean sharper, not the next prompt's."),
        ("As many as there were rounds", "Rounds of one prompt resemble each other as its tokens do."),
    ],
)
question(
    "4.e",
    "A counter shows 1,000 rounds, 2,400 accepted and 2,900 emitted tokens. What is wrong?",
    right=(
        "Accepted + rounds is 3,400: it counts matches behind a rejection",
        "Rounds emit their accepted drafts and one more. 2,900 emitted means that 1,900 were accepted.",
    ),
    wrong=[
        ("Nothing: 2.9 tokens per round", "2.9 is right, but 2,400 accepted would make it 3.4."),
        ("It counts the bonus tokens as accepted", "Then it would show accepted = emitted, 2,900."),
        (
            "Some texts ended inside their drafts",
            "That makes emitted fall short by one a text, not by 500 in 1,000 rounds.",
        ),
    ],
)
question(
    "4.f",
    "Yesterday k = 3 with a prefix rate of 0.55, today k = 7 with 0.36. How do you compare the drafts?",
    right=(
        "Convert both to α, or compare accepted ÷ judged",
        "With equal, independent coins both are α of about 0.73: the same draft.",
    ),
    wrong=[
        (
            "0.55 against 0.36: today's is worse",
            "The rate falls with k by itself, since a rejection drags more drafts along.",
        ),
        (
            "By tokens per round: 2.65 against 3.52, today's is better",
            "That compares the two k as well as the drafts.",
        ),
        (
            "By 0.55 × 3 against 0.36 × 7 accepted drafts",
            "That is tokens per round less one, and mixes k in likewise.",
        ),
    ],
)
