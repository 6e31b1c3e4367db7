"""The week before a class: what `doctor --json` said on thirty machines, and who is not ready."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class Answer(NamedTuple):
    """One machine. ready: nothing fails there; said: what is to be done, or worth knowing, a line each."""

    who: str
    ready: bool
    said: list[str]


def read(folder: Path) -> list[Answer]:
    """Every file of a folder, those who are not ready first. Raises ValueError where there is none."""
    if not folder.is_dir():
        there = f"{folder} is a file" if folder.exists() else f"there is no folder {folder}"
        raise ValueError(f"{there}: name the folder with the answers of `doctor --json`, a file a person")
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    if not files:
        raise ValueError(f"{folder} is empty: put the answers of `doctor --json` there, a file a person")
    return sorted((_answer(path) for path in files), key=lambda answer: answer.ready)


def describe(answers: list[Answer]) -> str:
    """Lines to read: who must do what, and how many are ready."""
    lines = []
    for answer in answers:
        mark = "✓" if answer.ready else "✗"
        lines += [f"{mark} {answer.who}", *(f"    {line}" for line in answer.said)]
    ready = sum(answer.ready for answer in answers)
    return "\n".join([*lines, f"{ready} of {len(answers)} are ready."])


def _answer(path: Path) -> Answer:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
        checks = [(row["check"], row["status"], row["found"], row["remedy"]) for row in found["checks"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Answer(path.stem, False, ["this is no answer of `doctor --json`: ask for it again"])
    said = [f"{check}: {what}: {remedy}" if remedy else f"{check}: {what}"
            for check, status, what, remedy in checks if status != "ok" or check == "speed"]
    return Answer(path.stem, all(status != "fail" for _, status, *_ in checks), said)
