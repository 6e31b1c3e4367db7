"""The notebooks for machines that have only the notebook, as Colab: copies with a set-up cell in front.

That cell gets the rest of the course and the model. Where the model cannot be had, it says which sections
show what was recorded in the notebook, and from then on they do (`without_model`). A link in a copy leads to
the other notebook in Colab, or to the file in the repository.

    python -m course_lib.course.online --source https://github.com/OWNER/REPO --out build/online
"""

from __future__ import annotations

import argparse
import posixpath
import re
import sys
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.course.addresses import colab, repository
from course_lib.course.outline import NOTEBOOKS
from course_lib.course.without_model import cells_that_need_it
from course_lib.files import write_text

ROOT = NOTEBOOKS.parent
SET_UP = "online"  # the tag of the first cell
_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!\w+:|#|/)([^)\s]+)\)")

CODE = '''\
# Run this first. Where there is only this notebook, as on Colab, it gets the rest of the course (minutes).
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("course_lib") is None:
    course = os.path.abspath("{repo}")
    if not os.path.exists(course):
        clone = ["git", "clone", "--quiet", "--depth=1", "--branch={ref}", "{address}", course]
        subprocess.run(clone, check=True)
    # What is here and new enough, such as torch, stays as it is: this kernel may have it loaded.
    install = [sys.executable, "-m", "pip", "install", "--quiet", "-r", f"{{course}}/requirements.txt"]
    subprocess.run(install, check=True)
    sys.path.insert(0, course)
    os.environ["PYTHONPATH"] = course  # for the commands that cells start
    os.chdir(f"{{course}}/notebooks")
'''
FETCH = '''
fetch = [sys.executable, "-m", "course_lib", "fetch"]
fetched = subprocess.run(fetch, capture_output=True, text=True)
if fetched.returncode == 0:
    print("Ready. The model is here: every cell runs.")
else:
    from course_lib.course.without_model import show_recorded

    print(fetched.stderr.strip())
    print("{says}")
    show_recorded("{name}")
'''
NO_MODEL = '''
print("Ready. {says}")
'''


def write(source: str, out: Path, notebooks: Path = NOTEBOOKS, ref: str = "main") -> list[Path]:
    """Write a copy of every learner's notebook into `out`, and return their paths in order.

    source: https://github.com/OWNER/REPO; Colab opens no other host's. ref: the branch or tag to get.
    Raises ValueError for another source, a ref that is none, or where a notebook that is no such copy lies
    under the name of one.
    """
    owner, repo = repository(source)
    address = f"https://github.com/{owner}/{repo}"
    if not re.fullmatch(r"\w[\w./-]*", ref):
        raise ValueError(f"{ref!r} is no branch or tag: give its name, for example main")
    paths = sorted(notebooks.glob("[0-9][0-9]_*.ipynb"))
    for there in (out / path.name for path in paths):
        if there.exists() and f'"{SET_UP}"' not in there.read_text(encoding="utf-8"):
            raise ValueError(f"{there} is there, and is no copy with a set-up cell: name another folder")
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        template = CODE + (FETCH if any(_needing(notebook)) else NO_MODEL)
        code = template.format(address=address, repo=repo, ref=ref, name=path.stem, says=sentence(notebook))
        first = nbformat.v4.new_code_cell(code.strip(), id="set-up", metadata={"tags": [SET_UP]})
        notebook.cells.insert(0, first)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = _LINK.sub(lambda link: f"{link[1]}{_address(link[2], address, ref)})",
                                        cell.source)
        written.append(out / path.name)
        write_text(written[-1], nbformat.writes(notebook) + "\n")
    return written


def sentence(notebook: NotebookNode) -> str:
    """What a notebook does without the model: which sections show recorded outputs."""
    section, sections, needing = "its beginning", {}, iter(_needing(notebook))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            section = (re.findall(r"^## (.+)$", cell.source, re.MULTILINE) or [section])[-1].strip()
        elif cell.cell_type == "code":
            sections.setdefault(section, []).append(next(needing))
    cells = [need for part in sections.values() for need in part]
    if not any(cells):
        return "This notebook needs no model: every cell runs."
    named = ", ".join(f"“{_plain(title)}”" for title, part in sections.items() if any(part))
    return (f"Without the model {sum(cells)} of this notebook's {len(cells)} code cells cannot run. Each of "
            f"them says so and shows what was recorded where the notebook was built: in {named}. "
            "The others run.")


def _needing(notebook: NotebookNode) -> list[bool]:
    return cells_that_need_it(cell.source for cell in notebook.cells if cell.cell_type == "code")


def _plain(title: str) -> str:
    return re.sub(r"[`*\"\\]", "", title).strip()


def _address(link: str, address: str, ref: str) -> str:
    path, mark, fragment = link.partition("#")
    path = posixpath.normpath(posixpath.join("notebooks", path))
    if re.fullmatch(r"notebooks/\d\d_\w+\.ipynb", path):
        return colab(address, Path(path).stem) + mark + fragment
    kind = "raw" if path.endswith(".png") else "tree" if (ROOT / path).is_dir() else "blob"
    return f"{address}/{kind}/{ref}/{path}{mark}{fragment}"


def main(arguments: list[str] | None = None) -> int:
    """`python -m course_lib.course.online`: the exit status, 2 for what cannot be read or written."""
    parser = argparse.ArgumentParser(description="The notebooks with a set-up cell in front, for Colab.")
    parser.add_argument("--source", required=True, help="the repository: https://github.com/OWNER/REPO")
    parser.add_argument("--ref", default="main", help="its branch or tag that the set-up cell gets")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "online", help="the folder")
    given = parser.parse_args(arguments)
    try:
        written = write(given.source, given.out, ref=given.ref)
    except (ValueError, OSError) as error:
        print(f"online: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"online: {len(written)} notebooks in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
