"""The quiz of notebook 07."""

from course_lib.course.quiz import question

question(
    "7.a",
    "A paper reports α = 0.80 for a draft at temperature 0. What does that say about your chat at "
    "temperature 1?",
    right=(
        "Little: other traffic and another temperature are another measurement",
        "At 0 it is the share of equal favourites on their text. Yours is an overlap of laws on your text.",
    ),
    wrong=[
        ("That yours is lower: hot text is harder", "It may be lower or higher: both laws are flattened."),
        (
            "That yours is 0.80, if the models are the same",
            "The models are half of it. The rest is traffic and settings.",
        ),
        ("That yours is at least 0.80", "Nothing bounds it from below."),
    ],
)
question(
    "7.b",
    "At one place both models have the same favourite. The temperature of both rises from 0. What does α "
    "do there?",
    right=(
        "It starts at 1 and can first fall and then rise again",
        "Near 0 only the favourites count, far up both laws are flat. In between the laws differ most.",
    ),
    wrong=[
        ("It falls all the way", "Towards infinity both laws become flat, and so equal."),
        ("It rises all the way", "It cannot: it starts at 1."),
        (
            "It stays, since both laws change alike",
            "The same is done to both, but they are not the same laws.",
        ),
    ],
)
question(
    "7.c",
    "The target samples at temperature 1. May the draft sample at temperature 0.6?",
    right=(
        "Yes, if the verifier divides by the q at 0.6",
        "Rejection sampling is exact for any q, as long as it is the law the draft was drawn from.",
    ),
    wrong=[
        (
            "No: both must have the same temperature",
            "A greedy draft has temperature 0, and engines use it by default.",
        ),
        (
            "Yes, and the verifier need not know",
            "Then it judges by a wrong q, and the text is no longer the target's.",
        ),
        ("Yes, but the text gets a little colder", "With the right q the text is the target's, exactly."),
    ],
)
question(
    "7.d",
    "α at top-p 0.9 minus α at top-p 1 is +0.02, paired over 12 prompts, interval −0.01 to +0.05. What do "
    "you report?",
    right=(
        "No difference shown; with more prompts there may be one",
        "0 is inside. That is no proof that there is none.",
    ),
    wrong=[
        ("Top-p 0.9 is better by 0.02", "The data agree with a loss of 0.01 just as well."),
        ("Top-p makes no difference", "An interval that holds 0 also holds +0.04. Not shown is not absent."),
        ("Repeat until it is significant", "Who repeats until a star appears will always get one."),
    ],
)
question(
    "7.e",
    "Half of the tokens run at a speedup of 1, half at 3. How much faster is all of it?",
    right=("1.5 times", "Times add up: 0.5 + 0.5/3 = 0.667, and 1 ÷ 0.667 = 1.5."),
    wrong=[
        (
            "2 times",
            "That is the mean of the speedups. The slow half takes three quarters of the time that is left.",
        ),
        ("3 times", "Only half of the tokens are."),
        ("1.73 times", "That is the geometric mean. Times add up; they do not multiply."),
    ],
)
question(
    "7.f",
    "The dashboard's α fell from 0.66 to 0.57 overnight. Nobody touched the models. First look?",
    right=(
        "α by route, and each route's share of the traffic",
        "If the routes stand where they stood, the mix has moved.",
    ),
    wrong=[
        ("Roll back the draft", "Nobody touched it, and each route may be as good as ever."),
        ("Lower k by one for all", "That may hurt routes which have not changed."),
        ("Nothing: 0.09 is noise", "A day of traffic has narrow intervals. Look before you call it noise."),
    ],
)
