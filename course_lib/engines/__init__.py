"""Engines: whatever an engine prints about its acceptance, read as the same `Acceptance`.

    text -> text.py (samples, objects) -> one file an engine -> reading.py (counts) -> acceptance.py

Reads the Prometheus text of vLLM (V1 and V0), SGLang, TensorRT-LLM and llama.cpp, the JSON of their
responses and benchmarks, and the log lines that people paste.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from course_lib.engines import llama_cpp, sglang, tensorrt_llm, vllm
from course_lib.engines.acceptance import Acceptance, implied_alpha, interpret, pooled
from course_lib.engines.ending import cut_off
from course_lib.engines.reading import Reading, draft_length, pool
from course_lib.engines.text import Scrape, is_json, json_objects

_ENGINES = (vllm, sglang, tensorrt_llm, llama_cpp)

__all__ = ["Acceptance", "called", "implied_alpha", "interpret", "pooled", "promql", "read_all",
           "read_metrics"]


def read_metrics(text: str, k: int | None = None, model: str | None = None) -> Acceptance:
    """The one acceptance in this text.

    text: what an engine printed (metrics, response, benchmark, log). k: drafts a round, where the text does
    not say. model: which one, where there are several.
    Raises ValueError with one sentence: nothing recognised, several (they are named), counts that cannot be.
    """
    found = read_all(text, k)
    if model is not None:
        named = [one for one in found if one.model == model]
        if not named:
            raise ValueError(f"no model {model!r} in this text: there is {_list(found)}.")
        found = named
    if len(found) > 1:
        raise ValueError(f"there are several here: {_list(found)}. Choose one by its model, or cut the text.")
    return found[0]


def read_all(text: str, k: int | None = None) -> list[Acceptance]:
    """Every engine, model and kind of source in this text apart, at least one. Raises as `read_metrics`."""
    draft_length(k)
    readings = list(_readings(text, k))
    found = [interpret(reading) for reading in _pooled(readings) if _says_something(reading)]
    if found:
        return found
    for engine in _ENGINES:
        if re.search(engine.MARK, text, re.MULTILINE):
            raise ValueError(f"{engine.ENGINE}: {cut_off(text) or engine.MISSING}")
    if not text.strip():
        raise ValueError("the text is empty.")
    raise ValueError("nothing here is recognised as speculation counts of vLLM, SGLang, TensorRT-LLM or "
                     "llama.cpp: give a server's /metrics, a response with its metrics, or its log lines.")


def promql(one: Acceptance) -> dict[str, str]:
    """Definition -> PromQL expression, over five minutes, for the engine and model of this acceptance."""
    if one.engine == vllm.V0:
        return {}  # its counters cannot tell accepted drafts from those after a rejection
    selector = f'model_name="{one.model}"' if one.model and one.source == "metrics" else ""
    return _engine(one.engine).promql(selector.replace("\\", "\\\\"), one.k)


def called(one: Acceptance) -> dict[str, str]:
    """Definition -> what this engine calls it anywhere; `Acceptance.reported` is for this text."""
    return vllm.CALLED_V0 if one.engine == vllm.V0 else _engine(one.engine).CALLED


def _engine(name: str):
    return next((engine for engine in _ENGINES if engine.ENGINE == name), vllm)


def _readings(text: str, k: int | None) -> Iterable[Reading]:
    for node, model in json_objects(text):
        for engine in _ENGINES:
            if reading := engine.read_object(node, model, k):
                yield reading
                break
    if is_json(text):
        return  # a response's own text may hold an engine's log line
    scrape, cut = Scrape(text), cut_off(text)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("{", "[{", "data:"))]
    for engine in _ENGINES:
        for reading in engine.read_scrape(scrape, k):
            yield replace(reading, warnings=(*reading.warnings, cut)) if cut else reading
        yield from engine.read_log(lines, k)


def _pooled(readings: list[Reading]) -> list[Reading]:
    """Requests, iterations and benchmarks of one engine, model and k as one."""
    groups: dict[tuple, list[Reading]] = {}
    for reading in readings:
        groups.setdefault((reading.engine, reading.source, reading.model, reading.k), []).append(reading)
    return [pool(group) for group in groups.values()]


def _says_something(reading: Reading) -> bool:
    return any(value is not None for value in (reading.rounds, reading.drafted, reading.accepted,
                                               reading.judged, reading.tokens_per_round, reading.prefix_rate))


def _list(found: list[Acceptance]) -> str:
    return "; ".join(f"{one.reading.who}" + (f", k={one.k}" if one.k else "") for one in found[:8])
