"""Protects the builder: one source, two notebooks, nothing half-written, and clear words for a bad source."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course_lib.course.build import build, build_command, make, sources, stale
from course_lib.course.execute import execute_to, paths_in_outputs
from course_lib.course.source import hints, names_defined, names_used, read_source, solution, solved, stub

FIXTURES = Path(__file__).parent / "fixtures" / "course"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of notebooks with one source; its kernels find the fixture's checks."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FIXTURES), str(Path(__file__).parents[1])]))
    shutil.copytree(FIXTURES / "src", tmp_path / "notebooks" / "src")
    return tmp_path / "notebooks"


def rewrite(home, old, new):
    source = home / "src" / "99_fixture.py"
    text = source.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the fixture"
    source.write_text(text.replace(old, new), encoding="utf-8")
    return source


def read(path):
    return nbformat.read(path, as_version=4)


def cell_with(notebook, text):
    return next(cell for cell in notebook.cells if text in cell.source)


def printed(cell):
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The fixture, built and executed once."""
    home = tmp_path_factory.mktemp("built") / "notebooks"
    shutil.copytree(FIXTURES / "src", home / "src")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(FIXTURES), str(Path(__file__).parents[1])]))
        build(home / "src" / "99_fixture.py")
    return home


def test_the_learner_gets_a_stub_and_folds(home):
    learner, solutions = make(home / "src" / "99_fixture.py").values()
    exercise = cell_with(learner, "def exactly")
    assert exercise.source == (
        'def exactly(alpha, k, n):\n    """Chance of exactly n accepted drafts."""\n    ...\n\n\n'
        "check(exactly)"
    )
    folds = learner.cells[learner.cells.index(exercise) + 1].source
    assert re.findall("<summary>(.*)</summary>", folds) == ["Hint 1", "Hint 2", "Solution"]
    assert "What stops the round\nafter n drafts?" in folds
    assert "    if n == k:\n        return alpha**k\n" in folds and "check(" not in folds
    assert cell_with(learner, '"accepted")').source.startswith("accepted = ...\n")
    assert "# solution" not in nbformat.writes(learner) and "# end" not in nbformat.writes(solutions)

    filled = cell_with(solutions, "def exactly")
    assert "    return alpha**n * (1 - alpha)\n" in filled.source and filled.source.endswith("check(exactly)")
    assert "Solution" not in solutions.cells[solutions.cells.index(filled) + 1].source
    assert "](../GLOSSARY.md) and [itself](99_fixture.ipynb)" in cell_with(solutions, "**Claim.**").source


def test_the_same_source_gives_the_same_bytes(home):
    source = home / "src" / "99_fixture.py"
    first = [nbformat.writes(notebook) for notebook in make(source).values()]
    assert first == [nbformat.writes(notebook) for notebook in make(source).values()]
    ids = [cell.id for cell in next(iter(make(source).values())).cells]
    assert ids[0] == "99-fixture-000" and len(set(ids)) == len(ids)
    for notebook in make(source).values():
        nbformat.validate(notebook)


BAD = {  # what is broken: (old, new, the line refused counts from the line of this text, the message)
    "no end": (
        "    # end\n\n\ncheck(exactly)",
        "\n\ncheck(exactly)",
        "    # solution\n    if n",
        'has no "# end"',
    ),
    "no solution": (
        "# solution\naccepted = 1 + 1\n# end\n",
        "accepted = 2\n",
        "medium",
        'has no "# solution"',
    ),
    "empty solution": (
        "# solution\naccepted = 1 + 1\n# end",
        "# solution\n# end",
        "# end\n\ncheck(accepted",
        "without a",
    ),
    "twice open": ("# solution\nacc", "# solution\n# solution\nacc", "# solution\nacc", "before the"),
    "half a statement": (
        "# solution\naccepted = 1 + 1\n# end",
        "accepted = (1 +\n# solution\n1)\n# end",
        "medium",
        "whole",
    ),
    "no check": ("# end\n\n\ncheck(exactly)", "# end", "easy", "does not end with check"),
    "same id": ("Exercise 99.2", "Exercise 99.1", "medium", "exists already, at line"),
    "other number": ("Exercise 99.2", "Exercise 98.2", "medium", "another notebook's number"),
    "no level": ("· medium ·", "· tricky ·", "tricky", "must be its text"),
    "no hints": (
        '# %% [markdown] tags=["hints"]\n# - Think.',
        "# %% [markdown]\n# - Think.",
        "hard",
        "not followed",
    ),
    "one hint": ("\n# - Think again.", "", "Think.", "at least two hints"),
    "stray hints": (
        "# %% [markdown]\n# ## Quiz",
        '# %% [markdown] tags=["hints"]\n# ## Quiz',
        "## Quiz",
        "follow an",
    ),
    "stray marker": ("2 + 3", "# solution\n2 + 3\n# end", "# solution\n2", "belong in a cell tagged"),
    "no minutes": ("# - **Minutes:** 5\n", "", "# 99 ·", "has no Minutes"),
    "no header": ("# # 99 · A small notebook", "# A small notebook", "A small", "has no title"),
    "wrong title": ("# # 99 ·", "# # 98 ·", "98 ·", "the title says 98"),
    "text first": ("# %% [markdown]\n# # 99", "x = 1\n# %% [markdown]\n# # 99", None, "text stands before"),
    "not python": ("2 + 3", "2 +", "2 +\n", "this is not Python"),
    "dependence": (
        'quiz("99.b")',
        "print(largest)",
        "print(largest)",
        "'largest' comes from the exercise at line",
    ),
}


@pytest.mark.parametrize(("old", "new", "near", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_source_is_refused_with_file_and_line(home, old, new, near, message):
    source = rewrite(home, old, new)
    with pytest.raises(ValueError, match=re.escape(message)) as refusal:
        read_source(source)
    found = re.match(r"(.*):(\d+): .*\.$", str(refusal.value))
    assert found[1] == str(source)
    text = source.read_text(encoding="utf-8")
    line = 1 if near is None else text[: text.index(near)].count("\n") + 1
    # The cell that is refused starts at most a few lines from what is wrong in it.
    assert abs(int(found[2]) - line) <= 3, f"line {found[2]}, and {near!r} is at {line}"
    assert build_command(["99"], folder=home) == 2


def test_parts_of_an_exercise():
    text = "def f(x):\n    # solution\n    y = x\n    # end\n    return y\n\ncheck(f)"
    assert stub(text) == "def f(x):\n    y = ...\n    return y\n\ncheck(f)"
    assert solved(text) == "def f(x):\n    y = x\n    return y\n\ncheck(f)"
    assert solution(text) == "def f(x):\n    y = x\n    return y"
    assert hints("Some words\n- one\n  ```\n    code\n  ```\n- two") == ["one\n```\n  code\n```", "two"]
    assert names_defined(
        "import a.b as c\nd = [e for e in f]\ndef g(h):\n    i = 1\n%magic\nfor j in k: pass"
    ) == set("cdgj")
    assert names_used("a = b\ndef c(d):\n    return d + e\nf = lambda g: g + h\n[i for i in j]") >= set(
        "behj"
    )
    assert not names_used("def c(d):\n    return d") & set("d")


def test_an_executed_notebook_is_clean(built):
    learner, solutions = read(built / "99_fixture.ipynb"), read(built / "solutions" / "99_fixture.ipynb")
    for notebook in (learner, solutions):
        counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
        assert counts == list(range(1, len(counts) + 1))
        assert all("execution" not in cell.metadata for cell in notebook.cells)
        assert notebook.metadata.language_info == {"name": "python", "pygments_lexer": "ipython3"}
        assert paths_in_outputs(notebook) == []
    checks = [printed(cell) for cell in learner.cells if "exercise" in cell.metadata.get("tags", ())]
    assert checks == ["○ 99.1 not attempted\n", "○ 99.2 not attempted\n", "○ 99.3 not attempted\n"]
    checks = [printed(cell) for cell in solutions.cells if "exercise" in cell.metadata.get("tags", ())]
    assert checks == ["✓ 99.1  P(exactly 2 of 4) = 0.128\n", "✓ 99.2  2 of 4\n", "✓ 99.3  the largest is 3\n"]
    (figure,) = cell_with(learner, "show(figure").outputs
    assert figure.metadata["image/png"]["alt"] == figure.data["text/plain"]
    assert (
        "SIMULATED" in printed(cell_with(learner, "banner(")) and stale(built / "src" / "99_fixture.py") == []
    )


def test_nbval_accepts_the_built_notebook_and_compares_alt_text(built, tmp_path):
    def nbval(path):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--nbval",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            tmp_path,
            path,
        ]
        found = os.pathsep.join([str(FIXTURES), str(Path(__file__).parents[1])])
        return subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": found}, check=False
        )

    notebook = read(built / "99_fixture.ipynb")
    cell_with(notebook, "show(figure").outputs[0].data["image/png"] = "AAAA"  # another machine's picture
    nbformat.write(notebook, tmp_path / "99_fixture.ipynb")
    same = nbval(tmp_path / "99_fixture.ipynb")
    assert same.returncode == 0, same.stdout

    cell_with(notebook, "show(figure").outputs[0].data["text/plain"] += " And 9.99 at k = 5."
    nbformat.write(notebook, tmp_path / "99_fixture.ipynb")
    other = nbval(tmp_path / "99_fixture.ipynb")
    assert other.returncode == 1 and "9.99 at k = 5" in other.stdout


def test_pages_have_alt_text_folds_and_links(built, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FIXTURES), str(Path(__file__).parents[1])]))
    before = (built / "99_fixture.ipynb").read_bytes()
    (built / "GLOSSARY.md").write_text("# Words\n\n## Four\n\nSee [the notebook](99_fixture.ipynb).\n")
    assert execute_to(tmp_path / "build", built) == []
    assert (built / "99_fixture.ipynb").read_bytes() == before
    assert (tmp_path / "build" / "notebooks" / "99_fixture.ipynb").exists()
    html = (tmp_path / "build" / "html" / "99_fixture.html").read_text(encoding="utf-8")
    images = re.findall(r"<img[^>]*?>", html, re.DOTALL)
    assert len(images) == 1 and 'alt="Tokens per round against k for α = 0.8: 1.80 at k = 1' in images[0]
    assert html.count("<summary>Hint 1</summary>") == 3 and html.count("Is it this one?") == 6
    assert 'href="99_fixture.html"' in html and 'href="glossary.html">the glossary</a>' in html
    glossary = (tmp_path / "build" / "html" / "glossary.html").read_text(encoding="utf-8")
    assert '<h2 id="Four">Four</h2>' in glossary and '<a href="99_fixture.html">the notebook</a>' in glossary
    index = (tmp_path / "build" / "html" / "index.html").read_text(encoding="utf-8")
    assert '<a href="99_fixture.html">99 · A small notebook</a>' in index


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            "1 / 0",
            "99_fixture.ipynb: cell 6 raised ZeroDivisionError: division by zero; nothing was written.",
        ),
        (
            "import time; time.sleep(60)",
            "99_fixture.ipynb: cell 6 took longer than 8 s; nothing was written.",
        ),
        (
            "__import__('sys').prefix + '/x'",
            "99_fixture.ipynb: cell 6 prints '{prefix}/x', a path of this machine",
        ),
    ],
    ids=["error", "time", "path"],
)
def test_a_failing_cell_leaves_the_old_notebooks(home, capsys, new, message):
    rewrite(home, "2 + 3", new)
    for path in (home / "99_fixture.ipynb", home / "solutions" / "99_fixture.ipynb"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("as before")
    assert build_command(["99"], timeout=8 if "sleep" in new else 60, folder=home) == 1
    assert message.format(prefix=sys.prefix) in capsys.readouterr().err
    for path in (home / "99_fixture.ipynb", home / "solutions" / "99_fixture.ipynb"):
        assert path.read_text() == "as before"
    assert sorted(p.name for p in home.iterdir()) == ["99_fixture.ipynb", "solutions", "src"]


def test_a_stale_notebook_is_named(home, capsys):
    assert build_command([], check=True, folder=home) == 1
    assert "99_fixture.ipynb is missing." in capsys.readouterr().err
    assert build_command([], execute_cells=False, folder=home) == 0
    assert build_command([], check=True, folder=home) == 0
    rewrite(home, "accepted = 1 + 1", "accepted = 2")  # changes the solution's fold and the solutions
    assert build_command([], check=True, folder=home) == 1
    said = capsys.readouterr().err
    assert re.search(r"build: 99_fixture.ipynb is stale: cell \d+ differs from 99_fixture.py.", said)
    assert "solutions/99_fixture.ipynb is stale" in said


def test_names_choose_notebooks(home):
    assert (
        [p.name for p in sources(["99"], home)]
        == [p.name for p in sources(["99_fixture"], home)]
        == ["99_fixture.py"]
    )
    assert sources([], home) == sources(["99"], home)
    with pytest.raises(ValueError, match="there is no notebook '9'; there are: 99_fixture"):
        sources(["9"], home)
