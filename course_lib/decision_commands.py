"""The commands that decide: `python -m course_lib sweep` and `report`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

from course_lib.bars import progress_bar
from course_lib.options import (
    AsJson,
    Check,
    Concurrency,
    CostFile,
    Cut,
    Device,
    Draft,
    DraftMode,
    DType,
    Ks,
    Limit,
    LookUp,
    NewTokens,
    PairName,
    PromptFile,
    Routes,
    Seed,
    SkipBad,
    Target,
    Temperature,
    TopK,
    TopP,
    Traces,
    command_line,
    pair_of,
    print_json,
    progress,
    split,
)


def add(app: typer.Typer, command: Callable) -> None:
    """Register the commands; command: registers a function and reports bad input."""
    command(sweep, app)
    command(report, app)


def sweep(
    traces: Traces = None,
    pair: PairName = "smol",
    target: Target = None,
    draft: Draft = None,
    lookup: LookUp = None,
    device: Device = None,
    dtype: DType = None,
    routes: Routes = None,
    prompts: PromptFile = None,
    limit: Limit = None,
    new_tokens: NewTokens = 96,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    draft_mode: DraftMode = "sample",
    seed: Seed = 0,
    ks: Ks = "1,2,3,4,5,8",
    concurrency: Concurrency = None,
    costs: CostFile = None,
    check: Check = False,
    skip_bad: SkipBad = False,
    cut: Cut = False,
    as_json: AsJson = False,
) -> None:
    """Decide: speculate or not, and with which k, for each route and load; --check measures it."""
    found = _decision(SimpleNamespace(**locals()))
    from course_lib.tables import show, sweep_table

    print_json(found) if as_json else show(sweep_table(found))


def report(
    traces: Traces = None,
    out: Annotated[Path, typer.Option(help="The folder the three files go to.")] = ...,
    pair: PairName = "smol",
    target: Target = None,
    draft: Draft = None,
    lookup: LookUp = None,
    device: Device = None,
    dtype: DType = None,
    routes: Routes = None,
    prompts: PromptFile = None,
    limit: Limit = None,
    new_tokens: NewTokens = 96,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    draft_mode: DraftMode = "sample",
    seed: Seed = 0,
    ks: Ks = "1,2,3,4,5,8",
    concurrency: Concurrency = None,
    costs: CostFile = None,
    check: Check = False,
    skip_bad: SkipBad = False,
    cut: Cut = False,
    as_json: AsJson = False,
) -> None:
    """Decide as sweep does, and write it as a page, Markdown and JSON, with settings to paste."""
    from course_lib import report as room

    room.check_folder(out)
    asked = SimpleNamespace(**locals())
    real = {"traces": "recorded" if traces else "live", "costs": "recorded" if costs else "live"}
    left_out: list[str] = []

    def say(line: str) -> None:
        left_out.append(f"Prompts: {line}.")
        progress(line)

    found = _decision(asked, say) | {"fidelity": real, "notes": left_out}
    paths = room.write(found, out)
    if as_json:
        print(paths["json"].read_text(encoding="utf-8"), end="")
        return
    for route, values in found["routes"].items():
        print(room.decision(route, values))
    print(f"page: {paths['html']}")


def _decision(asked: SimpleNamespace, say: Callable[[str], None] = progress) -> dict:
    """The document that the options of `sweep` ask for: measure what is missing, then decide.

    say: is told of prompts that are left out.
    """
    from course_lib import measure as room
    from course_lib.costs import CostTable
    from course_lib.prompts import EXTRA_ROUTES, ROUTES
    from course_lib.sweep import LIMIT, check, check_same, costs_for, decide
    from course_lib.traces import Trace, add_lookup, measure_trace
    from course_lib.whole import whole

    ks = room.drafts_a_round(asked.ks, least=1)
    costs = None if asked.costs is None else CostTable.load(asked.costs)
    loads = sorted(costs.batches) if costs else [1]
    if asked.concurrency is not None:
        loads = [whole("a load", load, 1) for load in room.numbers(asked.concurrency, "--concurrency")]
    for load in loads if costs else ():
        costs.at(load).round_seconds(max(ks))  # what was not measured is refused before an hour of work
    traces = [_of_routes(Trace.load(path), path, split(asked.routes)) for path in asked.traces or ()]
    if traces:
        check_same(traces, costs)
        if costs and not asked.check and asked.lookup is None:  # no model is needed
            return decide(traces, costs, ks, loads)
    routes = split(asked.routes)
    if traces and asked.prompts is None:  # of a trace of ours, whichever routes it is of
        routes = routes or (*ROUTES, *EXTRA_ROUTES)
    prompts = room.choose_prompts(asked.prompts, routes, None if traces else asked.limit, asked.skip_bad,
                                  say)
    from course_lib.sampling import Sampling

    sampling = Sampling(asked.temperature, asked.top_k, asked.top_p)
    pair = pair_of(asked.pair, asked.target, asked.draft, asked.lookup, asked.device, asked.dtype)
    if traces and pair.lookup and not traces[0].meta.get("lookup"):
        traces = [add_lookup(trace, pair.encode, prompts, pair.lookup, draft=pair.draft is not None)
                  for trace in traces]
    with progress_bar() as bar:
        said = {"seed": asked.seed, "command": command_line(), "progress": bar}
        traces = traces or [measure_trace(pair, prompts, sampling, asked.new_tokens, asked.draft_mode,
                                          cut=asked.cut, **said)]
        if asked.check:
            return check(pair, traces, prompts, ks, loads, costs, asked.limit or LIMIT, **said)
        return decide(traces, costs or costs_for(pair, traces, prompts, ks, loads, **said), ks, loads)


def _of_routes(trace, path: Path, routes: list[str] | None):
    """The trace without the routes that were not asked for."""
    if routes is None:
        return trace
    rows = trace.rows[trace.rows.route.isin(routes)]
    if missing := set(routes) - set(rows.route):
        known = ", ".join(trace.rows.route.unique())
        raise ValueError(f"{path} has no route {min(missing)!r}: it has {known}")
    return replace(trace, rows=rows.reset_index(drop=True))
