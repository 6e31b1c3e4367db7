"""What the course holds, read from the sources of its notebooks: titles, minutes, exercises, questions.

A notebook declares its minutes and those of each exercise. What is left after the exercises is divided among
its sections by their length, so that a part of a notebook has minutes, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_EXERCISE = re.compile(r"\*\*Exercise (\d+\.\d+)\*\* · (easy|medium|hard) · (\d+) minutes?\.")
# An exercise with its code and hints: three cells.
_TASK = re.compile(r"^# \*\*Exercise .+?^# %%.*?tags=\[\"hints\"\].*?(?=^# %%|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Task:
    """An exercise: its id, level (easy, medium or hard) and declared minutes."""

    id: str
    level: str
    minutes: int


@dataclass(frozen=True)
class Section:
    """What stands under one "## " heading: its text, the minutes to read and run it, and its exercises."""

    title: str
    minutes: float  # without the exercises
    exercises: tuple[Task, ...]


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
        return _tasks(self.text)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        parts = re.split(r"^# ## (.+)\n", self.text, flags=re.MULTILINE)  # what is before, title, text, …
        found = [(title.strip(), text) for title, text in zip(parts[1::2], parts[2::2], strict=True)]
        lengths = [len(_TASK.sub("", text)) for _, text in found]
        left = self.minutes - sum(task.minutes for task in self.exercises)
        return tuple(Section(title, left * length / sum(lengths), _tasks(text))
                     for (title, text), length in zip(found, lengths, strict=True))

    @cached_property
    def questions(self) -> tuple[str, ...]:
        return tuple(re.findall(r'^quiz\("([^"]+)"', self.text, re.MULTILINE))


def outline(folder: Path = NOTEBOOKS) -> list[Notebook]:
    """All notebooks in their order. Raises ValueError where there is none."""
    sources = sorted((folder / "src").glob("[0-9][0-9]_*.py"))
    if not sources:
        raise ValueError(f"there is no notebook in {folder}: run this in the course's own folder")
    return [Notebook(path.stem, path.read_text(encoding="utf-8")) for path in sources]


def _tasks(text: str) -> tuple[Task, ...]:
    return tuple(Task(id, level, int(minutes)) for id, level, minutes in _EXERCISE.findall(text))
