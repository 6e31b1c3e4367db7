"""The k sweep of a served engine: cells (route, load, k) measured one by one into a file that can go on.

    requests (client) -> times of every answer; counters before and after -> a cell, one JSON line of the file
    all cells -> `decision.document`

Every k has its own running engine. Where all are up at once the k take turns: at load 1 prompt by prompt,
at others within a route and load; the order moves on, so that a machine that slows down favours nobody.
Engines started one after another cannot take turns, and a drift of the machine looks like an effect of k.

A later load meets prompts that the engine has seen: with prefix caching its times to the first token are
shorter. Compare times to the first token between k at one load, not between loads.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import httpx

from course_lib.engines.client import Answer, ask, ask_all, connect, in_turn, served_model
from course_lib.engines.counters import between, snapshot
from course_lib.files import replacing
from course_lib.prompts import Prompt

FORMAT = "course_lib engine sweep 1"
Key = tuple[str, int, int]
Progress = Callable[[str, int, int], None]


def sweep(urls: Mapping[int, str], prompts: Sequence[Prompt], concurrency: Sequence[int], out: Path,
          model: str | None = None, new_tokens: int = 96, temperature: float = 0.0, timeout: float = 60.0,
          command: str = "", progress: Progress = lambda stage, done, total: None) -> None:
    """Measure every cell of these k, routes and loads that `out` does not hold, and add it there.

    urls: {k: address of an engine with that k}; k = 0 does not speculate. concurrency: requests under way at
    a time. model: as the engines call it; asked if not given. timeout: seconds without a sign of life after
    which a request has failed. A cell is finished once a request of it was answered; failures are in it.
    Raises ValueError where out holds a sweep of other prompts or settings, or a load exceeds the prompts.
    """
    by_route: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_route.setdefault(prompt.route, []).append(prompt)
    for route, asked in by_route.items():
        if max(concurrency) > len(asked):
            raise ValueError(f"concurrency {max(concurrency)} needs as many prompts, and route {route} has "
                             f"{len(asked)}: give more prompts, or a smaller load.")
    settings = {"new_tokens": new_tokens, "temperature": temperature,
                "prompts": {route: [prompt.id for prompt in asked] for route, asked in by_route.items()},
                "sha256": hashlib.sha256(json.dumps([prompt.messages for prompt in prompts]).encode()
                                         ).hexdigest()}
    meta, cells = read(out) if out.exists() else ({}, {})
    for name, value in settings.items():
        if meta and meta["settings"].get(name) != value:
            raise ValueError(f"{out} holds a sweep with other {name}: give the same, or another --out.")
    meta = meta or {"format": FORMAT, "settings": settings, "date": _now(), "command": command}
    ready: dict[str, str] = {}
    with connect(timeout) as client:
        left, done = unfinished(out, sorted(urls), list(by_route), concurrency), 0
        for (route, load), group in groupby(left, key=lambda key: key[:2]):
            ks = [k for _, _, k in group]
            for turn in [ks] if load == 1 else [[k] for k in ks]:
                engines = {k: (urls[k], *_name(client, urls[k], model, ready, temperature)) for k in turn}
                found = _cells(client, engines, by_route[route], load, new_tokens, temperature)
                cells |= {(route, load, k): {"route": route, "concurrency": load, "k": k, **found[k]}
                          for k in turn}
                _write(out, meta, cells)
                done += len(turn)
                progress("cells (route, load, k)", done, len(left))


def unfinished(out: Path, ks: Sequence[int], routes: Sequence[str], concurrency: Sequence[int]) -> list[Key]:
    """The cells (route, load, k) that out lacks, in the order of measuring: of each route and load all k in
    turn, from another one each time."""
    cells = read(out)[1] if out.exists() else {}
    done = {key for key, cell in cells.items() if any(not answer["error"] for answer in cell["answers"])}
    groups = [(route, load) for load in concurrency for route in routes]
    return [(route, load, k) for number, (route, load) in enumerate(groups)
            for k in [*ks[number % len(ks):], *ks[:number % len(ks)]] if (route, load, k) not in done]


def read(path: Path) -> tuple[dict, dict[Key, dict]]:
    """The meta of a sweep's file and its cells by (route, load, k). Raises ValueError for another file."""
    try:
        meta, *cells = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if meta["format"] == FORMAT:
            return meta, {(cell["route"], cell["concurrency"], cell["k"]): cell for cell in cells}
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is no sweep of engines of this version: name another file.") from None


def _name(client: httpx.Client, url: str, model: str | None, ready: dict[str, str],
          temperature: float) -> tuple[str, list[str]]:
    """The model's name at this engine, which has then answered a first request; and what was in the way."""
    if url not in ready:
        try:
            name = model or served_model(url)
        except ValueError as error:  # the requests will fail, and be counted; another cell tries again
            return "", [str(error)]
        # The first request pays for what the engine puts off until then. Not one of the prompts: it would be
        # in the prefix cache.
        ask(client, url, name, [{"role": "user", "content": "Hello."}], 16, temperature)
        ready[url] = name
    return ready[url], []


def _cells(client: httpx.Client, engines: Mapping[int, tuple[str, str, list[str]]],
           prompts: Sequence[Prompt], load: int, new_tokens: int, temperature: float) -> dict[int, dict]:
    """{k: cell} of engines {k: (address, model, warnings)}: one at this load, at load 1 any number."""
    def asking(k: int) -> Callable[[Prompt], Answer]:
        url, name, _ = engines[k]
        return lambda prompt: ask(client, url, name, prompt.messages, new_tokens, temperature)

    before = {k: snapshot(url, name) for k, (url, name, _) in engines.items()}
    started, found = time.perf_counter(), {}
    if load == 1:
        answers = in_turn({k: asking(k) for k in engines}, prompts)
        seconds = {k: sum(answer.seconds for answer in answers[k]) for k in engines}
    else:
        answers = {k: ask_all(asking(k), prompts, load) for k in engines}
        seconds = dict.fromkeys(engines, time.perf_counter() - started)
    for k, (url, name, warnings) in engines.items():
        counters = between(before[k], snapshot(url, name))
        records = [_record(prompt, answer) for prompt, answer in zip(prompts, answers[k], strict=True)]
        found[k] = {"url": url, "model": name, "date": _now(), "seconds": seconds[k], "answers": records,
                    "counters": counters, "warnings": [*warnings, *_warnings(k, counters, records)]}
    return found


def _record(prompt: Prompt, answer: Answer) -> dict:
    error, detail = answer.error, answer.detail
    if error is None and answer.tokens is None:
        error, detail = "uncounted", "the engine does not say how many tokens it sent (usage)"
    return {"prompt": prompt.id, "error": error, "detail": detail, "tokens": answer.tokens,
            "ttft": answer.ttft, "decode": answer.decode, "seconds": answer.seconds, "finish": answer.finish}


def _warnings(k: int, counters: dict, records: Sequence[dict]) -> list[str]:
    """What makes this cell another than it is meant to be."""
    if all(record["error"] for record in records):
        return []
    rounds, generated = counters["rounds"], counters["generated"]
    if k == 0:
        found = [f"the engine of k=0 drafted in {rounds:g} rounds: it is no baseline."] if rounds else []
    else:
        found = list(counters["warnings"])
        if rounds == 0 and not any("no traffic" in each for each in found):
            found.append(f"the engine of k={k} drafted nothing.")
        if counters["k"] not in (None, k):
            found.append(f"the counters say k={counters['k']}, not {k}: is this the engine of k={k}?")
    ours = sum(record["tokens"] or 0 for record in records)
    if generated and abs(generated / max(ours, 1) - 1) > 0.02 and not any(r["error"] for r in records):
        found.append(f"the engine generated {generated:g} tokens meanwhile, and {ours} of them came here: "
                     "somebody else uses it, and is in these counters and times.")
    return found


def _write(path: Path, meta: dict, cells: Mapping[Key, dict]) -> None:
    """The whole file anew, then its name: a kill at any moment leaves the file before or the file after."""
    with replacing(path) as part, open(part, "w", encoding="utf-8") as file:
        for line in (meta, *cells.values()):
            file.write(json.dumps(line, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
