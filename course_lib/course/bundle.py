"""The course on a stick: wheels for this kind of machine, the model, the notebooks, and a script that
installs them where there is no network.

    build/bundle/  install.py  bundle.json  wheels/  course/
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from course_lib.fetch import ROOT, TARGET_FOLDER, FetchError, intact
from course_lib.files import check_replaceable, check_writable, replacing

LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv*", "build", "models", "__pycache__", ".*_cache",
                                     ".hypothesis", ".ipynb_checkpoints", "*.egg-info")
INSTALL = '''"""Install the course from this folder, without a network: python3 install.py"""

import json
import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

here = Path(__file__).resolve().parent
made_for = json.loads((here / "bundle.json").read_text())
this = {"python": "%d.%d" % sys.version_info[:2], "system": platform.system(), "machine": platform.machine()}
if this != made_for:
    sys.exit("install: this bundle is for Python %(python)s on %(system)s %(machine)s: " % made_for
             + "run install.py with that Python, or make a bundle on a machine like this one.")
course = here / "course"
environment = course / ".venv"
print("making", environment)
venv.create(environment, with_pip=True, clear=True)
python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
print("installing (a minute or two)")
subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-compile",
                "--disable-pip-version-check", "--find-links", here / "wheels", "-c", "requirements.lock",
                "-r", "requirements.txt", "-e", "."], cwd=course, check=True)
(environment / "installed").touch()  # what make looks for
subprocess.run([python, "-m", "course_lib", "fetch"], cwd=course, check=True)
status = subprocess.run([python, "-m", "course_lib", "doctor"], cwd=course).returncode
print("Start it with:", environment / ("Scripts" if os.name == "nt" else "bin") / "jupyter", "lab",
      course / "notebooks")
sys.exit(status)
'''


def make(out: Path, say: Callable[[str], None] = print) -> Path:
    """Write the folder `out` and beside it `out`.tar, which is returned. An earlier one is replaced.

    Until the folder is whole it has another name; broken off, it is removed. Raises FetchError where the
    model is not there, ValueError where `out` holds something else, lies in the course, cannot be written,
    or pip cannot get the wheels.
    """
    if not intact(TARGET_FOLDER):
        raise FetchError("the target model is not here: run python -m course_lib fetch first")
    check_replaceable(out, "bundle.json")
    if out.resolve().is_relative_to(ROOT) and not out.resolve().is_relative_to(ROOT / "build"):
        raise ValueError(f"{out} lies in the course, and would be packed into itself: name a folder in build "
                         "or outside")
    packed = out.with_name(f"{out.name}.tar")
    out.parent.mkdir(parents=True, exist_ok=True)
    check_writable(packed)
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _fill(part, say)
        say("packing")
        shutil.rmtree(out, ignore_errors=True)
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    with replacing(packed) as unfinished, tarfile.open(unfinished, "w") as archive:
        archive.add(out, out.name)
    return packed


def _fill(folder: Path, say: Callable[[str], None]) -> None:
    (folder / "wheels").mkdir(parents=True)
    say("wheels of everything in requirements.lock (minutes, several hundred MB)")
    _wheels(folder / "wheels")
    say("the course and the model")
    shutil.copytree(ROOT, folder / "course", ignore=LEFT_BEHIND)
    shutil.copytree(TARGET_FOLDER, folder / "course" / "data" / "models" / TARGET_FOLDER.name)
    (folder / "install.py").write_text(INSTALL, encoding="utf-8")
    machine = {"python": platform.python_version().rpartition(".")[0], "system": platform.system(),
               "machine": platform.machine()}
    (folder / "bundle.json").write_text(json.dumps(machine) + "\n", encoding="utf-8")


def _wheels(folder: Path) -> None:
    """What pip would install here, as wheels; and setuptools, with which the course itself is installed."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "-w", folder]
    everything = ["-c", ROOT / "requirements.lock", "-r", ROOT / "requirements.txt"]
    for wanted in (everything, ["setuptools", "wheel"]):
        done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
            raise ValueError(f"pip could not get the wheels ({reason}): this needs a network, once")
