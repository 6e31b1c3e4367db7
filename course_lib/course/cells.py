"""The cells of an executed notebook as HTML: text, code, outputs; what it holds by heading, to search in.

nbconvert's own pages drop a figure's alternative text, leave formulas to a script from elsewhere, and bring
the looks of a whole laboratory. Its Markdown is kept, so that a text reads here as it does in Jupyter.
"""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape

from bs4 import BeautifulSoup, Tag
from latex2mathml.converter import convert
from nbconvert.filters.ansi import ansi2html
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers.python import PythonLexer

RICHEST_FIRST = ("image/png", "text/html", "text/markdown", "text/latex", "text/plain")
HEADINGS = ("h1", "h2", "h3", "h4")


@dataclass
class Body:
    """A page's HTML; the (id, heading) of its second level; and (id, heading, words) of each section."""

    html: str = ""
    sections: list[tuple[str, str]] = field(default_factory=list)
    places: list[tuple[str, str, str]] = field(default_factory=list)


def body_of(notebook: NotebookNode, origin: str, link: Callable[[str], str | None],
            picture: Callable[[bytes | str], tuple[str, int, int]]) -> Body:
    """The notebook as HTML. Raises ValueError for a formula that cannot be set.

    origin: where the notebook lies in the repository; its links are resolved against that.
    link: a path in the repository to the address to link to, None to leave the words alone.
    picture: a PNG, or the path of one in the repository, to the address, width and height to show it with.
    """
    made, parts, taken = Body(), [], set()

    def text(source: str) -> BeautifulSoup:
        soup = BeautifulSoup(markdown(source), "html.parser")
        for each in soup.find_all("a", href=True):
            _relink(each, origin, link)
        for each in soup.find_all("img", src=re.compile(r"^(?!\w+:|//).*\.png$")):
            each["src"], each["width"], each["height"] = picture(_resolved(each["src"], origin))
        for table in soup.find_all("table"):
            table.wrap(soup.new_tag("div", attrs={"class": "wide"}))
        return soup

    for cell in notebook.cells:
        tags = cell.metadata.get("tags", ())
        if cell.cell_type == "markdown":
            soup = text(cell.source)
            _name_headings(soup, taken, made)
            parts.append(f'<div class="text">\n{soup}</div>')
        elif cell.cell_type == "code":
            _remember(made, cell.source)
            shown = "\n".join(_output(output, text, picture) for output in cell.outputs)
            parts.append(f'<div class="{"cell exercise" if "exercise" in tags else "cell"}">\n'
                         f'<div class="code">{highlight(cell.source, PythonLexer(), HtmlFormatter())}</div>\n'
                         + (f'<div class="output">\n{shown}\n</div>\n' if shown else "") + "</div>")
    made.html = "\n".join(parts)
    return made


class _Markdown(IPythonRenderer):
    """Formulas as MathML: every browser of today sets them, and a screen reader reads them."""

    def inline_math(self, body: str) -> str:
        return _formula(body, "inline")

    def block_math(self, body: str) -> str:
        return f'<span class="wide formula">{_formula(body, "block")}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(rf"\begin{{{name}}}{body}\end{{{name}}}")


def markdown(source: str) -> str:
    return MarkdownWithMath(renderer=_Markdown(escape=False, exclude_anchor_links=True)).render(source)


def _formula(tex: str, display: str) -> str:
    try:
        made = convert(tex.strip(), display=display)
    except Exception as error:  # the converter lets through whatever went wrong inside it
        raise ValueError(f"the formula {tex.strip()!r} cannot be set: {error!r}.") from None
    if unknown := re.search(r">(\\\w+)<", made):  # it would print such a command as it stands
        raise ValueError(f"the formula {tex.strip()!r} cannot be set: {unknown[1]} is unknown.")
    return made


def _output(output: NotebookNode, text: Callable, picture: Callable) -> str:
    if output.output_type == "stream":
        return f"<pre>{ansi2html(output.text)}</pre>"
    if output.output_type == "error":
        return f"<pre>{ansi2html(chr(10).join(output.traceback))}</pre>"
    kind = next((kind for kind in RICHEST_FIRST if kind in output.data), None)
    match kind:
        case "image/png":
            address, width, height = picture(base64.b64decode(output.data[kind]))
            alt = output.metadata.get(kind, {}).get("alt", "")
            return (f'<img src="{escape(address)}" alt="{escape(alt)}" width="{width}" height="{height}" '
                    'loading="lazy">')
        case "text/html":
            # A screen reader announces an empty heading for the corner that pandas leaves empty.
            return f'<div class="wide">{output.data[kind].replace("<th></th>", "<td></td>")}</div>'
        case "text/markdown" | "text/latex":
            return f'<div class="report">{text(output.data[kind])}</div>'
        case "text/plain":
            return f"<pre>{ansi2html(output.data[kind])}</pre>"
    return ""  # sliders and the like, which stand beside one of the above


def _name_headings(soup: BeautifulSoup, taken: set[str], made: Body) -> None:
    """Give headings the ids Jupyter gives them, and remember what stands below each."""
    for block in soup.children:
        if not isinstance(block, Tag) or block.name not in HEADINGS:
            _remember(made, block.get_text(" "))
            continue
        heading = block.get_text().strip()
        name, count = heading.replace(" ", "-"), 1
        while name in taken:
            count += 1
            name = f"{heading.replace(' ', '-')}-{count}"
        taken.add(name)
        block["id"] = name
        made.places.append((name, heading, ""))
        if block.name == "h2":
            made.sections.append((name, heading))


def _remember(made: Body, words: str) -> None:
    if words.strip() and made.places:
        name, heading, before = made.places[-1]
        made.places[-1] = name, heading, f"{before} {' '.join(words.split())}".strip()


def _relink(anchor: Tag, origin: str, link: Callable[[str], str | None]) -> None:
    path, mark, fragment = anchor["href"].partition("#")
    if re.match(r"\w+:|//", path) or not path:
        return
    address = link(_resolved(path, origin))
    if address is None:
        anchor.unwrap()
    else:
        anchor["href"] = address + mark + fragment


def _resolved(path: str, origin: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
