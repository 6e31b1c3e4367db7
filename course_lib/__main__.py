"""The command line: `python -m course_lib COMMAND`.

A command is a thin function here: it imports its room when it runs, so that the others start in a
blink, prints its result on stdout and its progress on stderr. With `--json` stdout holds one JSON
document and nothing else. Bad input ends in one line on stderr and exit status 2.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:
    raise SystemExit(f"course_lib: {missing.name} is not installed. In the environment you want to use: "
                     "pip install -c requirements.lock -r requirements.txt -e .") from None

from course_lib import bench_commands, course_commands, decision_commands, distill_commands, engine_commands
from course_lib.bars import progress_bar
from course_lib.fetch import ROOT, FetchError
from course_lib.options import (
    AsJson,
    Cut,
    Device,
    Draft,
    DraftMode,
    DType,
    Log,
    LookUp,
    NewTokens,
    PairName,
    PromptFile,
    Routes,
    Seed,
    ServedConcurrency,
    ServedDraft,
    ServedTarget,
    SkipBad,
    Target,
    Temperature,
    TopK,
    TopP,
    command_line,
    pair_of,
    print_json,
    progress,
    split,
)

UsageError = typer.BadParameter.__base__  # typer brings its own click, or not, from version to version
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="How many tokens should the draft propose? Measure acceptance, then decide.")


def command(function, app=app, group=""):
    """Register `function` as the command of its name, with bad input reported in one line.

    group: the word before that name, of a command that has one; messages begin with both.
    """

    @functools.wraps(function)
    def guarded(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (ValueError, FetchError, OSError) as error:
            name = f"{group} {function.__name__}".strip()
            print(f"{name}: {' '.join(_said(error).split())}", file=sys.stderr)
            raise typer.Exit(2) from None

    return app.command()(guarded)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line (by default this process's) and return its exit status; 2 for wrong usage."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = app(args=arguments or ["--help"], prog_name="python -m course_lib", standalone_mode=False)
    except UsageError as error:
        names, at = [], error.ctx
        while at and at.parent:
            names, at = [at.info_name, *names], at.parent
        name = " ".join(names) or "course_lib"
        print(f"{name}: {' '.join(error.format_message().split())}", file=sys.stderr)
        return 2
    except typer.Abort:
        return 130
    return (status or 0) if arguments else 2


@command
def doctor(
    run: Annotated[bool, typer.Option("--run", help="Also decode a few tokens, and say how fast.")] = False,
    room: Annotated[Path | None, typer.Option(help="Instead: a folder of answers, --json of each machine of "
                                              "a class; who is not ready?")] = None,
    as_json: AsJson = False,
) -> None:
    """Check this machine: Python, packages, memory, disk, threads, GPU, model, Jupyter kernel."""
    if room is not None:
        from course_lib.course import answers

        found = answers.read(room)
        print_json([one._asdict() for one in found]) if as_json else print(answers.describe(found))
        raise typer.Exit(0 if all(one.ready for one in found) else 1)
    from course_lib import doctor as house

    rows = house.examine() + ([house.speed_row(house.decode_a_little)] if run else [])
    if as_json:
        print_json({"usable": house.usable(rows), "checks": [row._asdict() for row in rows]})
    else:
        Console().print(house.table(rows))
    raise typer.Exit(0 if house.usable(rows) else 1)


@command
def fetch(as_json: AsJson = False) -> None:
    """Get the embedded pair into data/models (93 MB, once) and verify it."""
    from course_lib import fetch as room

    target, draft = room.fetch(say=progress)
    found = {"target": str(target), "draft": str(draft)}
    print_json(found) if as_json else print(f"target  {target}\ndraft   {draft}")


@command
def measure(
    pair: PairName = "smol",
    target: Target = None,
    draft: Draft = None,
    lookup: LookUp = None,
    device: Device = None,
    dtype: DType = None,
    routes: Routes = None,
    prompts: PromptFile = None,
    limit: Annotated[int | None, typer.Option(help="The most prompts of each route.")] = None,
    new_tokens: NewTokens = 96,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    draft_mode: DraftMode = "sample",
    seed: Seed = 0,
    ks: Annotated[str, typer.Option(help="Drafts a round to report.")] = "1,2,3,4,5,8",
    batch: Annotated[int, typer.Option(help="Texts at a time.")] = 16,
    out: Annotated[Path | None, typer.Option(help="Save the trace here (Parquet).")] = None,
    figure: Annotated[Path | None, typer.Option(help="Save a picture here (PNG).")] = None,
    served_target: ServedTarget = None,
    served_draft: ServedDraft = None,
    log: Log = None,
    served_concurrency: ServedConcurrency = 8,
    skip_bad: SkipBad = False,
    cut: Cut = False,
    as_json: AsJson = False,
) -> None:
    """Measure acceptance, and tokens per round for every k, on the course's prompts or yours."""
    from course_lib import measure as room

    if served_target or served_draft or log:
        from course_lib import served

        found = served.run_served(SimpleNamespace(**locals()), command_line(), progress)
        return print_json(found) if as_json else room.show(found)
    from course_lib.sampling import Sampling

    sampling, drafts = Sampling(temperature, top_k, top_p), room.drafts_a_round(ks)
    asked = room.choose_prompts(prompts, split(routes), limit, skip_bad, progress)
    loaded = pair_of(pair, target, draft, lookup, device, dtype)
    with progress_bar() as bar:
        found = room.run_measure(loaded, asked, sampling, new_tokens, draft_mode, seed, drafts, batch, cut,
                                 out, figure, command_line(), bar, progress)
    print_json(found) if as_json else room.show(found)


@command
def costs(
    file: Annotated[Path | None, typer.Argument(help="A file of costs to print; measured if none.")] = None,
    pair: PairName = "smol",
    target: Target = None,
    draft: Draft = None,
    lookup: LookUp = None,
    device: Device = None,
    dtype: DType = None,
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "1,2,4,8,16,32",
    ks: Annotated[str, typer.Option(help="Drafts a round.")] = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    new_tokens: Annotated[int, typer.Option(help="Tokens of a text.")] = 96,
    rounds: Annotated[int, typer.Option(help="The least rounds of every k behind a median.")] = 8,
    out: Annotated[Path | None, typer.Option(help="Save the costs here (JSON).")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what a round costs on this machine, by batch and k, inside the decoder; or print a file."""
    from course_lib import measure as room
    from course_lib.costs import CostTable
    from course_lib.files import check_writable
    from course_lib.tables import cost_table, show

    if file is not None:
        if out is not None:
            raise ValueError("give a file to print, or --out to measure into one, not both")
        table = CostTable.load(file)
    else:
        sizes, drafts = room.numbers(batches, "--batches"), room.drafts_a_round(ks)
        if out is not None:
            check_writable(out)
        from course_lib.sampling import Sampling
        from course_lib.timing import measure_costs

        prompts, sampling = room.choose_prompts(None, None, 16), Sampling(temperature)
        loaded, widths = pair_of(pair, target, draft, lookup, device, dtype), [1, *(k + 1 for k in drafts)]
        with progress_bar() as bar:
            table = measure_costs(loaded, prompts[::3], sizes, widths, sampling, new_tokens=new_tokens,
                                  rounds=rounds, command=command_line(), progress=bar)
        if out is not None:
            table.save(out)
    print_json(table.document()) if as_json else show(cost_table(table))


@command
def metrics(
    source: Annotated[str, typer.Argument(help="A file, an address (http://host:8000), or - for stdin.")],
    since: Annotated[str | None, typer.Option(help="An earlier scrape: only what came after it.")] = None,
    watch: Annotated[float | None, typer.Option(help="Scrape every so many seconds, till Ctrl-C.")] = None,
    k: Annotated[int | None, typer.Option("--k", help="Drafts a round, if the text lacks it.")] = None,
    model: Annotated[str | None, typer.Option(help="Which model, if there are several.")] = None,
    costs: Annotated[Path | None, typer.Option(help="A file of round costs: also say the best k.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read an engine's acceptance: /metrics, responses, benchmarks or logs of four engines."""
    from course_lib.engines import ledger

    if watch is not None:
        if since or costs:
            raise ValueError("--watch shows its own intervals: leave out --since and --costs")
        try:
            for passed, found in ledger.watch(source, watch, k, model):
                for one in found:
                    line = json.dumps({"seconds": passed, **one.as_dict()}, allow_nan=False)
                    print(line if as_json else ledger.interval_line(passed, one), flush=True)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
    found = ledger.read(source, since, k, model)
    best = [ledger.best_ks(one, costs) if costs else None for one in found]
    if as_json:
        print_json([ledger.document(*pair) for pair in zip(found, best, strict=True)])
        return
    for one, ks in zip(found, best, strict=True):
        ledger.show(one, ks)


@command
def build(
    names: Annotated[list[str] | None, typer.Argument(help="Numbers or names; all if none is given.")] = None,
    execute: Annotated[bool, typer.Option(help="Run the cells and store their outputs.")] = True,
    check: Annotated[bool, typer.Option("--check", help="Only say which notebooks are stale.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds a cell may take.")] = 120,
    as_json: AsJson = False,
) -> None:
    """Make the learner's and the solution notebooks from notebooks/src (for maintainers)."""
    from course_lib.course.build import build_command, sources

    status = build_command(names or [], execute_cells=execute, check=check, timeout=timeout)
    if as_json and status < 2:
        print_json({"ok": status == 0, "notebooks": [path.stem for path in sources(names or [])]})
    raise typer.Exit(status)


@command
def run(
    out: Annotated[Path, typer.Option(help="Where executed notebooks and pages go.")] = ROOT / "build",
    timeout: Annotated[float, typer.Option(help="Seconds a cell may take.")] = 600,
    as_json: AsJson = False,
) -> None:
    """Execute every notebook of the course as it is now, and write it as a page."""
    from course_lib.course.build import NOTEBOOKS
    from course_lib.course.execute import run_command

    status = run_command(out, NOTEBOOKS, timeout)
    index = out / "html" / "index.html"
    print_json({"ok": status == 0, "index": str(index)}) if as_json else print(f"pages: {index}")
    raise typer.Exit(status)


@command
def manifest(
    write: Annotated[bool, typer.Option("--write/--check", help="Renew sums, or only compare.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare data/ with data/manifest.json, which says where each file came from."""
    from course_lib import manifest as room

    if write:
        room.write()
    problems = room.check()
    if as_json:
        print_json({"ok": not problems, "problems": problems})
    else:
        for problem in problems:
            print(f"manifest: {problem}", file=sys.stderr)
        print(f"{len(room.read())} files, {len(problems)} problems")
    raise typer.Exit(int(bool(problems)))


for commands in (bench_commands, course_commands, decision_commands, distill_commands, engine_commands):
    commands.add(app, command)


def _said(error: Exception) -> str:
    """What an error says; of one from the operating system, which file it is about, without its number."""
    if not isinstance(error, OSError) or error.filename is None or not error.strerror:
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no file {error.filename}"
    if isinstance(error, IsADirectoryError):
        return f"{error.filename} is a directory: name a file"
    return f"{error.filename} cannot be used: {error.strerror.lower()}"


if __name__ == "__main__":
    sys.exit(main())
