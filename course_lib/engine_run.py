"""A real engine with the embedded pair, swept, checked and compared in half an hour: `make engine`.

    engine-vllm-sweep.jsonl         every k, route and load with the draft model (`engines.sweep.read`)
    engine-vllm-ngram-sweep.jsonl   the same with vLLM's n-gram drafts
    engine-vllm-check-t0.json       `engine check` of k = 3, greedy text alone
    engine-vllm-check-t1.json       with sampled text: what vLLM's CPU build makes of it
    engine-vllm-metrics-*.txt       what that engine exposed before and after the first check, and after both
    engine-vllm-log.txt             the lines on speculation in its log
    engine-served-t0.parquet        the one pass through this engine (`Trace.load`)
    engine-served-t1.parquet        at temperature 1
    engine-served.json              how far both are from the same pass in this process

All k run at the same time and take turns, on one thread each: what a noisy machine takes from one, its
neighbours lose, too. Everything is made in build/engine, where a run that was stopped goes on, and moved to
data/recordings at the end.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import numpy as np

from course_lib.bars import progress_bar
from course_lib.engines.check import check
from course_lib.engines.scrape import fetch_text
from course_lib.engines.server import ENGINES, Start, engine_command, serving_all
from course_lib.engines.sweep import sweep, unfinished
from course_lib.fetch import DRAFT_FOLDER, PROPOSES, ROOT, TARGET_FOLDER, fetch
from course_lib.files import write_text
from course_lib.options import progress
from course_lib.prompts import Prompt, load_prompts
from course_lib.recordings import RECORDINGS
from course_lib.served import measure_served
from course_lib.traces import Trace, score_trace

KS, LOADS, LIMIT, NEW_TOKENS = (0, 3, 5, 7, 9), (1, 4), 5, 48
CHECKED = 3  # the k whose engine is checked
SAMPLES = 20  # texts a side and short prompt: enough to see half of them turned into others
NGRAM = json.dumps({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4})
PORT = 8200
WORK = ROOT / "build" / "engine"
COMMAND = "make engine"
# The exposition is 50 kB, mostly of histograms' buckets. These are what a reader of speculation looks at.
SHOWN = ("vllm:spec_decode", "vllm:generation_tokens", "vllm:prompt_tokens_total", "vllm:request_success",
         "vllm:num_requests", "vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count")


def main(arguments: list[str]) -> int:
    """`python -m course_lib.engine_run PYTHON`: the interpreter of the environment that has vLLM."""
    if len(arguments) != 1 or not Path(arguments[0]).exists():
        print("engine_run: give the interpreter of an environment that has vLLM (`make engine` does).",
              file=sys.stderr)
        return 2
    fetch(progress)
    started = time.monotonic()
    try:
        WORK.mkdir(parents=True, exist_ok=True)
        record(partial(_engines, serve_command(Path(arguments[0]).absolute())), WORK)
        for path in sorted(WORK.iterdir()):
            shutil.move(path, RECORDINGS / path.name)
    except ValueError as error:
        print(f"engine_run: {error}", file=sys.stderr)
        return 2
    print(f"recorded in {(time.monotonic() - started) / 60:.0f} minutes. Write what was made, and when, into "
          "data/manifest.json and run `python -m course_lib manifest --write`.")
    return 0


def serve_command(python: Path) -> str:
    """The command to serve, for `engine_command`. float32 on both kinds of machine: exactness can be seen.

    On a CPU one thread each and no compilation; and the OpenMP that vLLM's CPU build is linked against has
    to be there first, or it ends at its first import. `vllm serve` fails in that build.
    """
    openmp = python.parent.parent / "lib" / "libiomp5.so"
    words = ["env", "HF_HUB_OFFLINE=1"]
    if openmp.exists():
        words += [f"LD_PRELOAD={openmp}", "OMP_NUM_THREADS=1", "VLLM_CPU_OMP_THREADS_BIND=nobind",
                  "VLLM_CPU_KVCACHE_SPACE=1"]
    words += [str(python), "-m", "vllm.entrypoints.openai.api_server", "--dtype", "float32",
              "--max-model-len", "2048"]
    words += ["--enforce-eager"] if openmp.exists() else ["--gpu-memory-utilization", "0.1"]
    return shlex.join(words) + " --model {target} --port {port} --served-model-name smol {speculative}"


def record(engines: Callable, out: Path) -> None:
    """Make what is not there of the recordings, into the folder out. engines: `_engines`, for the command
    that serves."""
    asked = load_prompts(limit=LIMIT)
    routes = list(dict.fromkeys(prompt.route for prompt in asked))
    every_k = [(k, TARGET_FOLDER) for k in KS]
    with_draft, with_ngrams = "engine-vllm-sweep.jsonl", "engine-vllm-ngram-sweep.jsonl"
    with progress_bar() as bar:
        def swept(urls: list[str], name: str) -> None:
            sweep(dict(zip(KS, urls, strict=True)), asked, LOADS, out / name, None, NEW_TOKENS,
                  command=COMMAND, progress=bar)

        checked = (out / "engine-vllm-metrics-mixed.txt").exists()  # the last that a check writes
        if not checked or unfinished(out / with_draft, KS, routes, LOADS):
            log = None if checked else out / "engine-vllm-log.txt"
            with engines(every_k, ENGINES["vllm"][1], log) as urls:
                swept(urls, with_draft)
                if not checked:
                    _check(urls[0], urls[KS.index(CHECKED)], asked, out, bar)
        if not (out / "engine-served.json").exists():
            with engines([(0, TARGET_FOLDER), (0, DRAFT_FOLDER)]) as (target, draft):
                _served(target, draft, asked, out, bar)
        if unfinished(out / with_ngrams, KS, routes, LOADS):
            with engines(every_k, NGRAM) as urls:
                swept(urls, with_ngrams)


def compare(served: Trace, prompts: list[Prompt]) -> dict:
    """The same texts scored here, in float32: how many greedy matches differ, and the largest differences of
    log-probabilities (nats), for the target (p) and the draft (q)."""
    from course_lib.pairs import load_pair
    from course_lib.sampling import Sampling

    with tempfile.TemporaryDirectory() as folder:
        # An engine proposes from the whole vocabulary: the draft without its reduced head.
        for file in DRAFT_FOLDER.iterdir():
            if file.name != PROPOSES:
                Path(folder, file.name).symlink_to(file)
        pair = load_pair(str(TARGET_FOLDER), folder, "cpu", "float32")
        here = score_trace(pair, prompts, [text.tolist() for text in served.column("token")],
                           Sampling(served.meta["temperature"]))
    found = {"temperature": served.meta["temperature"], "tokens": len(here.rows),
             "matches_differ": int((here.rows.match != served.rows.match).sum())}
    if served.meta["temperature"]:
        for name in ("logp", "logq"):
            found[f"max_difference_{name}"] = float(np.abs(here.rows[name] - served.rows[name]).max())
    return found


@contextmanager
def _engines(serve: str, wanted: Sequence[tuple[int, Path]], speculative: str = NGRAM,
             log: Path | None = None) -> Iterator[list[str]]:
    """Engines with k drafts a round of a model, for each (k, model), started together; their addresses.
    log: where the lines of the engine of k = CHECKED on its drafts are kept."""
    progress(f"starting {len(wanted)} engines")
    with tempfile.TemporaryDirectory() as folder:
        starts = {}
        for number, (k, model) in enumerate(wanted):
            command = engine_command(serve, speculative, PORT + number, k, str(model), str(DRAFT_FOLDER))
            starts[number] = Start(command, f"http://127.0.0.1:{PORT + number}",
                                   Path(folder, f"engine-{number}.log"))
        with serving_all(starts) as (up, problems):
            if problems:
                raise next(iter(problems.values()))
            yield list(up.values())
        if log is not None:
            said = starts[[k for k, _ in wanted].index(CHECKED)].log.read_text(encoding="utf-8",
                                                                               errors="replace")
            write_text(log, "".join(f"{line}\n" for line in said.splitlines()
                                    if "SpecDecoding metrics:" in line))


def _check(base: str, spec: str, asked: list[Prompt], out: Path, bar) -> None:
    about = {"date": time.strftime("%Y-%m-%d"), "command": COMMAND,
             "engine": httpx.get(f"{spec}/version").json() | {"k": CHECKED, "dtype": "float32"}}
    write_text(out / "engine-vllm-metrics-before.txt", _metrics(spec))
    for temperature, scrape in ((0.0, "after"), (1.0, "mixed")):
        found = check(base, spec, "smol", "smol", [prompt.messages for prompt in asked],
                      new_tokens=NEW_TOKENS, temperature=temperature, samples=SAMPLES, concurrency=8,
                      timeout=600.0, progress=bar)
        write_text(out / f"engine-vllm-check-t{temperature:g}.json",
                   json.dumps(about | found, indent=1) + "\n")
        write_text(out / f"engine-vllm-metrics-{scrape}.txt", _metrics(spec))


def _served(target: str, draft: str, asked: list[Prompt], out: Path, bar) -> None:
    compared = []
    for temperature in (0.0, 1.0):
        path = out / f"engine-served-t{temperature:g}.parquet"
        kept = path.with_name(f"{path.name}.requests")
        trace = measure_served([target], [draft], asked, kept, temperature, NEW_TOKENS, command=COMMAND,
                               progress=bar)
        trace.save(path)
        kept.unlink()
        compared.append(compare(trace, asked))
    write_text(out / "engine-served.json", json.dumps(compared, indent=1) + "\n")


def _metrics(base: str) -> str:
    lines = fetch_text(base).splitlines()
    kept = [line for line in lines if line.removeprefix("# HELP ").removeprefix("# TYPE ").startswith(SHOWN)]
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
