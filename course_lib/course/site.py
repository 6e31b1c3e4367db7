"""The notebooks as a web site: a folder of plain files, read from a disk, a stick or any address.

Nothing is executed: what the notebooks hold is what the pages show. A page loads nothing from outside its
folder and every link is relative; formulas are MathML, figures are files beside it with their alternative
text, hints and solutions are folds. Without scripts only the search and the k explorer are missing.

    python -m course_lib.course.site --out build/site
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from jinja2 import Environment, FileSystemLoader
from nbformat.v4 import new_markdown_cell, new_notebook

from course_lib.course.addresses import binder, colab, repository
from course_lib.course.cells import Body, body_of
from course_lib.files import check_replaceable

ROOT = Path(__file__).resolve().parents[2]
WEB = Path(__file__).with_name("web")
INDEX = "search-index.js"  # a folder that has it is a site
COPIED = ("style.css", "site.js", "search.js", "explorer.html")
TEXTS = ("GLOSSARY", "TROUBLESHOOTING", "CHECKPOINTS", "MISCONCEPTIONS", "INSTRUCTOR")  # of notebooks/*.md


@dataclass(eq=False)
class Page:
    """A page of the site: `file` in its folder, made from `origin`, a path in the repository."""

    origin: str
    file: str
    title: str
    notebook: nbformat.NotebookNode | None = None
    body: Body = field(default_factory=Body)
    minutes: str = ""
    learn: str = ""
    run: dict[str, str] = field(default_factory=dict)  # where it can be run: a name, an address


def build_site(out: Path, notebooks: Path, texts: Path | None = None, source: str = "") -> list[str]:
    """Write the site of `notebooks/NN_*.ipynb` into the folder `out`, which is replaced as a whole.

    texts: where GLOSSARY.md and its like lie, if not beside the notebooks. source: the address under which
    the repository's files can be read, for links to those that are no pages; without it such a link is its
    words alone. If it is GitHub's, a notebook's page has links to Colab and Binder, where it runs.
    Returns the files of the pages. Raises ValueError for a formula that cannot be set, or where `out` holds
    something else.
    """
    check_replaceable(out, INDEX)
    texts = texts or notebooks
    course = [_notebook_page(path) for path in sorted(notebooks.glob("[0-9][0-9]_*.ipynb"))]
    others = [_text_page(path, f"notebooks/{path.name}", f"{path.stem.lower()}.html")
              for path in (texts / f"{name}.md" for name in TEXTS) if path.exists()]
    home = _text_page(ROOT / "README.md", "README.md", "index.html", until="\n## ")
    search = Page("", "search.html", "Search")
    for page in course:
        page.run = _where_to_run(source, Path(page.file).stem)
    ready = out.with_name(f".{out.name}.{os.getpid()}")
    (ready / "figures").mkdir(parents=True)
    try:
        _make_bodies([*course, *others, home], ready, source)
        shell = Environment(loader=FileSystemLoader(WEB), autoescape=True, trim_blocks=True,
                            lstrip_blocks=True)
        for page in (*course, *others, home, search):
            kind = page.file if page in (home, search) else "page.html"
            html = shell.get_template(f"{kind}.j2").render(page=page, name=home.title, course=course,
                                                           others=others, **_around(page, course))
            (ready / page.file).write_text(html, encoding="utf-8")
        places = [[page.file, page.title, *place]
                  for page in (*course, *others) for place in page.body.places]
        index = json.dumps(places, ensure_ascii=False, separators=(",", ":"))
        (ready / INDEX).write_text(f"const PLACES = {index};\n", encoding="utf-8")
        for name in COPIED:
            shutil.copyfile(WEB / name, ready / name)
        shutil.rmtree(out, ignore_errors=True)
        ready.replace(out)
    finally:
        shutil.rmtree(ready, ignore_errors=True)
    return [page.file for page in (home, *course, *others, search)] + ["explorer.html"]


def _notebook_page(path: Path) -> Page:
    notebook = nbformat.read(path, as_version=4)
    head = notebook.cells[0].source if notebook.cells else ""
    said = {name: " ".join(text.split()) for name, text in
            re.findall(r"^- \*\*(.+?):\*\* (.+?)(?=\n- |\n\n|\Z)", head, re.MULTILINE | re.DOTALL)}
    return Page(f"notebooks/{path.name}", f"{path.stem}.html", _title(head), notebook,
                minutes=said.get("Minutes", ""), learn=said.get("You will learn", ""))


def _text_page(path: Path, origin: str, file: str, until: str | None = None) -> Page:
    text = path.read_text(encoding="utf-8")
    text = text.partition(until)[0] if until else text
    return Page(origin, file, _title(text), new_notebook(cells=[new_markdown_cell(text)]))


def _where_to_run(source: str, name: str) -> dict[str, str]:
    try:
        repository(source)
    except ValueError:  # the links of the text work with any host, these with one
        return {}
    return {"Colab": colab(source, name), "Binder": binder(source, name)}


def _title(text: str) -> str:
    match = re.search(r"^# (.+)$", text, re.MULTILINE)
    return match[1] if match else "Untitled"


def _make_bodies(pages: list[Page], folder: Path, source: str) -> None:
    files = {page.origin: page.file for page in pages}

    def link(path: str) -> str | None:
        return files.get(path) or (f"{source.rstrip('/')}/{path}" if source else None)

    for page in pages:
        count = 0

        def picture(png: bytes | str, page: Page = page) -> tuple[str, int, int]:
            nonlocal count
            count += 1
            data = png if isinstance(png, bytes) else (ROOT / png).read_bytes()
            name = f"figures/{Path(page.file).stem}-{count}.png"
            (folder / name).write_bytes(data)
            # A PNG says its size in its first block. With it the text does not jump when the picture comes.
            width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
            return name, width, height

        page.body = body_of(page.notebook, page.origin, link, picture)


def _around(page: Page, course: list[Page]) -> dict[str, Page | None]:
    at = course.index(page) if page in course else None
    return {"before": course[at - 1] if at else None,
            "after": course[at + 1] if at is not None and at + 1 < len(course) else None}


def main(arguments: list[str] | None = None) -> int:
    """`python -m course_lib.course.site`: the exit status, 2 for what cannot be read or set."""
    parser = argparse.ArgumentParser(description="The notebooks as a web site; nothing is executed.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="the folder, replaced")
    parser.add_argument("--source", default="", help="address of the repository's files, for links to them")
    given = parser.parse_args(arguments)
    try:
        pages = build_site(given.out, ROOT / "notebooks", source=given.source)
    except (ValueError, OSError) as error:
        print(f"site: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"site: {given.out / 'index.html'}, {len(pages)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
