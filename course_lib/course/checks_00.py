"""Checks of notebook 00: counting one round."""

from course_lib.course.checks import exercise


@exercise(
    "0.1",
    inputs=[(4,), (1,), (8,)],
    right="with k = {k}, between {got[0]} and {got[1]} tokens",
    wrong={
        "drafts only": (
            lambda k: (0, k),
            "those are the kept guesses, {got[0]} to {got[1]}. The target adds one token in every round.",
        ),
        "no bonus": (
            lambda k: (1, k),
            "{got[0]} is right. But when all {k} guesses are kept, the target still adds one: the bonus "
            "token.",
        ),
        "nothing": (
            lambda k: (0, k + 1),
            "{got[1]} is right. But a round is never empty: in place of a rejected guess the target writes "
            "its own.",
        ),
    },
)
def least_and_most(k):
    return 1, k + 1


def _prefix(flags):
    return flags.index(False) if False in flags else len(flags)


@exercise(
    "0.2",
    inputs=[([True, False, True, True],), ([False, True],), ([True, True, True],), ([],), ([False, False],)],
    right="1 guess kept and 1 token of the target's: {got}",
    wrong={
        "after rejection": (
            lambda flags: sum(flags) + 1,
            "you kept guesses behind the first rejection ({flags} gives {got}). They continue a text that "
            "does not exist.",
        ),
        "all matches": (
            sum,
            "you counted every True ({got}), also those behind the first rejection, and left out the "
            "target's own token.",
        ),
        "kept only": (
            _prefix,
            "you counted the kept guesses alone ({got}). The target adds one token in every round.",
        ),
        "bonus only": (
            lambda flags: _prefix(flags) + all(flags),
            "after a rejection the target writes a token too, not only when all are kept ({flags} gives "
            "{got}).",
        ),
        "drafted": (
            lambda flags: len(flags) + 1,
            "you counted all {got} tokens that the target read. Those behind the first rejection are "
            "thrown away.",
        ),
    },
)
def emitted(flags):
    return _prefix(flags) + 1


_DRAFTS = ["the", "cat", "sat", "on", "mats"]


@exercise(
    "0.3",
    inputs=[
        (_DRAFTS, [True, True, False, True, False], "lay"),
        (_DRAFTS, [True] * 5, "all"),
        (_DRAFTS, [False, True, True, True, True], "a"),
    ],
    right="the text gets {got}",
    wrong={
        "after rejection": (
            lambda drafts, flags, own: [d if f else own for d, f in zip(drafts, flags, strict=True)],
            "{got}: you kept guesses behind the first rejection. They were made for another text.",
        ),
        "filtered": (
            lambda drafts, flags, own: [d for d, f in zip(drafts, flags, strict=True) if f] + [own],
            "{got}: you kept guesses behind the first rejection. They were made for another text.",
        ),
        "no own": (
            lambda drafts, flags, own: drafts[: _prefix(flags)],
            "{got}: where is the target's token {own!r}? Every round ends with one.",
        ),
        "rejected kept": (
            lambda drafts, flags, own: drafts[: _prefix(flags) + 1] + [own] * all(flags),
            "{got}: the rejected guess itself is in the text. The target's {own!r} takes its place.",
        ),
        "rejected and own": (
            lambda drafts, flags, own: drafts[: _prefix(flags) + 1] + [own],
            "{got}: {own!r} comes in place of the rejected guess, not after it.",
        ),
        "replaced only": (
            lambda drafts, flags, own: drafts[: _prefix(flags)] + [own] * (not all(flags)),
            "all guesses were kept, and {own!r} is missing: then the target adds a bonus token.",
        ),
    },
    raised={"ValueError": "all guesses may be kept, and then there is no False to be found."},
)
def written(drafts, flags, own):
    return drafts[: _prefix(flags)] + [own]


@exercise(
    "0.4",
    inputs=[([2, 0, 4, 1], 4), ([1, 1], 1), ([0, 0, 3], 5)],
    right="kept share {got[0]:.4f}, tokens per round {got[1]:.2f}",
    wrong={
        "bonus counted": (
            lambda kept, k: ((sum(kept) + len(kept)) / (len(kept) * k), sum(kept) / len(kept) + 1),
            "a kept share of {got[0]:.4f}: you counted the target's own tokens as kept guesses.",
        ),
        "bonus in both": (
            lambda kept, k: (
                (sum(kept) + len(kept)) / (len(kept) * (k + 1)),
                sum(kept) / len(kept) + 1,
            ),
            "{got[0]:.4f} is the emitted share of the k + 1 tokens a round can emit at most. The draft's "
            "tokens alone are kept ÷ drafted.",
        ),
        "own drafted": (
            lambda kept, k: (sum(kept) / (len(kept) * (k + 1)), sum(kept) / len(kept) + 1),
            "a kept share of {got[0]:.4f}: you divided by k + 1 tokens a round. {k} of them were drafted; "
            "the other is the target's own.",
        ),
        "no own token": (
            lambda kept, k: (sum(kept) / (len(kept) * k), sum(kept) / len(kept)),
            "{got[1]:.2f} kept per round is right, but the text also got one token of the target's in each "
            "round.",
        ),
        "per round": (
            lambda kept, k: (sum(kept) / len(kept), sum(kept) / len(kept) + 1),
            "a kept share of {got[0]:.2f} cannot be: divide by all drafted tokens, {k} in each round.",
        ),
        "swapped": (
            lambda kept, k: (sum(kept) / len(kept) + 1, sum(kept) / (len(kept) * k)),
            "both numbers are right; return the share first.",
        ),
    },
)
def share_and_tokens(kept, k):
    return sum(kept) / (len(kept) * k), sum(kept) / len(kept) + 1
