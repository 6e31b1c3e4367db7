"""The decision as something to read and pass on: one HTML page, Markdown and JSON, from a sweep document.

    sweep.decide -> document -> findings.blocks (what is said, once) -> page.as_html, page.as_markdown
                             -> settings (what to paste)
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from course_lib.files import write_text
from course_lib.findings import blocks, decision, strict
from course_lib.page import as_html, as_markdown
from course_lib.settings import one_k, settings

__all__ = ["check_folder", "decision", "render", "settings", "write"]


def render(document: dict) -> dict[str, str]:
    """The document of `sweep.decide` or `sweep.check` as {"html": one page, "markdown": the same in text}.

    Raises ValueError when the document holds no route or a route no load.
    """
    said = blocks(document)
    return {"html": as_html(said), "markdown": as_markdown(said)}


def write(document: dict, folder: str | Path) -> dict[str, Path]:
    """Put report.html, report.md and report.json into the folder, which is made if missing; their paths.

    The JSON is the document with `settings` and `one_k` added. Each file is written under another name
    first. Raises ValueError where that is not possible.
    """
    folder = check_folder(folder)
    made = render(document)
    found = strict(document | {"one_k": {str(load): mix for load, mix in one_k(strict(document)).items()},
                               "settings": settings(strict(document))})
    made["json"] = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    paths = {kind: folder / name for kind, name in
             (("html", "report.html"), ("markdown", "report.md"), ("json", "report.json"))}
    folder.mkdir(exist_ok=True)
    for kind, path in paths.items():
        write_text(path, made[kind])
    return paths


def check_folder(folder: str | Path) -> Path:
    """Raise ValueError unless a report can be put there: before an hour of measuring, not after."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: --out names a folder for the report")
    there = folder if folder.is_dir() else folder.resolve().parent
    if not there.is_dir():
        raise ValueError(f"there is no folder {there}: make it first")
    if not os.access(there, os.W_OK):
        raise ValueError(f"{there} cannot be written: choose another place")
    return folder
