"""The workflows name what exists: targets, files, commands, and the Makefile's versions and time limits."""

import re

import pytest
import yaml

from course_lib.fetch import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_a_workflow_names_exists(path):
    text = path.read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"].values()
    runs = "\n".join(step["run"] for job in jobs for step in job["steps"] if "run" in step)
    for target in re.findall(r"make (\S+)", runs):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
    for file in re.findall(r"requirements[\w-]*\.\w+", text):
        assert (ROOT / file).exists()
    for version in re.findall(r"axe-core@\S+|--nbval-cell-timeout=\d+", runs):
        assert version in MAKEFILE
    commands = set(re.findall(r"course_lib (\w+)", runs))
    assert commands <= {"fetch", "doctor"}  # which tests of their own hold to
