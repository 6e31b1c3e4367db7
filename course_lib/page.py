"""Blocks of text, tables, figures and code as one HTML page without scripts, or as Markdown.

Words come here as they are, names of routes and models included, which are the user's own text: here,
and nowhere else, they are escaped. The page loads nothing: style and figures are inside, and it says so to
the browser.
"""

from __future__ import annotations

import base64
import html
import re
import unicodedata
from typing import NamedTuple

STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; color: #111; background: #fff; max-width: 50rem; margin: 0 auto;
  padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; line-height: 1.2 } h2 { font-size: 1.2rem; margin-top: 2rem } h3 { font-size: 1rem }
ul.decision { list-style: none; padding: 0 }
ul.decision li { border-left: .3rem solid #111; padding: .2rem .8rem; margin: .6rem 0; font-size: 1.1rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .5rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid #bbb; overflow-wrap: normal }
td.n, th.n { text-align: right } td.n { white-space: nowrap } th { vertical-align: bottom }
tr.best { font-weight: bold; background: #eee }
figure { margin: 1rem 0 } img { width: 100%; height: auto }
pre { background: #f4f4f4; border: 1px solid #bbb; padding: .6rem; overflow-x: auto; font-size: .85rem }
@media print { body { max-width: none; padding: 0; font-size: 10pt } .wide { overflow: visible }
  pre { white-space: pre-wrap } figure, tr, pre { break-inside: avoid }
  h2, h3 { break-after: avoid } }
"""
TURNING = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # would turn the words around them
NUMERIC = "0123456789+-−–"  # a column whose cells all begin so is set to the right


class Block(NamedTuple):
    """One part of the report. kind: title, heading, text, decision, list, table, figure or code."""

    kind: str
    text: str = ""
    items: tuple = ()  # sentences of a list, or rows of a table, the header first
    best: frozenset = frozenset()  # which rows of a table are set in bold
    svg: str = ""


def as_html(blocks: list[Block]) -> str:
    """One self-contained page, readable on a phone, in print and in grey."""
    title = next((block.text for block in blocks if block.kind == "title"), "report")
    head = ('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
            f"<title>{_escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n")
    return head + "\n".join(_block_html(block) for block in blocks) + "\n</body>\n</html>\n"


def as_markdown(blocks: list[Block]) -> str:
    """The same for GitHub: of a figure its sentence, which holds its numbers."""
    return "\n\n".join(_block_markdown(block) for block in blocks) + "\n"


def plain(line: str) -> str:
    """Without characters that are no text, or that turn the words around them."""
    return "".join("\ufffd" if unicodedata.category(letter) in ("Cc", "Cs") else letter
                   for letter in TURNING.sub("", line))


def one_line(text: str) -> str:
    """As `plain`, with a single space for every line break and run of spaces."""
    return plain(" ".join(TURNING.sub("", text).split()))


def _block_html(block: Block) -> str:
    text = _escaped(block.text)
    match block.kind:
        case "title":
            return f"<h1>{text}</h1>"
        case "heading":
            return f"<h2>{text}</h2>"
        case "text":
            return f"<p>{text}</p>"
        case "list" | "decision":
            items = "\n".join(f"<li>{_escaped(item)}</li>" for item in block.items)
            return f'<ul class="{block.kind}">\n{items}\n</ul>'
        case "figure":
            data = base64.b64encode(block.svg.encode()).decode()
            return f'<figure><img alt="{text}" src="data:image/svg+xml;base64,{data}"></figure>'
        case "code":
            # Line breaks are meant here; each line by itself is as harmless as any other text.
            code = html.escape("\n".join(map(plain, block.text.split("\n"))))
            return f"<h3>{_escaped(block.items[0])}</h3>\n<pre><code>{code}</code></pre>"
        case "table":
            return _table_html(text, *block.items, best=block.best)
    raise ValueError(f"there is no block of kind {block.kind!r}")


def _table_html(note: str, header, *rows, best) -> str:
    numeric = [' class="n"' * all(row[i][:1] in NUMERIC for row in rows) for i in range(len(header))]
    head = "".join(f'<th scope="col"{n}>{_escaped(cell)}</th>'
                   for cell, n in zip(header, numeric, strict=True))
    lines = [f"<tr>{head}</tr>"]
    for number, row in enumerate(rows, 1):
        cells = "".join(f"<td{n}>{_escaped(cell)}</td>" for cell, n in zip(row, numeric, strict=True))
        lines.append(f'<tr class="best">{cells}</tr>' if number in best else f"<tr>{cells}</tr>")
    return (f'<p>{note}</p>\n<div class="wide"><table>\n' + "\n".join(lines)
            + "\n</table></div>")


def _block_markdown(block: Block) -> str:
    text = _line(block.text)
    match block.kind:
        case "title":
            return f"# {text}"
        case "heading":
            return f"## {text}"
        case "text":
            return text
        case "list" | "decision":
            return "\n".join(f"- {_line(item)}" for item in block.items)
        case "figure":
            return f"Figure: {text}"
        case "code":
            lines = map(plain, block.text.split("\n"))
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
            return "\n".join([f"### {_marked(block.items[0])}", "", fence, *lines, fence])
        case "table":
            header, *rows = ([_marked(cell) for cell in row] for row in block.items)
            lines = [header, ["---"] * len(header)]
            lines += [[f"**{cell}**" for cell in row] if number in block.best else row
                      for number, row in enumerate(rows, 1)]
            return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", text])
    raise ValueError(f"there is no block of kind {block.kind!r}")


def _escaped(text: str) -> str:
    return html.escape(one_line(text))


def _marked(text: str) -> str:
    """Text that Markdown leaves as it is, within a line or as the cell of a table."""
    return re.sub(r"([\\`*_<>|~$&#]|\](?=[(\[:]))", r"\\\1", one_line(text))


def _line(text: str) -> str:
    """As `_marked`, for the beginning of a line: no list, heading or rule."""
    text = re.sub(r"^(?=[-+]( |$)|--|=+$)", r"\\", _marked(text))
    return re.sub(r"^(\d+)(?=[.)]( |$))", r"\1\\", text)
