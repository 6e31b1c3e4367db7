"""Execute notebooks cell by cell; their pages are `site.py`'s.

`make course` runs the learner's notebooks as they are, edited or not, into a folder of its own;
the committed ones are never touched.
"""

import multiprocessing
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from course_lib.course.explore import LIVE
from course_lib.course.outline import outline
from course_lib.course.progress import OFF
from course_lib.files import write_text

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}

MOST_WORKERS = 4  # notebooks at a time: each loads the models
TIMES = "course"  # in a notebook's metadata: how long it ran, and its slowest cell, in whole seconds
SLOW = 60  # seconds; a cell that takes longer must be made shorter, or two


def execute(notebook: NotebookNode, folder: Path, label: str, timeout: float = 120) -> NotebookNode:
    """Run `notebook` in `folder` and store the outputs in it; one line of progress on stderr.

    timeout: seconds a cell may take. Of times and versions the metadata keep the notebook's seconds alone.
    Raises ValueError naming the notebook, the cell (counted from 1) and the error.
    """
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    total, seconds = len(notebook.cells), [0.0]
    with client.setup_kernel(env={**os.environ, "COURSE_PROGRESS": OFF}):  # nobody learns here
        for index, cell in enumerate(notebook.cells):
            _progress(f"{label}  cell {index + 1} of {total}")
            started = time.perf_counter()
            try:
                client.execute_cell(cell, index)
            except CellExecutionError as error:
                raise _failed(label, index, f"raised {error.ename}: {error.evalue}") from None
            except CellTimeoutError:
                raise _failed(label, index, f"took longer than {timeout:g} s") from None
            except DeadKernelError:
                raise _failed(label, index, "ended its kernel: out of memory?") from None
            seconds.append(time.perf_counter() - started)
    _progress(f"{label}  {total} cells", end="\n")
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(LIVE, None)  # sliders of a kernel that has ended
    times = {"seconds": round(sum(seconds)), "slowest_cell": round(max(seconds))}
    notebook.metadata = nbformat.from_dict(METADATA | {TIMES: times})
    return notebook


def execute_to(folder: Path, notebooks: Path, timeout: float = 120) -> list[str]:
    """Execute `notebooks/NN_*.ipynb` into `folder/notebooks/`, and write the site of those in `folder/html/`.

    As many at a time as there are cores, at most MOST_WORKERS, and the cores shared among them.
    A notebook that fails leaves what it made earlier alone and does not stop the others.
    Returns a sentence for each failure; none means all is well.
    """
    from course_lib.course.site import build_site  # here: whoever only builds notebooks has no use for it

    paths = sorted(notebooks.glob("[0-9][0-9]_*.ipynb"))
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    for gone in set((folder / "notebooks").glob("*.ipynb")) - {folder / "notebooks" / p.name for p in paths}:
        gone.unlink()
    cores = os.cpu_count() or 1
    workers = max(1, min(cores, MOST_WORKERS, len(paths)))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _share_cores, (cores // workers,)) as pool:
        found = list(pool.map(_execute_one, paths, repeat(folder), repeat(timeout)))
    build_site(folder / "html", folder / "notebooks", texts=notebooks)
    return [failure for failure in found if failure is not None]


def _share_cores(threads: int) -> None:
    """Kernels of this process compute with so many threads: threads that share a core wait for each other."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def _execute_one(path: Path, folder: Path, timeout: float) -> str | None:
    """Why it failed, if it did."""
    notebook = nbformat.read(path, as_version=4)
    try:
        execute(notebook, path.parent, label=path.name, timeout=timeout)
    except ValueError as error:
        return str(error)
    write_text(folder / "notebooks" / path.name, nbformat.writes(notebook) + "\n")
    return None


def run_command(folder: Path, notebooks: Path, timeout: float = 120) -> int:
    """`python -m course_lib run`: the exit status, 1 if a notebook failed; why is on stderr, and how long
    each ran beside the minutes that it declares for a reader."""
    failures = execute_to(folder, notebooks, timeout)
    for failure in failures:
        print(f"run: {failure}", file=sys.stderr)
    for one in outline(notebooks):
        path = folder / "notebooks" / f"{one.name}.ipynb"
        times = nbformat.read(path, as_version=4).metadata.get(TIMES) if path.exists() else None
        if times:
            slow = f" ({SLOW} are meant: was the machine busy?)" if times["slowest_cell"] > SLOW else ""
            print(f"{one.name}: ran in {times['seconds']} s (for a reader: {one.minutes} minutes); "
                  f"slowest cell {times['slowest_cell']} s{slow}", file=sys.stderr)
    return int(bool(failures))


def paths_in_outputs(notebook: NotebookNode) -> list[tuple[int, str]]:
    """(cell counted from 1, path) for each output that names a folder of this machine."""
    here = {str(Path.home()), sys.prefix, tempfile.gettempdir(), str(Path(__file__).resolve().parents[2])}
    folders = sorted((folder for folder in here if len(folder) > 1), key=len, reverse=True)
    found = []
    for number, cell in enumerate(notebook.cells, 1):
        # The pictures are base64, in which a short path can turn up by chance.
        text = "\n".join(
            str({k: v for k, v in o.get("data", {}).items() if not k.startswith("image/")})
            + str(o.get("text", ""))
            for o in cell.get("outputs", ())
        )
        match = re.search("|".join(rf"(?<![\w/]){re.escape(folder)}/[^\s'\"]*" for folder in folders), text)
        if match:
            found.append((number, match[0]))
    return found


def _failed(label: str, index: int, what: str) -> ValueError:
    _progress("", end="\n")
    return ValueError(f"{label}: cell {index + 1} {' '.join(what.split())}; nothing was written.")


def _progress(text: str, end: str = "") -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end=end, file=sys.stderr, flush=True)
    elif end and text:
        print(text, file=sys.stderr, flush=True)
