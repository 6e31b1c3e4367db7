"""From a trace and round costs to a decision for each route and load; and the wall clock that checks it.

    Trace -> rounds of every k, and where each starts (replay) -> times their cost -> speedup -> `decide`
    decoder at every k and plain, in turn, prompt by prompt ------------------------------> `check`

Both sides leave out the reading of the prompt, which both ways of decoding need. Near the end of a text the
decoder has room for fewer drafts and its rounds cost less; the prediction charges such a round what it costs.
So `predicted` is a little above tokens per round divided by a round's cost, most of all for short texts.

At a load above 1 the prediction is that of a server that keeps its batch full: rows do not wait for each
other at the end. Intervals are over prompts; what the costs themselves may be off by is not in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from course_lib.bars import Progress
from course_lib.costs import CostTable, RoundCosts
from course_lib.intervals import ratio_interval
from course_lib.lookup import LOOKUP, MODEL, NOTHING
from course_lib.prompts import Prompt
from course_lib.replay import adaptive_cost, round_starts, tokens_per_round
from course_lib.theory import expected_tokens
from course_lib.traces import Trace, names
from course_lib.whole import whole

KS = (1, 2, 3, 4, 5, 8)
LIMIT = 8  # prompts of each route that `check` decodes, unless told otherwise
SAME = ("pair", "target", "draft", "lookup", "temperature", "top_k", "top_p", "draft_mode")
TABLE = ("k", "tokens_per_round", "tokens_low", "tokens_high", "predicted", "predicted_low", "predicted_high",
         "measured", "measured_low", "measured_high", "error")


class Text(NamedTuple):
    """One text of a trace: whose it is, its chances a_t, how many tokens were asked for, and what drafts at
    each position; the model everywhere, if not given."""

    route: str
    prompt: str
    accept: np.ndarray
    room: int
    drafter: np.ndarray | None = None


def decide(traces: Trace | Sequence[Trace], costs: CostTable, ks: Sequence[int] = KS,
           concurrency: Sequence[int] = (1,)) -> dict:
    """The sweep document, JSON throughout: for every route and load a table by k, and what to do.

    traces: measured with one pair and one sampling. costs: at every batch size in concurrency.
    Of each route: prompts, tokens, alpha (the mean chance a_t), and by load
    decision ("speculate" only where the interval's lower end is above 1), best_k (0: off), reason,
    speedup and speedup_interval (of the k that predicts the most, even where that is too little),
    adaptive (how much faster than the best fixed k any choice of k by round could be, at most),
    iid (best_k and speedup that the formula finds from alpha alone) and table (see TABLE; measured, error:
    None here). An end that one prompt cannot give is None.
    Raises ValueError for traces that do not belong together, or a k or load whose cost is not known.
    """
    traces = [traces] if isinstance(traces, Trace) else list(traces)
    check_same(traces, costs)
    ks, concurrency = _numbers("k", ks), _numbers("concurrency", concurrency)
    rounds = tokens_per_round(traces, ks)
    by_route: dict[str, list[Text]] = {}
    for text in texts_of(traces):
        by_route.setdefault(text.route, []).append(text)
    routes = {}
    for route, texts in by_route.items():
        accepts = [text.accept for text in texts]
        alpha = float(np.concatenate(accepts).mean())
        starts = {k: round_starts(accepts, k) for k in range(max(ks) + 1)}
        tokens = rounds[rounds.route == route].set_index("k")
        routes[route] = {
            "prompts": int(tokens.prompts.iloc[0]), "tokens": int(tokens.tokens.iloc[0]), "alpha": alpha,
            "loads": {str(load): _load(texts, starts, tokens, alpha, costs.at(load), ks)
                      for load in concurrency}}
    return {"meta": {"traces": [trace.meta for trace in traces], "costs": dict(costs.meta)}, "ks": ks,
            "routes": routes}


def check(pair, traces: Trace | Sequence[Trace], prompts: Sequence[Prompt], ks: Sequence[int] = KS,
          concurrency: Sequence[int] = (1,), costs: CostTable | None = None, limit: int | None = LIMIT,
          seed: int = 0, command: str = "", progress: Progress | None = None) -> dict:
    """Decode the traces' prompts at every k and plainly, one at a time, and lay the times beside `decide`.

    prompts: at least those of the traces, found by route and id. limit: the most prompts of each route to
    decode, spread evenly over the route. k and plain take turns within each prompt, and the order moves on
    from prompt to prompt, so that a machine that slows down favours nobody.
    costs: measured before; without them they are measured here, at batch 1, from rounds on prompts that are
    not decoded, one text after each decoded prompt.
    Returns the document of `decide` after `add_measured`. Raises ValueError as `decide` does, and where
    a prompt is not among `prompts`, the pair is another, or concurrency lacks 1.
    """
    import torch

    from course_lib.sampling import Sampling
    from course_lib.wallclock import choose, run

    traces, ks = [traces] if isinstance(traces, Trace) else list(traces), _numbers("k", ks)
    loads = _numbers("concurrency", concurrency)
    check_same(traces, costs)
    if loads != [1] and (costs is None or 1 not in loads):
        raise ValueError("the check decodes one prompt at a time: let concurrency hold 1, and give the costs "
                         "where it holds other loads.")
    meta = traces[0].meta
    check_pair(pair, meta)
    texts = texts_of(traces)
    timed, spare = choose(texts, prompts, limit)
    new_tokens = max(text.room for text in texts)
    runs, measured = run(pair, timed, spare if costs is None else [], ks,
                         Sampling(meta["temperature"], meta["top_k"], meta["top_p"]), meta["draft_mode"],
                         new_tokens, bool(meta.get("cut")), seed, command, progress)
    costs = measured if costs is None else costs
    document = add_measured(decide(traces, costs, ks, loads), traces, costs.at(1), runs)
    document["check"] |= {"new_tokens": new_tokens, "threads": torch.get_num_threads(),
                          "costs": "measured before" if measured is None else "measured in the same run, on "
                          "other prompts"}
    return document


def add_measured(document: dict, traces: Sequence[Trace], costs: RoundCosts, runs: pd.DataFrame) -> dict:
    """Put the measured speedups into load 1 of a document of `decide`, and how far the predictions are off.

    runs: as `wallclock.run` returns them; k = 0 is plain decoding. costs: those behind the document.
    measured is the time plain decoding takes for as many tokens, by the time taken, all prompts of a route
    together. error is predicted / measured - 1 where both are of the prompts that were decoded
    (predicted_checked; `predicted` is of all prompts of the trace). tokens_measured are tokens per round of
    the runs: at a temperature above 0 their text is another than the trace's, and luck makes a difference.
    cost_error is the error that is left when the prediction is told these tokens per round.
    document["check"] has the number of prompts by route, `pooled` by k (all routes together), and of the
    errors by route and k, without sign, the median, the worst, and the median of cost_error.
    """
    plain = runs[runs.k == 0].groupby(["route", "prompt"])[["seconds", "tokens"]].sum()
    runs = runs[runs.k > 0].join((plain.seconds / plain.tokens).rename("step"), on=["route", "prompt"])
    runs["plain"] = runs.step * runs.tokens
    runs = runs.groupby(["route", "prompt", "k"], sort=False, as_index=False).sum()
    decoded = set(zip(runs.route, runs.prompt, strict=True))
    texts = [text for text in texts_of(traces) if (text.route, text.prompt) in decoded]
    pooled, errors = [], []
    for k in document["ks"]:
        expected, real = predict(texts, costs, k), runs[runs.k == k]
        for route, found in document["routes"].items():
            ours, theirs = expected[expected.route == route], real[real.route == route]
            if theirs.empty:
                continue
            predicted = float(ours.plain.sum() / ours.seconds.sum())
            measured = ratio_interval(theirs.plain, theirs.seconds)
            row = next(row for row in found["loads"]["1"]["table"] if row["k"] == k)
            row |= {name: _json(value) for name, value in zip(TABLE[7:10], measured, strict=True)}
            tokens = float(theirs.tokens.sum() / theirs.rounds.sum())
            luck = tokens / float(ours.tokens.sum() / ours.rounds.sum())
            row |= {"error": predicted / measured.mean - 1, "predicted_checked": predicted,
                    "tokens_measured": tokens, "cost_error": predicted * luck / measured.mean - 1}
            errors.append((route, k, row["error"], row["cost_error"]))
        predicted = float(expected.plain.sum() / expected.seconds.sum())
        measured = float(real.plain.sum() / real.seconds.sum())
        pooled.append({"k": k, "predicted": predicted, "measured": measured,
                       "error": predicted / measured - 1})
    worst = max(errors, key=lambda each: abs(each[2]))
    document["check"] = {
        "prompts": {route: len({each[1] for each in decoded if each[0] == route})
                    for route in document["routes"]},
        "pooled": pooled, "median": float(np.median([abs(each[2]) for each in errors])),
        "median_cost_error": float(np.median([abs(each[3]) for each in errors])),
        "worst": dict(zip(("route", "k", "error"), worst[:3], strict=True))}
    return document


def costs_for(pair, traces: Sequence[Trace], prompts: Sequence[Prompt], ks: Sequence[int] = KS,
              concurrency: Sequence[int] = (1,), seed: int = 0, command: str = "",
              progress: Progress | None = None) -> CostTable:
    """Measure, in half a minute at load 1, what `decide` needs for these traces, on some of the prompts."""
    from course_lib.sampling import Sampling
    from course_lib.timing import measure_costs

    meta = traces[0].meta
    check_pair(pair, meta)
    return measure_costs(pair, prompts[::max(1, len(prompts) // 8)], concurrency, [1, *(k + 1 for k in ks)],
                         Sampling(meta["temperature"], meta["top_k"], meta["top_p"]), meta["draft_mode"],
                         meta["new_tokens"] or 96, forwards=False, seed=seed, command=command,
                         progress=progress)


def check_pair(pair, meta: dict) -> None:
    """Raise ValueError unless this is the pair of the trace."""
    for name, ours in names(pair).items():
        if ours != meta.get(name):
            raise ValueError(f"the trace is of {name} {meta.get(name)}, not of {ours}: load the pair that "
                             "was measured.")


def predict(texts: Sequence[Text], costs: RoundCosts, k: int,
            starts: np.ndarray | None = None) -> pd.DataFrame:
    """Expected seconds of decoding: one line a prompt, with route, prompt, tokens, rounds, plain, seconds.

    plain: seconds of one step a token; seconds: of the rounds with k drafts, fewer where a text must end.
    starts: `replay.round_starts` of these texts at this k, where it is known already.
    """
    if starts is None:
        starts = round_starts([text.accept for text in texts], k)
    seconds = round_seconds(texts, costs, k)
    tokens = np.array([len(text.accept) for text in texts])
    table = pd.DataFrame({"route": [text.route for text in texts], "prompt": [text.prompt for text in texts],
                          "tokens": tokens, "rounds": starts.sum(axis=1),
                          "plain": tokens * costs.round_seconds(0),
                          "seconds": (starts * seconds).sum(axis=1)})
    return table.groupby(["route", "prompt"], sort=False, as_index=False).sum()


def round_seconds(texts: Sequence[Text], costs: RoundCosts, k: int) -> np.ndarray:
    """What a round with k drafts costs that starts at each position, as an array [texts, longest text].

    The last token always comes from the target, so a round at t has room for room - 1 - t drafts. A guess by
    lookup costs its place in the verify and nothing else; where nothing drafts, the round's drafts end. What
    drafts at a position is known for the text alone: behind a wrong draft it is taken to be the same.
    """
    longest = max(len(text.accept) for text in texts)
    drafter = np.array([np.pad(np.full(size, MODEL) if text.drafter is None else text.drafter[:size],
                               (0, longest + k - size), "edge")
                        for text in texts for size in [len(text.accept)]])
    left = np.array([[text.room] for text in texts]) - 1 - np.arange(longest)
    drafts, guesses, going = np.zeros_like(left), np.zeros_like(left), left > 0
    for j in range(k):
        here = drafter[:, j:j + longest]
        going = going & (here != NOTHING) & (j < left)
        drafts += going
        guesses += going & (here == LOOKUP)
    cost = np.array([costs.round_seconds(j) for j in range(int(drafts.max(initial=0)) + 1)])
    return cost[drafts] - guesses * costs.t_draft


def texts_of(traces: Sequence[Trace]) -> list[Text]:
    """Every text of the traces, in order."""
    texts = []
    for trace in traces:
        for (route, prompt), rows in trace.rows.groupby(["route", "prompt"], sort=False, observed=True):
            rows = rows.sort_values("t", kind="stable")
            accept, drafter = rows.accept.to_numpy(float), rows.get("drafter")
            room = max(trace.meta.get("new_tokens") or 0, len(accept))
            texts.append(Text(route, prompt, accept, room, None if drafter is None else drafter.to_numpy()))
    return texts


def check_same(traces: Sequence[Trace], costs: CostTable | None = None) -> None:
    """Raise ValueError unless the traces, and the costs, are of one pair, and the traces of one sampling."""
    if not traces:
        raise ValueError("there is no trace to decide from: measure one first.")
    first = traces[0].meta
    for trace in traces[1:]:
        for name in SAME:
            if trace.meta.get(name) != first.get(name):
                raise ValueError(f"the traces differ in {name} ({first.get(name)} and "
                                 f"{trace.meta.get(name)}): decide from those of one pair and one sampling.")
    for name in ("target", "draft"):
        ours, theirs = first.get(name), costs.meta.get(name) if costs else None
        if ours and theirs and ours != theirs:
            raise ValueError(f"the trace is of {name} {ours} and the costs are of {theirs}: measure the "
                             "costs of the same pair.")


def _load(texts, starts, tokens, alpha, costs, ks) -> dict:
    table = []
    for k in ks:
        found = predict(texts, costs, k, starts[k])
        speedup = ratio_interval(found.plain, found.seconds)
        each = tokens.loc[k]
        values = (k, each["mean"], each["low"], each["high"], *speedup, None, None, None, None)
        table.append({name: _json(value) for name, value in zip(TABLE, values, strict=True)})
    best = max(table, key=lambda row: (row["predicted"], -row["k"]))
    k, low = best["k"], best["predicted_low"]
    said = f"With k={k} the target is predicted to decode {best['predicted']:.2f} times as fast as alone"
    if best["predicted"] <= 1:
        reason = f"{said}, and every other k does worse."
    elif low is None:
        reason = f"{said}, but one prompt gives no interval: measure more."
    elif low <= 1:
        reason = f"{said}, but the interval's lower end, {low:.2f}, is not above 1."
    else:
        reason = f"{said}, and the interval's lower end, {low:.2f}, is above 1."
    pays = best["predicted"] > 1 and low is not None and low > 1
    iid_k, iid_speedup = costs.best_measured_k({k: expected_tokens(alpha, k) for k in ks})
    return {"best_k": k if pays else 0, "decision": "speculate" if pays else "off", "reason": reason,
            "speedup": best["predicted"], "speedup_interval": [low, best["predicted_high"]],
            "adaptive": _adaptive(texts, starts, costs),
            "iid": {"best_k": iid_k, "speedup": iid_speedup}, "table": table}


def _adaptive(texts: Sequence[Text], starts: dict[int, np.ndarray], costs: RoundCosts) -> float:
    """As `RoundCosts.adaptive_gain`, where rounds cost what they cost at their place. starts: by k."""
    cost = np.stack([round_seconds(texts, costs, k) for k in starts], -1)
    fixed = min(float((starts[k] * cost[..., k]).sum()) for k in starts)
    least = adaptive_cost([text.accept for text in texts],
                          [each[:len(text.accept)] for each, text in zip(cost, texts, strict=True)])
    return max(1.0, fixed / float(least.sum()))


def _numbers(name: str, values: Sequence[int]) -> list[int]:
    found = sorted({whole(name, value, 1) for value in values})
    if not found:
        raise ValueError(f"{name}: give at least one whole number.")
    return found


def _json(value: float | None) -> float | int | None:
    if value is None or math.isnan(value):
        return None
    return value if isinstance(value, int) else float(value)
