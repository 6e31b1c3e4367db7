"""The quiz of notebook 06."""

from course_lib.course.quiz import question

question(
    "6.a",
    "A log shows conditional rates of 0.76, 0.81, 0.83, 0.86 at positions 1 to 4. A colleague: “Our draft "
    "gets better with depth, so let us raise k.” Your answer?",
    right=(
        "Only rounds in easy text get that far. The rise shows how unequal the text is",
        "With a draft whose chance depends on the text alone, the same place has the same coin at any "
        "position. Whether a larger k pays is decided by the unconditional rate at the next position, and "
        "the cost.",
    ),
    wrong=[
        (
            "True: the draft has seen more of the text by then",
            "It has seen its own guesses. And a round that starts later has seen as much.",
        ),
        (
            "It must be a mistake, conditional rates cannot rise",
            "Unconditional ones cannot. Conditional ones divide by rounds that got there, and may.",
        ),
        (
            "True if k is small, false if k is large",
            "Selection works at every k. A small k only shows fewer positions of it.",
        ),
    ],
)
question(
    "6.b",
    "The same server, the same traffic: position 1 is accepted at a rate of 0.83 with k = 1, and 0.76 with k "
    "= 8. Why?",
    right=(
        "With k = 8 more rounds start right after a rejection, in hard text",
        "A bonus token needs all drafts kept, which is rarer with eight. The draft itself does not know k "
        "when it writes its first token.",
    ),
    wrong=[
        (
            "The draft spreads its effort over eight tokens",
            "It writes them one by one. The first costs and knows the same at every k.",
        ),
        (
            "With k = 8 the counter also divides by drafts that were not judged",
            "Position 1 is judged in every round. That slip would show at later positions.",
        ),
        (
            "Chance: the rate does not depend on k",
            "If i.i.d. held it would not. In real text it does, since k decides where rounds start.",
        ),
    ],
)
question(
    "6.c",
    "You shuffle the chances a_t within each answer, and replay. The conditional rates still rise, but less. "
    "What is left?",
    right=(
        "Differences between the answers",
        "The shuffle destroys runs of easy and hard places within an answer. An easy answer stays an easy "
        "one, and its rounds get further.",
    ),
    wrong=[
        ("Runs of easy places within an answer", "Those are just what the shuffle destroys."),
        ("A draft that is better at depth", "A shuffled place has no depth: its coin came from anywhere."),
        (
            "Only noise: shuffled coins are i.i.d.",
            "Within one answer they nearly are. Across answers their means differ.",
        ),
    ],
)
question(
    "6.d",
    "α is the mean of all a_t of a long, unequal text. At which k is the geometric formula exactly right all "
    "the same?",
    right=(
        "At k = 0, and without a limit on k",
        "At 0 every round emits one token. Without a limit each rejection ends one round, so only their "
        "number counts, and the mean gives that. In between it promises too much.",
    ),
    wrong=[
        (
            "At k = 1: with one draft no order matters",
            "It does: which places start rounds depends on the order.",
        ),
        ("At the k at which α was measured", "This α was measured along the text, at no k."),
        ("Nowhere", "Think of a draft that only stops at a rejection: how many rounds are there?"),
    ],
)
question(
    "6.e",
    "A beta-geometric law is fitted to the rounds of a server at k = 8, and fits well. You ask it about k = "
    "1. What can it not know?",
    right=(
        "That with k = 1 rounds start at other, easier places",
        "Its mean is the rate at position 1 of rounds as they start at k = 8. At k = 1 that rate is higher.",
    ),
    wrong=[
        (
            "That rounds differ",
            "That is what its spread says.",
        ),
        (
            "What a round costs, so it is no use for tokens per round",
            "Tokens per round need no cost. The cost comes after.",
        ),
        (
            "Nothing: k = 1 is the first of its eight rates",
            "The first of the rates *at k = 8*. Measured at k = 1, position 1 has another rate.",
        ),
    ],
)
question(
    "6.f",
    "On your traffic the formula picks the same k as the replay. May you print the speedup it promises?",
    right=(
        "No: the choice can be right while the promise is off by the whole lean",
        "Near its top the curve is flat, so the choice forgives. The number itself does not.",
    ),
    wrong=[
        (
            "Yes: the same k has the same speedup",
            "It has the same *true* speedup. The formula prints another.",
        ),
        (
            "Yes, with an interval over prompts",
            "An interval covers what other prompts would do. It is put around the wrong middle.",
        ),
        (
            "No: the formula has no interval",
            "It can be given one. The trouble is that it leans.",
        ),
    ],
)
