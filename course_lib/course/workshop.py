"""A track's own notebooks: the sections that the room does, and of the rest only the code that those need.

They are cut from the built notebooks, so what a section prints stands in them as it does in the whole one.
Code that is needed and not shown is there, folded.
"""

from __future__ import annotations

import os
import re
from copy import deepcopy
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.course.execute import METADATA
from course_lib.course.outline import NOTEBOOKS, outline
from course_lib.course.source import EXERCISE, Cell, names_defined, names_used, read_source
from course_lib.course.tracks import Pause, schedule, track
from course_lib.files import write_text

NEEDED = "needed"  # the tag of a cell that is there because others need it


def write(name: str, out: Path, notebooks: Path = NOTEBOOKS) -> list[Path]:
    """Write the notebooks of a track into `out`, and return their paths in order.

    Raises ValueError for an unknown track, where a notebook of it is not built, or where another notebook
    lies under the name of one: somebody may have worked in it.
    """
    chosen, every = track(name), outline(notebooks)
    schedule(chosen, every)  # refuses a part that does not exist
    names = {one.number: one.name for one in every}
    parts = [part for part in chosen.parts if not isinstance(part, Pause)]
    here = {names[part.number] for part in parts}
    made = {}
    for part in parts:
        stem = names[part.number]
        built = notebooks / f"{stem}.ipynb"
        if not built.exists():
            raise ValueError(f"{built.name} is not built: run python -m course_lib build {part.number}")
        cells = read_source(notebooks / "src" / f"{stem}.py")
        shorter = cut(nbformat.read(built, as_version=4), cells, set(part.sections), set(part.exercises))
        back = Path(os.path.relpath(notebooks, out)).as_posix()
        for cell in shorter.cells:
            if cell.cell_type == "markdown":
                cell.source = _relink(cell.source, here, back)
        shorter.cells[0].source += (f"\n\n**{chosen.title}:** a part of the notebook. [The whole of it]"
                                    f"({back}/{stem}.ipynb)")
        made[out / f"{stem}.ipynb"] = nbformat.writes(shorter) + "\n"
    for path, text in made.items():
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise ValueError(f"{path} is there, and is not what would be written: edited, or of another "
                             "version of the course. Move it away, or name another folder")
    out.mkdir(parents=True, exist_ok=True)
    for path, text in made.items():
        write_text(path, text)
    return list(made)


def cut(notebook: NotebookNode, cells: list[Cell], sections: set[str], exercises: set[str]) -> NotebookNode:
    """The header, the sections, and the code before them that they need.

    notebook: as built from `cells`, one cell each. exercises: the ids of those that stay.
    """
    shown = _shown(cells, sections, exercises)
    kept = shown | _needed(cells, shown)
    made = nbformat.v4.new_notebook(metadata=METADATA)
    for index in sorted(kept):
        cell = deepcopy(notebook.cells[index])
        if index not in shown:
            cell.metadata["tags"] = [*cell.metadata.get("tags", ()), NEEDED]
            cell.metadata["jupyter"] = {"source_hidden": True}
        made.cells.append(cell)
    for count, cell in enumerate((cell for cell in made.cells if cell.cell_type == "code"), 1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    return made


def _shown(cells: list[Cell], sections: set[str], exercises: set[str]) -> set[int]:
    shown, current = {0}, None
    for index, cell in enumerate(cells):
        headings = re.findall(r"^## (.+)$", cell.text, re.MULTILINE) if cell.kind == "markdown" else []
        current = headings[0].strip() if headings else current
        if current in sections:
            shown.add(index)
        if "exercise" in cell.tags and EXERCISE.search(cells[index - 1].text)[1] not in exercises:
            shown -= {index - 1, index}
        if "hints" in cell.tags and index - 1 not in shown:
            shown.discard(index)
        current = headings[-1].strip() if headings else current
    return shown


def _needed(cells: list[Cell], shown: set[int]) -> set[int]:
    """Code cells that bind what a later cell reads. Nothing needs an exercise: the sources see to that."""
    needed, wanted = set(), set()
    for index in range(len(cells) - 1, -1, -1):
        cell = cells[index]
        if cell.kind != "code" or ("exercise" in cell.tags and index not in shown):
            continue
        defined = names_defined(cell.text)
        if index in shown or ("exercise" not in cell.tags and defined & wanted):
            # A cell that binds and reads a name is taken to bind it first, as in `source`.
            wanted = (wanted - defined) | (names_used(cell.text) - defined)
            needed.add(index)
    return needed - shown


def _relink(text: str, here: set[str], back: str) -> str:
    def link(match: re.Match) -> str:
        stem = re.fullmatch(r"(\d\d_\w+)\.ipynb(#.*)?", match[1])
        return match[0] if stem and stem[1] in here else f"]({back}/{match[1]})"

    return re.sub(r"\]\((?!\w+:|#|/)([^)\s]+)\)", link, text)
