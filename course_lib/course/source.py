"""Read a notebook's source and refuse it, with file and line, when it breaks the course's rules.

A source is `notebooks/src/NN_name.py` in the py:percent format. Its first cell is the header:

    # %% [markdown]
    # # 02 · The geometric formula
    #
    # - **You will do:** …
    # - **You will learn:** …
    # - **You need:** …
    # - **Minutes:** 45

An exercise is three cells: its text, its code, its hints.

    # %% [markdown]
    # **Exercise 2.3** · easy · 5 minutes. What is the chance that … ?

    # %% tags=["exercise"]
    def exactly(alpha, k, n):
        # solution
        return alpha**n * (1 - alpha) if n < k else alpha**k
        # end

    check(exactly)

    # %% [markdown] tags=["hints"]
    # - The first hint; it may go on
    #   on an indented line.
    # - The second hint.

The level is easy, medium or hard. The learner gets `...` in place of what stands between
`# solution` and `# end` (`name = ...` if its last statement is `name = …`), and the hints and the
solution, each in its own fold, in the cell after. No other cell may use what an exercise defines:
"Run all" must pass with nothing solved.
"""

import ast
import re
import symtable
import textwrap
from dataclasses import dataclass
from pathlib import Path

HEADER = {
    "title": r"^# (\d\d) · \S.*",
    "You will do": r"^- \*\*You will do:\*\* \S",
    "You will learn": r"^- \*\*You will learn:\*\* \S",
    "You need": r"^- \*\*You need:\*\* \S",
    "Minutes": r"^- \*\*Minutes:\*\* \d+",
}
EXERCISE = re.compile(r"\*\*Exercise (\d+\.\d+)\*\* · (easy|medium|hard) · (\d+) minutes?\.")
COMPOUND = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)
_OPEN = re.compile(r"^(\s*)# solution\s*$")
_CLOSE = re.compile(r"^\s*# end\s*$")


@dataclass(frozen=True)
class Cell:
    """One cell of a source. `line` is where its `# %%` stands, counted from 1."""

    kind: str  # "markdown" or "code"
    text: str
    tags: tuple[str, ...]
    line: int


def read_source(path: Path) -> list[Cell]:
    """The cells of a source, checked. Raises ValueError naming the file and the line."""
    cells = _parse(path)
    _check_header(path, cells)
    seen: dict[str, int] = {}
    for index, cell in enumerate(cells):
        if cell.kind == "code":
            _check_python(path, cell)
        if "exercise" in cell.tags:
            _check_exercise(path, cells, index, seen)
        elif any(_OPEN.match(line) or _CLOSE.match(line) for line in cell.text.splitlines()):
            raise _refuse(path, cell.line, '"# solution" and "# end" belong in a cell tagged "exercise"')
        elif "hints" in cell.tags and not (index and "exercise" in cells[index - 1].tags):
            raise _refuse(path, cell.line, "hints must follow an exercise cell directly")
    _check_independence(path, cells)
    return cells


def stub(text: str) -> str:
    """An exercise's code as the learner gets it."""
    runs = (lines if kind == "plain" else [_stub_line(lines)] for kind, lines in _parts(text))
    return "\n".join(line for lines in runs for line in lines)


def solved(text: str) -> str:
    """An exercise's code filled in, without the markers."""
    return "\n".join(line for _, lines in _parts(text) for line in lines)


def solution(text: str) -> str:
    """What the solution's fold shows: the code filled in, without the checks at its end."""
    lines = solved(text).splitlines()
    return "\n".join(line for line in lines if not line.startswith("check(")).strip()


def hints(text: str) -> list[str]:
    """The items of a hints cell, each possibly over several lines."""
    items = re.split(r"^- ", text.strip(), flags=re.MULTILINE)
    return ["\n".join(re.sub(r"^ {2}", "", line) for line in item.strip().splitlines()) for item in items[1:]]


def names_defined(text: str) -> set[str]:
    """Names a cell binds for the cells after it."""
    table = symtable.symtable(plain_python(text), "cell", "exec")
    return {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}


def names_used(text: str) -> set[str]:
    """Names a cell reads from the notebook, not those local to its functions."""
    found, tables = set(), [symtable.symtable(plain_python(text), "cell", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        top = table.get_type() == "module"
        found |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
    return found


def names_filled(statement: ast.stmt) -> set[str]:
    """Names whose contents a statement changes: rows[k] = …, rows.append(…)."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return set()
    places = [node for node in ast.walk(statement) if isinstance(node, (ast.Subscript, ast.Attribute))
              and isinstance(node.ctx, ast.Store)]
    places += [node.value.func for node in ast.walk(statement) if isinstance(node, ast.Expr)
               and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)]
    return {place.value.id for place in places if isinstance(place.value, ast.Name)}


def plain_python(text: str) -> str:
    """A cell's code with its magics and shell lines blanked, so that Python can parse it."""
    return "\n".join("pass" if re.match(r"[%!]", line) else line for line in text.splitlines())


def _parse(path: Path) -> list[Cell]:
    import jupytext  # slow to load, and not needed by who only asks for the names in a cell

    text = path.read_text(encoding="utf-8")
    starts = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("# %%")]
    if not starts:
        raise _refuse(path, 1, 'there is no cell: start each with "# %%" or "# %% [markdown]"')
    cells = jupytext.reads(text, fmt="py:percent").cells
    if len(cells) != len(starts):
        raise _refuse(path, 1, 'text stands before the first "# %%"')
    return [
        Cell(cell.cell_type, cell.source, tuple(cell.metadata.get("tags", ())), line)
        for cell, line in zip(cells, starts, strict=True)
    ]


def _check_header(path: Path, cells: list[Cell]) -> None:
    first = cells[0]
    for what, pattern in HEADER.items():
        if first.kind != "markdown" or not re.search(pattern, first.text, re.MULTILINE):
            raise _refuse(
                path, first.line, f"the first cell must be the header, and has no {what} ({pattern})"
            )
    number = re.search(HEADER["title"], first.text, re.MULTILINE)[1]
    if not path.name.startswith(number):
        raise _refuse(path, first.line, f"the title says {number}, the file's name does not")


def _check_python(path: Path, cell: Cell) -> None:
    try:
        ast.parse(plain_python(cell.text))
    except SyntaxError as error:
        raise _refuse(path, cell.line + (error.lineno or 1), f"this is not Python: {error.msg}") from None


def _check_exercise(path: Path, cells: list[Cell], index: int, seen: dict[str, int]) -> None:
    cell = cells[index]
    before = EXERCISE.findall(cells[index - 1].text) if index else []
    if cells[index - 1].kind != "markdown" or len(before) != 1:
        shape = '"**Exercise N.M** · easy|medium|hard · 5 minutes."'
        raise _refuse(path, cell.line, f"the cell before an exercise must be its text, with one {shape}")
    id = before[0][0]
    if id in seen:
        raise _refuse(path, cell.line, f"exercise {id} exists already, at line {seen[id]}")
    seen[id] = cell.line
    if int(id.split(".")[0]) != int(path.name[:2]):
        raise _refuse(path, cell.line, f"exercise {id} has another notebook's number")
    _check_markers(path, cell)
    last = [line for line in cell.text.splitlines() if line.strip()][-1]
    if not last.startswith("check("):
        raise _refuse(path, cell.line, f"exercise {id} does not end with check(…)")
    after = cells[index + 1] if index + 1 < len(cells) else None
    if after is None or after.kind != "markdown" or "hints" not in after.tags:
        raise _refuse(path, cell.line, f'exercise {id} is not followed by a markdown cell tagged "hints"')
    if len(hints(after.text)) < 2:
        raise _refuse(path, after.line, f'exercise {id} needs at least two hints, each a "- " item')


def _check_markers(path: Path, cell: Cell) -> None:
    opened, regions = 0, 0
    for number, line in enumerate(cell.text.splitlines(), cell.line + 1):
        if _OPEN.match(line):
            if opened:
                raise _refuse(path, number, f'"# solution" again before the "# end" of line {opened}')
            opened = number
        elif _CLOSE.match(line):
            if not opened or number == opened + 1:
                raise _refuse(path, number, '"# end" without a solution above it')
            opened, regions = 0, regions + 1
    if opened:
        raise _refuse(path, opened, '"# solution" has no "# end"')
    if not regions:
        raise _refuse(path, cell.line, 'the exercise has no "# solution" … "# end"')
    try:
        ast.parse(plain_python(stub(cell.text)))
    except (SyntaxError, StopIteration, IndexError):
        why = "the lines of a solution must be whole statements, and what is left without them Python"
        raise _refuse(path, cell.line, why) from None


def _check_independence(path: Path, cells: list[Cell]) -> None:
    pending: dict[str, int] = {}  # name -> line of the exercise that defines it
    for cell in cells:
        if cell.kind != "code":
            continue
        if "exercise" in cell.tags:
            pending |= dict.fromkeys(names_defined(cell.text), cell.line)
            continue
        # A cell that both binds and reads a name may do either first; we take its side.
        for name in sorted(names_used(cell.text) & pending.keys() - names_defined(cell.text)):
            why = (
                f"{name!r} comes from the exercise at line {pending[name]}; nothing may depend on an exercise"
            )
            raise _refuse(path, cell.line, why)
        for name in names_defined(cell.text):
            pending.pop(name, None)


def _parts(text: str) -> list[tuple[str, list[str]]]:
    """The code in runs: ("plain", lines) and ("solution", lines), markers left out."""
    parts: list[tuple[str, list[str]]] = [("plain", [])]
    for line in text.splitlines():
        if _OPEN.match(line):
            parts.append(("solution", []))
        elif _CLOSE.match(line):
            parts.append(("plain", []))
        else:
            parts[-1][1].append(line)
    return parts


def _stub_line(lines: list[str]) -> str:
    first = next(line for line in lines if line.strip())
    indent = first[: len(first) - len(first.lstrip())]
    last = ast.parse(textwrap.dedent("\n".join(lines))).body[-1]
    if isinstance(last, ast.Assign) and len(last.targets) == 1 and isinstance(last.targets[0], ast.Name):
        return f"{indent}{last.targets[0].id} = ..."
    return f"{indent}..."


def _refuse(path: Path, line: int, why: str) -> ValueError:
    return ValueError(f"{path}:{line}: {why}.")
