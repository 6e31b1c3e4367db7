"""Is this machine ready for the course? One row a question, each with what to do about it.

Every row is made by a function of what was found, so that each can be tried with a machine that
does not exist; `examine` is the one place that looks at this one.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from course_lib.fetch import DRAFT_FOLDER, MODELS, ROOT, TARGET_FOLDER, intact

OLDEST_PYTHON = (3, 11)
INSTALL = "pip install -c requirements.lock -r requirements.txt -e ."
GIB = 2**30
GOOD_SPEED = 10  # tokens a second of plain decoding; below it the live cells take minutes
NEED_MEMORY, GOOD_MEMORY = 2, 4  # GiB free: the small pair in float32 and a notebook; that and a browser
NEED_DISK = 1  # GiB free: both models (0.4), the download (0.1), executed notebooks


class Row(NamedTuple):
    """One answer. status: "ok"; "warn", the course works, but worse; "fail", it must be fixed first."""

    check: str
    status: str
    found: str
    remedy: str = ""


def examine() -> list[Row]:
    """Look at this machine. Loads torch to ask about the GPU, the slowest question (seconds)."""
    return [
        python_row(sys.version_info[:3]),
        *package_rows((ROOT / "requirements.txt").read_text(encoding="utf-8"), importlib.metadata.version),
        memory_row(_memory()),
        disk_row(shutil.disk_usage(ROOT).free / GIB),
        threads_row(_cores(), os.environ.get("OMP_NUM_THREADS")),
        gpu_row(shutil.which("nvidia-smi") is not None, *_torch_gpu()),
        model_row(TARGET_FOLDER, DRAFT_FOLDER, os.environ.get("COURSE_PAIR", "smol")),
        kernel_row(importlib.util.find_spec("ipykernel") is not None, sys.prefix != sys.base_prefix),
    ]


def speed_row(decode: Callable[[], float]) -> Row:
    """decode: decodes with the pair that the notebooks load, and returns tokens a second."""
    try:
        speed = decode()
    except Exception as error:  # whatever it is, here it is the answer
        said = " ".join(str(error).split())[:160] or type(error).__name__
        return Row("speed", "fail", f"the pair does not decode ({said})", "see the rows above")
    found = f"{speed:.0f} tokens a second"
    if speed < GOOD_SPEED:
        return Row("speed", "warn", found, "close other programs; live cells will take their time")
    return Row("speed", "ok", found)


def decode_a_little(tokens: int = 32) -> float:
    """Tokens a second of the pair's plain decoding, on one prompt (seconds, with the loading)."""
    from course_lib.pairs import load_pair
    from course_lib.prompts import load_prompts
    from course_lib.speculate import decode_plain

    pair = load_pair(os.environ.get("COURSE_PAIR", "smol"))
    prompt = [pair.encode(load_prompts(["chat"], limit=1)[0].messages)]
    decode_plain(pair, prompt, max_new_tokens=4)  # what the first step sets up, later ones find ready
    done = decode_plain(pair, prompt, max_new_tokens=tokens)
    return len(done.tokens[0]) / done.seconds


def usable(rows: list[Row]) -> bool:
    """Can the course run here?"""
    return all(row.status != "fail" for row in rows)


def table(rows: list[Row]):
    """The rows as a rich table."""
    from rich.table import Table

    marks = {"ok": "[green]✓ ok[/]", "warn": "[yellow]! warn[/]", "fail": "[red]✗ fail[/]"}
    drawn = Table(box=None, pad_edge=False)
    for column in ("check", "", "found", "what to do"):
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(row.check, marks[row.status], row.found, row.remedy)
    return drawn


def python_row(version: tuple[int, int, int]) -> Row:
    found = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        need = ".".join(map(str, OLDEST_PYTHON))
        return Row("Python", "fail", found, f"install Python {need} or newer and make .venv with it")
    return Row("Python", "ok", found)


def package_rows(requirements: str, version: Callable[[str], str]) -> list[Row]:
    """One row for all good packages, and one for each in trouble.

    requirements: the text of requirements.txt. version: package name -> installed version, raising
    PackageNotFoundError.
    """
    from packaging.requirements import Requirement

    rows, good = [], 0
    for line in requirements.splitlines():
        if not (text := line.split("#")[0].strip()):
            continue
        wanted = Requirement(text)
        try:
            found = version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            rows.append(Row(wanted.name, "fail", f"missing (needs {wanted.specifier})", INSTALL))
            continue
        if wanted.specifier.contains(found, prereleases=True):
            good += 1
        else:
            rows.append(Row(wanted.name, "fail", f"{found} (needs {wanted.specifier})", INSTALL))
    return [Row("packages", "ok", f"{good} as requirements.txt asks"), *rows] if good else rows


def memory_row(free: float) -> Row:
    """free: GiB that programs can still take."""
    found = f"{free:.1f} GiB free"
    if free < NEED_MEMORY:
        return Row("memory", "fail", found, f"close programs: the small pair needs {NEED_MEMORY} GiB")
    if free < GOOD_MEMORY:
        return Row("memory", "warn", found, "keep one notebook open at a time")
    return Row("memory", "ok", found)


def disk_row(free: float) -> Row:
    """free: GiB on the disk that holds the course."""
    found = f"{free:.1f} GiB free"
    if free < NEED_DISK:
        return Row("disk", "fail", found, f"make room: models and pages need {NEED_DISK} GiB")
    return Row("disk", "ok", found)


def threads_row(cores: int, omp: str | None) -> Row:
    """cores: those this process may use. omp: the OMP_NUM_THREADS variable, None if unset."""
    if omp is None:
        return Row("threads", "ok", f"{cores} cores, OMP_NUM_THREADS not set")
    found = f"{cores} cores, OMP_NUM_THREADS={omp}"
    if not omp.isdigit() or not 1 <= int(omp) <= cores:
        return Row("threads", "warn", found, "unset OMP_NUM_THREADS: threads that share a core are slow")
    if int(omp) < cores:
        return Row("threads", "warn", found, "unset OMP_NUM_THREADS to use all cores")
    return Row("threads", "ok", found)


def gpu_row(driver: bool, name: str | None, torch_build: str | None) -> Row:
    """driver: nvidia-smi is there. name: the GPU torch sees. torch_build: its version, None if absent."""
    if name:
        return Row("GPU", "ok", name)
    if driver and torch_build:
        return Row("GPU", "warn", f"there is a driver, but torch {torch_build} sees no GPU",
                   "install the torch build for your CUDA version (pytorch.org)")
    return Row("GPU", "ok", "none; the small pair needs none")


def model_row(target: Path, draft: Path, pair: str) -> Row:
    """target, draft: the folders that fetch fills. pair: the pair the notebooks will load."""
    missing = [folder.name for folder in (target, draft) if not intact(folder)]
    if not missing:
        return Row("model", "ok", f"target and draft in {_short(MODELS)}")
    found = f"{' and '.join(missing)} missing or damaged in {_short(MODELS)}"
    if pair != "smol":
        return Row("model", "warn", found, f"nothing for COURSE_PAIR={pair}; else python -m course_lib fetch")
    return Row("model", "fail", found, "python -m course_lib fetch")


def kernel_row(ipykernel: bool, in_environment: bool) -> Row:
    """ipykernel: it can be imported here. in_environment: this Python is a virtual environment's."""
    if not ipykernel:
        return Row("Jupyter kernel", "fail", "this Python has none", INSTALL)
    if not in_environment:
        return Row("Jupyter kernel", "ok", "this Python's, which is not in a virtual environment")
    return Row("Jupyter kernel", "ok", f"python3 of {_short(Path(sys.prefix))}")


def _memory() -> float:
    import psutil

    return psutil.virtual_memory().available / GIB


def _cores() -> int:
    """Cores this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _torch_gpu() -> tuple[str | None, str | None]:
    try:
        import torch
    except ImportError:  # a row of its own says that it is missing
        return None, None
    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()} ({torch.cuda.device_count()} seen)", torch.__version__
    if torch.backends.mps.is_available():
        return "Apple GPU (mps)", torch.__version__
    return None, torch.__version__


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
