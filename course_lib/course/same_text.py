"""Are two greedy texts of one target the same? And if not, was it a near-tie or a mistake?

Reading one token at a time and reading several at once add the same numbers in another order, so
logits differ in their last digits. Where the target's two best tokens are that close, either may
win, and from there on the texts differ. That is rounding. Any wider gap is a mistake.
"""

from collections.abc import Sequence

# Logits of these models lie between about -20 and 30, so one rounding step of bfloat16 is 0.1 and
# of float16 0.02. Float32 sums over a few thousand numbers stay well within a thousandth.
_ROUNDING = {"float64": 1e-9, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


def first_difference(first: Sequence[int], second: Sequence[int]) -> int | None:
    """The index of the first token that differs, or that only one text has; None if none does."""
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return None if len(first) == len(second) else min(len(first), len(second))


def compare_texts(pair, prompt: list[int], first: list[int], second: list[int]) -> str:
    """One sentence: the same, different at a near-tie, or a mistake.

    pair: the `pairs.Pair` whose target wrote both texts greedily after `prompt` (token ids).
    At the first difference the target reads the common text once, and the gap between its logits
    of the two tokens is compared with the rounding of its number format.
    """
    import torch

    at = first_difference(first, second)
    if at is None:
        return f"the same {len(first)} tokens throughout"
    if at == min(len(first), len(second)):
        return f"A MISTAKE: one text stops after {at} tokens and the other goes on"
    with torch.inference_mode():
        read = torch.tensor([[*prompt, *first[:at]]], device=pair.device)
        logits = pair.target(input_ids=read).logits[0, -1].double()
    gap = float(logits.max() - logits[[first[at], second[at]]].min())
    dtype = str(pair.dtype).removeprefix("torch.")
    words = " and ".join(repr(pair.tokenizer.decode([token])) for token in (first[at], second[at]))
    if gap <= _ROUNDING[dtype]:
        return (f"the same up to token {at}, then a near-tie: the logits of {words} lie {gap:.2g} apart, "
                f"within the rounding of {dtype}")
    return (f"A MISTAKE at token {at}: the logits of {words} lie {gap:.2g} apart, "
            f"more than the rounding of {dtype}")
