"""The README's map is the territory: its links lead somewhere, its rooms and notebooks are all there are."""

import json
import re

from course_lib.fetch import ROOT
from course_lib.recordings import recording

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


def test_the_speedups_are_those_of_the_recordings():
    rows = re.findall(r"^\| (chat|code|json) \| (\d.*?) \| (\d.*?) \|$", README, re.MULTILINE)
    assert len(rows) == 3
    for column, name in enumerate(("sweep-cpu.json", "sweep-cpu-lookup.json"), 1):
        routes = json.loads(recording(name).read_text(encoding="utf-8"))["routes"]
        for row in rows:
            best = max((line for line in routes[row[0]]["loads"]["1"]["table"] if line.get("measured")),
                       key=lambda line: line["measured"])
            assert row[column] == (f"{best['measured']:.2f}× [{best['measured_low']:.2f}, "
                                   f"{best['measured_high']:.2f}] at k = {best['k']}")
