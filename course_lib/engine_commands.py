"""The commands on running engines: `python -m course_lib engine check` and `engine sweep`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from course_lib.bars import progress_bar
from course_lib.options import (
    AsJson,
    Draft,
    PairName,
    PromptFile,
    Routes,
    Target,
    command_line,
    models_of,
    print_json,
    progress,
    split,
)

Timeout = Annotated[float, typer.Option(help="Seconds without a sign of life: the request has failed.")]


def add(app: typer.Typer, command: Callable) -> None:
    """Register the commands below `engine`; command: registers a function and reports bad input."""
    engine = typer.Typer(help="Check and sweep engines that run (vLLM and the like).")
    command(check, engine, "engine")
    command(sweep, engine, "engine")
    app.add_typer(engine, name="engine")


def check(
    base: Annotated[str, typer.Option(help="The engine without speculation: http://host:8000.")],
    spec: Annotated[str, typer.Option(help="The same target with speculation.")],
    model: Annotated[str | None, typer.Option(help="Its name there; asked if not given.")] = None,
    routes: Routes = None,
    prompts: PromptFile = None,
    limit: Annotated[int, typer.Option(help="Prompts of each route, for the greedy texts.")] = 4,
    new_tokens: Annotated[int, typer.Option(help="Tokens of each greedy text.")] = 64,
    temperature: Annotated[float, typer.Option(help="Of the sampled texts; 0: greedy ones alone.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Texts of each short prompt, a side.")] = 100,
    level: Annotated[float, typer.Option(help="Chance that a right engine fails the sampled test.")] = 0.01,
    tie: Annotated[float, typer.Option(help="Nats: a smaller margin between tokens is rounding.")] = 0.1,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.")] = 4,
    seed: Annotated[int, typer.Option(help="Of the test's permutations.")] = 0,
    timeout: Timeout = 60.0,
    as_json: AsJson = False,
) -> None:
    """Is its text right? The same greedily, of the same law when sampled; status 1 if not, 2 if undecided."""
    from course_lib.engines import check as room
    from course_lib.engines.client import served_model
    from course_lib.measure import choose_prompts

    room.check_arguments(base, spec, new_tokens, temperature, samples, level, tie, concurrency, seed, timeout)
    asked = choose_prompts(prompts, split(routes), limit, say=progress)
    names = [model or served_model(address) for address in (base, spec)]
    with progress_bar() as bar:
        found = room.check(base, spec, *names, [prompt.messages for prompt in asked], new_tokens=new_tokens,
                           temperature=temperature, samples=samples, level=level, tie=tie,
                           concurrency=concurrency, seed=seed, timeout=timeout, progress=bar)
    if as_json:
        print_json(found)
    else:
        print(*found["reasons"], *room.counted(found), found["verdict"], sep="\n")
    raise typer.Exit({"pass": 0, "fail": 1, "undecided": 2}[found["verdict"]])


def sweep(
    out: Annotated[Path, typer.Option(help="The file of measured cells; the sweep goes on where it ends.")],
    urls: Annotated[str | None, typer.Option(help="Running engines: 0=http://a:8000,3=http://b:8000")] = None,
    engine: Annotated[str | None, typer.Option(help="Or start one for each k: vllm, sglang or "
                                                    "llama_cpp.")] = None,
    pair: PairName = "smol",
    target: Target = None,
    draft: Draft = None,
    serve: Annotated[str | None, typer.Option(help="With --engine: the command to start it, with {target} "
                                                   "{port} {speculative}.")] = None,
    speculative: Annotated[str | None, typer.Option(help="With --engine: other speculation: flags with {k}, "
                                                         "or --speculative-config without k.")] = None,
    at_once: Annotated[bool, typer.Option("--at-once", help="With --engine: all k run at the same time, and "
                                          "take turns: fairer, if they fit.")] = False,
    port: Annotated[int, typer.Option(help="With --engine: where; with --at-once the first.")] = 8000,
    start_timeout: Annotated[float, typer.Option(help="With --engine: seconds until it is up.")] = 600.0,
    ks: Annotated[str | None, typer.Option(help="Drafts a round; those of --urls if not given.")] = None,
    concurrency: Annotated[str, typer.Option(help="Requests at a time.")] = "1,4",
    model: Annotated[str | None, typer.Option(help="Its name there; asked if not given.")] = None,
    routes: Routes = None,
    prompts: PromptFile = None,
    limit: Annotated[int, typer.Option(help="The most prompts of each route.")] = 16,
    new_tokens: Annotated[int, typer.Option(help="The most tokens of an answer.")] = 96,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    timeout: Timeout = 60.0,
    trace: Annotated[Path | None, typer.Option(help="What measure --out saved: predict, too.")] = None,
    costs: Annotated[Path | None, typer.Option(help="With --trace: round costs of that engine.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure running engines, one for each k: TTFT, TPOT, throughput, acceptance; then decide."""
    from course_lib.costs import CostTable
    from course_lib.engines import decision
    from course_lib.engines import sweep as room
    from course_lib.engines.server import ENGINES, Start, engine_command
    from course_lib.files import check_writable
    from course_lib.measure import choose_prompts, drafts_a_round, numbers
    from course_lib.tables import show
    from course_lib.traces import Trace

    if (urls is None) == (engine is None):
        raise ValueError("give --urls of engines that run, or --engine to start some")
    if engine not in (None, *ENGINES):
        raise ValueError(f"--engine {engine!r} is not known: choose from {', '.join(ENGINES)}, or start "
                         "yours and give --urls")
    if costs is not None and trace is None:
        raise ValueError("--costs needs --trace: a prediction is made of both")
    engines = _urls(urls) if urls else {}
    wanted = sorted(engines) if ks is None and urls else drafts_a_round(ks or "0,3,5,7,9")
    if missing := [k for k in wanted if urls and k not in engines]:
        raise ValueError(f"--urls has no engine for k={missing[0]}")
    last = port + len(wanted) - 1 if at_once else port
    if engine and not 1 <= port <= last <= 65535:
        raise ValueError(f"--port is {port}: a port is a number from 1 to 65535" + (
            f", and with --at-once {len(wanted)} engines take {port} to {last}" if last > port else ""))
    loads = numbers(concurrency, "--concurrency")
    if min(loads) < 1:
        raise ValueError("--concurrency: a load is 1 request at a time or more")
    check_writable(out)
    traces, table = [Trace.load(trace)] if trace else [], CostTable.load(costs) if costs else None
    asked = choose_prompts(prompts, split(routes), limit, say=progress)
    with progress_bar() as bar:
        def measure(some: dict[int, str]) -> None:
            room.sweep(some, asked, loads, out, model, new_tokens, temperature, timeout,
                       command_line(), bar)

        if urls:
            measure({k: engines[k] for k in wanted})
        else:
            left = room.unfinished(out, wanted, list(dict.fromkeys(one.route for one in asked)), loads)
            unswept = {k for _, _, k in left}
            of_pair = models_of(pair, target, draft)
            usual = ENGINES[engine]
            starts = {}
            for number, k in enumerate(wanted):
                at = port + number if at_once else port
                words = engine_command(serve or usual[0], speculative or usual[1], at, k, *of_pair)
                if k in unswept:
                    starts[k] = Start(words, f"http://127.0.0.1:{at}", out.with_name(f"{out.name}.k{k}.log"))
            problems = _serve(starts, at_once, start_timeout, measure)
            if problems and not out.exists():
                raise ValueError(problems[0])
    meta, cells = room.read(out)
    chosen = {key: cell for key, cell in cells.items() if key[2] in wanted}
    found = decision.document(meta, chosen, traces, table)
    if as_json:
        print_json(found)
    else:
        show(decision.table(found))
    if all(answer["error"] for cell in chosen.values() for answer in cell["answers"]):
        raise ValueError(f"no request was answered, so nothing was measured: {out.name} says why, request by "
                         "request")


def _serve(starts: dict, at_once: bool, timeout: float, measure: Callable) -> list[str]:
    """Start {k: engine}, measure and end them: together, or each gone before the next. One that does not
    start is left out. Returns why."""
    from course_lib.engines.server import serving_all

    said = []
    for group in [list(starts)] if at_once else [[k] for k in starts]:
        with serving_all({k: starts[k] for k in group}, timeout) as (up, problems):
            for k, problem in problems.items():
                said.append(f"k={k}: {problem}")
                print(said[-1], file=sys.stderr, flush=True)
            if up:
                measure(up)
    return said


def _urls(text: str) -> dict[int, str]:
    from course_lib.engines.client import root

    found = {}
    for part in text.split(","):
        k, mark, address = part.strip().partition("=")
        if not mark or not k.isascii() or not k.isdigit():
            raise ValueError(f"--urls has {part.strip()!r}: write K=http://HOST:PORT, with commas between")
        root(address)  # raises for what is no address
        if int(k) in found:
            raise ValueError(f"--urls has two engines for k={int(k)}")
        found[int(k)] = address
    return found

