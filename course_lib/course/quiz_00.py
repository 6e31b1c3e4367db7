"""Quiz of notebook 00."""

from course_lib.course.quiz import question

question(
    "0.a",
    "A round drafts 5 tokens. The first two are kept, the third is rejected, and the target would also "
    "have written the fourth. How many tokens does the text get?",
    right=("3", "Two kept guesses, and the target's own token in place of the third. The fourth stood "
                "behind a rejected token."),
    wrong=[
        ("2", "Those are the kept guesses. In place of the third, the target writes a token of its own."),
        ("4", "The fourth guess was made for a text with the rejected third token in it. That text does "
              "not exist."),
        ("6", "That is the most a round with k = 5 can add. It needs all five guesses to be kept."),
    ],
)
question(
    "0.b",
    "You replace the draft by one that guesses at random. What changes?",
    right=("Only the speed", "The target decides about every token, so the text stays the same. Nearly "
                             "every guess is rejected, and each round adds little more than one token."),
    wrong=[
        ("The text gets worse", "No guess gets into the text unless the target would have written it."),
        ("The text and the speed", "The speed does. The text does not: the target decides about every "
                                   "token."),
        ("Nothing", "Every rejected guess was work for nothing, and the text takes more rounds."),
    ],
)
question(
    "0.c",
    "Why may the target read five tokens at once, when it can only write one at a time?",
    right=(
        "The five are already there",
        "To write token 3 it must know token 2. The draft has proposed all of them, so the target only "
        "checks, and for one step it reads its weights once.",
    ),
    wrong=[
        ("It skips some layers", "The target does its full work. Skipping layers is how the course's draft "
                                 "was made."),
        ("It writes them without looking back", "It looks at every token before, as always. They only "
                                                "happen to be guesses."),
    ],
)
question(
    "0.d",
    "An answer of 60 tokens took 24 rounds at k = 4, and 96 tokens were drafted. Which is right?",
    right=(
        "2.5 tokens per round, 36 of 96 kept",
        "60 ÷ 24 = 2.5. Each round adds one token of the target's own, so 60 − 24 = 36 were guesses.",
    ),
    wrong=[
        ("2.5 tokens per round, 60 of 96 kept", "24 of the 60 tokens were the target's own, one in each "
                                                "round."),
        ("1.5 tokens per round, 36 of 96 kept", "1.5 kept guesses in each round, and one token of the "
                                                "target's own: 2.5."),
        ("2.5 times as fast", "The steps of the target became 2.5 times fewer. The draft's work and a "
                              "wider check take time too."),
    ],
)
