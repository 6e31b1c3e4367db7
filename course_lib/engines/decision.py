"""The cells of an engine's sweep as the document that a decision is made from, and as a table.

speedup    decoding times only, prompt by prompt: how long the engine with k = 0 takes for as many tokens, by
           how long this one took. The wait for the first token, which both need, has a column of its own.
interval   95 %, over prompts. Percentiles of few prompts are what they are: the 99th of 8 is the largest.
predicted  where traces (and round costs) are given: what `replay` and `sweep.decide` say, measured beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from course_lib.intervals import mean_interval, ratio_interval

PERCENTILES = (50, 90, 99)
_ANSWERED = 0.95  # of a cell's requests: with fewer its times are those of the lucky ones


def document(meta: Mapping, cells: Mapping[tuple, dict], traces: Sequence = (), costs=None) -> dict:
    """The sweep as JSON: meta, ks, and by route and load best_k (0: off), decision, reason, speedup,
    speedup_interval and table.

    cells: as `sweep.read` returns them. decision is "speculate" only where the interval's lower end is above
    1, "off" where it is not, and "unknown" without a baseline (k = 0) or any usable k. A row of the table has
    k, requests, answered, failures, ttft and tpot (seconds: mean, low, high, p50 …), tokens_per_second of the
    whole cell with its ends, what the counters say, speedup with its ends, round_cost (in steps of the
    baseline), and predicted_tokens, predicted (each with its ends) and error; None where unknown.
    traces, costs: as `course_lib.sweep.decide` takes them.
    """
    keys = list(cells)
    routes = {}
    for route in dict.fromkeys(key[0] for key in keys):
        loads = {}
        for load in sorted({key[1] for key in keys if key[0] == route}):
            here = {key[2]: cells[key] for key in sorted(keys) if key[:2] == (route, load)}
            plain = here.get(0)
            table = [_row(k, cell, plain) for k, cell in here.items()]
            loads[str(load)] = _decide(table) | {"table": table}
        routes[route] = {"prompts": len(cells[next(key for key in keys if key[0] == route)]["answers"]),
                         "loads": loads}
    found = {"meta": dict(meta), "ks": sorted({key[2] for key in keys}), "routes": routes}
    if traces:
        _predict(found, traces, costs)
    return found


def table(found: dict) -> Group:
    """A `document` for people."""
    settings = found["meta"]["settings"]
    parts = [Text(f"T={settings['temperature']:g}, {settings['new_tokens']} tokens · "
                  f"{found['meta']['date'][:10]} · ms: median / 90th / 99th percentile", style="bold")]
    for route, values in found["routes"].items():
        for load, one in values["loads"].items():
            parts += [Text(""), Text(f"{route}, load {load}: {_choice(one)}. {one['reason']}", style="bold"),
                      _drawn(one["table"])]
            parts += [Text(f"k={row['k']}: {each}", style="yellow") for row in one["table"]
                      for each in [*(f"{n} {kind}" for kind, n in row["failures"].items()), *row["warnings"]]]
    return Group(*parts)


def _row(k: int, cell: dict, plain: dict | None) -> dict:
    answered = [each for each in cell["answers"] if not each["error"]]
    counters = cell["counters"] if answered else {}
    row = {"k": k, "requests": len(cell["answers"]), "answered": len(answered),
           "failures": dict(Counter(each["error"] for each in cell["answers"] if each["error"])),
           "ttft": _times([each["ttft"] for each in answered if each["ttft"] is not None]),
           "tpot": _times([_tpot(each) for each in answered if _tpot(each) is not None]),
           **_named("tokens_per_second", _throughput(cell, answered)),
           **{name: counters.get(name) for name in ("rounds", "tokens_per_round", "prefix_rate",
                                                    "per_position")},
           **_named("speedup", _speedup(answered, plain) if k else None)}
    paid = row["speedup"] and row["tokens_per_round"]
    return row | {"round_cost": row["tokens_per_round"] / row["speedup"] if paid else None,
                  **_named("predicted_tokens", None), **_named("predicted", None), "error": None,
                  "warnings": cell["warnings"]}


def _speedup(answered: Sequence[dict], plain: dict | None):
    """Time the baseline takes for as many tokens, by the time taken; over the prompts both answered."""
    steps = {each["prompt"]: _tpot(each) for each in plain["answers"]} if plain else {}
    both = [each for each in answered if _tpot(each) and steps.get(each["prompt"])]
    if not both:
        return None
    return ratio_interval([steps[each["prompt"]] * (each["tokens"] - 1) for each in both],
                          [each["decode"] for each in both])


def _throughput(cell: dict, answered: Sequence[dict]):
    """Output tokens by the cell's time; its interval is that of a request's own speed, in proportion."""
    if not cell["seconds"] or not answered:
        return None
    total = sum(each["tokens"] for each in answered) / cell["seconds"]
    own = ratio_interval([each["tokens"] for each in answered], [each["seconds"] for each in answered])
    return total, total * own.low / own.mean, total * own.high / own.mean


def _tpot(answer: dict) -> float | None:
    if answer["error"] or not answer["tokens"] or answer["tokens"] < 2 or answer["decode"] is None:
        return None
    return answer["decode"] / (answer["tokens"] - 1)


def _times(values: Sequence[float]) -> dict | None:
    if not values:
        return None
    return _named("mean", mean_interval(values), ("low", "high")) | {
        f"p{percent}": float(np.percentile(values, percent)) for percent in PERCENTILES}


def _named(name: str, interval, ends: Sequence[str] | None = None) -> dict:
    names = (name, *(ends or (f"{name}_low", f"{name}_high")))
    values = (None, None, None) if interval is None else interval
    return {each: None if value is None or math.isnan(value) else float(value)
            for each, value in zip(names, values, strict=True)}


def _decide(rows: Sequence[dict]) -> dict:
    nothing = {"best_k": 0, "decision": "unknown", "speedup": None, "speedup_interval": [None, None]}
    plain = next((row for row in rows if row["k"] == 0), None)
    if plain is None or plain["answered"] < _ANSWERED * plain["requests"]:
        why = f"{plain['answered']} of {plain['requests']} were answered" if plain else "it is missing"
        return nothing | {"reason": f"No baseline, k=0: {why}."}
    usable = [row for row in rows if row["k"] and row["speedup"] is not None
              and row["answered"] >= _ANSWERED * row["requests"]]
    if not usable:
        return nothing | {"reason": "Of no k enough requests were answered to compare it with k=0."}
    best = max(usable, key=lambda row: (row["speedup"], -row["k"]))
    low, high = best["speedup_low"], best["speedup_high"]
    said = f"With k={best['k']} the engine decodes {best['speedup']:.2f} times as fast as with k=0"
    pays = low is not None and low > 1
    if best["speedup"] <= 1:
        reason = f"{said}, and every other k does worse."
    elif low is None:
        reason = f"{said}, but one prompt gives no interval: measure more."
    else:
        reason = f"{said}, and the interval's lower end, {low:.2f}, is above 1." if pays else \
            f"{said}, but the interval's lower end, {low:.2f}, is not above 1."
    return {"best_k": best["k"] if pays else 0, "decision": "speculate" if pays else "off", "reason": reason,
            "speedup": best["speedup"], "speedup_interval": [low, high]}


def _predict(found: dict, traces: Sequence, costs) -> None:
    """Fill in what our own pass over the target's text says of the same routes and k."""
    from course_lib.replay import tokens_per_round
    from course_lib.sweep import check_same, decide

    check_same(traces, costs)
    temperature = found["meta"]["settings"]["temperature"]
    if traces[0].meta["temperature"] != temperature:
        raise ValueError(f"the traces are of temperature {traces[0].meta['temperature']:g}, the sweep of "
                         f"{temperature:g}: compare the same.")
    ks = [k for k in found["ks"] if k]
    tokens = tokens_per_round(traces, ks).set_index(["route", "k"]) if ks else None
    loads = {int(load) for values in found["routes"].values() for load in values["loads"]}
    known = sorted(loads & set(costs.batches)) if costs and ks else []
    decided = decide(traces, costs, ks, known)["routes"] if known else {}
    for route, values in found["routes"].items():
        for load, one in values["loads"].items():
            ours = decided.get(route, {"loads": {}})["loads"].get(load, {"table": []})["table"]
            for row in one["table"]:
                if tokens is not None and (route, row["k"]) in tokens.index:
                    line = tokens.loc[(route, row["k"])]
                    row |= _named("predicted_tokens", (line["mean"], line["low"], line["high"]))
                for each in ours:
                    if each["k"] == row["k"]:
                        row |= {name: each[name] for name in ("predicted", "predicted_low", "predicted_high")}
                        row["error"] = each["predicted"] / row["speedup"] - 1 if row["speedup"] else None


def _drawn(rows: Sequence[dict]) -> Table:
    columns = {"k": lambda row: str(row["k"]), "answered": lambda row: f"{row['answered']}/{row['requests']}",
               "TTFT": lambda row: _ms(row["ttft"]), "TPOT": lambda row: _ms(row["tpot"]),
               "tokens/s": lambda row: _pm(row, "tokens_per_second", ".1f"),
               "tokens/round": lambda row: _pm(row, "tokens_per_round"),
               "predicted tokens/round": lambda row: _pm(row, "predicted_tokens"),
               "round cost": lambda row: _pm(row, "round_cost"), "speedup": lambda row: _pm(row, "speedup"),
               "predicted speedup": lambda row: _pm(row, "predicted"),
               "error": lambda row: "" if row["error"] is None else f"{row['error']:+.1%}"}
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    cells = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    shown = {name: values for name, values in cells.items() if any(values)}
    for name in shown:
        drawn.add_column(name, no_wrap=True)
    for line in zip(*shown.values(), strict=True):
        drawn.add_row(*line)
    return drawn


def _choice(one: dict) -> str:
    return f"k={one['best_k']}" if one["best_k"] else one["decision"]


def _ms(times: dict | None) -> str:
    values = [times[f"p{percent}"] for percent in PERCENTILES] if times else []
    return " / ".join(f"{value * 1000:.3g}" for value in values)


def _pm(row: dict, name: str, digits: str = ".2f") -> str:
    if row[name] is None:
        return ""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return f"{row[name]:{digits}}" + ("" if low is None else f" ±{(high - low) / 2:{digits}}")
