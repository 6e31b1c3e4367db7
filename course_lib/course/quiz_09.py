"""The quiz of notebook 09."""

from course_lib.course.quiz import question

question(
    "9.a",
    "k = 3 gives 1.8 times at batch 1 and 0.8 times at batch 256, with the same draft and prompts. Why?",
    right=(
        "A round costs more target steps",
        "At 256 rows the arithmetic is in use already: each of the 4 tokens of a verify is paid for.",
    ),
    wrong=[
        ("α: drafts are worse in a crowd", "α depends on the text, and rows do not see each other."),
        (
            "Rows wait for the row with the fewest accepted drafts",
            "Each row keeps its own count. All rows take part in each round, whatever they accepted.",
        ),
        ("One of the two was measured wrongly", "Both are right, each at its load."),
    ],
)
question(
    "9.b",
    "A chip has its ridge at 200 tokens in flight. 40 rows decode. How many drafts a row are nearly free?",
    right=("4", "40 × (4 + 1) = 200 tokens: four drafts and the text's last token in each row."),
    wrong=[
        ("5", "Five would make 40 × 6 = 240. The width of a verify is k + 1."),
        ("160", "That is the drafts of all rows together: 4 in each."),
        ("200: each row has the chip for itself", "The tokens of all rows go through in one step."),
    ],
)
question(
    "9.c",
    "Why do long contexts move the end of speculation back?",
    right=(
        "A row's cache is read once for all its drafts",
        "Plain decoding reads it once for each token. The longer it is, the more a shared reading saves.",
    ),
    wrong=[
        ("Drafts are accepted more often after a long text", "They may or may not be. Here α was the same."),
        (
            "A long context makes the matrices larger",
            "Matrices do not know the context. Attention does, and it reads the cache.",
        ),
        (
            "The draft does not read the context",
            "It does, k times a round. That is why the gain at moderate batches is smaller there.",
        ),
    ],
)
question(
    "9.d",
    "Many rows, 32,000 tokens each. Which quotient of draft and target says most about the price c?",
    right=(
        "Cache bytes for each token",
        "A step then mostly reads caches. Llama-3.1-8B has 0.4 of the 70B's cache, at a ninth of its size.",
    ),
    wrong=[
        ("Parameters", "That is right at batch 1 with a short context, where the weights are what is read."),
        ("Layers", "They count, but so do KV heads and their size: the cache has all three."),
        ("Vocabulary", "The head is read once a step, and no longer for a longer context."),
    ],
)
question(
    "9.e",
    "A roofline says 1.10 times for k = 2 at your load. What do you do?",
    right=(
        "Measure: a bound's quotient may err to either side",
        "A real draft step usually exceeds its bound by more than a target step does, so 1.10 may well be a "
        "loss.",
    ),
    wrong=[
        ("Speculate: a roofline is a lower bound", "Its times are. A quotient of bounds is none."),
        ("Not speculate: a roofline always promises too much", "Often, and not by a law. Measure."),
        ("Take a larger k to be safe", "A larger k stops paying earlier, not later."),
    ],
)
question(
    "9.f",
    "Memory is full with 21 rows, or with 9 rows and a draft that gives 1.8 times. Which server writes more?",
    right=(
        "Probably the one without the draft",
        "Where a step for 21 rows takes about as long as one for 9, it writes 21 tokens while the other "
        "writes 9 × 1.8 = 16.",
    ),
    wrong=[
        ("The one with the draft, 1.8 times", "That compares 9 rows with 9 rows. Plain, 21 would run."),
        ("The one with the draft: each user is faster", "Each of nine is. The others wait in the queue."),
        ("It cannot be compared", "It can: tokens a second of the whole server."),
    ],
)
