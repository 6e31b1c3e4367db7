"""Round costs of a pair on this machine, measured inside the decoder's own rounds.

    prompts -> rounds at every k, shuffled -> `costs_from_times` -> RoundCosts for each batch -> CostTable

Draft and target timed apart miss what lies between them (sampling, rollback, bookkeeping, and caches that
the other model has emptied). So the decoder runs, its k changes from round to round in random order, and a
cost is the median over rounds of one k: a machine that slows down slows all of them. Plain decoding, k = 0,
is among them, in the same texts at the same lengths. Beside that the forwards are timed alone, to show what
such a measurement would have missed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count

import numpy as np
import pandas as pd
import torch

from course_lib.bars import Progress
from course_lib.cache import KVCache, forward
from course_lib.costs import CostTable, RoundCosts
from course_lib.lookup import Lookup
from course_lib.peaks import measure_peaks
from course_lib.sampling import GREEDY, Sampling
from course_lib.speculate import decode_schedule
from course_lib.traces import encode_prompts, provenance
from course_lib.whole import whole

BATCHES = (1, 2, 4, 8, 16, 32)
WIDTHS = tuple(range(1, 18))
ROUNDS = 8  # of every k, at the least
MOST_GROUPS = 200
PARTS = ("draft", "verify", "other", "seconds")


def measure_costs(pair, prompts: Sequence, batches: Sequence[int] = BATCHES, widths: Sequence[int] = WIDTHS,
                  sampling: Sampling = GREEDY, draft_mode: str = "sample", new_tokens: int = 96,
                  rounds: int = ROUNDS, forwards: bool = True, seed: int = 0, command: str = "",
                  progress: Progress | None = None) -> CostTable:
    """Measure rounds of this pair at each batch size and verify width (k + 1 tokens).

    pair: `pairs.Pair`. prompts: `prompts.Prompt`s; taken in turn, again from the first where they do not
    fill a batch. sampling, draft_mode, new_tokens: as in `speculate.decode`, for texts like those the costs
    are for. rounds: the least number of rounds of every k behind a median; half as many beyond batch 8,
    where a round is long. forwards: also time the forwards alone, and measure the machine's two peaks.
    meta has, by batch, `rounds` (see `spread`), `forwards` (see `time_forwards`) and `context` (the mean
    length of a row), and `peaks` (see `peaks.measure_peaks`), beside the provenance. Raises ValueError for
    arguments that cannot be.
    """
    batches = sorted({whole("batch", batch, 1) for batch in batches})
    ks = sorted({whole("width", width, 1) - 1 for width in widths} - {0})
    if not batches or not ks:
        raise ValueError("give at least one batch size, and a width above 1: k drafts are verified in k + 1.")
    rounds = whole("rounds", rounds, 1)
    ids, _ = encode_prompts(pair, prompts, new_tokens, cut=True)
    generator, random = torch.Generator(pair.device).manual_seed(seed), np.random.default_rng(seed)
    costs, meta = {}, {"rounds": {}, "forwards": {}, "context": {}}
    for done, batch in enumerate(batches):
        groups = ([ids[(first + i) % len(ids)] for i in range(batch)] for first in count(0, batch))
        time_rounds(pair, next(groups), ks, 4, sampling, draft_mode, generator, random)  # warm-up
        least = rounds if batch <= 8 else max(2, rounds // 2)
        found, seen = [], 0
        while seen < least:
            if len(found) == MOST_GROUPS:
                raise ValueError(f"{MOST_GROUPS} texts of {new_tokens} tokens had too few rounds with "
                                 f"k={ks[-1]}: ask for more tokens, or for a smaller k.")
            rows = next(groups)
            found.append(time_rounds(pair, rows, ks, new_tokens, sampling, draft_mode, generator, random))
            times = pd.concat(found)
            seen = times.groupby("k").size().reindex([0, *ks], fill_value=0).min()
        times = times[times.k.isin([0, *ks])]  # a last round has whatever number of drafts there is room for
        costs[batch] = costs_from_times(times)
        meta["rounds"][str(batch)] = spread(times)
        meta["context"][str(batch)] = float(times.context.mean())
        if forwards:
            meta["forwards"][str(batch)] = time_forwards(pair, rows, [1, *(k + 1 for k in ks)], least, random)
        if progress:
            progress("round costs by batch", done + 1, len(batches))
    if forwards:
        peaks = measure_peaks(pair.device, pair.dtype)
        meta["peaks"] = {name: getattr(peaks, name) for name in ("bandwidth", "flops", "bytes_per_number")}
    meta = {**cost_meta(pair, sampling, draft_mode, command), "new_tokens": new_tokens, **meta}
    return CostTable(costs, meta)


def time_rounds(pair, rows: list[list[int]], ks: Sequence[int], new_tokens: int, sampling: Sampling,
                draft_mode: str, generator: torch.Generator, random: np.random.Generator) -> pd.DataFrame:
    """Decode `rows` together, with every k of `ks` in random order, then some plain rounds, and so on.

    Returns `Decoded.times` of the rounds that count, with their context (mean tokens in a row): those in
    which every row took part, and not the one after plain rounds, where the draft has more to catch up with
    than it ever has when decoding. No text ends before new_tokens: what a round costs does not depend on it.
    """
    if pair.lookup:  # its guesses are free: what costs is the model, and without one, that k are verified
        always = Lookup(0, pair.lookup.longest)
        pair = replace(pair, lookup=always if pair.draft is None else None)
    drafting = list(ks) * -(-4 // len(ks))  # so many that few of them come right after a plain round
    plain, schedule = [0] * max(2, len(drafting) // 2), []
    while len(schedule) < new_tokens + 2 * len(drafting):
        schedule += [*random.permutation(drafting).tolist(), *plain]
    begin = random.integers(len(drafting))  # a short text, too, comes to the plain rounds
    decoded = decode_schedule(replace(pair, eos=frozenset()), rows, tuple(schedule[begin:]), new_tokens,
                              sampling, sampling if draft_mode == "sample" else GREEDY, generator)
    times = decoded.times
    emitted = decoded.rounds.groupby("round").emitted.sum().cumsum().shift(fill_value=0)
    times["context"] = np.mean([len(row) for row in rows]) + emitted.to_numpy() / len(rows)
    after_plain = (times.k > 0) & (times.k.shift(fill_value=0) == 0)  # the first round of all, too
    return times[~after_plain & (times.rows == len(rows))]


def costs_from_times(times: pd.DataFrame) -> RoundCosts:
    """Rounds by k (columns k, draft, verify, other, seconds) as the three parts of `RoundCosts`.

    The parts add up to the median round of every k that was measured, exactly:
    t_draft is the slope of the drafting time over k; overhead what a round with drafts adds beyond them and
    its verify, on average over k (the draft's catching up, judging, rollback; no less than 0); t_verify what
    is left, at width 1 the whole plain round.
    """
    median = times.groupby("k")[list(PARTS)].median()
    if 0 not in median.index or len(median) < 2:
        raise ValueError("these rounds lack plain ones (k = 0) or ones with drafts: costs need both.")
    plain, drafting = median.loc[0], median.drop(index=0)
    ks, draft = drafting.index.to_numpy(float), drafting.draft.to_numpy()
    slope, once = np.polyfit(ks, draft, 1, w=1 / draft) if len(ks) > 1 else (draft[0] / ks[0], 0.0)
    if slope <= 0 or once < 0:
        slope, once = float(np.mean(draft / ks)), 0.0
    overhead = max(0.0, once + float((drafting.other - plain.other).mean()))
    # Noise may leave little for a verify; it never makes the forward itself free.
    verify = np.maximum(drafting.seconds - drafting.index * slope - overhead, drafting.verify / 2)
    return RoundCosts(float(slope), {1: float(plain.seconds), **{k + 1: float(v) for k, v in verify.items()}},
                      overhead)


def spread(times: pd.DataFrame) -> dict:
    """Of every k: how many rounds, and [lower quartile, median, upper quartile] of each part, in seconds."""
    return {str(k): {"count": len(rounds), **{part: rounds[part].quantile([0.25, 0.5, 0.75]).tolist()
                                              for part in PARTS}} for k, rounds in times.groupby("k")}


@torch.inference_mode()
def time_forwards(pair, rows: list[list[int]], widths: Sequence[int], repeats: int,
                  random: np.random.Generator) -> dict:
    """Median seconds of forwards alone, after the prompts: {"draft": one step, "verify": {width: step}}."""
    length = min(map(len, rows))
    tokens = torch.tensor([row[:length] for row in rows], device=pair.device)
    width = max(widths)
    fill = tokens[:, :1].expand(-1, width)  # what the tokens are does not matter
    found = {}
    models = {"draft": (pair.draft, [1]), "verify": (pair.target, list(widths))}
    for role, (model, asked) in models.items():
        if model is None:
            continue
        cache = KVCache(len(rows), length + width, pair.device)
        forward(model, tokens, cache)
        seconds = {w: [] for w in asked}
        for repeat in range(repeats + 1):
            for w in random.permutation(asked).tolist():
                cache.lengths = torch.full_like(cache.lengths, length)
                _wait(pair.device)
                started = time.perf_counter()
                forward(model, fill[:, :w], cache)
                _wait(pair.device)
                if repeat:  # the first of each warms up
                    seconds[w].append(time.perf_counter() - started)
        medians = {str(w): float(np.median(each)) for w, each in seconds.items()}
        found[role] = medians["1"] if role == "draft" else medians
    return found


def cost_meta(pair, sampling: Sampling, draft_mode: str, command: str) -> dict:
    """Where costs come from: the provenance of a trace, and how many threads computed."""
    meta = provenance(pair, sampling, draft_mode)
    kept = ("pair", "target", "draft", "lookup", "device", "dtype", "temperature", "top_k", "top_p",
            "draft_mode", "versions", "machine")
    return {name: meta[name] for name in kept} | {
        "threads": torch.get_num_threads(), "command": command or "measured in a program",
        "date": datetime.now().astimezone().isoformat(timespec="seconds")}


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
