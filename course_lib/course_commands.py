"""The commands for those who learn and teach: `python -m course_lib progress`, `workshop`, `bundle`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from course_lib import options
from course_lib.fetch import ROOT
from course_lib.options import AsJson, print_json


def add(app: typer.Typer, command: Callable) -> None:
    """Register the commands; command: registers a function and reports bad input."""
    command(progress, app)
    command(workshop, app)
    command(bundle, app)


def progress(
    reset: Annotated[bool, typer.Option("--reset", help="Start anew; what was done is set aside.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which exercises you have solved and what is next; kept outside the course's folder."""
    from course_lib.course import progress as room
    from course_lib.course.outline import outline

    path = room.place()
    if str(path) == room.OFF:
        raise ValueError("COURSE_PROGRESS is off, so nothing is noted: unset it")
    if path.is_dir():
        raise ValueError(f"{path} is a directory: COURSE_PROGRESS names a file")
    aside = room.reset(path) if reset else None
    if aside is not None:
        print(f"progress: what was done is set aside as {aside}", file=sys.stderr)
    found = room.document(outline(), path)
    print_json(found) if as_json else print(room.describe(found))


def workshop(
    track: Annotated[str, typer.Argument(help="90min, halfday or oneday.")],
    out: Annotated[Path | None, typer.Option(help="The folder; build/workshop/TRACK if not given.")] = None,
    slides: Annotated[bool, typer.Option(help="Slides, too; reveal.js is downloaded once.")] = True,
    as_json: AsJson = False,
) -> None:
    """Write the notebooks of a class, and slides of them (for instructors)."""
    from course_lib.course import slides as room
    from course_lib.course.workshop import write

    folder = ROOT / "build" / "workshop" / track if out is None else out
    notebooks = write(track, folder)
    pages = room.write(notebooks, folder / "slides", options.progress) if slides else []
    if as_json:
        print_json({"notebooks": [str(path) for path in notebooks], "slides": [str(path) for path in pages]})
        return
    for path in [*notebooks, *pages]:
        print(path)


def bundle(
    out: Annotated[Path, typer.Option(help="The folder; also packed, as .tar.")] = ROOT / "build" / "bundle",
    as_json: AsJson = False,
) -> None:
    """Pack the course for machines like this one that have no network: wheels, model, notebooks."""
    from course_lib.course.bundle import make

    packed = make(out, options.progress)
    size = packed.stat().st_size
    print_json({"packed": str(packed), "bytes": size}) if as_json else print(f"{packed}  {size / 1e6:.0f} MB")
