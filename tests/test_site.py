"""The site: pages of what the notebooks hold, that work from a disk, on a phone, by keyboard and by ear."""

import base64
import json
import os
import re
import subprocess
import sys
from html import unescape
from urllib.parse import unquote

import nbformat
import pytest
from bs4 import BeautifulSoup
from chromium import Chromium, find
from filelock import FileLock
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.course.build import NOTEBOOKS
from course_lib.course.site import build_site, main
from course_lib.fetch import ROOT

AXE = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\x90 and so on").decode()

needs_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: make site-test")


def marked(function):
    """Of tests that need a browser."""
    return pytest.mark.site(pytest.mark.skipif(not find(), reason="there is no Chromium")(function))


def small(*cells):
    head = ("# 01 · Small\n\n- **You will do:** little.\n- **You will learn:** what a page\n  looks like.\n"
            "- **Minutes:** 7")
    return new_notebook(cells=[new_markdown_cell(head), *cells])


def make(tmp_path, *cells, **more):
    (tmp_path / "notebooks").mkdir(exist_ok=True)
    nbformat.write(small(*cells), tmp_path / "notebooks" / "01_small.ipynb")
    build_site(tmp_path / "site", tmp_path / "notebooks", **more)
    return (tmp_path / "site" / "01_small.html").read_text(encoding="utf-8")


def shown(data, **metadata):
    return new_output("display_data", data=data, metadata=metadata)


def test_a_figure_is_a_file_with_its_alternative_text(tmp_path):
    cell = new_code_cell("show(figure)", outputs=[
        shown({"image/png": PNG, "text/plain": "x"}, **{"image/png": {"alt": 'A "line" & 2 < 3.'}})])
    image = BeautifulSoup(make(tmp_path, cell), "html.parser").main.img
    assert image["alt"] == 'A "line" & 2 < 3.' and (image["width"], image["height"]) == ("640", "400")
    assert (tmp_path / "site" / image["src"]).read_bytes() == base64.b64decode(PNG)


def test_formulas_are_mathml(tmp_path):
    symbolic = shown({"text/latex": r"$\displaystyle \sum_{i=0}^{k} \alpha^{i}$"})
    html = make(tmp_path, new_markdown_cell(r"Inline $\alpha^{k+1}$" "\n\n" r"$$E = \frac{1}{1 - \alpha}$$"),
                new_code_cell("sum", outputs=[symbolic]))
    assert html.count("<math") == 3 and "<mfrac>" in html and "$" not in html
    for bad in (r"$\left( x$", r"$\alpah$"):
        with pytest.raises(ValueError, match=r"the formula .* cannot be set"):
            make(tmp_path, new_markdown_cell(bad))
    assert "<mfrac>" in (tmp_path / "site" / "01_small.html").read_text(encoding="utf-8")  # as it was
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notebooks", "site"]


def test_hints_and_solutions_are_folded(tmp_path):
    fold = "<details><summary>Solution</summary>\n\n```python\nanswer = 4\n```\n\n</details>"
    details = BeautifulSoup(make(tmp_path, new_markdown_cell(fold)), "html.parser").main.details
    assert details.summary.text == "Solution" and "answer = 4" in details.text
    assert not details.has_attr("open")


def test_links_lead_to_pages_to_the_repository_or_nowhere(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "GLOSSARY.md").write_text("# Glossary\n\n## α\n\nA chance.\n", encoding="utf-8")
    text = ("[a](01_small.ipynb#Twice) [b](GLOSSARY.md) [c](../data/manifest.json) [d](https://x.org) "
            "[e](#Twice)")
    cells = [new_markdown_cell(each) for each in (text, "## Twice\n\nOne.", "## Twice\n\nTwo.")]
    page = BeautifulSoup(make(tmp_path, *cells), "html.parser").main
    assert {a.text: a["href"] for a in page.p.find_all("a")} == {
        "a": "01_small.html#Twice", "b": "glossary.html", "d": "https://x.org", "e": "#Twice"}
    assert [h["id"] for h in page.find_all("h2")] == ["Twice", "Twice-2"]
    page = BeautifulSoup(make(tmp_path, *cells, source="https://host/tree/"), "html.parser").main
    assert page.find("a", string="c")["href"] == "https://host/tree/data/manifest.json"


def test_a_notebook_opens_in_colab_and_binder_where_the_repository_is_github_s(tmp_path):
    for source, wanted in (("", {}), ("https://host/o/r/blob/main", {}), ("https://github.com/o/r/blob/1f", {
            "Open in Colab": "https://colab.research.google.com/github/o/r/blob/online/01_small.ipynb",
            "Open in Binder":
                "https://mybinder.org/v2/gh/o/r/HEAD?urlpath=lab/tree/notebooks/01_small.ipynb"})):
        page = BeautifulSoup(make(tmp_path, source=source), "html.parser").main
        assert {a.text: a["href"] for a in page.select(".run a")} == wanted
        assert page.find_all("img") == []


def test_what_cells_print_is_shown_as_it_is(tmp_path):
    html = make(tmp_path, new_code_cell("1 < 2", outputs=[
        new_output("stream", text="a < b\n\x1b[31mred\x1b[0m\n"),
        shown({"text/html": "<table><thead><tr><th></th><th>k</th></tr></thead></table>", "text/plain": "k"}),
        shown({"text/markdown": "**bold**", "text/plain": "bold"}),
        shown({"application/vnd.jupyter.widget-view+json": {}, "text/plain": "<slider>"})]))
    output = BeautifulSoup(html, "html.parser").select_one(".output")
    assert output.pre.text == "a < b\nred\n" and output.strong.text == "bold" and "<slider>" in output.text
    assert len(output.find_all("th")) == 1  # the corner is no heading


def test_the_search_index_knows_sections(tmp_path):
    make(tmp_path, new_markdown_cell("Before.\n\n## Bonus\n\nThe *bonus* token."),
         new_code_cell("k = 4", outputs=[new_output("stream", text="printed")]))
    index = (tmp_path / "site" / "search-index.js").read_text(encoding="utf-8")
    places = json.loads(index.removeprefix("const PLACES = ").removesuffix(";\n"))
    assert places[0][:4] == ["01_small.html", "01 · Small", "01-·-Small", "01 · Small"]
    assert places[1] == ["01_small.html", "01 · Small", "Bonus", "Bonus", "The bonus token. k = 4"]


def test_the_command_says_in_one_line_what_is_wrong(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["--out", str(tmp_path / "file" / "site")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("site: ") and said.count("\n") == 1


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The committed notebooks' site, made once, whatever the number of workers."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with FileLock(folder / "site.lock"):
        if not (folder / "site").exists():
            build_site(folder / "site", NOTEBOOKS)
    return folder / "site"


def values(html, tag, attribute):
    """An attribute of every tag that has it: read by pattern, since whole pages take a parser seconds."""
    return [unescape(value) for value in re.findall(rf'<(?:{tag})\b[^>]*? {attribute}="([^"]*)"', html)]


def test_every_notebook_is_there_with_its_figures(site):
    course = [path.stem for path in sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))]
    for name, after in zip(course, [*course[1:], None], strict=True):
        html = (site / f"{name}.html").read_text(encoding="utf-8")
        cells = [each for each in nbformat.read(NOTEBOOKS / f"{name}.ipynb", 4).cells if "outputs" in each]
        alts = [output.metadata["image/png"]["alt"] for cell in cells for output in cell.outputs
                if "image/png" in output.get("data", {})]
        assert values(html, "img", "alt") == alts
        assert html.count('<div class="code">') == len(cells)
        assert re.findall(r'<a rel="next" href="([^"]*)"', html) == ([f"{after}.html"] if after else [])
        assert {f"{each}.html" for each in course} <= set(values(html, "a", "href"))


def test_links_and_pictures_resolve_inside_the_folder(site):
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    ids = {name: set(values(html, r"\w+", "id")) for name, html in pages.items()}
    for name, html in pages.items():
        loaded = values(html, "img|script", "src") + values(html, "link", "href")
        assert [target for target in loaded if target != "data:," and not (site / target).is_file()] == []
        for target in values(html, "a", "href"):
            if re.match(r"\w+:", target):
                continue
            file, _, fragment = target.partition("#")
            assert (file or name) in ids and (not fragment or unquote(fragment) in ids[file or name]), \
                f"{name}: {target}"


@pytest.fixture(scope="module")
def browser():
    browser = Chromium()
    yield browser
    browser.close()


@marked
def test_pages_fit_a_phone_and_load_nothing_from_elsewhere(site, browser):
    browser.size(360)
    for path in sorted(site.glob("*.html")):
        browser.goto(path.as_uri())
        assert browser.errors == [], path.name
        assert {address.split(":")[0] for address in browser.requests} <= {"file", "data"}, path.name
        assert browser.run("document.documentElement.scrollWidth") <= 360, f"{path.name} scrolls sideways"
        stuck = browser.run("""[...document.querySelectorAll("main *")].filter((e) => e.clientWidth
            && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "auto"
            && e.tabIndex < 0).length""")
        assert stuck == 0, f"{path.name}: {stuck} wide parts cannot be scrolled by keyboard"


@marked
def test_a_page_is_used_by_keyboard_alone(site, browser):
    browser.size(1200)
    browser.goto((site / "02_geometric_formula.html").as_uri())
    browser.press("Tab")
    assert browser.run("document.activeElement.textContent") == "Skip to the text"
    browser.press("Enter")
    assert browser.run("document.activeElement.id") == "main"
    for _ in range(60):
        browser.press("Tab")
        if browser.run("document.activeElement.tagName") == "SUMMARY":
            break
    assert browser.run("document.activeElement.closest('main') && !document.activeElement.parentNode.open")
    browser.press("Enter")
    assert browser.run("document.activeElement.parentNode.open")
    others = """[onclick], [tabindex]:not([tabindex='0'], main)"""
    assert browser.run(f'document.querySelectorAll("{others}").length') == 0


@marked
def test_search_finds_sections_and_leads_to_them(site, browser):
    browser.goto((site / "index.html").as_uri())
    browser.run("document.getElementById('asked').value = 'truncated geometric'")
    browser.run("document.getElementById('asked').focus()")
    browser.press("Enter")
    browser.wait_for("location.pathname.endsWith('search.html') && document.readyState === 'complete'")
    links = browser.run("[...document.querySelectorAll('#found a')].map((a) => a.getAttribute('href'))")
    assert any(link.startswith("02_geometric_formula.html#") for link in links)
    file, _, fragment = links[0].partition("#")
    assert f'id="{unquote(fragment)}"' in (site / file).read_text(encoding="utf-8")
    found = {}
    for question in ("alpha", "α", "xyzzy", "bonus*(", "<b>"):
        browser.goto((site / "search.html").as_uri() + f"?q={question}")
        assert browser.errors == []
        found[question] = browser.run("document.getElementById('count').textContent")
    assert found["alpha"] == found["α"] and found["alpha"][0].isdigit()
    assert found["xyzzy"].startswith("Nothing holds all of: xyzzy")


def complaints(browser):
    """What axe calls serious or critical on the page as it is now, every fold open.

    The colours of code are few and met in the first cells; thousands of words in them would take a minute.
    """
    browser.run(f"{AXE.read_text(encoding='utf-8')};0")
    browser.run("for (const code of [...document.querySelectorAll('.code pre')].slice(12)) "
                "code.textContent = code.textContent")
    browser.run("for (const fold of document.querySelectorAll('details')) fold.open = true")
    return browser.run("""axe.run(document, {resultTypes: ["violations"], preload: false}).then((found) =>
        found.violations.filter((each) => ["serious", "critical"].includes(each.impact))
        .map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`))""")


@marked
@needs_axe
def test_axe_finds_nothing_serious(site, browser):
    browser.size(360)
    found = {}
    for path in sorted(site.glob("*.html")):
        browser.goto(path.as_uri() + ("?q=bonus" if path.name == "search.html" else ""))
        found[path.name] = complaints(browser)
    assert {name: said for name, said in found.items() if said} == {}


@marked
@needs_axe
def test_axe_finds_nothing_serious_in_any_state_of_the_explorer(site, browser):
    browser.size(1200)
    browser.goto((site / "explorer.html").as_uri())
    for state in ("roofline", "counters"):  # of which nothing pasted is an error
        browser.run(f"document.querySelector('[value={state}]').click()")
        assert complaints(browser) == []


def test_the_site_needs_little(tmp_path):
    """What requirements-site.txt leaves out, `make site` and `make online` do not load."""
    heavy = {"torch", "pandas", "scipy", "matplotlib", "typer", "jupytext", "IPython"}
    code = f"import sys, course_lib.course.site, course_lib.course.online; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    every = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    few = (ROOT / "requirements-site.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in few if not line.startswith("#") and line not in every] == []
