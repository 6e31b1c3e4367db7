"""Protects the pages beside the notebooks: the glossary's words are used, and quoted messages are printed."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pip
import pytest

from course_lib.course.build import NOTEBOOKS, sources
from course_lib.course.source import read_source

PACKAGE = NOTEBOOKS.parent / "course_lib"
PAGES = [pytest.param(path, id=path.name) for path in sorted(NOTEBOOKS.glob("*.md"))]
GLOSSARY = (NOTEBOOKS / "GLOSSARY.md").read_text(encoding="utf-8")
TROUBLES = (NOTEBOOKS / "TROUBLESHOOTING.md").read_text(encoding="utf-8")
# What a term is called where the notebooks decline it.
SPOKEN = {"conditional rate": "conditional", "unconditional rate": "unconditional", "tree": "trees",
          "Jensen's inequality": "Jensen", "geometric formula": "geometric", "held-out": "held[- ]out",
          "truncated geometric": "truncated",
          "counters": "counter", "survivors": "survivor", "live": r'banner\("live', "k": "k",
          "simulated": r'banner\("simulated', "recorded": r'banner\("recorded',
          "computed": r'banner\("computed'}


def entries():
    """(term, its text, the two digits of the notebook it names)."""
    for part in re.split(r"^### ", GLOSSARY, flags=re.MULTILINE)[1:]:
        term, text = part.split("\n", 1)
        yield term, text, re.search(r"^First in \[(\d\d)\]", text, re.MULTILINE)[1]


ENTRIES = [pytest.param(*entry, id=entry[0].replace(" ", "-")) for entry in entries()]
TEXTS = {path.stem[:2]: "\n".join(cell.text for cell in read_source(path)) for path in sources([])}


def anchors(page):
    """The anchors that a page's headings make, as GitHub does."""
    heads = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", PAGES)
def test_every_link_of_a_page_resolves(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        page = path.parent / file if file else path
        assert page.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(page.read_text(encoding="utf-8")), f"{target}: there is no such heading"


def pattern(term):
    spoken = SPOKEN.get(term, re.escape(term)).replace(r"\ ", r"[\s-]+")
    return rf"(?<![\w-]){spoken}(?![a-z])" if len(term) <= 2 else rf"(?<!\w){spoken}"


@pytest.mark.parametrize(("term", "text", "number"), ENTRIES)
def test_a_term_is_used_in_the_notebook_it_names_and_explained_in_none_before(term, text, number):
    assert re.search(pattern(term), TEXTS[number], re.IGNORECASE), f"notebook {number} does not say {term!r}"
    for earlier in sorted(other for other in TEXTS if other < number):
        stressed = rf"(?<!\*)\*{{1,2}}(the )?{pattern(term)}s?\.?\*{{1,2}}(?!\*)"
        assert not re.search(stressed, TEXTS[earlier], re.IGNORECASE), f"{earlier} explains {term!r} already"


@pytest.mark.parametrize(("term", "text", "number"), ENTRIES)
def test_an_entry_is_a_sentence_or_two(term, text, number):
    said = text.strip().split("\n\n")[0]
    assert 20 < len(said) < 330 and said.endswith("."), said


def test_the_glossary_is_in_order_and_names_nothing_twice():
    terms = [term.replace("α", "alpha").lower() for term, *_ in entries()]
    assert terms == sorted(set(terms)) and len(terms) >= 60


def template(node):
    """The text that an expression makes, … for what is filled in; None if it makes none that we can read."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [template(side) or "…" for side in (node.left, node.right)]
    elif isinstance(node, ast.IfExp):
        parts = [template(node.body) or "…"]
    else:
        return None
    return re.sub("…+", "…", "".join(parts))


@pytest.fixture(scope="module")
def printed():
    """All texts that the package can print, and what Jupyter and pip print here."""
    from jupyter_client import kernelspec
    from jupyter_server import serverapp

    files = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    said = [template(node) for text in files for node in ast.walk(ast.parse(text))]
    nothing = subprocess.run([sys.executable, "-I", "-S", "-c", "import course_lib"], cwd=NOTEBOOKS,
                             capture_output=True, text=True, check=False)
    unknown = kernelspec.NoSuchKernel("…")
    said += [nothing.stderr, f"{kernelspec.__name__}.{type(unknown).__name__}: {unknown}"]
    said.append(inspect.getsource(serverapp).replace("%i", "…"))
    resolver = Path(pip.__file__).parent / "_internal" / "resolution"
    said += [path.read_text("utf-8") for path in resolver.rglob("*.py")]
    return "\n".join(text for text in said if text)


MESSAGES = [pytest.param(head, message, id=head[:40].replace(" ", "-")) for head, message in re.findall(
    r"^##+ ([^\n]+)\n(?:(?!^#)[^\n]*\n)*?\n```\n([^\n]+)\n```$", TROUBLES, re.MULTILINE)]


@pytest.mark.parametrize(("head", "message"), MESSAGES)
def test_a_quoted_message_is_one_that_is_printed(head, message, printed):
    """Compared clause by clause: a message may be put together from several places."""
    clauses = re.split(r"…|[:,;.] |[()`]|^○|^✗|\.$", re.sub(r"^[a-z]+( [a-z]+)?: ", "", message))
    clauses = [clause.strip() for clause in clauses if len(clause.strip()) >= 12]
    assert clauses, "nothing is left to compare"
    for clause in clauses:
        assert clause in printed, f"nothing prints: {clause}"


def test_every_trouble_quotes_what_is_printed():
    assert len(MESSAGES) == TROUBLES.count("\n```\n") // 2 == len(set(m.values[1] for m in MESSAGES)) >= 30


ROOT = NOTEBOOKS.parent
GUIDES = [pytest.param(path, id=path.name) for path in (*sorted(NOTEBOOKS.glob("*.md")), ROOT / "README.md",
                                                        ROOT / "CONTRIBUTING.md")]


@pytest.mark.parametrize("path", GUIDES)
def test_commands_and_targets_that_a_page_names_exist(path):
    import typer

    from course_lib import __main__ as cli

    known = set(typer.main.get_command(cli.app).commands)
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"python -m course_lib (?!COMMAND)([a-z]\w*)", text)) <= known
    modules = re.findall(r"python -m (course_lib(?:\.\w+)+)", text)
    assert all((ROOT / f"{name.replace('.', '/')}.py").exists() for name in modules), modules
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets


def test_files_that_contributors_are_sent_to_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:course_lib|tests|notebooks|data|engines)/[\w./]+\.(?:py|md|json|txt)", text))
    real = {name for name in named if not re.search("N[NA]", name)}
    places = (ROOT, ROOT / "course_lib")
    assert len(real) >= 10
    assert [name for name in real if not any((place / name).exists() for place in places)] == []
