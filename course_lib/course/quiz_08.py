"""The quiz of notebook 08."""

from course_lib.course.quiz import question

question(
    "8.a",
    "You time a draft step alone and a target step of every width alone, add up, and predict 1.12×. Real "
    "requests have the acceptance and the widths that you assumed, and the clock says 1.05×. What is the "
    "likeliest reason?",
    right=(
        "A round holds more than these forwards, and its forwards may be slower than alone",
        "Drawing, judging, rollback and waiting lie between them, and each model may find its weights pushed "
        "out of the processor's fast memory by the other. Time whole rounds inside the decoder.",
    ),
    wrong=[
        ("The draft accepts less in production", "Often so, but here acceptance is as you assumed."),
        (
            "A wide target step is slower than a narrow one",
            "It is, and you timed every width: that is in the 1.12.",
        ),
        ("Speculative decoding has a bug", "Perhaps. First price a round as the decoder runs it."),
    ],
)
question(
    "8.b",
    "On a laptop a colleague runs all prompts plainly, then all with k = 1, then k = 2, and so on. Speedup "
    "falls with k, and the intervals are narrow. What do you believe?",
    right=(
        "Nothing yet: a laptop that warms up gives the same picture",
        "k and time went up together, so they cannot be told apart. Intervals over prompts do not know about "
        "a drift. All settings must take turns.",
    ),
    wrong=[
        ("The fall is real, the intervals show it", "They show how prompts differ. All drifted alike."),
        ("More prompts will settle it", "They make the intervals narrower, around the same wrong curve."),
        (
            "The fall, as soon as a second run in the same order shows it again",
            "The machine warms up the second time, too. The mistake repeats itself.",
        ),
    ],
)
question(
    "8.c",
    "Why does speedup decline beyond the best k, if it does?",
    right=(
        "Late drafts are rarely reached, but every round pays for them",
        "Tokens per round never decline with k: they flatten. The price goes on, by the draft's time and by "
        "the width of the verify.",
    ),
    wrong=[
        ("Tokens per round decline", "They cannot: a longer round keeps all that a shorter one keeps."),
        (
            "The draft gets worse with each position",
            "Even one that is equally good everywhere flattens, since all earlier drafts must be kept first.",
        ),
        ("The caches have to be rolled back further", "That costs next to nothing: a length is set back."),
    ],
)
question(
    "8.d",
    "The decoder's authors make plain decoding twice as fast and leave speculation as it was. What happens "
    "to the speedup they report?",
    right=(
        "It halves, and users are better off than before",
        "A speedup is a quotient. It can be raised by a slow baseline, which helps nobody: report tokens per "
        "second beside it.",
    ),
    wrong=[
        ("It stays: speculation is as fast as before", "The quotient has a second number, and that changed."),
        ("It doubles", "Speculation did not get faster. Its advantage over plain decoding shrank."),
        (
            "It halves, so the change was a mistake",
            "Who decodes plainly waits half as long. A quotient is no goal.",
        ),
    ],
)
question(
    "8.e",
    "Decoding is 1.5 times as fast with k = 4. The prompt takes 2 s to read, the answer 1 s to write "
    "plainly. How many times as fast is the whole request, at most?",
    right=(
        "1.125 times",
        "3 s become 2 + 1/1.5 = 2.67 s. The draft's own reading of the prompt takes some more off that.",
    ),
    wrong=[
        ("1.5 times", "Only the second of writing becomes shorter; the two seconds of reading stay."),
        ("1.29 times", "You sped up the reading. Drafts help with writing alone."),
        ("1.2 times", "That would save half a second. 1 s ÷ 1.5 saves a third of one."),
    ],
)
question(
    "8.f",
    "k = 3, 4 and 5 have speedups of 1.41, 1.42 and 1.42, each ± 0.08. Which do you set?",
    right=(
        "3: equal speed for all we know, and fewer drafts thrown away",
        "On a plateau the smallest k wastes least work, and loses least when the load grows.",
    ),
    wrong=[
        ("4: it is the best one, and smaller than 5", "By 0.01, known to ± 0.08: nobody can tell."),
        ("5: more drafts, more chances", "It pays for them too, and gains nothing here."),
        ("None: the intervals overlap", "They overlap each other, not 1. Speculating pays at all three."),
    ],
)
