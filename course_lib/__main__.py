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
from typing import Annotated

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:
    raise SystemExit(f"course_lib: {missing.name} is not installed. In the environment you want to use: "
                     "pip install -c requirements.lock -r requirements.txt -e .") from None

from course_lib.fetch import ROOT, FetchError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="How many tokens should the draft propose? Measure acceptance, then decide.")
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]


def command(function):
    """Register `function` as the command of its name, with bad input reported in one line."""

    @functools.wraps(function)
    def guarded(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (ValueError, FetchError, OSError) as error:
            print(f"{function.__name__}: {' '.join(str(error).split())}", file=sys.stderr)
            raise typer.Exit(2) from None

    return app.command()(guarded)


def progress(text: str) -> None:
    """A line of progress, where it cannot get into the result."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: object) -> None:
    """Print the one JSON document. NaN is not JSON: whoever makes the document writes None for it."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


@command
def doctor(as_json: AsJson = False) -> None:
    """Check this machine: Python, packages, memory, disk, threads, GPU, model, Jupyter kernel."""
    from course_lib import doctor as room

    rows = room.examine()
    if as_json:
        print_json({"usable": room.usable(rows), "checks": [row._asdict() for row in rows]})
    else:
        Console().print(room.table(rows))
    raise typer.Exit(0 if room.usable(rows) else 1)


@command
def fetch(as_json: AsJson = False) -> None:
    """Get the embedded pair into data/models (93 MB, once) and verify it."""
    from course_lib import fetch as room

    target, draft = room.fetch(say=progress)
    found = {"target": str(target), "draft": str(draft)}
    print_json(found) if as_json else print(f"target  {target}\ndraft   {draft}")


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


if __name__ == "__main__":
    app(prog_name="python -m course_lib")
