"""Start an engine for as long as it is needed: when the block ends, however it ends, the engine is gone."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

_POLITE = 15.0  # seconds between asking an engine to end and making it


@contextmanager
def serving(command: Sequence[str], base: str, log: Path, timeout: float = 600.0) -> Iterator[str]:
    """Run `command`, wait until `base`/health answers 200, and yield base; then end all it started.

    log: where its output goes. Ended also on failure, on Ctrl-C and when this process is asked to terminate,
    children included (they share its process group; a kill -9 of this process cannot be answered).
    Raises ValueError where something answers at base already (it would be measured instead), where the
    command cannot run or ends early (with the last line it said), or is not healthy within timeout seconds.
    """
    if _healthy(base, any_answer=True):
        raise ValueError(f"something answers at {base} already: stop it, or choose another port.")
    previous = None
    if threading.current_thread() is threading.main_thread():
        previous = signal.signal(signal.SIGTERM, _interrupt)  # so that the block is left as by Ctrl-C
    process = None
    try:
        with open(log, "ab") as file:
            try:
                process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT,
                                           stdin=subprocess.DEVNULL, start_new_session=True)
            except OSError as error:
                raise ValueError(f"{command[0]} cannot be started: {error.strerror}.") from None
        _wait(process, base, log, timeout)
        yield base
    finally:
        try:
            if process is not None:
                _end(process)
        finally:
            if previous is not None:
                signal.signal(signal.SIGTERM, previous)


def vllm_command(template: str, port: int, k: int, speculative: str) -> list[str]:
    """The arguments of a command line in which {port}, {k} and {speculative} are filled in.

    speculative: JSON of vLLM's --speculative-config without num_speculative_tokens, such as
    {"method": "draft_model", "model": "..."} or {"method": "ngram", "prompt_lookup_max": 4}. {speculative}
    becomes that flag with k in it, and nothing at all for k = 0. Raises ValueError for other input.
    """
    words = shlex.split(template)
    if not words or "{port}" not in template or "{speculative}" not in words:
        raise ValueError("the command to serve needs {port} and, as a word of its own, {speculative}.")
    try:
        settings = dict(json.loads(speculative))
    except (ValueError, TypeError):
        raise ValueError(f"{speculative!r} is not a JSON object: write what --speculative-config takes, "
                         "without num_speculative_tokens.") from None
    flag = ["--speculative-config", json.dumps(settings | {"num_speculative_tokens": k})] if k else []
    return [part for word in words for part in (
        flag if word == "{speculative}" else [word.replace("{port}", str(port)).replace("{k}", str(k))])]


def _wait(process: subprocess.Popen, base: str, log: Path, timeout: float) -> None:
    until = time.monotonic() + timeout
    while not _healthy(base):
        if process.poll() is not None:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            said = f": {lines[-1].strip()[:200]}" if lines else ""
            raise ValueError(f"the engine ended (status {process.returncode}) before it served{said}. {log} "
                             "has all it said.")
        if time.monotonic() > until:
            raise ValueError(f"the engine is not healthy after {timeout:g} s; {log} has what it said.")
        time.sleep(0.1)


def _healthy(base: str, any_answer: bool = False) -> bool:
    try:
        return httpx.get(f"{base}/health", timeout=2.0).status_code == 200 or any_answer
    except httpx.HTTPError:
        return False


def _end(process: subprocess.Popen) -> None:
    try:
        _signal(process, signal.SIGTERM)
        process.wait(_POLITE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _signal(process, signal.SIGKILL)  # the process, or children that outlived it
        process.wait()


def _signal(process: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # nobody is left in the group
        pass


def _interrupt(*_) -> None:
    raise KeyboardInterrupt
