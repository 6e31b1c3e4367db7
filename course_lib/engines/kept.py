"""Requests that are made once: what is finished lies in a file, and a run that was stopped goes on from it.

The first line says what is measured; every other line is one finished request: [kind, number, answer].
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from course_lib.engines.client import Answer, ask_all

Job = tuple[str, int]  # a kind of request, and of which prompt


def read_kept(path: Path, settings: dict) -> dict[Job, object]:
    """What an earlier run with these settings finished; a new file if there is none.

    Raises ValueError where the file is of other settings.
    """
    raw = path.read_bytes() if path.exists() else b""
    whole = raw[:raw.rfind(b"\n") + 1]  # a run that was killed may have left half a line
    try:
        first, *rest = [json.loads(line) for line in whole.splitlines()] or [settings]
        done = {(kind, number): answer for kind, number, answer in rest}
    except (ValueError, TypeError):
        first, done = None, {}
    if first != settings:
        raise ValueError(f"{path} holds requests of another measurement: remove it, or name another --out")
    if whole:
        os.truncate(path, len(whole))
    else:
        path.write_text(json.dumps(settings) + "\n", encoding="utf-8")
    return done


def each_once(stage: str, jobs: Sequence[Job], work: Callable[[str, int], object], path: Path,
              done: dict[Job, object], concurrency: int, progress: Callable[[str, int, int], None]) -> float:
    """Do the jobs that are not in done, `concurrency` at a time, and keep each answer; returns the seconds.

    work: makes the request; its ValueError is a failure. The others are still tried, unless several fail in a
    row. Then raises ValueError with the first failure, once what was under way is kept.
    """
    left, lock, started = [job for job in jobs if job not in done], threading.Lock(), time.perf_counter()
    finished = len(jobs) - len(left)
    with open(path, "a", encoding="utf-8") as file:
        def one(job: Job) -> Answer:
            nonlocal finished
            try:
                answer = work(*job)
            except ValueError as error:
                return Answer(error="failed", detail=str(error))
            with lock:
                done[job] = answer
                file.write(json.dumps([*job, answer]) + "\n")
                file.flush()
                finished += 1
                progress(stage, finished, len(jobs))
            return Answer()

        failed = [answer for answer in ask_all(one, left, concurrency) if answer.error]
    if failed:
        first = next(answer for answer in failed if answer.error != "not sent")
        raise ValueError(f"{len(failed)} of {len(jobs)} requests failed ({stage}). {first.detail}. What is "
                         f"finished is kept in {path}: run the same again to go on")
    return time.perf_counter() - started
