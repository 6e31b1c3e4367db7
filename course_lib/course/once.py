"""Which live cells a test need not run in both notebooks, the learner's and the one with the solutions.

A live cell's output is compared in neither, and that it runs, one of them shows. So one of the two runs all
its cells, and the other leaves out each live one, unless it binds or fills a name that a compared cell reads.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from course_lib.course.source import COMPOUND, names_defined, names_filled, names_used, plain_python

_CALLED_LATER = (ast.FunctionDef, ast.ClassDef, ast.Lambda)


class _Names(NamedTuple):
    """Of a statement: the names that it binds for sure, gives (binds or fills), reads, and reads later, when
    a function of it is called."""

    binds: set[str]
    gives: set[str]
    reads: set[str]
    later: set[str]


def left_out(cells: Sequence[tuple[str, bool]]) -> list[bool]:
    """Of a notebook's code cells in order, each its code and whether it is live: may this one be left out,
    if it is run in the other notebook?"""
    named = [(_statements(code), live) for code, live in cells]
    later: set[str] = set()
    while True:
        out = _not_needed(named, later)
        run = (body for (body, _), skip in zip(named, out, strict=True) if not skip)
        read = set().union(*(each.later for body in run for each in body))
        if read <= later:
            return out
        later |= read


def _not_needed(named, later: set[str]) -> list[bool]:
    """later: names that functions read, which may be bound after the function is."""
    needed, found = set(), []
    for body, live in reversed(named):
        found.append(live and (needed | later).isdisjoint(set().union(*(each.gives for each in body))))
        for each in () if found[-1] else reversed(body):
            needed = needed - each.binds | each.reads
    return found[::-1]


@lru_cache(None)  # most cells stand in both notebooks
def _statements(code: str) -> tuple[_Names, ...]:
    return tuple(map(_names, ast.parse(plain_python(code)).body))


def _names(statement: ast.stmt) -> _Names:
    text = ast.unparse(statement)
    binds, reads = names_defined(text), names_used(text)
    gives = binds | names_filled(statement)
    if isinstance(statement, COMPOUND):  # taken to bind before it reads, but it may bind nothing
        binds, reads = set(), reads - binds
    called = (node for node in ast.walk(statement) if isinstance(node, _CALLED_LATER))
    return _Names(binds, gives, reads, set().union(*(names_used(ast.unparse(node)) for node in called)))
