"""Protects the conventions every notebook keeps, by reading its source and what was built from it.

`python tests/test_notebooks_policy.py` rewrites live_cells.json, the list of cells whose output
nbval does not compare. Read the change before you commit it: each is a number nobody checks.
"""

import json
import re
import sys
from pathlib import Path

import nbformat
import pytest

from course_lib.course.build import LIVE, NOTEBOOKS, sources, stale
from course_lib.course.execute import SLOW, TIMES, paths_in_outputs
from course_lib.course.outline import outline
from course_lib.course.source import EXERCISE, read_source

LIVE_CELLS = Path(__file__).with_name("live_cells.json")
LIVE_CALL = re.compile(r"(?<![\w.])(decode|decode_plain|measure_trace)\(|\b(time\.time|perf_counter)\(")

SOURCES = [pytest.param(path, id=path.stem) for path in sources([])]
BUILT = [
    pytest.param(path, id=f"{path.parent.name}/{path.stem}")
    for source in sources([])
    for path in (NOTEBOOKS / f"{source.stem}.ipynb", NOTEBOOKS / "solutions" / f"{source.stem}.ipynb")
]


def live_cells():
    """Notebook -> the first line of each cell whose output is not compared."""
    found = {}
    for source in sources([]):
        firsts = [cell.text.split("\n")[0] for cell in read_source(source) if LIVE in cell.tags]
        if firsts:
            found[source.stem] = firsts
    return found


def read(path):
    return nbformat.read(path, as_version=4)


def text_of(cells):
    return "\n\n".join(cell.text for cell in cells if cell.kind == "markdown")


@pytest.mark.parametrize("source", SOURCES)
def test_the_story_is_complete(source):
    cells = read_source(source)  # which refuses a bad header, exercise or hint
    text = text_of(cells)
    assert "**Claim.**" in text
    assert "**It could have failed.**" in text, "there is no negative control"
    assert re.search(r"^## Quiz$", text, re.MULTILINE) and re.search(r"^## Recap$", text, re.MULTILINE)
    assert len(EXERCISE.findall(text)) >= 3
    quizzes = [cell for cell in cells if cell.kind == "code" and cell.text.startswith("quiz(")]
    assert len(quizzes) >= 2
    assert all(len(cell.text.splitlines()) == 1 for cell in quizzes), "one question a cell"
    fidelity = re.compile(r'^banner\(\s*"(simulated|recorded|live|computed)"', re.MULTILINE)
    assert any(fidelity.search(cell.text) for cell in cells)


@pytest.mark.parametrize("source", SOURCES)
def test_live_cells_are_tagged(source):
    for cell in read_source(source):
        if cell.kind != "code" or LIVE in cell.tags:
            continue
        assert not re.search(r'banner\(\s*"live"', cell.text), f"{source.name}:{cell.line} shows live numbers"
        call = LIVE_CALL.search(cell.text)
        assert not call, f"{source.name}:{cell.line} calls {call[0]}…): tag it {LIVE}"


def test_the_list_of_live_cells_is_the_committed_one():
    committed = json.loads(LIVE_CELLS.read_text(encoding="utf-8"))
    assert live_cells() == committed, "run `python tests/test_notebooks_policy.py` and read the change"


@pytest.mark.parametrize("source", SOURCES)
def test_figures_go_through_show_and_nothing_names_this_machine(source):
    for cell in read_source(source):
        assert not re.search(r"(?<![\w/.:])/(home|root|Users|tmp|mnt)/", cell.text), f"line {cell.line}"
        assert "plt.show(" not in cell.text, f"line {cell.line}: use show(figure, alt)"


@pytest.mark.parametrize("source", SOURCES)
def test_built_notebooks_are_not_stale(source):
    assert stale(source) == []


def test_no_built_notebook_is_without_source():
    known = {path.stem for path in sources([])}
    found = {path.stem for folder in (NOTEBOOKS, NOTEBOOKS / "solutions") for path in folder.glob("*.ipynb")}
    assert found <= known


@pytest.mark.parametrize("path", BUILT)
def test_outputs_are_complete_and_clean(path):
    notebook = read(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all("execution" not in cell.metadata for cell in code)
    assert paths_in_outputs(notebook) == []
    for number, output in ((cell.execution_count, output) for cell in code for output in cell.outputs):
        assert output.output_type != "error", f"[{number}] raised {output.ename}"
        if "image/png" in output.get("data", {}):
            alt = output.metadata.get("image/png", {}).get("alt", "")
            assert len(alt) >= 20 and alt == output.data["text/plain"], (
                f"[{number}] has a figure without alt text"
            )


@pytest.mark.parametrize("path", BUILT)
def test_no_cell_is_slow_and_a_notebook_runs_in_the_minutes_it_declares(path):
    ran = read(path).metadata[TIMES]  # as it was built
    assert ran["slowest_cell"] <= SLOW, f"a cell took {ran['slowest_cell']} s: make it shorter, or two"
    declared = next(one.minutes for one in outline() if one.name == path.stem)
    assert ran["seconds"] <= 60 * declared


@pytest.mark.parametrize("path", BUILT)
def test_exercises_are_open_for_the_learner_and_solved_in_the_solutions(path):
    mark = "✓" if path.parent.name == "solutions" else "○"
    for cell in read(path).cells:
        if "exercise" in cell.metadata.get("tags", ()):
            lines = "".join(output.get("text", "") for output in cell.outputs).splitlines()
            assert len(lines) == len(re.findall(r"^check\(", cell.source, re.MULTILINE))
            assert all(line.startswith(mark) for line in lines), lines


@pytest.mark.parametrize("path", BUILT)
def test_relative_links_resolve(path):
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            for target in re.findall(r"\]\((?!\w+:|#)([^)\s]+)\)", cell.source):
                assert (path.parent / target.split("#")[0]).exists(), f"{target} does not exist"


if __name__ == "__main__":
    LIVE_CELLS.write_text(json.dumps(live_cells(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{LIVE_CELLS.name}: {sum(map(len, live_cells().values()))} cells", file=sys.stderr)
