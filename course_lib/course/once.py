"""Which live cells a test need not run in both notebooks, the learner's and the one with the solutions.

A live cell's output is compared in neither, and that it runs, one of them shows. So one of the two runs all
its cells, and the other leaves out each live one, unless it binds or fills a name that a compared cell reads.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from course_lib.course.source import COMPOUND, names_defined, names_filled, names_used, plain_python

_CALLED_LATER = (ast.FunctionDef, ast.ClassDef, ast.Lambda)


def left_out(cells: Sequence[tuple[str, bool]]) -> list[bool]:
    """Of a notebook's code cells in order, each its code and whether it is live: may this one be left out,
    if it is run in the other notebook?"""
    parsed = [(ast.parse(plain_python(code)).body, live) for code, live in cells]
    late: set[str] = set()
    while True:
        out = _not_needed(parsed, late)
        run = (body for (body, _), skip in zip(parsed, out, strict=True) if not skip)
        read = set().union(*(_read_when_called(statement) for body in run for statement in body))
        if read <= late:
            return out
        late |= read


def _not_needed(parsed, late: set[str]) -> list[bool]:
    """late: names that functions read, which may be bound after the function is."""
    needed, found = set(), []
    for body, live in reversed(parsed):
        gives = set().union(*(names_defined(ast.unparse(each)) | names_filled(each) for each in body))
        found.append(live and not gives & (needed | late))
        for statement in () if found[-1] else reversed(body):
            binds, reads = (names(ast.unparse(statement)) for names in (names_defined, names_used))
            if isinstance(statement, COMPOUND):  # taken to bind before it reads, but it may bind nothing
                reads -= binds
            else:
                needed -= binds
            needed |= reads
    return found[::-1]


def _read_when_called(statement: ast.stmt) -> set[str]:
    called = [node for node in ast.walk(statement) if isinstance(node, _CALLED_LATER)]
    return set().union(*(names_used(ast.unparse(node)) for node in called))
