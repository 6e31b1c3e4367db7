"""From the decision to what an engine is started with: one k for all routes, and flags to paste.

An engine has one number of drafts for all its traffic, while every route has its own best k. Where they
disagree, the k is taken that decodes the whole mix fastest, each route with the share of tokens it had in
the measurement: times add up, so speedups average harmonically. The document is what `sweep.decide` returns.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence

from course_lib.page import one_line

OFF = "leave speculation off"
ENGINES = {"vllm": "vLLM 0.33", "sglang": "SGLang 0.5.23", "tensorrt_llm": "TensorRT-LLM (YAML)",
           "llama_cpp": "llama.cpp"}
LARGEST = 1024  # where the last range ends; vLLM keeps the last k beyond it


def one_k(document: dict) -> dict[int, dict]:
    """By load, the one k for all routes: {"k", "speedup", "low", "high", "routes": {ROUTE: {...}}}.

    k: drafts a round, 0 where the interval's lower end is not above 1. speedup, low, high: of the mix at the
    best k, even where that is too little to switch it on; None where unknown. Of each route: best_k and best
    (speedup, 1 where its decision is off), here (its speedup at the one k) and loss, the share of its
    speed given up, 0 or more but for a route whose own decision is off while its point is above 1.
    """
    routes = document["routes"]
    return {load: _mix({name: (found["tokens"], found["loads"][str(load)]) for name, found in routes.items()
                        if str(load) in found["loads"]}) for load in all_loads(document)}


def groups(chosen: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """[(load, k), ...] by load as runs of one k: [(first load, last load, k), ...]."""
    runs: list[tuple[int, int, int]] = []
    for load, k in chosen:
        if runs and runs[-1][2] == k:
            runs[-1] = (runs[-1][0], load, k)
        else:
            runs.append((load, load, k))
    return runs


def schedule(chosen: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The loads as vLLM's [[first batch, last batch, k], ...], without gaps, from 1 on.

    Between two measured loads the k of the larger one holds, since a fuller batch leaves less to gain;
    beyond the largest nothing was measured, so speculation is off there.
    """
    ranges: list[list[int]] = []
    last = 0
    for load, k in [*chosen, (max(LARGEST, chosen[-1][0] + 1), 0)]:
        if ranges and ranges[-1][2] == k:
            ranges[-1][1] = load
        else:
            ranges.append([last + 1, load, k])
        last = load
    return ranges


def settings(document: dict) -> dict[str, str]:
    """What to paste, by engine: "vllm", "sglang" and "llama_cpp" for a shell, "tensorrt_llm" as YAML.

    Names of options are those of vLLM 0.33, SGLang 0.5.23 and the current TensorRT-LLM and llama.cpp. Only
    vLLM changes k with the load; the others get the k of the smallest load that speculates, and a comment
    that says what the other loads would take. Off at every load gives the sentence "leave speculation off".
    """
    chosen = [(load, found["k"]) for load, found in one_k(document).items()]
    if not any(k for _, k in chosen):
        return dict.fromkeys(ENGINES, OFF)
    target, draft, sampled = models(document)
    meta = document["meta"]["traces"][0]
    first = next(run for run in groups(chosen) if run[2])
    k = first[2]
    others = "; ".join(f"{loads(*run[:2])}: {f'k = {run[2]}' if run[2] else OFF}"
                       for run in groups(chosen) if run != first)
    for_loads = f"# for {loads(*first[:2])}" + (f" (at {others})" if others else "")
    if lookup := meta.get("lookup"):
        return _with_lookup(target, meta.get("draft"), lookup, k, for_loads)
    argmax = ("\n# measured with a sampled draft, but this engine takes the draft's likeliest token:"
              "\n# measure again with --draft-mode greedy" if sampled else "")
    config = {"method": "draft_model", "model": draft, "num_speculative_tokens": max(k for _, k in chosen),
              "num_speculative_tokens_per_batch_size": schedule(chosen),
              "draft_sample_method": "probabilistic" if sampled else "greedy"}
    pretty = "{\n    " + ",\n    ".join(f'"{name}": {json.dumps(value, ensure_ascii=False)}'
                                       for name, value in config.items()) + "\n  }"
    t, d = shlex.quote(target), shlex.quote(draft)
    return {
        "vllm": f"# {_known([load for load, _ in chosen])}\n"
                f"vllm serve {t} \\\n"
                f"  --speculative-config {shlex.quote(pretty)}",
        "sglang": f"{for_loads}{argmax}\n"
                  f"python -m sglang.launch_server --model-path {t} \\\n"
                  f"  --speculative-algorithm STANDALONE --speculative-draft-model-path {d} \\\n"
                  f"  --speculative-num-steps {k} --speculative-eagle-topk 1 "
                  f"--speculative-num-draft-tokens {k + 1}",
        "tensorrt_llm": f"{for_loads}\n"
                        "speculative_config:\n"
                        "  decoding_type: DraftTarget\n"
                        f"  max_draft_len: {k}\n"
                        f"  speculative_model: {json.dumps(draft, ensure_ascii=False)}\n"
                        f"  max_concurrency: {first[1]}",
        "llama_cpp": f"{for_loads}{argmax}\n"
                     f"llama-server -m {_gguf(target)} -md {_gguf(draft)} \\\n"
                     f"  --spec-type draft-simple --spec-draft-n-max {k}",
    }


def models(document: dict) -> tuple[str, str, bool]:
    """Names of target and draft, and whether drafts were sampled at a temperature above 0."""
    meta = document["meta"]["traces"][0]
    names = [one_line(str(meta.get(role) or role)) for role in ("target", "draft")]
    if meta.get("lookup"):
        names[1] = f"lookup, then {names[1]}," if meta.get("draft") else "lookup"
    return names[0], names[1], meta.get("draft_mode") == "sample" and bool(meta.get("temperature"))


def all_loads(document: dict) -> list[int]:
    """The loads of any route, ascending."""
    return sorted({int(load) for found in document["routes"].values() for load in found["loads"]})


def loads(first: int, last: int) -> str:
    """"load 4", or "load 4 to 16"."""
    return f"load {first}" if first == last else f"load {first} to {last}"


def _known(measured: Sequence[int]) -> str:
    """What holds where nothing was measured, as in `schedule`."""
    if len(measured) == 1:
        return f"measured at load {measured[0]} alone: off above it"
    return f"measured at loads {', '.join(map(str, measured))}: between them the k of the larger, off above"


def number(value: float | None) -> float | None:
    """The value where it is a finite number, else None: one prompt has no interval."""
    return float(value) if value is not None and math.isfinite(value) else None


def _mix(routes: dict[str, tuple[int, dict]]) -> dict:
    """The one k of these routes at one load, each with its tokens and its entry in the document."""
    rows = {name: {row["k"]: row for row in found["table"] if number(row["predicted"])}
            for name, (_, found) in routes.items()}
    shared = sorted(set.intersection(*(set(table) for table in rows.values())))
    weights = {name: tokens for name, (tokens, _) in routes.items()}
    total = sum(weights.values())

    def speedup(k: int) -> float:
        return total / sum(weights[name] / table[k]["predicted"] for name, table in rows.items())

    best = max(shared, key=speedup, default=None)
    if best is None or speedup(best) <= 1:
        k, mean, low, high = 0, None if best is None else speedup(best), None, None
    else:
        mean = speedup(best)
        halves = {name: _half(table[best]) for name, table in rows.items()}
        low = high = None
        if None not in halves.values():
            # Prompts of different routes are independent: their errors add in squares.
            half = mean**2 / total * math.hypot(*(weights[name] * halves[name] / table[best]["predicted"] ** 2
                                                  for name, table in rows.items()))
            low, high = mean - half, mean + half
        k = best if low is not None and low > 1 else 0
    if len(routes) == 1:  # a mix of one is that route: the same decision, by the same words
        (_, found), = routes.values()
        k = found["best_k"]
    each = {}
    for name, (_, found) in routes.items():
        own = number(found["speedup"]) if found["best_k"] else 1.0
        here = rows[name][k]["predicted"] if k else 1.0
        each[name] = {"best_k": found["best_k"], "best": own, "here": here,
                      "loss": 1 - here / own if own else None}
    return {"k": k, "speedup": mean, "low": low, "high": high, "routes": each}


def _with_lookup(target: str, draft: str | None, lookup: Sequence[int], k: int,
                 for_loads: str) -> dict[str, str]:
    """Settings where drafts come from the text. Engines copy a whole run behind one match, ours looks up
    every token anew: close, and to be measured on the engine."""
    if draft:
        alone = "# measured with lookup before the draft, which this engine does not do: measure one of them"
        return dict.fromkeys(ENGINES, alone) | {
            "llama_cpp": f"{for_loads}\n# llama-server puts an n-gram --spec-type before the draft model of "
                         "-md:\n# see its docs/speculative.md for the flags of your release"}
    shortest, longest = lookup
    config = json.dumps({"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_max": longest,
                         "prompt_lookup_min": shortest})
    t = shlex.quote(target)
    return {
        "vllm": f"{for_loads}\nvllm serve {t} \\\n  --speculative-config {shlex.quote(config)}",
        "sglang": f"{for_loads}\n# NGRAM verifies a tree of matches, not a chain: measure on the engine\n"
                  f"python -m sglang.launch_server --model-path {t} \\\n"
                  f"  --speculative-algorithm NGRAM --speculative-num-draft-tokens {k + 1}",
        "tensorrt_llm": f"{for_loads}\nspeculative_config:\n  decoding_type: NGram\n  max_draft_len: {k}\n"
                        f"  max_matching_ngram_size: {longest}",
        "llama_cpp": f"{for_loads}\n# its matches have 12 tokens if not told otherwise: llama-server --help\n"
                     f"llama-server -m {_gguf(target)} --spec-type ngram-simple",
    }


def _gguf(model: str) -> str:
    return shlex.quote(model.rstrip("/").rpartition("/")[2] + ".gguf")


def _half(row: dict) -> float | None:
    low, high = number(row["predicted_low"]), number(row["predicted_high"])
    return None if low is None or high is None else (high - low) / 2
