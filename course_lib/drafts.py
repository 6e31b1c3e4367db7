"""Drafts of one target, compared: α and the cost of a step make a speedup, and no draft has both for nothing.

    one text of the target, read by every draft -> a trace for each (traces)
    rounds of every draft in turn               -> a cost for each (timing)  -> best k, predicted (sweep)
    every draft at its best k, and plainly, in turn, prompt by prompt        -> measured

All sides see the same texts in the same run, so what is compared is the drafts, not the hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pandas as pd
import torch
import transformers
from rich.console import Group
from rich.table import Table
from rich.text import Text

from course_lib.bars import Progress
from course_lib.costs import CostTable
from course_lib.intervals import ratio_interval
from course_lib.pairs import Pair, with_draft
from course_lib.prompts import Prompt
from course_lib.reduced import ReducedHead
from course_lib.sampling import Sampling
from course_lib.speculate import decode
from course_lib.sweep import KS, decide, texts_of
from course_lib.timing import MOST_GROUPS, time_rounds
from course_lib.traces import Trace, encode_prompts, measure_traces, names, score_traces
from course_lib.wallclock import choose, cost_table_of

ROUNDS = 16  # of every k and draft, at the least


def compare(target: Pair, drafts: Sequence[str], prompts: Sequence[Prompt], sampling: Sampling,
            new_tokens: int = 96, ks: Sequence[int] = KS, draft_mode: str = "sample",
            text: Trace | None = None, check: bool = False, limit: int | None = None, batch: int = 16,
            seed: int = 0, command: str = "", progress: Progress | None = None) -> dict:
    """Compare drafts of a target; return the JSON document of `bench drafts`.

    target: a pair, whose draft does not matter. drafts: ids or folders, cut by @N or not, or "lookup" (see
    `pairs.with_draft`), each once. text: a trace whose texts are read, instead of new ones; `prompts` are
    then at least its own. check: also decode, `limit` prompts of each route or all. Other arguments as in
    `traces.measure_trace` and `sweep.decide`.

    Of each draft: parameters and layers (None for lookup), proposes (None: all tokens), draft_step (seconds),
    c (draft step ÷ plain step), costs, and routes, each with prompts, tokens, alpha (Σ min(p, q), with an
    interval over prompts), k (the one that predicts the most), decision, speedup (predicted) and, after a
    check, measured and over_first (measured speed over that of the first draft); pooled: the same over all
    routes together. Raises ValueError for drafts that cannot be compared.
    """
    if not drafts or len(set(drafts)) < len(drafts):
        raise ValueError("name the drafts to compare, folders or lookup, each once")
    pairs = {name: with_draft(target, name) for name in drafts}
    if text is None:
        traces = measure_traces(list(pairs.values()), prompts, sampling, new_tokens, draft_mode, batch, seed,
                                command=command, progress=progress)
    else:
        new_tokens = text.meta["new_tokens"] or new_tokens
        traces = _read_again(list(pairs.values()), text, prompts, sampling, draft_mode, batch, progress)
    timed, spare = choose(texts_of(traces[:1]), prompts, limit)
    costs = measure_each(pairs, spare, ks, sampling, draft_mode, new_tokens, seed, command, progress)
    found = {name: _described(pair, trace, costs[name], ks)
             for (name, pair), trace in zip(pairs.items(), traces, strict=True)}
    if check:
        runs = run_each(pairs, {name: {route: each["k"] for route, each in one["routes"].items()}
                                for name, one in found.items()},
                        timed, sampling, draft_mode, new_tokens, seed, progress)
        _add_measured(found, runs, drafts[0])
    meta = traces[0].meta
    return {"target": meta["target"], "drafts": found, "ks": list(ks), "text": "live" if text is None else
            "recorded", "checked": len(timed) if check else 0, "threads": torch.get_num_threads(),
            "new_tokens": new_tokens, **{name: meta[name] for name in (
                "device", "dtype", "temperature", "top_k", "top_p", "draft_mode", "versions", "machine",
                "date")}, "seed": seed, "command": command}


def table(found: dict) -> Group:
    """A `compare` document for people: what each draft is, then a line for each route and draft."""
    whole = [("draft", "parameters", "layers", "proposes", "step, ms", "c")]
    for name, one in found["drafts"].items():
        proposes = "all" if one["proposes"] is None else f"{one['proposes']:,}"
        made = (f"{one['parameters']:,}", str(one["layers"]), proposes) if one["parameters"] else ("",) * 3
        whole.append((name, *made, f"{one['draft_step'] * 1000:.2f}", f"{one['c']:.3f}"))
    columns = ("route", "draft", "α", "k", "tokens/round", "predicted",
               *(("measured", "over the first") if found["checked"] else ()))
    lines = [(route, name, _short(one["alpha"]), str(one["k"]), f"{one['tokens_per_round']:.2f}",
              _short(one["speedup"]), *_measured(one))
             for route in next(iter(found["drafts"].values()))["routes"]
             for name, each in found["drafts"].items() for one in [each["routes"][route]]]
    lines += [("all", name, "", "", "", "", *_measured(one["pooled"]))
              for name, one in found["drafts"].items() if found["checked"]]
    law = f"T={found['temperature']:g}"
    head = Text(f"{found['target']} · {found['text']} text · {found['device']} {found['dtype']} · "
                f"{found['threads']} threads · {law} · {found['new_tokens']} tokens · {found['date'][:10]}",
                style="bold")
    notes = ("speedups over plain decoding, batch 1, with 95 % over prompts; α is the overlap of target and "
             "draft")
    if found["checked"]:
        notes += f"; {found['checked']} prompts decoded by every draft and plainly, in turn"
    return Group(head, _drawn(whole), Text(notes), _drawn([columns, *lines]))


def _drawn(lines: Sequence[tuple]) -> Table:
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for column in lines[0]:
        drawn.add_column(column, no_wrap=True)
    for line in lines[1:]:
        drawn.add_row(*line)
    return drawn


def _measured(one: dict) -> tuple[str, ...]:
    if "measured" not in one:
        return ()
    return _short(one["measured"]), _short(one["over_first"]) if one["over_first"] else ""


def _short(value: dict) -> str:
    half = "" if value["low"] is None else f" ±{(value['high'] - value['low']) / 2:.3f}"
    return f"{value['mean']:.3f}{half}"


def measure_each(pairs: dict[str, Pair], prompts: Sequence[Prompt], ks: Sequence[int], sampling: Sampling,
                 draft_mode: str = "sample", new_tokens: int = 96, seed: int = 0, command: str = "",
                 progress: Progress | None = None) -> dict[str, CostTable]:
    """Round costs of every draft at batch 1, measured in turn, text by text, in rotating order; what belongs
    to the target is the same in all (see `_one_target`).

    prompts: taken in turn, until every k of every draft has ROUNDS rounds. Raises ValueError where texts are
    too short for that.
    """
    ids, _ = encode_prompts(min(pairs.values(), key=lambda pair: pair.context), prompts, new_tokens, cut=True)
    device, names = next(iter(pairs.values())).device, list(pairs)
    generator, random = torch.Generator(device).manual_seed(seed), np.random.default_rng(seed)
    times, least = {name: [] for name in names}, 0
    for pair in pairs.values():  # what the first forwards set up, later ones find ready
        time_rounds(pair, ids[:1], ks, min(new_tokens, 16), sampling, draft_mode, generator, random)
    for turn in count():
        for name in (*names[turn % len(names):], *names[:turn % len(names)]):
            times[name].append(time_rounds(pairs[name], [ids[turn % len(ids)]], ks, new_tokens, sampling,
                                           draft_mode, generator, random))
        least = min(int(pd.concat(each).groupby("k").size().reindex([0, *ks], fill_value=0).min())
                    for each in times.values())
        if progress:
            progress("round costs of every draft in turn", min(least, ROUNDS), ROUNDS)
        if least >= ROUNDS:
            break
        if turn == MOST_GROUPS:
            raise ValueError(f"texts of {new_tokens} tokens have too few rounds with k={max(ks)}: ask for "
                             "more tokens, or for a smaller k")
    return _one_target({name: cost_table_of(pairs[name], pd.concat(each), ks, sampling, draft_mode, command)
                        for name, each in times.items()})


def run_each(pairs: dict[str, Pair], ks: dict[str, dict[str, int]], timed: Sequence[Prompt],
             sampling: Sampling, draft_mode: str, new_tokens: int, seed: int = 0,
             progress: Progress | None = None) -> pd.DataFrame:
    """Decode each prompt with every draft at its k of the route, and plainly ("plain"), before the next
    prompt, in rotating order: one line a run, with route, prompt, draft, k, tokens, rounds and seconds
    (without the prompt's reading)."""
    first = min(pairs.values(), key=lambda pair: pair.context)
    ids, _ = encode_prompts(first, timed, new_tokens, cut=True)
    generators = {name: torch.Generator(first.device).manual_seed(seed) for name in ("plain", *pairs)}
    names, lines = list(generators), []
    for done, (prompt, row) in enumerate(zip(timed, ids, strict=True)):
        for name in (*names[done % len(names):], *names[:done % len(names)]):
            pair, k = (first, 0) if name == "plain" else (pairs[name], ks[name][prompt.route])
            one = decode(pair, [row], k, new_tokens, sampling, draft_mode, generators[name])
            lines.append((prompt.route, prompt.id, name, k, len(one.tokens[0]), len(one.rounds),
                          one.seconds - one.prefill_seconds))
        if progress:
            progress("every draft and plain decoding in turn", done + 1, len(timed))
    return pd.DataFrame(lines, columns=["route", "prompt", "draft", "k", "tokens", "rounds", "seconds"])


def _one_target(tables: dict[str, CostTable]) -> dict[str, CostTable]:
    """The same tables with one target: at each width the median of its step over all drafts.

    A step of the target costs the same whoever drafts. Taken from the rounds of each draft alone, its noise
    of some percent would order drafts whose prices lie closer together than that.
    """
    steps = [table.at(1).t_verify for table in tables.values()]
    target = {width: float(np.median([each[width] for each in steps])) for width in steps[0]}
    return {name: replace(table, batches={1: replace(table.at(1), t_verify=target)})
            for name, table in tables.items()}


def _read_again(pairs, text: Trace, prompts, sampling, draft_mode, batch, progress) -> list[Trace]:
    """A trace for each pair of the texts of `text`, which the target wrote under the same law."""
    known = {(prompt.route, prompt.id): prompt for prompt in prompts}
    if text.meta.get("cut"):
        raise ValueError("the trace has prompts that were cut: leave it out, and the target writes new text")
    wrote, ours = text.meta["target"], names(pairs[0])["target"]
    if wrote != ours:
        raise ValueError(f"the trace is of target {wrote}, not of {ours}: its text is another's")
    texts = text.rows.groupby(["route", "prompt"], sort=False).token.agg(list)
    if missing := [name for name in texts.index if name not in known]:
        raise ValueError(f"prompt {missing[0][1]} of the trace is not among the prompts: give the file it "
                         "was measured on")
    traces = score_traces(pairs, [known[name] for name in texts.index], texts.tolist(), sampling, draft_mode,
                          batch, progress)
    for trace in traces:
        trace.meta |= {"new_tokens": text.meta["new_tokens"], "seed": text.meta["seed"]}
    return traces


def _described(pair: Pair, trace: Trace, costs: CostTable, ks: Sequence[int]) -> dict:
    """What is known of a draft before it decodes."""
    one, routes = costs.at(1), {}
    for route, values in decide(trace, costs, ks)["routes"].items():
        load = values["loads"]["1"]
        overlap, tokens = (np.array(each) for each in zip(*((part.sum(dtype=float), len(part)) for part in
                                                            trace.column("overlap", route)), strict=True))
        best = max(load["table"], key=lambda row: (row["predicted"], -row["k"]))
        routes[route] = {"prompts": values["prompts"], "tokens": values["tokens"],
                         "alpha": _json(ratio_interval(overlap, tokens)), "k": best["k"],
                         "decision": load["decision"], "tokens_per_round": best["tokens_per_round"],
                         "speedup": {"mean": best["predicted"], "low": best["predicted_low"],
                                     "high": best["predicted_high"]}}
    model = pair.draft
    parameters = None
    if model is not None:
        with torch.device("meta"):  # packed weights no longer count as parameters
            parameters = transformers.AutoModelForCausalLM.from_config(model.config).num_parameters()
    reduced = model is not None and isinstance(model.lm_head, ReducedHead)
    return {"parameters": parameters, "layers": model and model.config.num_hidden_layers,
            "proposes": len(model.lm_head.tokens) if reduced else None, "draft_step": one.t_draft,
            "c": one.t_draft / one.verify_seconds(1), "costs": costs.document()["batches"]["1"],
            "routes": routes}


def _add_measured(found: dict, runs: pd.DataFrame, first: str) -> None:
    """Put measured speedups, and those over the first draft, beside the predicted ones."""
    table = runs.set_index(["route", "prompt"])
    step = {name: each.seconds / each.tokens for name, each in table.groupby("draft")}
    for name, each in table[table.draft != "plain"].groupby("draft"):
        each = each.assign(plain=step["plain"] * each.tokens, first=step[first] * each.tokens)
        for route, here in (*each.groupby(level="route"), (None, each)):
            place = found[name]["routes"][route] if route else found[name].setdefault("pooled", {})
            over = None if name == first else _json(ratio_interval(here["first"], here.seconds))
            place |= {"prompts_checked": len(here), "over_first": over,
                      "measured": _json(ratio_interval(here.plain, here.seconds))}


def _json(interval) -> dict:
    return {end: None if np.isnan(value) else value for end, value in interval._asdict().items()}
