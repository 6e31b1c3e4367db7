"""Which live cells of the solutions a test need not run: the learner's notebook runs the same ones.

A live cell's output is compared in neither notebook, and that it runs, the learner's shows. In the solutions
only those are run again that bind or fill a name which an exercise, or any other compared cell, reads.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from course_lib.course.source import COMPOUND, names_defined, names_filled, names_used, plain_python

_CALLED_LATER = (ast.FunctionDef, ast.ClassDef, ast.Lambda)


def run_once(cells: Sequence[tuple[str, bool]]) -> list[bool]:
    """Of a notebook's code cells in order, each its code and whether it is live: is it enough to run this
    one in the learner's notebook?"""
    parsed = [(ast.parse(plain_python(code)).body, live) for code, live in cells]
    late: set[str] = set()
    while True:
        once = _not_needed(parsed, late)
        again = [each for (body, _), out in zip(parsed, once, strict=True) if not out for each in body]
        read = set().union(*map(_read_when_called, again))
        if read <= late:
            return once
        late |= read


def _not_needed(parsed, late: set[str]) -> list[bool]:
    """late: names that functions read, which may be bound after the function is."""
    needed, found = set(), []
    for body, live in reversed(parsed):
        gives = set().union(*(names_defined(ast.unparse(each)) | names_filled(each) for each in body))
        found.append(live and not gives & (needed | late))
        for statement in () if found[-1] else reversed(body):
            if not isinstance(statement, COMPOUND):  # a loop or a condition may bind nothing
                needed -= names_defined(ast.unparse(statement))
            needed |= names_used(ast.unparse(statement))
    return found[::-1]


def _read_when_called(statement: ast.stmt) -> set[str]:
    called = [node for node in ast.walk(statement) if isinstance(node, _CALLED_LATER)]
    return set().union(*(names_used(ast.unparse(node)) for node in called))
