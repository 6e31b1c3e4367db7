"""A notebook where the model is missing: cells that need it show what they showed where it was built.

Each such cell says so first. What in it needs no model runs, unseen, for the cells after it (imports,
prompts, recordings); every other cell runs as always. A cell that the learner changed says that nothing is
recorded of it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path

import nbformat

from course_lib.course.outline import NOTEBOOKS
from course_lib.course.source import COMPOUND, names_defined, names_filled, names_used, plain_python

LOADERS = {"load_pair", "load_encoder", "load_both", "with_draft", "from_pretrained"}
FOLDERS = {"TARGET_FOLDER", "DRAFT_FOLDER"}
SAYS = ("RECORDED: this cell needs the model, which is not here. Below is what it showed where the notebook "
        "was built.")
LIVE = "LIVE: measured now, on this machine", "RECORDED: measured where the notebook was built"  # of `banner`
NOTHING = "Not run: this cell needs the model, which is not here, and it is not the one that was recorded."


def show_recorded(name: str, notebooks: Path = NOTEBOOKS) -> None:
    """From now on the running notebook, `name` without .ipynb, does without the model."""
    from IPython import get_ipython

    shell = get_ipython()
    shell.ast_transformers.append(_Shown(shell, notebooks / f"{name}.ipynb"))


def cells_that_need_it(codes: Iterable[str]) -> list[bool]:
    """Of a notebook's code cells, in order: does this one need the model, itself or through another?"""
    missing: set[str] = set()
    needing = []
    for code in codes:
        body = ast.parse(plain_python(code)).body
        needing.append(len(runs_without(body, missing)) < len(body))
    return needing


def runs_without(body: list[ast.stmt], missing: set[str]) -> list[ast.stmt]:
    """The statements of a cell that run without the model.

    missing: the names that are not there because what binds or fills them did not run; kept up to date.
    """
    kept = []
    for statement in body:
        text = ast.unparse(statement)
        reads, binds = names_used(text), names_defined(text)
        if isinstance(statement, COMPOUND):  # taken to bind before it reads, as in `source`
            reads -= binds
        if _loads(statement) or reads & missing:
            missing |= binds | names_filled(statement)
        else:
            missing -= binds
            kept.append(statement)
    return kept


def _loads(statement: ast.stmt) -> bool:
    nodes = list(ast.walk(statement))
    named = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "name"}
    for node in nodes:
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            if called in LOADERS:
                return True
        if isinstance(node, ast.Name) and node.id in FOLDERS and id(node) not in named:
            return True
    return False


class _Shown:
    """What IPython passes each cell through: a cell that needs the model becomes its recorded outputs."""

    def __init__(self, shell, path: Path):
        cells = nbformat.read(path, as_version=4).cells
        self.recorded = {cell.source.strip(): cell.outputs for cell in cells if cell.cell_type == "code"}
        self.missing: set[str] = set()
        self.code = ""
        shell.events.register("pre_run_cell", self.remember)
        shell.user_ns["_show_recorded"] = self.show

    def remember(self, info) -> None:
        self.code = info.raw_cell.strip()

    def visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, ast.Module):
            return node
        kept = runs_without(node.body, self.missing)
        if len(kept) == len(node.body):
            return node
        made = ast.parse("from IPython.utils.capture import capture_output as _unseen\n"
                         "with _unseen():\n    pass\n_show_recorded()")
        made.body[1].body += kept
        return made

    def show(self) -> None:
        from IPython.display import publish_display_data

        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")  # or half a figure shows itself at the cell's end
        outputs = self.recorded.get(self.code)
        print(NOTHING if outputs is None else SAYS)
        for output in outputs or ():
            if output.output_type == "stream":
                print(output.text.replace(*LIVE), end="")
            elif output.output_type in ("display_data", "execute_result"):
                publish_display_data(dict(output.data), dict(output.metadata))
