"""The quiz of notebook 03."""

from course_lib.course.quiz import question

question(
    "3.a",
    "A round with k = 4 emits 3 tokens on average and costs 2 target steps. How much faster is the text?",
    right=("1.5 times", "3 tokens would take plain decoding 3 steps; here they take 2."),
    wrong=[
        ("3 times", "That is tokens per round. The round was not free."),
        ("1 time: the accepted drafts are 2", "Two drafts are accepted, but 3 tokens reach the text."),
        ("It cannot be said without c", "c is one part of the cost, and the whole cost is given."),
    ],
)
question(
    "3.b",
    "The target step costs the same at any width, and a draft step costs 0.4 of it. When does some k pay?",
    right=(
        "When α is above 0.4",
        "Then k = 1 does: 1 + α tokens for 1 + 0.4 steps. Below it, no k does, since each further draft "
        "brings less than the first and costs the same.",
    ),
    wrong=[
        ("When α is above 0.6", "Nothing here is 1 − c. Compare 1 + α with 1 + c."),
        ("When more than 1.4 drafts are accepted", "1.4 tokens must be *emitted*: 0.4 accepted."),
        ("Always, with a small enough k", "The smallest is k = 1, and it needs α above 0.4."),
    ],
)
question(
    "3.c",
    "On one GPU, batch 1, a verify of 6 tokens takes about as long as a step of one. Why?",
    right=(
        "Both wait for the same thing: reading the weights once",
        "The arithmetic of 6 tokens is six times that of one, and still tiny beside the reading.",
    ),
    wrong=[
        (
            "The GPU computes all 6 in parallel, so the arithmetic does not grow",
            "It grows six times. It takes no extra time because it was not what took the time.",
        ),
        (
            "Verifying is easier than writing",
            "It is the very same forward pass; the 6 tokens are merely known beforehand.",
        ),
        (
            "The verify is compute-bound, and compute is fast",
            "Bound by compute it would take six times as long.",
        ),
    ],
)
question(
    "3.d",
    "You have chosen k = 5 at batch 1. Traffic grows to batch 64. What about k?",
    right=(
        "Choose again, most likely smaller",
        "64 rows × 6 tokens = 384 in flight: past an H100's ridge of about 295 every token is paid for.",
    ),
    wrong=[
        ("Keep it: α has not changed", "α has not, but the price of width has."),
        ("Raise it: more rows, more drafts", "More rows fill the same step. Less of it is left for drafts."),
        (
            "Speculation never pays at batch 64",
            "It may: with 64 × 4 = 256 in flight k = 3 is still nearly free on that chip, in theory.",
        ),
    ],
)
question(
    "3.e",
    "α = 0.3 and k = 5. Is speculating a loss?",
    right=(
        "Only if the round costs more than 1.43 target steps",
        "It emits 1.4275 tokens. At a cost of 1.25 that is still a gain, 1.14 times.",
    ),
    wrong=[
        ("Yes: most drafts are rejected", "Rejected drafts cost time. How much is the question."),
        ("Yes: only 0.43 drafts are accepted", "0.43 accepted and one more token for the price of a round."),
        ("No: a round never emits less than one token", "But it can cost more than it emits."),
    ],
)
question(
    "3.f",
    "Speculation makes the text 2.5 times as fast. What about the arithmetic for each token?",
    right=(
        "It grows",
        "Rejected drafts are computed for nothing, by both models. Time shrinks where arithmetic was idle.",
    ),
    wrong=[
        ("It shrinks by 2.5 too", "Time shrinks. The target still reads every drafted token, kept or not."),
        ("It stays the same: so does the text", "The same text, plus the work for drafts thrown away."),
        ("It grows by k + 1", "Only if every draft were rejected; accepted ones were needed anyway."),
    ],
)
