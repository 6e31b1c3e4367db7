"""Quiz of notebook 01."""

from course_lib.course.quiz import question

question(
    "1.a",
    "For the drafted word p(d) = 0.2 and q(d) = 0.5. With which chance is it accepted?",
    right=("0.4", "min(1, 0.2 / 0.5). The draft proposes it 2.5 times too often, so 2 in 5 may stay."),
    wrong=[
        ("0.2", "That is p(d), right for a greedy draft. It is also the chance of being drafted *and* "
                "accepted."),
        ("1", "min(1, q/p) would give 1. The ratio is p/q: what should appear over what is proposed."),
        ("0.1", "That is p·q, the chance that two separate draws agree."),
    ],
)
question(
    "1.b",
    "After a rejection, why not simply draw from p? It is the target's law.",
    right=(
        "Acceptance has delivered part of p already",
        "Words that the draft likes have had their chance. Drawn from p they get a second one, and come "
        "too often.",
    ),
    wrong=[
        ("It would be slower", "It would be faster, since no residual is computed. But the law would be "
                               "wrong."),
        ("The rejected word could be drawn again", "It could, but that is not all: every word's chance "
                                                   "must be corrected."),
        ("It is allowed", "The text then leans to the draft. With the laws of this notebook, TV is 3/20."),
    ],
)
question(
    "1.c",
    "All k drafts were accepted. From which law does the bonus token come?",
    right=("From p", "Nothing was drafted at this place, so nothing was rejected, and p has nothing to "
                     "make up for."),
    wrong=[
        ("From the residual", "The residual makes up for a rejection. There was none."),
        ("From q", "Then the draft's law would leak into the text: nobody verifies this token."),
        ("From min(p, q), scaled", "That is the law of the accepted drafts, not of the target."),
    ],
)
question(
    "1.d",
    "All k drafts were accepted. What must the draft read before it can guess again?",
    right=(
        "Its own last guess and the bonus token",
        "It proposed its last guess without reading it, and the bonus token is the target's.",
    ),
    wrong=[
        ("The bonus token", "And the last guess? It proposed that token, and the round was over."),
        ("Nothing, its cache is full", "The bonus token came from the target; the draft has never seen it."),
        ("The whole text again", "All that it read is still right: every guess was accepted."),
    ],
)
question(
    "1.e",
    "A decoder's greedy text equals the target's, on a thousand prompts. What is proved?",
    right=(
        "Little about sampling, nothing about speed",
        "A residual from p or a wrong q shows only when tokens are drawn; a draft cache one short only "
        "costs acceptance.",
    ),
    wrong=[
        ("The decoder is right", "It is right for greedy text. Resampling never happens there, nor does "
                                 "the ratio p/q."),
        ("The draft is good", "A useless draft gives the same text."),
        ("The target's cache is "
         "rolled back, and nothing else", "It shows that too, but also that the greedy rule of accepting "
                                          "works."),
    ],
)
question(
    "1.f",
    "k = 5. The draft proposes two words, then EOS, then two more. The target accepts all five. What is "
    "emitted?",
    right=("3 tokens", "Two words and EOS. What stands behind the end was never said, and there is no "
                       "bonus."),
    wrong=[
        ("6 tokens", "Five drafts and a bonus, if the text had gone on. It ended at the third."),
        ("2 tokens", "EOS itself is a token of the text; it was drafted and accepted."),
        ("4 tokens", "After EOS the target adds nothing: there is no text to continue."),
    ],
)
