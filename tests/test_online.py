"""The notebooks for Colab: a set-up cell that works, and words that are true where the model is missing."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib import plots
from course_lib.course.execute import execute
from course_lib.course.online import ROOT, SET_UP, main, sentence, write
from course_lib.course.outline import NOTEBOOKS
from course_lib.course.without_model import NOTHING, SAYS, cells_that_need_it

SOURCE = "https://github.com/OWNER/REPO"
NAMES = [path.stem for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))]


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    out = tmp_path_factory.mktemp("online")
    return {path.stem: nbformat.read(path, as_version=4) for path in write(SOURCE, out)}


def test_a_copy_is_its_notebook_behind_a_set_up_cell(copies):
    assert list(copies) == NAMES
    for name, copy in copies.items():
        nbformat.validate(copy)
        first, *cells = copy.cells
        ast.parse(first.source)
        assert first.metadata.tags == [SET_UP] and len(first.source.splitlines()) <= 32
        whole = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        assert [cell for cell in cells if cell.cell_type == "code"] == [
            cell for cell in whole.cells if cell.cell_type == "code"]
        assert len(cells) == len(whole.cells) and copy.metadata.kernelspec.name == "python3"
        assert f'"{SOURCE}", course]' in first.source and "--branch=main" in first.source


def test_links_lead_to_colab_or_the_repository(copies):
    for name, copy in copies.items():
        text = "\n".join(cell.source for cell in copy.cells if cell.cell_type == "markdown")
        links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("#")]
        assert [link for link in links if not link.startswith("https://")] == [], name
        for link in links:
            if link.startswith(f"{SOURCE}/blob/main/"):
                assert (ROOT / link.split("/blob/main/")[1].split("#")[0]).exists(), f"{name}: {link}"
    start = "\n".join(cell.source for cell in copies["00_start_here"].cells)
    assert "](https://colab.research.google.com/github/OWNER/REPO/blob/online/01_one_round.ipynb)" in start


def test_which_notebooks_need_the_model(copies):
    """Those with a cell that loads it; the others' first cell does not even ask for it."""
    needing = {name[:2] for name, copy in copies.items() if '"fetch"' in copy.cells[0].source}
    assert needing == {"00", "01", "04", "05", "08", "10", "11", "12"}
    for name in NAMES:
        notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
        if "LIVE: measured now, on this machine · pair" in shown:
            assert name[:2] in needing
        assert ("needs no model" in sentence(notebook)) == (name[:2] not in needing)


CODES = [
    "import os\nfrom course_lib.pairs import load_pair\npair = load_pair('smol')",
    "def size(model):\n    return model\nrows = {}",
    "for k in (1, 2):\n    rows[k] = pair",  # fills what another cell bound
    "print(os.name, size(3))",
    "rows[1]",
    "rows = {1: 2}\nrows[1]",  # bound anew: there again
    "def read():\n    return pair",
    "read()",
    "text = [pair for pair in 'ab']",  # another pair
    "print(DRAFT_FOLDER.name)",
    "import numpy\nproposes = numpy.load(DRAFT_FOLDER / 'proposes.npy')",
]


def test_what_needs_the_model_is_followed_through_names():
    needing = [index for index, need in enumerate(cells_that_need_it(CODES)) if need]
    assert needing == [0, 2, 4, 6, 7, 10]


def small():
    cells = [new_markdown_cell("## The *pair*"), *(new_code_cell(code) for code in CODES[:3]),
             new_markdown_cell("## Alone"), new_code_cell(CODES[3])]
    return new_notebook(cells=cells)


def test_the_sentence_counts_cells_and_names_sections():
    assert sentence(small()) == (
        "Without the model 2 of this notebook's 4 code cells cannot run. Each of them says so and shows what "
        "was recorded where the notebook was built: in “The pair”. The others run.")
    assert sentence(new_notebook(cells=[new_code_cell("1")])) == (
        "This notebook needs no model: every cell runs.")


def test_a_cell_without_its_model_shows_what_is_recorded(tmp_path, capsys):
    load = ("from course_lib.pairs import load_pair\nprint('unseen')\nk = 4\npair = load_pair('/no/such')\n"
            "print(pair, k)")
    figure = {"image/png": "aWY=", "text/plain": "a figure"}
    plots.banner("live", pair="smol")
    outputs = [new_output("stream", text=f"{capsys.readouterr().out}seen there\n"),
               new_output("display_data", data=figure, metadata={"image/png": {"alt": "A line."}})]
    nbformat.write(new_notebook(cells=[new_code_cell(load, outputs=outputs)]), tmp_path / "01_small.ipynb")
    begin = ("from pathlib import Path\nfrom course_lib.course.without_model import show_recorded\n"
             f"show_recorded('01_small', Path({str(tmp_path)!r}))")
    ran = new_notebook(cells=[new_code_cell(code) for code in (begin, load, "k + 1", "print(pair)")])
    execute(ran, tmp_path, "small")
    _, shown, plain, other = (cell.outputs for cell in ran.cells)
    assert shown[0].text == (
        f"{SAYS}\nRECORDED: measured where the notebook was built · pair smol\nseen there\n")
    assert shown[1].data == figure and shown[1].metadata["image/png"]["alt"] == "A line."
    assert plain[0].data["text/plain"] == "5"
    assert other[0].text == f"{NOTHING}\n"


@pytest.mark.parametrize("source", ["https://gitlab.com/a/b", "github.com/a/b", "https://github.com/a", ""])
def test_another_source_is_one_sentence(tmp_path, capsys, source):
    assert main(["--source", source, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("online: ") and said.count("\n") == 1 and "https://github.com/OWNER/REPO" in said
    assert not (tmp_path / "out").exists()


def test_copies_replace_copies_and_no_other_notebook(tmp_path):
    course, out = tmp_path / "course", tmp_path / "out"
    course.mkdir()
    one = f"{NAMES[3]}.ipynb"
    (course / one).write_bytes((NOTEBOOKS / one).read_bytes())
    assert write(SOURCE, out, course) == write(SOURCE, out, course) == [out / one]
    for there in (course, out):
        (there / one).write_bytes((NOTEBOOKS / one).read_bytes())
        with pytest.raises(ValueError, match="is no copy with a set-up cell: name another folder"):
            write(SOURCE, there, course)
        assert (there / one).read_bytes() == (NOTEBOOKS / one).read_bytes()


def test_a_ref_cannot_be_an_option(tmp_path, capsys):
    assert main(["--source", SOURCE, "--ref=--upload-pack=x", "--out", str(tmp_path / "out")]) == 2
    assert "no branch or tag" in capsys.readouterr().err


def test_binder_installs_the_lock(tmp_path):
    script = ROOT / "binder" / "postBuild"
    text = script.read_text(encoding="utf-8")
    assert os.access(script, os.X_OK) or sys.platform == "win32"
    assert "-c requirements.lock -r requirements.txt -e ." in text and "course_lib fetch ||" in text
    assert re.fullmatch(r"python-3\.1[1-9]\n", (ROOT / "binder" / "runtime.txt").read_text())


def test_only_one_job_may_write_to_the_repository():
    workflow = yaml.safe_load((ROOT / ".github/workflows/site.yml").read_text(encoding="utf-8"))
    writing = [name for name, job in workflow["jobs"].items() if job["permissions"]["contents"] == "write"]
    assert writing == ["online"] and workflow["permissions"] == {"contents": "read"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_run_all_without_the_model(copies, name, tmp_path, monkeypatch):
    """Every cell ends well, and as many as the first one says show what is recorded."""
    monkeypatch.setenv("COURSE_MODELS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    copy = nbformat.from_dict(copies[name])
    execute(copy, NOTEBOOKS, name, timeout=240)
    first, *cells = ["".join(output.get("text", "") for output in cell.outputs)
                     for cell in copy.cells if cell.cell_type == "code"]
    count = re.search(r"Without the model (\d+) of", first)
    assert ("could not download" in first) == bool(count)
    assert sum(text.startswith(SAYS) for text in cells) == int(count[1] if count else 0)
    assert not any(NOTHING in text for text in cells)


@pytest.mark.slow
def test_a_machine_with_nothing_but_the_notebook(copies, tmp_path):
    """As on Colab: a kernel, an empty folder, and a repository to clone, which here is this one."""
    python = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-c", ROOT / "requirements.lock",
                    "ipykernel", "jupyter-client", "nbclient", "torch"], check=True)
    _tree(tmp_path / "clone")
    (tmp_path / "content").mkdir()
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{(tmp_path / 'clone').as_uri()}.insteadOf",
            "GIT_CONFIG_VALUE_0": SOURCE, "PIP_CONSTRAINT": str(ROOT / "requirements.lock"),
            "COURSE_PROGRESS": "off"}
    for name, models, more in (("02_geometric_formula", None, {}),
                               ("00_start_here", tmp_path / "none", {"PIP_NO_INDEX": "1"}),
                               ("00_start_here", None, {})):
        nbformat.write(copies[name], tmp_path / "content" / f"{name}.ipynb")
        run = [python.with_name("jupyter-execute"), "--timeout=900", f"{name}.ipynb", "--inplace"]
        subprocess.run(run, cwd=tmp_path / "content", check=True,
                       env=env | more | ({"COURSE_MODELS": str(models)} if models else {}))
        ran = nbformat.read(tmp_path / "content" / f"{name}.ipynb", as_version=4)
        said = "".join(output.text for output in ran.cells[0].outputs if output.output_type == "stream")
        assert ("Without the model 9 of" if models else "Ready.") in said


def _tree(folder: Path) -> None:
    """A repository of one commit on main that holds what lies here."""
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", folder], check=True)
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet",
                    "-m", "all"], cwd=folder, check=True)
