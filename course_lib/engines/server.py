"""Start an engine for as long as it is needed: when the block ends, however it ends, the engine is gone."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import httpx

# How each is started, and what makes it speculate with a draft model; names of vLLM 0.33, SGLang 0.5.23 and
# llama.cpp of late 2026. TensorRT-LLM takes a file: start it yourself.
ENGINES = {
    "vllm": ("vllm serve {target} --port {port} {speculative}",
             '{"method": "draft_model", "model": "{draft}"}'),
    "sglang": ("python -m sglang.launch_server --model-path {target} --port {port} --enable-metrics "
               "{speculative}",
               "--speculative-algorithm STANDALONE --speculative-draft-model-path {draft} "
               "--speculative-num-steps {k} --speculative-eagle-topk 1 --speculative-num-draft-tokens {k+1}"),
    "llama_cpp": ("llama-server -m {target} --port {port} --metrics {speculative}",
                  "-md {draft} --spec-type draft-simple --spec-draft-n-max {k}"),
}
Key = TypeVar("Key")
_POLITE = 15.0  # seconds between asking an engine to end and making it


class Start(NamedTuple):
    """An engine to be started: its command, the address at which it will answer, where its output goes."""

    command: Sequence[str]
    base: str
    log: Path


@contextmanager
def serving(start: Start, timeout: float = 600.0) -> Iterator[str]:
    """Start an engine and yield its address once it is healthy; then end it. Errors: see `serving_all`."""
    with serving_all({0: start}, timeout) as (up, problems):
        if problems:
            raise problems[0]
        yield up[0]


@contextmanager
def serving_all(starts: Mapping[Key, Start],
                timeout: float = 600.0) -> Iterator[tuple[dict[Key, str], dict[Key, ValueError]]]:
    """Start engines together and wait until base/health answers 200 for each; then end all they started.

    Yields the addresses of those that are up, and for the others what became of them: something answers at
    base already (it would be measured instead), the command cannot run or ends early (with the last line it
    said), or it is not healthy within timeout seconds. Ended also on failure, on Ctrl-C and when this process
    is asked to terminate, children included (they share its process group; a kill -9 of this process cannot
    be answered).
    """
    client = httpx.Client(timeout=2.0)  # one for all: to make it is slow, and engines starting need the cores
    previous = None
    if threading.current_thread() is threading.main_thread():
        previous = signal.signal(signal.SIGTERM, _interrupt)  # so that the block is left as by Ctrl-C
    processes, up, problems = {}, {}, {}
    try:
        for key, start in starts.items():
            try:
                processes[key] = _begin(client, start)
            except ValueError as error:
                problems[key] = error
        until = time.monotonic() + timeout
        for key, process in processes.items():
            try:
                _wait(client, process, starts[key], until, timeout)
                up[key] = starts[key].base
            except ValueError as error:
                problems[key] = error
        yield up, problems
    finally:
        try:
            client.close()
            _end(list(processes.values()))
        finally:
            if previous is not None:
                signal.signal(signal.SIGTERM, previous)


def engine_command(serve: str, speculative: str, port: int, k: int, target: str = "",
                   draft: str = "") -> list[str]:
    """The arguments of a command line in which {port}, {target}, {draft}, {k} and {k+1} are filled in.

    serve: such as those of ENGINES; its word {speculative} becomes `speculative`, and nothing for k = 0.
    speculative: words, or for vLLM the JSON of --speculative-config without num_speculative_tokens, such as
    {"method": "ngram", "prompt_lookup_max": 4}. Raises ValueError for other input.
    """
    words = _words(serve, "--serve")
    if "{port}" not in serve or "{speculative}" not in words:
        raise ValueError("the command to serve needs {port} and, as a word of its own, {speculative}.")
    names = {"{port}": str(port), "{target}": target, "{draft}": draft, "{k}": str(k), "{k+1}": str(k + 1)}
    for name in ("{target}", "{draft}"):
        if name in serve + speculative and not names[name]:
            raise ValueError(f"the command has {name}, and nothing says what that is: give --pair, or "
                             "--target and --draft.")
    if speculative.startswith("-"):
        flags = _words(speculative, "--speculative")
    else:
        try:
            settings = dict(json.loads(speculative))
        except (ValueError, TypeError):
            raise ValueError(f"{speculative!r} is neither flags nor a JSON object: write what makes the "
                             "engine speculate, for vLLM what --speculative-config takes, without "
                             "num_speculative_tokens.") from None
        flags = ["--speculative-config", json.dumps(settings | {"num_speculative_tokens": k})]
    filled = [part for word in words
              for part in ((flags if k else []) if word == "{speculative}" else [word])]
    return [re.sub(r"\{(port|target|draft|k|k\+1)\}", lambda name: names[name[0]], word) for word in filled]


def _words(text: str, option: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{option} is {text!r}, which no shell could read ({str(error).lower()}): close "
                         "every quote, and write a backslash twice.") from None


def _begin(client: httpx.Client, start: Start) -> subprocess.Popen:
    if _healthy(client, start.base, any_answer=True):
        raise ValueError(f"something answers at {start.base} already: stop it, or choose another port.")
    with open(start.log, "ab") as file:
        try:
            return subprocess.Popen(start.command, stdout=file, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise ValueError(f"{start.command[0]} cannot be started: {error.strerror}.") from None


def _wait(client: httpx.Client, process: subprocess.Popen, start: Start, until: float,
          timeout: float) -> None:
    while not _healthy(client, start.base):
        if process.poll() is not None:
            lines = [line for line in start.log.read_text(errors="replace").splitlines() if line.strip()]
            said = f": {lines[-1].strip()[:200]}" if lines else ""
            raise ValueError(f"the engine ended (status {process.returncode}) before it served{said}. "
                             f"{start.log} has all it said.")
        if time.monotonic() > until:
            raise ValueError(f"the engine is not healthy after {timeout:g} s; {start.log} has what it said.")
        time.sleep(0.1)


def _healthy(client: httpx.Client, base: str, any_answer: bool = False) -> bool:
    try:
        return client.get(f"{base}/health").status_code == 200 or any_answer
    except httpx.HTTPError:
        return False


def _end(processes: Sequence[subprocess.Popen]) -> None:
    try:
        for process in processes:
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + _POLITE
        for process in processes:
            process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in processes:
            _signal(process, signal.SIGKILL)  # the process, or children that outlived it
        for process in processes:
            process.wait()


def _signal(process: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # nobody is left in the group
        pass


def _interrupt(*_) -> None:
    raise KeyboardInterrupt
