"""From a source to the learner's notebook and to the one with the solutions.

The format of a source is described in `source.py`. Both notebooks are executed where they lie,
their outputs stored; the same source gives the same cells, ids and metadata on every machine.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.course.execute import METADATA, execute, paths_in_outputs
from course_lib.course.once import left_out
from course_lib.course.source import Cell, hints, read_source, solution, solved, stub
from course_lib.files import write_text

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
# Tags that nbval knows. In a source, SKIP is for a cell that does nothing until a learner sets something.
LIVE, SKIP = "nbval-ignore-output", "nbval-skip"
_HELP = "Words: [glossary](GLOSSARY.md) · Stuck: [troubleshooting](TROUBLESHOOTING.md)"  # under every header


def build(source: Path, execute_cells: bool = True, timeout: float = 120) -> None:
    """Write the two notebooks of `source`, which lies in `<notebooks>/src/`.

    execute_cells: run them, in their folders, each cell at most `timeout` seconds.
    Raises ValueError for a bad source, a failing cell, or an output that names a path of this
    machine. Both notebooks are left as they were unless both are good.
    """
    ready = []
    for path, notebook in make(source).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if execute_cells:
            execute(notebook, path.parent, label=_label(path), timeout=timeout)
            for cell, found in paths_in_outputs(notebook):
                raise ValueError(
                    f"{_label(path)}: cell {cell} prints {found!r}, a path of this machine; print less."
                )
        ready.append((path, nbformat.writes(notebook) + "\n"))
    for path, text in ready:
        write_text(path, text)


def make(source: Path) -> dict[Path, NotebookNode]:
    """The two notebooks of `source`, not executed, by the path each belongs at."""
    cells = read_source(source)
    cells[0] = replace(cells[0], text=f"{cells[0].text}\n\n{_HELP}")
    home = source.parent.parent
    name = source.stem
    learner, solutions = ([made(cell, cells, i) for i, cell in enumerate(cells)]
                          for made in (_learner, _solutions))
    fewer = max((solutions, learner), key=lambda cells: sum(_left_out(cells)))  # of equals the solutions
    learner, solutions = (_tagged(each) if each is fewer else each for each in (learner, solutions))
    return {home / f"{name}.ipynb": _notebook(name, learner),
            home / "solutions" / f"{name}.ipynb": _notebook(name, solutions)}


def stale(source: Path) -> list[str]:
    """What differs between the built notebooks and their source, a sentence each."""
    found = []
    for path, wanted in make(source).items():
        if not path.exists():
            found.append(f"{_label(path)} is missing.")
            continue
        want, have = _shape(wanted), _shape(nbformat.read(path, as_version=4))
        if want != have:
            pairs = zip(want, have, strict=False)
            cell = next((i for i, (w, h) in enumerate(pairs, 1) if w != h), min(len(want), len(have)) + 1)
            found.append(f"{_label(path)} is stale: cell {cell} differs from {source.name}.")
    return found


def sources(names: list[str], folder: Path = NOTEBOOKS) -> list[Path]:
    """Sources by number ("02"), by name, or all when `names` is empty. ValueError if one is unknown."""
    everything = sorted((folder / "src").glob("[0-9][0-9]_*.py"))
    chosen = []
    for name in names:
        match = [path for path in everything if path.stem == name or path.stem.startswith(f"{name}_")]
        if not match:
            known = ", ".join(path.stem for path in everything) or "none"
            raise ValueError(f"there is no notebook {name!r}; there are: {known}.")
        chosen += match
    return chosen if names else everything


def build_command(
    names: list[str],
    execute_cells: bool = True,
    check: bool = False,
    timeout: float = 120,
    folder: Path = NOTEBOOKS,
) -> int:
    """`python -m course_lib build`: the exit status; what went wrong is on stderr, a line each.

    0: done. 1: with `check`, something is stale; without, a notebook could not be built.
    2: a name or a source is bad.
    """
    failed = 0
    try:
        chosen = sources(names, folder)
    except ValueError as error:
        print(f"build: {error}", file=sys.stderr)
        return 2
    for source in chosen:
        try:
            make(source)
        except ValueError as error:
            print(f"build: {error}", file=sys.stderr)
            failed = 2
            continue
        try:
            if not check:
                build(source, execute_cells, timeout)
                continue
            messages = stale(source)
        except ValueError as error:
            messages = [str(error)]
        for message in messages:
            print(f"build: {message}", file=sys.stderr)
        failed = failed or int(bool(messages))
    return failed


def _learner(cell: Cell, cells: list[Cell], index: int) -> tuple[Cell, str]:
    if "exercise" in cell.tags:
        return cell, stub(cell.text)
    if "hints" in cell.tags:
        folds = [_fold(f"Hint {n}", text) for n, text in enumerate(hints(cell.text), 1)]
        folds.append(_fold("Solution", f"```python\n{solution(cells[index - 1].text)}\n```"))
        return cell, "\n\n".join(folds)
    return cell, cell.text


def _solutions(cell: Cell, cells: list[Cell], index: int) -> tuple[Cell, str]:
    if "exercise" in cell.tags:
        return cell, solved(cell.text)
    if "hints" in cell.tags:
        return cell, "\n\n".join(_fold(f"Hint {n}", text) for n, text in enumerate(hints(cell.text), 1))
    if cell.kind == "markdown":
        # Links are written for notebooks/; other notebooks exist here too, everything else is one up.
        return cell, re.sub(r"\]\((?!\w+:|#|/|\d\d_\w+\.ipynb)", "](../", cell.text)
    return cell, cell.text


def _left_out(cells: list[tuple[Cell, str]]) -> list[bool]:
    return left_out([("", False) if SKIP in cell.tags else (text, LIVE in cell.tags)
                     for cell, text in cells if cell.kind == "code"])


def _tagged(cells: list[tuple[Cell, str]]) -> list[tuple[Cell, str]]:
    """A notebook with a tag on each live cell that nbval need not run in this one, too."""
    skip = iter(_left_out(cells))
    return [(replace(cell, tags=(*cell.tags, SKIP)) if cell.kind == "code" and next(skip) else cell, text)
            for cell, text in cells]


def _fold(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def _notebook(name: str, cells: list[tuple[Cell, str]]) -> NotebookNode:
    made = []
    for index, (cell, text) in enumerate(cells):
        new = new_code_cell if cell.kind == "code" else new_markdown_cell
        metadata = {"tags": list(cell.tags)} if cell.tags else {}
        made.append(new(text, id=f"{name[:58].replace('_', '-')}-{index:03d}", metadata=metadata))
    return new_notebook(cells=made, metadata=METADATA)


def _shape(notebook: NotebookNode) -> list[tuple]:
    return [(c.cell_type, c.source, c.get("id"), tuple(c.metadata.get("tags", ()))) for c in notebook.cells]


def _label(path: Path) -> str:
    return f"solutions/{path.name}" if path.parent.name == "solutions" else path.name


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description="Build notebooks from their sources.")
    parser.add_argument("names", nargs="*", help="numbers or names; all when none is given")
    parser.add_argument("--execute", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--check", action="store_true", help="only say which built notebooks are stale")
    given = parser.parse_args()
    sys.exit(build_command(given.names, given.execute, given.check))
