"""The quiz of notebook 10."""

from course_lib.course.quiz import question

question(
    "10.a",
    "vLLM shows an acceptance rate of 0.36 with k = 5. The i.i.d. α that would give this rate is …",
    right=(
        "well above 0.36, about 0.68",
        "(α + α² + … + α⁵) ÷ 5 = 0.36. Late drafts drag the rate down, since all before them must be kept.",
    ),
    wrong=[
        ("0.36: rate and α are two names of one thing", "They are equal at k = 1 only."),
        ("below 0.36, since the bonus token is in the rate", "It is not: accepted ÷ drafted knows no bonus."),
        (
            "not known without the rates by position",
            "Under the assumption the rate and k are enough. The positions would test the assumption.",
        ),
    ],
)
question(
    "10.b",
    "Two scrapes an hour apart: 1,000 then 1,400 rounds; 600 then 1,200 accepted tokens. Tokens per round in "
    "that hour?",
    right=("2.50", "600 accepted in 400 rounds, and each round emits one more."),
    wrong=[
        ("1.86", "1 + 1,200 ÷ 1,400 goes back to the engine's start."),
        ("1.50", "Those are the accepted drafts. Every round emits one token of the target as well."),
        ("0.26", "A difference of two quotients means nothing: subtract counters, then divide."),
    ],
)
question(
    "10.c",
    "An older SGLang prints accept rate 0.50 with k = 3 and accept len 2.00. A newer one, with the same "
    "draft and traffic, will print …",
    right=(
        "0.33",
        "The old rate is length ÷ (k + 1), bonus included. The new one is (length − 1) ÷ k, and the length "
        "stays.",
    ),
    wrong=[
        ("0.50", "The name stayed, the definition did not."),
        ("0.67", "That is length ÷ k: it still has the bonus token above the line."),
        ("0.25", "That divides the accepted drafts by k + 1. Only k were drafted."),
    ],
)
question(
    "10.d",
    "Position 0 accepts 6 %, the other positions almost nothing, at temperature 1. At temperature 0 the same "
    "engine had 0.40 at position 0. What first?",
    right=(
        "Compare text with and without speculation at temperature 1",
        "A bad draft and a broken verify look alike in counters. Only the text tells them apart.",
    ),
    wrong=[
        (
            "Switch the draft off for sampled traffic: it does not fit",
            "Perhaps. But if the verify is broken, every sampled text so far was wrong, and nobody knows.",
        ),
        ("Train the draft on sampled text", "The draft may be fine: at temperature 0 it was."),
        ("Lower k to 1: the later positions bring nothing", "That hides the symptom and keeps the text."),
    ],
)
question(
    "10.e",
    "Greedy texts with and without speculation part at token 40. The engine without speculation preferred "
    "its own token by 0.003 nats. What do you conclude?",
    right=(
        "A near-tie: rounding decided, and what follows says nothing",
        "Other widths round otherwise. After the first difference both continue other texts.",
    ),
    wrong=[
        (
            "A bug: greedy text must be the same",
            "In exact arithmetic. In floating point two almost equal logits may swap.",
        ),
        ("A bug, if many of the later tokens differ as well", "They must: the texts before them differ."),
        (
            "Nothing: greedy texts cannot be compared",
            "They can. A margin of 3 nats there would have been a proof.",
        ),
    ],
)
question(
    "10.f",
    "With n-gram drafting the dashboard says mean acceptance length 3.1, and users feel next to nothing. How "
    "so?",
    right=(
        "Most steps found no match and drafted nothing; the length is of the others",
        "Tokens per step, plain steps included, is what users feel.",
    ),
    wrong=[
        ("The bonus token is counted twice", "It is in there once, as it should be."),
        (
            "The wider verify eats the gain",
            "It may cost something. But few steps drafted at all, so there was little gain to eat.",
        ),
        ("The counters run since the start", "That would mix times, not hide the plain steps."),
    ],
)
question(
    "10.g",
    "Replay and the engine's counters agree on tokens per round. Our decoder predicts 1.3×, the engine "
    "measures 0.9×. Which of the two is wrong?",
    right=(
        "Neither: the price of a round is the engine's own",
        "Yields carry over, prices do not. Take the price from the engine: tokens per round ÷ speedup.",
    ),
    wrong=[
        ("The prediction: replay is optimistic", "Its tokens per round are what the engine counted."),
        ("The engine: it is too slow", "It has other kernels and another scheduler, and drafts its own way."),
        ("Both: take the mean of the two", "They are speeds of two different programs."),
    ],
)
