"""Protects classes: tracks fit their time, their notebooks stand alone, slides fit a projector."""

import builtins
import json
import re
import shutil
import subprocess
import sys
import tarfile

import nbformat
import pytest
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib import doctor
from course_lib.course import bundle, slides
from course_lib.course.build import make
from course_lib.course.outline import NOTEBOOKS, outline
from course_lib.course.source import names_defined, names_used, read_source
from course_lib.course.tracks import SITTING, TRACKS, Part, Pause, Track, renewed, schedule, track
from course_lib.course.workshop import NEEDED, cut, write

INSTRUCTOR = NOTEBOOKS / "INSTRUCTOR.md"
SOURCE = '''# %% [markdown]
# # 98 · Small
#
# - **You will do:** a little.
# - **You will learn:** less.
# - **You need:** nothing.
# - **Minutes:** 20

# %%
import math

check = print

# %% [markdown]
# ## One

# %%
far = 1
near = far + 1

# %%
unused = 3

# %% [markdown]
# ## Two
#
# See [one](98_small.ipynb#One) and [the glossary](GLOSSARY.md).

# %%
print(near, math.pi)

# %% [markdown]
# **Exercise 98.1** · easy · 5 minutes. Return 1.

# %% tags=["exercise"]
def one():
    # solution
    return 1
    # end

check(one)

# %% [markdown] tags=["hints"]
# - a
# - b

# %% [markdown]
# **Exercise 98.2** · hard · 6 minutes. Return 2.

# %% tags=["exercise"]
def two():
    # solution
    return 2
    # end

check(two)

# %% [markdown] tags=["hints"]
# - a
# - b

# %% [markdown]
# ## Three
#
# The end.
'''


@pytest.fixture
def small(tmp_path):
    """A small source, and its notebook."""
    path = tmp_path / "src" / "98_small.py"
    path.parent.mkdir()
    path.write_text(SOURCE, encoding="utf-8")
    notebook = make(path)[tmp_path / "98_small.ipynb"]
    nbformat.write(notebook, tmp_path / "98_small.ipynb")
    return path, notebook


@pytest.mark.parametrize("name", TRACKS)
def test_a_track_fits_its_time_and_nobody_sits_too_long(name):
    chosen, sitting = track(name), 0
    slots = schedule(chosen, outline())
    for slot in slots:
        rest = isinstance(slot.part, Pause) and slot.part.title in ("break", "lunch")
        sitting = 0 if rest else sitting + slot.minutes
        assert sitting <= SITTING, f"{sitting} minutes without a break at {slot.start}"
    assert chosen.minutes * 0.85 <= slots[-1].start + slots[-1].minutes <= chosen.minutes


@pytest.mark.parametrize("name", TRACKS)
def test_every_track_has_something_to_do_and_goes_from_a_round_to_a_decision(name):
    parts = [part for part in track(name).parts if isinstance(part, Part)]
    numbers = [part.number for part in parts]
    assert numbers == sorted(set(numbers)) and (numbers[0], numbers[-1]) == ("00", "12")
    assert sum(len(part.exercises) for part in parts) >= 4


def test_the_tables_for_instructors_are_those_of_the_notebooks():
    page = INSTRUCTOR.read_text(encoding="utf-8")
    assert page.count("<!-- track:") == len(TRACKS)
    assert page == renewed(page, outline()), "run python -m course_lib.course.tracks"


def test_instructors_have_a_word_on_every_notebook():
    page = INSTRUCTOR.read_text(encoding="utf-8")
    for one in outline():
        words = re.search(rf"^\*\*{one.number}\*\* (.+?)(?=^$)", page, re.MULTILINE | re.DOTALL)
        assert words and "Say:" in words[1] and "stall" in words[1], one.name


@pytest.mark.parametrize("part, message", [
    (Part("98", ("Four",)), "notebook 98 has no section 'Four': it has One, Two, Three"),
    (Part("97", ("One",)), "there is no notebook 97"),
    (Part("98", ("One",), ("98.1",)), "the sections chosen of notebook 98 hold no exercise 98.1"),
])
def test_a_part_that_does_not_exist_is_refused(small, tmp_path, part, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        schedule(Track("x", 10, (part,)), outline(tmp_path))
    with pytest.raises(ValueError, match="there is no track 'week': choose from 90min"):
        track("week")


def test_minutes_are_the_exercises_and_twice_the_reading(small, tmp_path):
    (notebook,) = outline(tmp_path)
    assert sum(section.minutes for section in notebook.sections) == pytest.approx(20 - 5 - 6)
    (slot,) = schedule(Track("x", 99, (Part("98", ("One", "Two", "Three"), ("98.2",)),)), [notebook])
    assert slot.minutes == 2 * 9 + 6


def test_a_cut_keeps_what_was_chosen_and_what_it_needs(small):
    source, notebook = small
    shorter = cut(notebook, read_source(source), {"Two"}, {"98.2"})
    text = [cell.source for cell in shorter.cells]
    kept = "\n".join(text)
    assert text[0].startswith("# 98 · Small") and "print(near" in kept and "98.2" in kept
    assert "98.1" not in kept and "unused" not in kept and "The end" not in kept
    (needed,) = [c for c in shorter.cells if "far = 1" in c.source]
    assert NEEDED in needed.metadata["tags"] and needed.metadata["jupyter"]["source_hidden"]
    counts = [cell.execution_count for cell in shorter.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("name", TRACKS)
def test_the_notebooks_of_a_class_read_nothing_that_is_not_in_them(name, tmp_path):
    """Executing them all takes minutes; names tell nearly as much."""
    for path in write(name, tmp_path):
        known = {*dir(builtins), "display"}
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                lacking = names_used(cell.source) - known - names_defined(cell.source)
                assert not lacking, f"{path.name}: {', '.join(lacking)}"
                known |= names_defined(cell.source)
            else:
                for target in re.findall(r"\]\((?!\w+:|#)([^)\s]+)\)", cell.source):
                    assert (path.parent / target.split("#")[0]).exists(), f"{path.name}: {target}"


def test_slides_start_at_headings_hide_long_code_and_give_hints_to_the_speaker(small):
    source, notebook = small
    long = next(cell for cell in notebook.cells if "near, math" in cell.source)
    long.source += "\nprint()" * slides.READABLE
    long.outputs = [nbformat.v4.new_output("stream", text="2 3.14\n")]
    made = slides.arranged(cut(notebook, read_source(source), {"Two"}, {"98.2"}))
    kinds = {cell.source[:12]: cell.metadata["slideshow"]["slide_type"] for cell in made.cells}
    assert kinds["# 98 · Small"] == kinds["## Two\n\nSee "] == "slide"
    assert kinds["<details><su"] == "notes" and kinds["far = 1\nnear"] == "skip"
    shown = next(cell for cell in made.cells if "near, math" in cell.source)
    assert "output only" in shown.metadata["tags"]
    assert not any("](" in cell.source for cell in made.cells if cell.cell_type == "markdown")


def test_no_network_for_reveal_is_one_sentence(monkeypatch, tmp_path):
    failed = subprocess.CompletedProcess([], 1, "", "no network")
    monkeypatch.setattr(slides.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match="run this again with a network, or add --no-slides"):
        slides.fetch_reveal(tmp_path / "reveal", lambda text: None)
    assert not (tmp_path / "reveal").exists()


@pytest.mark.site
def test_every_slide_fits_and_asks_nothing_of_the_network(tmp_path):
    from chromium import Chromium, find

    if find() is None:
        pytest.skip("there is no Chromium")
    fetched = next((NOTEBOOKS.parent / "build" / "workshop").glob("*/slides/reveal"), None)
    if fetched is None:
        pytest.skip("there is no reveal.js here: make workshop fetches it")
    shutil.copytree(fetched, tmp_path / "slides" / "reveal")
    pages = slides.write(write("90min", tmp_path), tmp_path / "slides")
    browser = Chromium()
    try:
        browser.size(slides.WIDTH, slides.HEIGHT)
        for page in pages:
            browser.goto(page.as_uri())
            browser.wait_for("document.body.dataset.ready === 'yes'")
            for number in range(browser.run("Reveal.getTotalSlides()")):
                low, right = browser.run("(({bottom, right}) => [bottom, right])"
                                         "(Reveal.getCurrentSlide().getBoundingClientRect())")
                fits = low <= slides.HEIGHT + 1 and right <= slides.WIDTH + 1
                assert fits, f"{page.name}, slide {number + 1}"
                browser.run("Reveal.next()")
            assert browser.errors == [] and all(at.startswith(("file:", "data:")) for at in browser.requests)
    finally:
        browser.close()


ROWS = [doctor.python_row((3, 12, 1)), doctor.memory_row(3.0)]


def answer(rows):
    return json.dumps({"usable": doctor.usable(rows), "checks": [row._asdict() for row in rows]})


def test_a_room_is_read_with_those_first_who_are_not_ready(tmp_path):
    (tmp_path / "ana.json").write_text(answer([*ROWS, doctor.speed_row(lambda: 55.4)]))
    (tmp_path / "bo.json").write_text(answer([doctor.python_row((3, 9, 0))]))
    (tmp_path / "cy.json").write_text("I could not do it")
    done = CliRunner().invoke(cli.app, ["doctor", "--room", str(tmp_path)])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "✗ bo" and "install Python 3.11" in lines[1]
    assert lines[2] == "✗ cy" and "ask for it again" in lines[3]
    assert lines[4] == "✓ ana" and "one notebook" in lines[5] and lines[6] == "    speed: 55 tokens a second"
    assert lines[-1] == "1 of 3 are ready."
    found = json.loads(CliRunner().invoke(cli.app, ["doctor", "--room", str(tmp_path), "--json"]).stdout)
    assert [one["who"] for one in found] == ["bo", "cy", "ana"]
    (tmp_path / "none").mkdir()
    for name, said in (("none", "{} is empty"), ("nowhere", "there is no folder {}: name the folder"),
                       ("ana.json", "{} is a file: name the folder")):
        done = CliRunner().invoke(cli.app, ["doctor", "--room", str(tmp_path / name)])
        assert done.exit_code == 2 and done.stderr.startswith(f"doctor: {said.format(tmp_path / name)}")


def test_speed_is_a_row_and_a_pair_that_does_not_decode_a_failure():
    def broken():
        raise RuntimeError("no\nmodel")

    assert doctor.speed_row(lambda: 3).status == "warn"
    row = doctor.speed_row(broken)
    assert row.status == "fail" and row.found == "the pair does not decode (no model)"


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """A bundle of a small course, with pip not asked."""
    root, target = tmp_path / "repo", tmp_path / "models" / "target"
    for folder in ("course_lib/__pycache__", "data/models/other", ".venv/lib", "build"):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").touch()
    (root / "course_lib" / "room.py").touch()
    target.mkdir(parents=True)
    (target / "model.safetensors").write_bytes(b"weights")
    monkeypatch.setattr(bundle, "ROOT", root)
    monkeypatch.setattr(bundle, "TARGET_FOLDER", target)
    monkeypatch.setattr(bundle, "intact", lambda folder: True)
    monkeypatch.setattr(bundle, "_wheels", lambda folder: (folder / "a.whl").touch())
    return bundle.make(tmp_path / "bundle", lambda text: None)


def test_a_bundle_has_what_it_takes_and_nothing_else(packed):
    with tarfile.open(packed) as archive:
        files = {entry.name for entry in archive if entry.isfile()}
    assert files == {f"bundle/{name}" for name in (
        "install.py", "bundle.json", "wheels/a.whl", "course/course_lib/room.py",
        "course/data/models/target/model.safetensors")}
    assert [path.name for path in packed.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_bundle_that_is_broken_off_leaves_what_was_there(packed, tmp_path, monkeypatch, error):
    def stopped(folder):
        (folder / "half.whl").touch()
        raise error

    monkeypatch.setattr(bundle, "_wheels", stopped)
    before = sorted(path.name for path in tmp_path.iterdir())
    for name in ("bundle", "other"):
        with pytest.raises(error):
            bundle.make(tmp_path / name, lambda text: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == before and packed.exists()


def test_a_bundle_replaces_a_bundle_and_nothing_else(packed, tmp_path):
    assert bundle.make(tmp_path / "bundle", lambda text: None) == packed
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    (tmp_path / "a file").touch()
    for place, words in (("mine", "holds files of another kind"), ("a file", "is a file: name a folder")):
        with pytest.raises(ValueError, match=words):
            bundle.make(tmp_path / place, lambda text: None)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"


def test_a_bundle_is_not_packed_into_itself(packed, tmp_path):
    with pytest.raises(ValueError, match="lies in the course, and would be packed into itself"):
        bundle.make(tmp_path / "repo" / "data" / "bundle", lambda text: None)
    assert not (tmp_path / "repo" / "data" / "bundle").exists()
    assert bundle.make(tmp_path / "repo" / "build" / "bundle", lambda text: None).exists()


def test_a_notebook_that_somebody_worked_in_is_not_overwritten(tmp_path):
    first, *others = write("90min", tmp_path / "class")
    assert write("90min", tmp_path / "class") == [first, *others]  # the same again: nothing is lost
    first.write_text("my answers")
    before = {path: path.read_bytes() for path in (first, *others)}
    with pytest.raises(ValueError, match=f"{first.name} is there, and is not what would be written"):
        write("90min", tmp_path / "class")
    assert {path: path.read_bytes() for path in before} == before


def test_a_bundle_for_another_machine_says_so(packed):
    folder = packed.with_suffix("")
    made_for = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps(made_for | {"python": "3.5"}))
    command = [sys.executable, folder / "install.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "this bundle is for Python 3.5 on" in done.stderr
    assert done.stderr.count("\n") == 1 and not (folder / "course" / ".venv").exists()


def test_no_wheels_and_no_model_are_one_sentence(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "a\nERROR: no network")
    monkeypatch.setattr(bundle.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ValueError, match=r"could not get the wheels \(ERROR: no network\)"):
        bundle._wheels(tmp_path)
    monkeypatch.setattr(bundle, "intact", lambda folder: False)
    with pytest.raises(bundle.FetchError, match="run python -m course_lib fetch first"):
        bundle.make(tmp_path / "bundle")
