"""Our decoder against transformers' assisted generation: same pair, prompts, k and outputs, one run.

Greedy, batch 1 and a fixed k, which is all that both can do. transformers by default varies k (it stops
a draft whose confidence falls under 0.4, and starts from 20): here its schedule is constant and its
threshold 0. Its loop runs twice: on our pair, so that loops alone are compared, and on the same weights
as transformers itself loads them ("stock"), which on a CPU is slower (see `packed`). Each side reads the
prompt within the time that is taken.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import contextmanager

import torch
import transformers

from course_lib.bars import Progress
from course_lib.prompts import Prompt
from course_lib.speculate import decode
from course_lib.traces import encode_prompts

KS = (2, 4, 8)
SIDES = ("ours", "transformers", "stock")


def assisted(pair, prompts: Sequence[Prompt], new_tokens: int = 64, ks: Sequence[int] = KS,
             progress: Progress | None = None) -> dict:
    """Time all sides on every prompt and k, turn about; returns the JSON document of `bench assisted`.

    ratio: transformers' seconds over ours, all prompts together, by k, and its median over k; ratio_stock
    likewise; texts_different: where ours leaves transformers' text on the same weights (in float32 only at
    a near-tie); loop: the share of our rounds that is spent outside both models' forwards, on a processor
    (elsewhere {}: a forward's call returns before its work is done).
    """
    ids, _ = encode_prompts(pair, prompts, new_tokens, cut=False)
    stock = [transformers.AutoModelForCausalLM.from_pretrained(model.config._name_or_path, dtype=pair.dtype)
             .to(pair.device).eval() for model in (pair.target, pair.draft)]
    seconds = {side: dict.fromkeys(ks, 0.0) for side in SIDES}
    rounds, outside, different = dict.fromkeys(ks, 0.0), dict.fromkeys(ks, 0.0), 0

    def run(side: str, prompt: list[int], k: int, length: int) -> list[int]:
        if side == "ours" and pair.device.type != "cpu":
            return decode(pair, [prompt], k, length).tokens[0]
        if side == "ours":
            with _forward_seconds(pair) as spent:
                found = decode(pair, [prompt], k, length)
            rounds[k] += found.seconds - found.prefill_seconds
            outside[k] += found.seconds - sum(spent)
            return found.tokens[0]
        target, draft = stock if side == "stock" else (pair.target, pair.draft)
        draft.generation_config.num_assistant_tokens = k
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        draft.generation_config.assistant_confidence_threshold = 0.0
        text = target.generate(torch.tensor([prompt], device=pair.device), assistant_model=draft,
                               do_sample=False, max_new_tokens=length)
        return text[0, len(prompt):].tolist()

    for side in SIDES:  # the first forward of a process sets things up that later ones find ready
        run(side, ids[0], ks[0], 8)
    rounds[ks[0]] = outside[ks[0]] = 0.0
    turns = [(prompt, k) for prompt in ids for k in ks]
    for turn, (prompt, k) in enumerate(turns):
        texts = {}
        for side in (*SIDES[turn % 3:], *SIDES[:turn % 3]):
            started = time.perf_counter()
            texts[side] = run(side, prompt, k, new_tokens)
            seconds[side][k] += time.perf_counter() - started
        different += texts["ours"] != texts["transformers"]
        if progress:
            progress("transformers in turn with ours", turn + 1, len(turns))
    ratio, ratio_stock = ({k: seconds[side][k] / seconds["ours"][k] for k in ks} for side in SIDES[1:])
    return {
        "pair": pair.name, "device": str(pair.device), "dtype": str(pair.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(), "prompts": len(ids), "new_tokens": new_tokens,
        "texts": len(turns), "texts_different": different,
        "seconds": {side: _by_k(seconds[side]) for side in SIDES},
        "ratio": _by_k(ratio), "median_ratio": statistics.median(ratio.values()),
        "ratio_stock": _by_k(ratio_stock), "median_ratio_stock": statistics.median(ratio_stock.values()),
        "loop": _by_k({k: outside[k] / rounds[k] for k in ks if rounds[k]}),
    }


def describe(found: dict) -> str:
    """The result of `assisted` in words."""
    lines = [f"{found['pair']} · live · {found['device']} {found['dtype']} · {found['threads']} threads · "
             f"T=0 · batch 1 · {found['prompts']} prompts, {found['new_tokens']} tokens",
             "  k      ours   transformers (ratio)   stock transformers (ratio)   our rounds beyond forwards"]
    for k in found["ratio"]:
        ours, theirs, stock = (found["seconds"][side][k] for side in SIDES)
        loop = f"{found['loop'][k]:.1%}" if k in found["loop"] else "?"
        lines.append(f"{k:>3} {ours:>7.1f} s {theirs:>13.1f} s ({found['ratio'][k]:.2f}) "
                     f"{stock:>20.1f} s ({found['ratio_stock'][k]:.2f}) {loop:>26}")
    lines.append(f"median ratio {found['median_ratio']:.2f}, to stock {found['median_ratio_stock']:.2f}; "
                 f"{found['texts_different']} of {found['texts']} texts differ")
    return "\n".join(lines)


@contextmanager
def _forward_seconds(pair):
    """A list that gathers the seconds of every forward (body or head) of both models while it is open."""
    spent, started, handles = [], [], []
    modules = [module for model in (pair.target, pair.draft)
               for module in (model.model, model.lm_head, getattr(model, "lean", None)) if module is not None]
    for module in modules:
        handles.append(module.register_forward_pre_hook(lambda *_: started.append(time.perf_counter())))
        handles.append(module.register_forward_hook(
            lambda *_: spent.append(time.perf_counter() - started.pop())))
    try:
        yield spent
    finally:
        for handle in handles:
            handle.remove()


def _by_k(values: dict) -> dict[str, float]:
    return {str(k): float(value) for k, value in values.items()}
