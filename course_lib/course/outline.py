"""What the course holds, read from the sources of its notebooks: titles, minutes, exercises, questions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_EXERCISE = re.compile(r"\*\*Exercise (\d+\.\d+)\*\* · (easy|medium|hard) · (\d+) minutes?\.")


@dataclass(frozen=True)
class Task:
    """An exercise: its id, level (easy, medium or hard) and declared minutes."""

    id: str
    level: str
    minutes: int


@dataclass(frozen=True)
class Notebook:
    """One notebook by its source, `notebooks/src/NN_name.py`."""

    name: str
    text: str

    @property
    def number(self) -> str:
        return self.name[:2]

    @cached_property
    def title(self) -> str:
        return re.search(r"^# # \d\d · (.+)$", self.text, re.MULTILINE)[1].strip()

    @cached_property
    def minutes(self) -> int:
        return int(re.search(r"^# - \*\*Minutes:\*\* (\d+)", self.text, re.MULTILINE)[1])

    @cached_property
    def exercises(self) -> tuple[Task, ...]:
        return tuple(Task(id, level, int(minutes)) for id, level, minutes in _EXERCISE.findall(self.text))

    @cached_property
    def questions(self) -> tuple[str, ...]:
        return tuple(re.findall(r'^quiz\("([^"]+)"', self.text, re.MULTILINE))


def outline(folder: Path = NOTEBOOKS) -> list[Notebook]:
    """All notebooks in their order. Raises ValueError where there is none."""
    sources = sorted((folder / "src").glob("[0-9][0-9]_*.py"))
    if not sources:
        raise ValueError(f"there is no notebook in {folder}: run this in the course's own folder")
    return [Notebook(path.stem, path.read_text(encoding="utf-8")) for path in sources]
