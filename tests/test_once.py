"""Protects what tests leave out of one of two notebooks: only live cells that no compared cell needs."""

import re

import nbformat
import pytest

from course_lib.course.build import LIVE, NOTEBOOKS, SKIP
from course_lib.course.once import left_out

L, C = True, False  # live, compared


@pytest.mark.parametrize("cells, out", [
    ([("a = time()", L), ("b = a", L), ("c = 1", C)], [True, True, False]),
    ([("a = time()", L), ("b = a", L), ("check(b)", C)], [False, False, False]),  # through another live cell
    ([("a = time()", L), ("a = 1\nprint(a)", C)], [True, False]),  # bound again before it is read
    ([("a = time()", L), ("print(a)\na = 1", C)], [False, False]),
    ([("a = time()", L), ("if b:\n    a = 1\nprint(a)", C)], [False, False]),  # or perhaps not bound again
    ([("a = time()", L), ("for a in range(3):\n    print(a)", C)], [True, False]),  # its own a
    ([("rows = []", C), ("rows.append(time())", L), ("len(rows)", C)], [False, False, False]),
    ([("rows = []", C), ("rows[0] = time()", L), ("len(rows)", C)], [False, False, False]),
    ([("def f():\n    return a", C), ("a = time()", L), ("f()", C)], [False, False, False]),  # when called
    ([("f = lambda x: x + a", C), ("a = time()", L), ("f(1)", C)], [False, False, False]),
    ([("f = lambda a: a + 1", C), ("a = time()", L), ("f(1)", C)], [False, True, False]),  # its own a
    ([("def f():\n    return a", L), ("a = time()", L), ("f()", C)], [False, False, False]),
    ([("import os\na = os.getpid()", L), ("os.sep", C)], [False, False]),
    ([("%matplotlib inline\na = 1", L), ("!ls", C)], [True, False]),
])
def test_only_what_no_compared_cell_needs_is_left_out(cells, out):
    assert left_out(cells) == out


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_each_live_cell_is_run_in_one_of_the_two_and_no_other_is_left_out(path):
    pair = [nbformat.read(each, as_version=4).cells for each in (path, path.parent / "solutions" / path.name)]
    tags = [[set(cell.metadata.get("tags", ())) for cell in cells] for cells in pair]
    assert not all(any(SKIP in each and LIVE in each for each in notebook) for notebook in tags)
    for theirs, ours, learner, solutions in zip(*tags, *pair, strict=True):
        if SKIP in theirs & ours:  # does nothing unless a learner names their own file
            assert re.fullmatch(r"if PROMPTS:\n    .+", learner.source)
        elif SKIP in theirs | ours:
            assert LIVE in theirs & ours and "exercise" not in theirs and learner.source == solutions.source
