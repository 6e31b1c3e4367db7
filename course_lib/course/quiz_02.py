"""The quiz of notebook 02."""

from course_lib.course.quiz import question

question(
    "2.a",
    "With α = 0.8 and k = 4, how many tokens does a round emit on average?",
    right=("3.36", "1 + 0.8 + 0.8² + 0.8³ + 0.8⁴: the accepted drafts and one more."),
    wrong=[
        ("2.36", "That is the accepted drafts alone. Every round also emits one token of the target."),
        ("4.20", "That is 1 + 4 × 0.8, as if each draft counted by itself. It needs all before it."),
        ("5.00", "That is the ceiling 1 / (1 − 0.8), which no finite k reaches."),
    ],
)
question(
    "2.b",
    "An engine with k = 5 reports 260 drafted and 208 accepted tokens. What do you know?",
    right=(
        "A round emits 5 tokens on average, and if the coins are independent α is about 0.93",
        "260 / 5 = 52 rounds accept 208 / 52 = 4 drafts each, and emit one more. "
        "The formula gives 5 at α = 0.9265.",
    ),
    wrong=[
        ("α is 0.80", "0.80 is the prefix rate. It also divides by drafts nobody judged."),
        ("A round emits 4 tokens on average", "4 are accepted. The target's own token makes it 5."),
        ("A round emits 3.69 tokens on average", "The formula does, given 0.80 as α. The counts say 5."),
    ],
)
question(
    "2.c",
    "You raise k from 3 to 7. Accepted ÷ drafted falls from 0.55 to 0.36. What happened to the draft?",
    right=(
        "Perhaps nothing: an unchanged α gives about that",
        "α is about 0.73 at k = 3 and 0.74 at k = 7. The rate falls because more drafts stand behind a "
        "rejection.",
    ),
    wrong=[
        ("It agrees less often with the target", "Convert both rates to α first: about 0.73 and 0.74."),
        ("A round now emits fewer tokens", "More: 1 + 3 × 0.55 = 2.65 before, 1 + 7 × 0.36 = 3.52 now."),
        (
            "Its later guesses are worse than its first ones",
            "That can be, but a falling prefix rate does not show it. It falls with independent coins too.",
        ),
    ],
)
question(
    "2.d",
    "A round has k = 4 drafts. Which chance is α⁴?",
    right=(
        "Both: at least 4 accepted, and exactly 4 accepted",
        "No fifth draft could be rejected, so at the cap the two are the same.",
    ),
    wrong=[
        ("At least 4 accepted, but not exactly 4", "No round accepts more than 4: at least 4 is exactly 4."),
        ("Exactly 4 heads before the first tails, if nothing stops the tossing", "That is α⁴(1 − α)."),
        (
            "That the bonus token is accepted",
            "With chance α⁴ a bonus token is written. Nobody proposed it, so nobody accepts it.",
        ),
    ],
)
question(
    "2.e",
    "α = 0.9. How many tokens can a round emit on average, at most, whatever k is?",
    right=("10", "The ceiling 1 / (1 − 0.9): on average nine accepted drafts and the target's own token."),
    wrong=[
        ("9", "That is the accepted drafts alone, α / (1 − α)."),
        ("k + 1, so there is no limit", "A lucky round can emit k + 1. The mean stays below 10."),
        ("5.7", "That is k = 7. The curve goes on climbing: at k = 20 it is at 8.9."),
    ],
)
question(
    "2.f",
    "α = 0.8 and k = 5 give 3.69 tokens per round. How much faster is the text written?",
    right=(
        "That cannot be said yet",
        "Divide 3.69 by what a round costs, in target steps: five draft steps, a wider target step.",
    ),
    wrong=[
        ("3.69 times", "Only if a round cost as little as one target step. The draft steps are not free."),
        ("2.69 times", "2.69 is the number of accepted drafts. Emitted tokens and the round's cost decide."),
        (
            "At least 1.8 times, as with k = 1",
            "Even that is tokens per round. With a slow draft a round can cost more than it yields.",
        ),
    ],
)
