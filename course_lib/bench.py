"""Benchmarks that back a claim of the course, all sides timed in one run.

`onepass`: one pass (the target writes, the draft reads, every k is replayed) against decoding the
same prompts once for each k. Both sides know the same at the end: tokens per round at every k.
`training`: a draft's training step in four ways, each with less arithmetic than the one before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from course_lib.bars import Progress
from course_lib.prompts import Prompt
from course_lib.replay import replay_rounds
from course_lib.sampling import Sampling
from course_lib.scoring import batches
from course_lib.speculate import decode
from course_lib.traces import encode_prompts, measure_trace, score_trace

KS = range(1, 13)


def onepass(pair, prompts: Sequence[Prompt], sampling: Sampling, new_tokens: int = 96, batch: int = 16,
            seed: int = 0, ks: Sequence[int] = KS, progress: Progress | None = None) -> dict:
    """Time one pass for every k against one decoding for each k, on the same prompts in the same batches.

    One pass is timed before, amid and after the decodings, so that a machine that slows down does not
    favour a side; its time is the mean of the three. Returns seconds: one_pass; without_writing (the same
    where the text is there already, as from a log, and both models read it); decoding, by k; ratio (one
    pass / all decodings) and ratio_without_writing; and tokens_per_round by k, both ways.
    """
    ids, _ = encode_prompts(pair, prompts, new_tokens, cut=False)
    groups = list(batches([len(row) + new_tokens for row in ids], batch))
    passes, decoding, decoded = [], {}, {}

    def one_pass() -> None:
        started = time.perf_counter()
        trace = measure_trace(pair, prompts, sampling, new_tokens, batch=batch, seed=seed)
        rounds = replay_rounds(trace.accepts(), ks)
        passed = time.perf_counter()  # and now as if the text had been there
        replay_rounds(score_trace(pair, prompts, trace.column("token"), sampling, batch=batch).accepts(), ks)
        passes.append((passed - started, time.perf_counter() - passed,
                       {k: len(trace.rows) / each for k, each in zip(ks, rounds.sum(0), strict=True)}))

    # The first forward of a process sets things up that later ones find ready.
    score_trace(pair, prompts[:1], [[0]], sampling)
    done, steps = 0, len(ks) + 3
    for position, k in enumerate(ks):
        if position in (0, len(ks) // 2):
            one_pass()
            done += 1
        generator = torch.Generator(pair.device).manual_seed(seed)
        started = time.perf_counter()
        results = [decode(pair, [ids[i] for i in group], k, new_tokens, sampling, "sample", generator)
                   for group in groups]
        decoding[k] = time.perf_counter() - started
        rounds = pd.concat([each.rounds for each in results])
        decoded[k] = float(rounds.emitted.sum() / len(rounds))
        done += 1
        if progress:
            progress("one pass against decoding at each k", done, steps)
    one_pass()
    total, without_writing = (sum(each[i] for each in passes) / len(passes) for i in (0, 1))
    every_k = sum(decoding.values())
    return {
        "pair": pair.name, "device": str(pair.device), "dtype": str(pair.dtype).removeprefix("torch."),
        "temperature": sampling.temperature, "prompts": len(prompts), "new_tokens": new_tokens,
        "batch": batch,
        "seconds": {"one_pass": total, "one_pass_runs": [each[0] for each in passes],
                    "without_writing": without_writing, "decoding": {str(k): decoding[k] for k in ks}},
        "ratio": total / every_k,
        "ratio_without_writing": without_writing / every_k,
        "tokens_per_round": {str(k): {"replayed": float(passes[-1][2][k]), "decoded": decoded[k]}
                             for k in ks},
    }


def describe(found: dict) -> str:
    """The result of `onepass` in words."""
    seconds, ks = found["seconds"], list(found["tokens_per_round"])
    lines = [f"{found['pair']} · live · {found['device']} {found['dtype']} · T={found['temperature']:g} · "
             f"{found['prompts']} prompts, {found['new_tokens']} tokens, batch {found['batch']}",
             "  k   seconds to decode   tokens per round: decoded, replayed"]
    for k in ks:
        tokens = found["tokens_per_round"][k]
        lines.append(f"{k:>3} {seconds['decoding'][k]:>12.1f} {tokens['decoded']:>24.3f} "
                     f"{tokens['replayed']:>10.3f}")
    runs = ", ".join(f"{run:.1f}" for run in seconds["one_pass_runs"])
    lines += [f"decoding once for each k: {sum(seconds['decoding'].values()):.1f} s",
              f"one pass for every k: {seconds['one_pass']:.1f} s (runs: {runs}); "
              f"where the text is there already {seconds['without_writing']:.1f} s",
              f"ratio {found['ratio']:.3f}; where the text is there already "
              f"{found['ratio_without_writing']:.3f}"]
    return "\n".join(lines)


def training(target: str, layers: Sequence[int], prompts: Sequence[Prompt], new_tokens: int = 96,
             batch: int = 8, few: int = 4096, seed: int = 0, progress: Progress | None = None) -> dict:
    """Time a draft's training step in four ways, in turn on the same batches of the target's text.

    target along: the target reads every batch, and both laws are of the whole vocabulary. cached: its states
    are known from the writing. sampled: the laws are of its likeliest tokens, the frequent ones and a sample
    that stands for the rest (as drafts are trained here, see `learning`). reduced: of `few` tokens alone,
    all that such a draft proposes. Returns tokens, and seconds and tokens a second by way.
    """
    from course_lib.learning import FREQUENT
    from course_lib.make_draft import write_answers
    from course_lib.plans import Plan, load_both
    from course_lib.scoring import hidden_states
    from course_lib.teacher import by_frequency, load_rows, save_rows

    plan = Plan(target, tuple(layers), steps=1, new_tokens=new_tokens, seed=seed)
    teacher, learner, _, _ = load_both(plan, None)
    ids = [list(teacher.encode(prompt.messages)) for prompt in prompts]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.safetensors"
        save_rows(path, teacher.target.lm_head, ids, *write_answers(teacher, ids, new_tokens, (seed, 0)))
        rows = load_rows(path)
    whole = learner.heads[0]
    order = by_frequency(np.bincount(torch.cat([row["text"] for row in rows]), minlength=len(whole)))
    few, every = min(few, len(whole)), np.arange(len(whole))
    cut = whole[torch.from_numpy(order[:few].copy())]
    # A step that knows every token of its heads samples none of them.
    sides = {"target along": (whole, every), "cached": (whole, every), "sampled": (whole, order[:FREQUENT]),
             "reduced": (cut, every[:few])}

    def step(way: str, part: list[dict]) -> float:
        head, learner.frequent = sides[way]
        learner.heads, started = (head, head), time.perf_counter()
        if way == "target along":
            prompts, texts = ([row[key].tolist() for row in part] for key in ("prompt", "text"))
            with torch.no_grad():
                states = hidden_states(teacher.target, prompts, texts, teacher.device)
            known = states.split([len(text) for text in texts])
            part = [row | {"hidden": each} for row, each in zip(part, known, strict=True)]
        learner.step(part, 0.0)
        return time.perf_counter() - started

    parts, names = [rows[i:i + batch] for i in range(0, len(rows), batch)], list(sides)
    seconds = dict.fromkeys(names, 0.0)
    for way in names:  # the first of each sets up what later ones find ready
        step(way, parts[0][:2])
    for turn, part in enumerate(parts):
        for way in (*names[turn % 4:], *names[:turn % 4]):
            seconds[way] += step(way, part)
        if progress:
            progress("training steps in turn", turn + 1, len(parts))
    tokens = sum(len(row["text"]) for row in rows)
    return {"target": teacher.name, "layers": list(layers), "device": str(teacher.device),
            "threads": torch.get_num_threads(), "batch": batch, "few": few, "tokens": tokens,
            "seconds": seconds,
            "tokens_a_second": {way: tokens / spent for way, spent in seconds.items()}}


def describe_training(found: dict) -> str:
    """The result of `training` in words."""
    means = {"target along": "the target reads along, whole vocabulary", "cached": "its states cached",
             "sampled": "cached, likely tokens and a sample of the rest",
             "reduced": f"cached, {found['few']} tokens alone"}
    speeds = found["tokens_a_second"]
    lines = [f"{speed:>8.0f} {speed / speeds['target along']:>6.1f}×  {means[way]}"
             for way, speed in speeds.items()]
    made = f"{Path(found['target']).name} · layers {','.join(map(str, found['layers']))}"
    how = (f"{found['device']} · {found['threads']} threads · {found['tokens']} tokens, batches of "
           f"{found['batch']}")
    return "\n".join([f"{made} · live · {how}", "tokens a second", *lines])
