"""The course for a room of people: which parts of which notebooks, in how many minutes.

A track is a list of parts. A part names sections of a notebook by their headings and, of the exercises in
them, those that the room does. Minutes are not written here: they follow from what the notebooks declare.

    python -m course_lib.course.tracks      renews the tables in notebooks/INSTRUCTOR.md
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from course_lib.course.outline import NOTEBOOKS, Notebook, Task, outline
from course_lib.files import write_text

TALK = 2  # shown and talked about, a section takes twice the time of one who reads it alone
SITTING = 90  # minutes people sit without a break, at most
MODES = {"easy": "alone", "medium": "in pairs", "hard": "in groups of four"}


@dataclass(frozen=True)
class Part:
    """Sections of one notebook, by their headings, and the ids of the exercises that are done in class."""

    number: str
    sections: tuple[str, ...]
    exercises: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pause:
    """Minutes that no notebook fills: a break, or time for questions."""

    minutes: int
    title: str = "break"


@dataclass(frozen=True)
class Track:
    """title: what it is called; minutes: how long the room has; parts: in order."""

    title: str
    minutes: int
    parts: tuple[Part | Pause, ...]


@dataclass(frozen=True)
class Slot:
    """A part with its time. start, minutes: whole minutes from the beginning, and how many."""

    start: int
    minutes: int
    part: Part | Pause
    tasks: tuple[Task, ...] = ()


_OPENING = ("The question", "Meet the pair", "One answer, twice", "One round in colour",
            "Three kinds of text", "What if the draft is useless?")
_PROOF = ("Two laws for the next word", "Step 3: accept", "How often is a draft accepted?",
          "Step 4: resample", "The proof, by counting everything")
_YIELD = ("One round", "How many are accepted on average?", "How many are emitted?", "The ceiling",
          "Tokens per round is not speedup")
_PRICE = ("What a round costs", "Two napkins", "The best k", "Break-even",
          "Why checking is nearly free, and when it stops being so")
_MEASURED = ("One text, place by place", "The claim, on the pair", "How sure are we?")
TRACKS = {
    "90min": Track("90 minutes", 90, (
        Part("00", _OPENING, ("0.2",)),
        Part("02", _YIELD, ("2.4",)),
        Part("03", ("Two napkins", "The best k", "Break-even"), ("3.3", "3.4")),
        Part("07", ("Three kinds of traffic, one draft",)),
        Part("08", ("The wall clock",)),
        Part("09", ("Six loads on one machine",)),
        Part("12", ("Decide", "The report")),
        Pause(5, "questions, survey"),
    )),
    "halfday": Track("Half a day", 240, (
        Part("00", _OPENING, ("0.2", "0.4")),
        Part("01", _PROOF, ("1.1", "1.3")),
        Part("02", (*_YIELD, "Accepted ÷ drafted is not α"), ("2.4", "2.7")),
        Pause(15),
        Part("03", _PRICE, ("3.1", "3.3", "3.4", "3.6")),
        Part("04", _MEASURED, ("4.1", "4.2")),
        Pause(15),
        Part("07", ("Three kinds of traffic, one draft", "Switch a stream off"), ("7.6",)),
        Part("08", ("The wall clock", "Choose k"), ("8.6",)),
        Part("09", ("Six loads on one machine", "The k table")),
        Part("12", ("Decide", "The report"), ("12.3",)),
        Pause(5, "questions, survey"),
    )),
    "oneday": Track("One day", 480, (
        Part("00", (*_OPENING, "Is this machine ready?"), ("0.2", "0.3", "0.4")),
        Part("01", _PROOF, ("1.1", "1.3")),
        Part("02", (*_YIELD, "Exactly n", "Accepted ÷ drafted is not α", "Two routes, one average"),
             ("2.2", "2.4", "2.7", "2.8")),
        Pause(15),
        Part("03", _PRICE, ("3.1", "3.3", "3.4", "3.6", "3.7")),
        Part("04", _MEASURED, ("4.1", "4.2")),
        Pause(60, "lunch"),
        Part("05", ("The coin of a token", "Three tokens by hand", "The recursion",
                    "Temperature 0: round for round", "Trap 1: every place as the start of a round"),
             ("5.3", "5.6")),
        Part("06", ("What one α does to the sum",), ("6.4",)),
        Part("07", ("Three kinds of traffic, one draft", "Switch a stream off"), ("7.6",)),
        Part("08", ("The wall clock", "Choose k"), ("8.6",)),
        Pause(15),
        Part("09", ("Six loads on one machine", "The same draft, more rows", "The k table"), ("9.1",)),
        Part("10", ("By hand", "The sweep of a real engine"), ("10.1", "10.2")),
        Part("11", ("What an α is worth", "Watch α rise", "Which draft for which route?"), ()),
        Pause(15),
        Part("12", ("The file", "How many prompts are enough?", "Decide", "The report"), ("12.2", "12.3")),
        Pause(10, "questions, survey"),
    )),
}


def track(name: str) -> Track:
    """A track by its name. Raises ValueError for a name that is none."""
    if name not in TRACKS:
        raise ValueError(f"there is no track {name!r}: choose from {', '.join(TRACKS)}")
    return TRACKS[name]


def schedule(chosen: Track, notebooks: list[Notebook]) -> list[Slot]:
    """The parts with their times. Raises ValueError where a part names what its notebook does not hold."""
    by_number, slots, start = {one.number: one for one in notebooks}, [], 0
    for part in chosen.parts:
        if isinstance(part, Pause):
            slots.append(Slot(start, part.minutes, part))
        else:
            slots.append(_slot(start, part, by_number))
        start += slots[-1].minutes
    return slots


def table(slots: list[Slot], notebooks: list[Notebook]) -> str:
    """The schedule as a Markdown table."""
    by_number = {one.number: one for one in notebooks}
    lines = ["| from | min | part | exercises |", "|---|---|---|---|"]
    for slot in slots:
        clock = f"{slot.start // 60}:{slot.start % 60:02d}"
        if isinstance(slot.part, Pause):
            lines.append(f"| {clock} | {slot.minutes} | *{slot.part.title}* | |")
            continue
        notebook = by_number[slot.part.number]
        tasks = ", ".join(f"{task.id} ({MODES[task.level]}, {task.minutes})" for task in slot.tasks)
        link = f"[{notebook.number} {notebook.title}]({notebook.name}.ipynb)"
        parts = "; ".join(slot.part.sections)
        lines.append(f"| {clock} | {slot.minutes} | {link}: {parts} | {tasks} |")
    end = slots[-1].start + slots[-1].minutes
    return "\n".join([*lines, f"| {end // 60}:{end % 60:02d} | | *end* | |"])


def _slot(start: int, part: Part, by_number: dict[str, Notebook]) -> Slot:
    if part.number not in by_number:
        raise ValueError(f"there is no notebook {part.number}")
    notebook = by_number[part.number]
    sections = {section.title: section for section in notebook.sections}
    for title in part.sections:
        if title not in sections:
            raise ValueError(f"notebook {part.number} has no section {title!r}: it has {', '.join(sections)}")
    held = {task.id: task for title in part.sections for task in sections[title].exercises}
    for id in part.exercises:
        if id not in held:
            raise ValueError(f"the sections chosen of notebook {part.number} hold no exercise {id}")
    tasks = tuple(held[id] for id in part.exercises)
    shown = TALK * sum(sections[title].minutes for title in part.sections)
    minutes = ceil(round(shown, 6) + sum(task.minutes for task in tasks))  # 18.000000001 is 18
    return Slot(start, minutes, part, tasks)


def renewed(page: str, notebooks: list[Notebook]) -> str:
    """INSTRUCTOR.md with the table of each track between its markers made anew."""
    def table_of(match: re.Match) -> str:
        chosen = track(match[1])
        return f"<!-- track: {match[1]} -->\n{table(schedule(chosen, notebooks), notebooks)}\n<!-- end -->"

    return re.sub(r"<!-- track: (\w+) -->.*?<!-- end -->", table_of, page, flags=re.DOTALL)


if __name__ == "__main__":
    path = NOTEBOOKS / "INSTRUCTOR.md"
    write_text(path, renewed(path.read_text(encoding="utf-8"), outline()))
