"""The decoder against plain decoding by the wall clock, every k and both sides in turn within each prompt.

A sweep that ends one k before it begins the next turns a machine that warms up into a curve. Here every
prompt is decoded at every k and plainly before the next prompt, and the order moves on by one each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from course_lib.bars import Progress
from course_lib.costs import CostTable
from course_lib.prompts import Prompt, load_prompts
from course_lib.sampling import Sampling
from course_lib.speculate import decode
from course_lib.timing import cost_meta, costs_from_times, spread, time_rounds
from course_lib.traces import encode_prompts
from course_lib.whole import whole


def run(pair, timed: Sequence[Prompt], spare: Sequence[Prompt], ks: Sequence[int], sampling: Sampling,
        draft_mode: str, new_tokens: int, cut: bool = False, seed: int = 0, command: str = "",
        progress: Progress | None = None) -> tuple[pd.DataFrame, CostTable | None]:
    """Decode `timed`, one at a time, at every k and plainly (k = 0); and measure round costs on `spare`.

    Returns the runs, one line each (route, prompt, k, tokens, rounds, seconds without the prompt's reading),
    and the costs at batch 1, from one text of `spare` after each timed prompt; None if `spare` is empty.
    Other arguments as in `traces.measure_trace`.
    """
    ids, _ = encode_prompts(pair, timed, new_tokens, cut)
    others = encode_prompts(pair, spare, new_tokens, True)[0] if spare else []
    generator, random = torch.Generator(pair.device).manual_seed(seed), np.random.default_rng(seed)
    for warm_up in (ids[0], *others[:1]):  # what the first forwards set up, later ones find ready
        time_rounds(pair, [warm_up], ks, min(new_tokens, 16), sampling, draft_mode, generator, random)
    lines, times, order = [], [], [0, *ks]
    for done, (prompt, row) in enumerate(zip(timed, ids, strict=True)):
        for k in (*order[done % len(order):], *order[:done % len(order)]):
            found = decode(pair, [row], k, new_tokens, sampling, draft_mode, generator)
            lines.append((prompt.route, prompt.id, k, len(found.tokens[0]), len(found.rounds),
                          found.seconds - found.prefill_seconds))
        if others:
            times.append(time_rounds(pair, [others[done % len(others)]], ks, new_tokens, sampling, draft_mode,
                                     generator, random))
        if progress:
            progress("every k against plain decoding", done + 1, len(timed))
    runs = pd.DataFrame(lines, columns=["route", "prompt", "k", "tokens", "rounds", "seconds"])
    return runs, cost_table_of(pair, pd.concat(times), ks, sampling, draft_mode, command) if times else None


def choose(texts: Sequence, prompts: Sequence[Prompt],
           limit: int | None) -> tuple[list[Prompt], list[Prompt]]:
    """The prompts to decode, at most `limit` of each route and routes in turn, and others to time costs on.

    texts: what was measured, each with route and prompt (`sweep.texts_of`). Where they leave no other, the
    others are ours, of the part that taught the draft: a round's cost does not depend on what it says.
    """
    if limit is not None:
        whole("limit", limit, 1)
    known = {(prompt.route, prompt.id): prompt for prompt in prompts}
    timed, spare = [], []
    by_route: dict[str, dict[str, None]] = {}
    for text in texts:
        if (text.route, text.prompt) not in known:
            raise ValueError(f"prompt {text.prompt} of the trace is not among the prompts: give the file it "
                             "was measured on.")
        by_route.setdefault(text.route, {})[text.prompt] = None
    for route, ids in by_route.items():
        every = [known[route, name] for name in ids]
        count = min(len(every), limit or len(every))
        some = np.linspace(0, len(every) - 1, count).round().astype(int).tolist()
        timed += [(place, every[i]) for place, i in enumerate(some)]
        spare += [(place, every[i]) for place, i in enumerate(sorted(set(range(len(every))) - set(some)))]
    timed, spare = ([prompt for _, prompt in sorted(each, key=lambda one: one[0])] for each in (timed, spare))
    return timed, spare or load_prompts(split="train", limit=8)


def cost_table_of(pair, times, ks, sampling, draft_mode, command) -> CostTable:
    """What rounds of these k, and plain ones, cost at batch 1, from the `Decoded.times` of whole runs."""
    times = times[times.k.isin([0, *ks])]
    meta = cost_meta(pair, sampling, draft_mode, command)
    return CostTable({1: costs_from_times(times)}, {**meta, "rounds": {"1": spread(times)},
                                                    "context": {"1": float(times.context.mean())}})
