"""The README's map is the territory: its links lead somewhere, its rooms and notebooks are all there are."""

import re

from course_lib.fetch import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
NOT_ROOMS = {"__init__", "__main__"}


def test_links_lead_somewhere():
    targets = re.findall(r"\]\((?!\w+:|#)([^)\s]+)\)", README)
    assert targets and [target for target in targets if not (ROOT / target).exists()] == []


def test_every_room_is_on_the_map_and_exists():
    table = README.split("## The rooms of the package")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    package = ROOT / "course_lib"
    rooms = {path.stem for path in package.glob("*.py")} - NOT_ROOMS
    rooms |= {path.parent.name for path in package.glob("*/__init__.py")}
    assert listed == rooms


def test_every_notebook_is_on_the_map():
    listed = set(re.findall(r"\(notebooks/(\w+)\.ipynb\)", README))
    assert listed == {path.stem for path in (ROOT / "notebooks" / "src").glob("[0-9][0-9]_*.py")}
