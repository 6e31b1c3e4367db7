"""The quiz of notebook 11."""

from course_lib.course.quiz import question

question(
    "11.a",
    "Draft A has α = 0.6 at c = 0.1, draft B has α = 0.7 at c = 0.3. Rounds cost 1 + k·c, each draft has its "
    "best k. Which is faster?",
    right=(
        "A: 1.67× at k = 3, against 1.37× at k = 2",
        "1 + 0.6 + 0.36 + 0.216 = 2.176, over 1.3. B emits more in each round and pays too much for it.",
    ),
    wrong=[
        ("B: it has the higher α", "α decides the yield. The price of a round decides what it is worth."),
        (
            "B: 2.53 tokens per round at k = 3, against 2.18",
            "True, and not yet a speedup: 2.533 ÷ 1.9 is 1.33, and 2.176 ÷ 1.3 is 1.67.",
        ),
        ("They are equal: α ÷ c is what counts", "0.6 ÷ 0.1 is not 0.7 ÷ 0.3. Work out both speedups."),
    ],
)
question(
    "11.b",
    "Target and draft sample at temperature 1. After an hour more of training, KL(p‖q) on held-back text "
    "went up a little, and Σ min(p, q) went up, too. Is the draft better or worse?",
    right=(
        "Better: a draft is accepted with chance Σ min(p, q), and nothing else about q counts",
        "KL charges a high price for tokens that q thinks nearly impossible. The accept test charges at most "
        "what p has there.",
    ),
    wrong=[
        (
            "Worse: the loss went up",
            "That depends on which loss. The one that counts is total variation, and 1 − TV went up.",
        ),
        (
            "Unknown: the two must agree, so one was measured wrongly",
            "They need not agree. Exercise 11.3 has two drafts that they rank the other way round.",
        ),
        (
            "Worse: the text will be further from the target's",
            "The text is the target's, whatever q is. Only speed is at stake.",
        ),
    ],
)
question(
    "11.c",
    "A draft proposes 4,096 of 49,152 tokens. What becomes of a word that is not among them?",
    right=(
        "It appears as often as the target wants it, always by the target's own hand",
        "Where q is 0 the residual has all of p, and the extra token of a round comes from p itself. It "
        "costs a rejection, not a word.",
    ),
    wrong=[
        ("It never appears again", "It would if the residual were cut, too. The target's law is not cut."),
        ("It appears too rarely, by the mass that was cut", "The rejections give back exactly that mass."),
        (
            "It makes the accept test divide by 0",
            "The test divides by q of the token that was drafted, and that one has q above 0.",
        ),
    ],
)
question(
    "11.d",
    "A draft was adapted to JSON. Its α rose there and fell on chat. What do users of chat notice?",
    right=(
        "Slower answers, of the same words by law",
        "Exactness does not depend on the draft. Weigh the loss on chat against the gain on JSON by the "
        "tokens of each.",
    ),
    wrong=[
        ("Worse answers", "A worse draft is rejected more often. What is emitted follows p in any case."),
        ("Answers that look like JSON", "The target decides on every token, and the target was not touched."),
        ("Nothing at all", "The words are the same, but more of the rounds end early."),
    ],
)
question(
    "11.e",
    "Lookup is right less often than the draft model on a route, and still faster there. How can that be?",
    right=(
        "Its guesses cost next to nothing, so a lower yield is enough",
        "Only their place in the verify is paid for. And it makes no guess where nothing matches: such a "
        "round is a plain step.",
    ),
    wrong=[
        ("Its guesses are not verified", "They are, as any draft is: the text is the target's."),
        (
            "It must have a longer k, and longer is faster",
            "A longer k wins only where late drafts are kept often enough. What counts is yield ÷ price.",
        ),
        ("That cannot be", "Yield ÷ price: the numerator is smaller, and so is the denominator."),
    ],
)
question(
    "11.f",
    "Medusa's heads work out all k drafts at once, from the state that the target has anyway; together they "
    "cost c target steps. What does a round cost, if verifying is as cheap as one step?",
    right=(
        "1 + c",
        "There are no k draft steps one after the other. The price: head 3 guesses without knowing what "
        "heads 1 and 2 guessed.",
    ),
    wrong=[
        ("1 + k·c", "That is a draft that takes k steps, one after the other."),
        ("1: the heads are part of the target", "They are small, but they have weights, and these are read."),
        ("(1 + c) ÷ k", "The round's tokens are divided by its cost, not the cost by the tokens."),
    ],
)
question(
    "11.g",
    "Two candidates for one place, drawn from the same q, each accepted with chance 0.6 if it came alone. "
    "One of the two is accepted with chance …",
    right=(
        "at most 0.84, and as a rule less",
        "The second is judged against the residual, which has its mass where q has too little. So it does no "
        "better than the first, and mostly worse.",
    ),
    wrong=[
        ("0.84 = 1 − 0.4², always", "That is for independent tries. The second meets the residual, not p."),
        ("1.2, that is: always", "The second only has its turn when the first is rejected."),
        ("0.6: a second draw from the same q adds nothing", "It adds what the residual and q share."),
    ],
)
question(
    "11.h",
    "Why can the one pass of notebook 05 not score an EAGLE draft?",
    right=(
        "Its q at a place depends on where the round began",
        "The first guess of a round reads the target's state, the later ones their own guesses of it. One "
        "number for each place cannot hold that.",
    ),
    wrong=[
        ("It is too fast to be measured", "Speed is no obstacle. The pass needs one chance for each place."),
        (
            "It changes the target's text",
            "It does not. With the usual accept test it is as exact as any draft.",
        ),
        (
            "It has no q, since it guesses states",
            "The states go through the target's head, and out comes a law.",
        ),
    ],
)
