"""The quiz of notebook 12."""

from course_lib.course.quiz import question

question(
    "12.a",
    "You have 20 prompts and copy the file five times into one. What happens to a 95 % interval over "
    "these 100 lines?",
    right=(
        "It gets less than half as wide, and no longer deserves its name",
        "It believes in 100 observations where there are 20. That is why repeated prompts are left out.",
    ),
    wrong=[
        (
            "Nothing, since the mean stays the same",
            "The mean stays. The width goes with 1/√n, and n counts the lines.",
        ),
        ("It gets wider, since there are more prompts to differ", "A copy differs from nothing."),
        (
            "It gets half as wide, and rightly: 100 is more than 20",
            "More lines, not more prompts. A copy tells nothing about the next request.",
        ),
    ],
)
question(
    "12.b",
    "A pilot with 10 prompts gives a speedup of 1.12 ± 0.18. What does the report say, and what do you do?",
    right=(
        "Off, not shown. Measure about 40 prompts or more",
        "The lower end is 0.94. Four times the prompts give about ± 0.09, and then the lower end clears "
        "1 if the mean "
        "stays.",
    ),
    wrong=[
        (
            "Speculate: the mean is above 1",
            "A draft that brings nothing looks like that about every other time.",
        ),
        ("Off, slower. Look for a better draft", "The mean is above 1: it is not known to be slower."),
        (
            "Off. Measure the same 10 prompts again, four times",
            "That tells more about these ten and nothing about the others.",
        ),
    ],
)
question(
    "12.c",
    "Why does picking the best of six k make the decision by the mean worse?",
    right=(
        "The best of six is partly the luckiest of six, so its mean is too high on average",
        "Its mean was picked for being high. The more k are compared, and the fewer prompts, the more so.",
    ),
    wrong=[
        ("Six k need six times as many prompts", "One pass serves all k, with the same prompts."),
        (
            "The k are independent, so errors add up",
            "They are measured on the same prompts and move together.",
        ),
        (
            "It does not: the mean is unbiased",
            "At each k it is. Not at the one that was picked for being the highest.",
        ),
    ],
)
question(
    "12.d",
    "A round with your k costs 1.5 target steps. The engine shows an acceptance rate of 0.15 at k = 4. "
    "Does it pay?",
    right=(
        "Yes, barely: 1 + 4 · 0.15 = 1.6 tokens per round, above 1.5",
        "Accepted ÷ drafted, times k, is the accepted drafts of a round. One token more is emitted: 1.6 "
        "÷ 1.5 = 1.07.",
    ),
    wrong=[
        ("No: 0.15 is far below 1.5", "A rate is no length. Tokens per round are 1 + k · rate."),
        ("No: 4 · 0.15 = 0.6 tokens per round", "The target's own token is emitted as well."),
        (
            "No: with α = 0.15 the formula gives 1.18",
            "0.15 is accepted ÷ drafted over all four positions, the prefix rate; α is higher.",
        ),
    ],
)
question(
    "12.e",
    "The mean acceptance length fell overnight from 2.4 to 2.0. No version changed. What first?",
    right=(
        "Look at the shares of the routes, and what the old lengths give for the new shares",
        "If that explains 2.0, no route got worse. The decision for each route stands; one k for all may "
        "need to change.",
    ),
    wrong=[
        ("Train the draft again", "Perhaps it is as good as ever on each route."),
        ("Lower k, since fewer drafts are accepted", "Which k is best depends on why, and on the cost."),
        (
            "Nothing, as long as it is above 1",
            "It is always above 1. Compare it with the break-even, and find out why it moved.",
        ),
    ],
)
