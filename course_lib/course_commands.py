"""The commands for those who learn: `python -m course_lib progress`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from course_lib.options import AsJson, print_json


def add(app: typer.Typer, command: Callable) -> None:
    """Register the command; command: registers a function and reports bad input."""
    command(progress, app)


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
