"""Slides of notebooks, for a projector: nbconvert's, with all they need in their own folder.

nbconvert's page fetches reveal.js, jQuery, RequireJS and MathJax from elsewhere, and a room's network is what
fails first. So reveal.js lies beside the slides, formulas are MathML, and nothing else is asked for. A slide
whose content is taller than the screen is made smaller until it fits; what would then be too small to read is
scrolled.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.course.workshop import NEEDED
from course_lib.files import write_text

# reveal.js (MIT) as this package carries it: downloaded and unpacked, never installed.
REVEAL, INSIDE = "sphinx-revealjs==3.2.1", "sphinx_revealjs/_static/revealjs/"
PARTS = ("LICENSE", "dist/reveal.css", "dist/reveal.js", "dist/theme/", "plugin/notes/")
WIDTH, HEIGHT = 1280, 720
READABLE = 14  # lines of code that people in the last row read; longer code is not shown, its output is
TOGETHER = 22  # lines of text, code and output that share a slide

_TEMPLATE = """{% extends 'index.html.j2' %}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_css %}<style>
.reveal { font-size: 28px; } .reveal .slides { text-align: left; }
.reveal h1, .reveal h2, .reveal h3 { text-transform: none !important; }
.reveal section.columns .jp-OutputArea { column-count: 2; column-gap: 40px; }
.reveal img { max-height: 560px; max-width: 100%; margin: 0 auto; display: block; }
.reveal pre { width: 100%; box-shadow: none; } .jp-InputPrompt, .jp-OutputPrompt { display: none; }
.reveal table { font-size: 20px; }
</style>{% endblock %}
{% block data_png scoped %}<div class="jp-RenderedImage jp-OutputArea-output">
<img src="data:image/png;base64,{{ output.data['image/png'] | escape_html }}"
     alt="{{ (output | get_metadata('alt', 'image/png') or '') | escape_html }}">
</div>{% endblock data_png %}
{% block data_latex scoped %}{{ output.data['text/latex'] | markdown2html }}{% endblock data_latex %}
{% block footer_js %}
<script src="reveal/dist/reveal.js"></script>
<script src="reveal/plugin/notes/notes.js"></script>
<script>
function fit(slide) {
  let zoom = 1;
  const tall = () => slide.scrollHeight * zoom > HEIGHT || slide.scrollWidth * zoom > WIDTH + 1;
  for (slide.style.zoom = zoom; zoom > 0.3 && tall(); slide.style.zoom = zoom) { zoom -= 0.05; }
  return zoom;
}
Reveal.initialize({ controls: true, progress: true, hash: true, transition: "none", slideNumber: "c/t",
                    center: false, width: WIDTH, height: HEIGHT, plugins: [RevealNotes] }).then(() => {
  for (const slide of document.querySelectorAll(".slides section:not(:has(section))")) {
    const hidden = [slide, slide.parentElement].filter((one) => one.tagName === "SECTION");
    const before = hidden.map((one) => [one.style.display, one.hidden]);
    for (const one of hidden) { one.hidden = false; one.style.setProperty("display", "block", "important"); }
    let zoom = fit(slide);
    if (zoom < 0.7) {  // a long output in two columns is read more easily than a tiny one
      slide.classList.add("columns");
      zoom = fit(slide);
    }
    if (zoom < 0.6) {  // a whole report: scrolled, not shrunk until nobody reads it
      slide.classList.remove("columns");
      slide.style.zoom = zoom = 0.75;
      slide.style.setProperty("height", "920px", "important");
      slide.style.overflowY = "auto";
    }
    slide.dataset.zoom = zoom.toFixed(2);
    hidden.forEach((one, n) => { one.hidden = before[n][1]; one.style.display = before[n][0]; });
  }
  Reveal.layout();
  document.body.dataset.ready = "yes";
});
</script>{% endblock footer_js %}
""".replace("WIDTH", str(WIDTH)).replace("HEIGHT", str(HEIGHT))


class SlidesError(ValueError):
    """reveal.js could not be had; the message says what to do."""


def write(notebooks: list[Path], out: Path, say: Callable[[str], None] = print) -> list[Path]:
    """One page of slides for each notebook, in `out`, and reveal.js beside them. Raises SlidesError."""
    fetch_reveal(out / "reveal", say)
    written = []
    for path in notebooks:
        page = out / f"{path.stem}.slides.html"
        write_text(page, html(nbformat.read(path, as_version=4), path.stem))
        written.append(page)
    return written


def html(notebook: NotebookNode, name: str) -> str:
    """A notebook as slides: a heading starts a slide, what follows it comes below."""
    from jinja2 import DictLoader
    from nbconvert import SlidesExporter
    from traitlets.config import Config

    from course_lib.course.cells import markdown

    exporter = SlidesExporter(
        extra_loaders=[DictLoader({"slides.html.j2": _TEMPLATE})],
        template_file="slides.html.j2",
        reveal_url_prefix="reveal",
        reveal_theme="white",
        config=Config({"TagRemovePreprocessor": {"enabled": True, "remove_input_tags": {"output only"}}}),
    )
    exporter.register_filter("markdown2html", markdown)
    page, _ = exporter.from_notebook_node(arranged(notebook), {"metadata": {"name": name}})
    return page


def arranged(notebook: NotebookNode) -> NotebookNode:
    """The notebook with a slide type on every cell; hints are the speaker's, and links mere words."""
    made, filled = nbformat.from_dict(notebook), 0
    for index, cell in enumerate(made.cells):
        tags = cell.metadata.get("tags", ())
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"(?<!!)\[([^\]]+)\]\((?!\w+:)[^)]+\)", r"\1", cell.source)
        lines = _lines(cell)
        if cell.cell_type == "code" and cell.source.count("\n") >= READABLE:
            cell.metadata["tags"] = [*tags, "output only"]
            lines -= cell.source.count("\n") + 1
        if NEEDED in tags or (cell.cell_type == "code" and not lines):
            kind = "skip"
        elif "hints" in tags:
            kind = "notes"
        elif index == 0 or (cell.cell_type == "markdown" and re.search(r"^## ", cell.source, re.MULTILINE)):
            kind, filled = "slide", lines
        elif filled + lines <= TOGETHER and (cell.cell_type == "code" or filled <= TOGETHER // 2):
            kind, filled = "-", filled + lines
        else:
            kind, filled = "subslide", lines
        cell.metadata["slideshow"] = {"slide_type": kind}
    return made


def fetch_reveal(folder: Path, say: Callable[[str], None] = print) -> None:
    """Unpack reveal.js into `folder`, unless it is there. Raises SlidesError where it cannot be had."""
    if (folder / "dist" / "reveal.js").exists():
        return
    with tempfile.TemporaryDirectory() as place:
        say(f"downloading reveal.js ({REVEAL}, 2 MB, once)")
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                               "--only-binary=:all:", "--disable-pip-version-check", "--dest", place, REVEAL],
                              capture_output=True, text=True, check=False)
        wheels = list(Path(place).glob("*.whl"))
        if done.returncode or not wheels:
            raise SlidesError("the slides need reveal.js once, and pip could not download it: run this again "
                              "with a network, or add --no-slides; the notebooks are written.")
        with zipfile.ZipFile(wheels[0]) as archive:
            for name in archive.namelist():
                inner = name.removeprefix(INSIDE)
                if inner != name and inner.startswith(PARTS) and not name.endswith(("/", ".map")):
                    target = folder / inner
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(name))


def _lines(cell: NotebookNode) -> int:
    """About how many lines of a slide a cell takes: a figure most of one, a long paragraph several."""
    lines = sum(1 + len(line) // 90 for line in cell.source.splitlines())
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if "image/png" in data:
            lines += TOGETHER - 4
        elif "text/html" in data:
            lines += 2 + data["text/html"].count("<tr") + data["text/html"].count("<p") * 2
        else:
            lines += str(output.get("text", data.get("text/plain", ""))).count("\n") + 1
    return lines
