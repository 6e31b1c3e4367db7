"""What a learner has done, in a file of their own, outside the course's folder: an update does not touch it.

The file is a journal, one JSON line for each check or quiz answer. A line is added by one write, so that
notebooks that run at the same time lose nothing, and a line that is damaged is worth one line, not the file.

Nothing is recorded where nobody learns: outside of a notebook's kernel; in a build or `make course` (which
say COURSE_PROGRESS=off to their kernels); under pytest, with nbval or without; in CI; and in the notebooks
with the solutions, known by their folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from course_lib.course.outline import Notebook

OFF = "off"  # the value of COURSE_PROGRESS with which nothing is recorded
_complained = False


@dataclass(frozen=True)
class Done:
    """What became of one exercise or question: how often tried, whether ever right, and when that was."""

    tries: int
    right: str | None  # the time of the first right answer, ISO 8601
    last: str  # the name of what the last answer met: "right", or a wrong turn


def place() -> Path:
    """The file: COURSE_PROGRESS, or one in the folder where this system keeps a user's data."""
    if named := os.environ.get("COURSE_PROGRESS"):
        return Path(named).expanduser()
    from platformdirs import user_data_path

    return user_data_path("course_lib", appauthor=False) / "progress.jsonl"


def recording(environment: Mapping[str, str] = os.environ) -> bool:
    """Does somebody learn here?"""
    here = "ipykernel.kernelapp" in sys.modules and Path.cwd().name != "solutions"
    tested = "PYTEST_VERSION" in environment or "CI" in environment
    return here and not tested and environment.get("COURSE_PROGRESS") != OFF


def record(kind: str, id: str, met: str) -> None:
    """Note an answer, if somebody learns here. Never raises: a full disk must not stop a notebook.

    kind: "exercise" or "question". met: "right", or the name of the wrong turn.
    """
    global _complained
    if not recording():
        return
    try:
        add(place(), kind, id, met)
    except OSError as error:
        if not _complained:
            print(f"progress: {place()} cannot be written ({error.strerror}): what you do is not noted.",
                  file=sys.stderr)
        _complained = True


def add(path: Path, kind: str, id: str, met: str) -> None:
    """Add one line to the journal. Raises OSError where that cannot be."""
    line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), kind: id, "met": met})
    path.parent.mkdir(parents=True, exist_ok=True)
    # A line cut short by a power cut is left alone: the new one starts on its own.
    start = "" if _ends_well(path) else "\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{start}{line}\n".encode())
    finally:
        os.close(file)


def read(path: Path) -> tuple[dict[tuple[str, str], Done], int]:
    """(kind, id) -> what became of it, and how many lines could not be read. No file is an empty one."""
    found: dict[tuple[str, str], Done] = {}
    bad = 0
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return found, 0
    for line in filter(bytes.strip, lines):
        try:
            kind, id, met, at = _entry(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError):
            bad += 1
            continue
        before = found.get((kind, id), Done(0, None, ""))
        right = before.right or (at if met == "right" else None)
        found[kind, id] = Done(before.tries + 1, right, met)
    return found, bad


def reset(path: Path) -> Path | None:
    """Start anew: the file is set aside under the name that is returned, None if there was none."""
    if not path.exists():
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    aside, more = path.with_name(f"{path.stem}-{stamp}{path.suffix}"), 1
    while aside.exists():
        more += 1
        aside = path.with_name(f"{path.stem}-{stamp}-{more}{path.suffix}")
    return path.rename(aside)


def document(notebooks: list[Notebook], path: Path) -> dict:
    """What is done and what is next, as the command prints it with --json."""
    done, bad = read(path)

    def state(kind: str, id: str) -> dict:
        found = done.get((kind, id))
        if found is None:
            return {"id": id, "state": "open", "tries": 0}
        known = "right" if found.right else "tried"
        return {"id": id, "state": known, "tries": found.tries, "last": found.last}

    rows = [{"notebook": one.name, "title": one.title, "minutes": one.minutes,
             "exercises": [{"level": task.level, "minutes": task.minutes, **state("exercise", task.id)}
                           for task in one.exercises],
             "questions": [state("question", id) for id in one.questions]} for one in notebooks]
    ahead = [(row, task) for row in rows for task in row["exercises"] if task["state"] != "right"]
    following = None
    if ahead:
        row, task = ahead[0]
        following = {"notebook": row["notebook"], "exercise": task["id"], "level": task["level"],
                     "minutes": task["minutes"]}
    return {"file": str(path), "unreadable_lines": bad, "notebooks": rows, "next": following,
            "minutes_left": sum(task["minutes"] for _, task in ahead)}


def describe(found: dict) -> str:
    """The document as lines to read."""
    said = []
    if bad := found["unreadable_lines"]:
        said.append(f"{bad} line{'s' * (bad > 1)} of {found['file']} cannot be read: left alone, and the "
                    "rest counts.")
    width = max(len(row["title"]) for row in found["notebooks"])
    for row in found["notebooks"]:
        right, tried, every = _count(row["exercises"])
        known, _, asked = _count(row["questions"])
        mark = "✓" if right == every else "…" if right or tried or known else "○"
        line = f"{mark} {row['notebook'][:2]} {row['title']:{width}}  {right:2} of {every:2} exercises"
        line += f"  {known} of {asked} questions" if known else ""
        said.append(line + (f"  ({tried} tried)" if tried else ""))
    if found["next"] is None:
        return "\n".join([*said, "", "All exercises are solved."])
    ahead = found["next"]
    said += ["", f"Next: exercise {ahead['exercise']} ({ahead['level']}, {ahead['minutes']} min) in "
                 f"notebooks/{ahead['notebook']}.ipynb; {found['minutes_left']} minutes of exercises left."]
    return "\n".join(said)


def _count(states: list[dict]) -> tuple[int, int, int]:
    kinds = [one["state"] for one in states]
    return kinds.count("right"), kinds.count("tried"), len(kinds)


def _entry(row: dict) -> tuple[str, str, str, str]:
    kind = "exercise" if "exercise" in row else "question"
    entry = (kind, row[kind], row["met"], row["at"])
    if not all(isinstance(part, str) for part in entry):
        raise TypeError
    return entry


def _ends_well(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except FileNotFoundError:
        return True
