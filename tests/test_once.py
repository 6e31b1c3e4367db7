"""Protects what is left out when the solutions are tested: only live cells that no compared cell needs."""

import nbformat
import pytest

from course_lib.course.build import LIVE, NOTEBOOKS, SKIP
from course_lib.course.once import run_once

L, C = True, False  # live, compared


@pytest.mark.parametrize("cells, once", [
    ([("a = time()", L), ("b = a", L), ("c = 1", C)], [True, True, False]),
    ([("a = time()", L), ("b = a", L), ("check(b)", C)], [False, False, False]),  # through another live cell
    ([("a = time()", L), ("a = 1\nprint(a)", C)], [True, False]),  # bound again before it is read
    ([("a = time()", L), ("print(a)\na = 1", C)], [False, False]),
    ([("a = time()", L), ("if b:\n    a = 1\nprint(a)", C)], [False, False]),  # or perhaps not bound again
    ([("rows = []", C), ("rows.append(time())", L), ("len(rows)", C)], [False, False, False]),
    ([("rows = []", C), ("rows[0] = time()", L), ("len(rows)", C)], [False, False, False]),
    ([("def f():\n    return a", C), ("a = time()", L), ("f()", C)], [False, False, False]),  # when called
    ([("f = lambda x: x + a", C), ("a = time()", L), ("f(1)", C)], [False, False, False]),
    ([("f = lambda a: a + 1", C), ("a = time()", L), ("f(1)", C)], [False, True, False]),  # its own a
    ([("def f():\n    return a", L), ("a = time()", L), ("f()", C)], [False, False, False]),
    ([("import os\na = os.getpid()", L), ("os.sep", C)], [False, False]),
    ([("%matplotlib inline\na = 1", L), ("!ls", C)], [True, False]),
])
def test_only_what_no_compared_cell_needs_is_left_out(cells, once):
    assert run_once(cells) == once


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_the_learners_notebook_runs_every_cell_and_only_live_ones_are_left_out_of_the_solutions(path):
    learner, solutions = (nbformat.read(each, as_version=4).cells
                          for each in (path, path.parent / "solutions" / path.name))
    tags, solved = ([set(cell.metadata.get("tags", ())) for cell in cells] for cells in (learner, solutions))
    assert not any(SKIP in each for each in tags)
    for theirs, other, ours in zip(tags, learner, zip(solved, solutions, strict=True), strict=True):
        if SKIP in ours[0]:
            assert LIVE in theirs and "exercise" not in theirs and other.source == ours[1].source
