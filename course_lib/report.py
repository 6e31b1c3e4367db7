"""The decision as something to read and pass on: one HTML page, Markdown and JSON, from a sweep document.

    sweep.decide -> document -> `blocks` (what is said, once) -> HTML and Markdown
                             -> `settings` (what to paste)

What every number means, and how far it can be trusted, is said beside it.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from course_lib.page import Block, as_html, as_markdown
from course_lib.settings import ENGINES, OFF, all_loads, groups, loads, models, one_k, settings

__all__ = ["check_folder", "render", "settings", "write"]


def render(document: dict) -> dict[str, str]:
    """The document of `sweep.decide` or `sweep.check` as {"html": one page, "markdown": the same in text}.

    Raises ValueError when the document holds no route or a route no load.
    """
    said = blocks(document)
    return {"html": as_html(said), "markdown": as_markdown(said)}


def write(document: dict, folder: str | Path) -> dict[str, Path]:
    """Put report.html, report.md and report.json into the folder, which is made if missing; their paths.

    The JSON is the document with `settings` and `one_k` added. Each file is written under another name
    first. Raises ValueError where that is not possible.
    """
    folder = check_folder(folder)
    made = render(document)
    found = strict(document | {"one_k": {str(load): mix for load, mix in one_k(strict(document)).items()},
                               "settings": settings(strict(document))})
    made["json"] = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    paths = {kind: folder / name for kind, name in
             (("html", "report.html"), ("markdown", "report.md"), ("json", "report.json"))}
    folder.mkdir(exist_ok=True)
    for kind, path in paths.items():
        part = path.with_name(path.name + ".part")
        try:
            part.write_text(made[kind], encoding="utf-8")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    return paths


def check_folder(folder: str | Path) -> Path:
    """Raise ValueError unless a report can be put there: before an hour of measuring, not after."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: --out names a folder for the report")
    there = folder if folder.is_dir() else folder.resolve().parent
    if not there.is_dir():
        raise ValueError(f"there is no folder {there}: make it first")
    if not os.access(there, os.W_OK):
        raise ValueError(f"{there} cannot be written: choose another place")
    return folder


def strict(value):
    """The same with None for every nan and infinity, which JSON does not know."""
    if isinstance(value, dict):
        return {str(name): strict(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decision(route: str, found: dict) -> str:
    """One sentence: where this route should speculate, with which k, and where and why not."""
    at = sorted((int(load), one) for load, one in found["loads"].items())
    on = [(load, one["best_k"] if one["decision"] == "speculate" else 0) for load, one in at]
    by_load = dict(at)
    parts = []
    for first, last, k in groups(on):
        one = by_load[first]
        if k:
            gain = f"{times(one['speedup'])}{interval(one['speedup_interval'])}"
            if first != last:
                gain += f" at load {first}, {times(by_load[last]['speedup'])} at load {last}"
            parts.append(f"speculate with k = {k} at {loads(first, last)}: {gain}")
            continue
        whole = len(on) > 1 and first == on[0][0] and last == on[-1][0]
        where = "at every load measured" if whole else \
            f"from load {first} on" if last == on[-1][0] and first != on[0][0] else f"at {loads(first, last)}"
        parts.append(f"off {where}, because {_clause(one['reason'])}")
    return f"{route}: {'; '.join(parts)}."


def blocks(document: dict) -> list[Block]:
    """What the report says, in order, not yet escaped."""
    document = strict(document)
    if not document.get("routes") or not all(found["loads"] for found in document["routes"].values()):
        raise ValueError("the sweep holds no route or no load: there is nothing to report")
    target, draft, _ = models(document)
    routes = document["routes"]
    at = all_loads(document)
    said = [Block("title", f"How many tokens should {draft} propose to {target}?"),
            Block("decision", items=tuple(decision(route, found) for route, found in routes.items())),
            *_one_setting(document)]
    for load in (load for load in at if load == at[0] or _measured(document, load)):
        said += [Block("heading", f"Routes and k at load {load}"),
                 _figure("speedup_by_k_figure", document, load), _table_by_k(document, load)]
    said += [Block("heading", "Decision by route and load"), _table_by_load(document)]
    if len(at) > 1:
        said.append(_figure("speedup_by_load_figure", document))
    said += [Block("list", items=tuple(_readings(document, at[0]))),
             Block("heading", "Settings to paste")]
    pasted = settings(document)
    if set(pasted.values()) == {OFF}:
        said.append(Block("text", f"For every engine: {OFF}."))
    else:
        said += [Block("code", text, (ENGINES[engine],)) for engine, text in pasted.items()]
    return [*said, Block("heading", "How far to trust this"), Block("list", items=tuple(_caveats(document)))]


def times(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}×"


def interval(ends) -> str:
    return "" if not ends or None in ends else f" [{ends[0]:.2f}, {ends[1]:.2f}]"


def _one_setting(document: dict) -> list[Block]:
    """One engine has one k: which, and what each route loses by it."""
    if len(document["routes"]) == 1:
        return [Block("text", "There is one route, so the engine's one setting is that route's.")]
    parts = []
    for load, mix in one_k(document).items():
        text = f"Load {load}: " + (f"k = {mix['k']}" if mix["k"] else "off")
        if mix["k"]:
            text += f", {times(mix['speedup'])}{interval((mix['low'], mix['high']))} over the mix"
        losing = [f"{route} {found['loss'] * 100:.1f} %" for route, found in mix["routes"].items()
                  if found["loss"] is not None and found["loss"] >= 0.0005]
        if {found["best_k"] for found in mix["routes"].values()} == {mix["k"]}:
            text += ", as each route would by itself"
        if losing:
            text += f". Speed given up against a k of its own: {', '.join(losing)}"
        parts.append(f"{text}.")
    return [Block("text", "An engine has one setting for all routes. With each route weighted by its tokens "
                          "here (a route that loses much is worth an engine of its own):"),
            Block("list", items=tuple(parts))]


def _table_by_k(document: dict, load: int) -> Block:
    """Route by k at one load: tokens per round, predicted, and measured if any is."""
    header = ["route", "k", "tokens per round", "predicted"]
    measured = _measured(document, load)
    header += ["measured", "error of prediction"] if measured else []
    rows, best = [], set()
    for route, found in document["routes"].items():
        one = found["loads"].get(str(load))
        for row in one["table"] if one else ():
            cells = [route, str(row["k"]), *(
                "–" if row[name] is None else f"{row[name]:.2f}{unit}{interval((row[low], row[high]))}"
                for name, low, high, unit in (
                    ("tokens_per_round", "tokens_low", "tokens_high", ""),
                    ("predicted", "predicted_low", "predicted_high", "×"),
                    ("measured", "measured_low", "measured_high", "×"))[:3 if measured else 2])]
            if measured:
                cells.append("–" if row["error"] is None else f"{row['error'] * 100:+.1f} %")
            rows.append(tuple(cells))
            if one["decision"] == "speculate" and row["k"] == one["best_k"]:
                best.add(len(rows))
    text = "In brackets: 95 % intervals over prompts. In bold: the k to take; a route without it stays off."
    return Block("table", text, (tuple(header), *rows), frozenset(best))


def _table_by_load(document: dict) -> Block:
    header = ("route", "load", "decision", "speedup", "most an adaptive k adds", "i.i.d. formula says")
    rows, best = [], set()
    for route, found in document["routes"].items():
        for load, one in sorted(found["loads"].items(), key=lambda pair: int(pair[0])):
            on = one["decision"] == "speculate"
            rows.append((route, load, f"k = {one['best_k']}" if on else "off",
                         f"{times(one['speedup'])}{interval(one['speedup_interval'])}",
                         "–" if one["adaptive"] is None else f"{one['adaptive'] * 100 - 100:+.1f} %",
                         _formula(one["iid"])))
            if on:
                best.add(len(rows))
    text = ("The load is the number of requests decoded together. The speedup is that of the best k, even "
            "where it is too uncertain to switch on.")
    return Block("table", text, (header, *rows), frozenset(best))


def _readings(document: dict, load: int) -> list[str]:
    """Sentences that read the tables: what an adaptive k could add, and what the formula would have said."""
    said = []
    gains = {route: found["loads"][str(load)]["adaptive"] for route, found in document["routes"].items()
             if str(load) in found["loads"] and found["loads"][str(load)]["adaptive"] is not None}
    if gains:
        most = max(gains, key=gains.get)
        said.append(f"A k chosen anew at each round could add at most {gains[most] * 100 - 100:.1f} % over "
                    f"the best fixed k at load {load} ({most}); that chooser knows every chance beforehand, "
                    "a real one gains less.")
    for route, found in document["routes"].items():
        one = found["loads"].get(str(load))
        if one and one["iid"] and one["iid"]["speedup"] is not None and found["alpha"] is not None:
            here = f"k = {one['best_k']} with {times(one['speedup'])}" if one["best_k"] else "off"
            said.append(f"{route}: from α = {found['alpha']:.3f} alone the i.i.d. formula would have said "
                        f"{_formula(one['iid'])} at load {load}; the replay of the text says {here}.")
    return said


def _caveats(document: dict) -> list[str]:
    """Where every number is from, and what it does not cover."""
    meta, said = document["meta"], []
    for trace in meta["traces"]:
        law = f"temperature {trace.get('temperature', 'unknown')}"
        law += f", top-p {trace['top_p']}" if trace.get("top_p", 1) < 1 else ""
        drafts = {"sample": "sampled drafts", "greedy": "the draft's likeliest tokens"}.get(
            trace.get("draft_mode"), "drafts unknown")
        law += f", top-k {trace['top_k']}" if trace.get("top_k") else ""
        said.append(f"Acceptance is {_fidelity(trace)}: {law}, {drafts}, {_where(trace)}.")
    said.append(f"Round costs are {_fidelity(meta['costs'])}: {_where(meta['costs'])}. Another engine, "
                "device or context length has other costs: measure them there before you trust k.")
    if any(_measured(document, load) for load in all_loads(document)):
        said.append("Measured speedups are the course's decoder against plain decoding, in one run, "
                    "alternating.")
    else:
        said.append("Speedups are predicted from acceptance and costs; no wall clock was compared "
                    "(sweep --check does that).")
    counts = {route: found["prompts"] for route, found in document["routes"].items()}
    said.append("Prompts: " + ", ".join(f"{route} {count} ({document['routes'][route]['tokens']:,} tokens)"
                                        for route, count in counts.items())
                + ". Intervals are over prompts and hold for traffic that these prompts represent; the costs "
                "are taken as exact, and the best of several k looks a little better than it is.")
    if alone := [route for route, count in counts.items() if count == 1]:
        said.append(f"One prompt gives no interval ({', '.join(alone)}), and without one the decision is "
                    "off: measure more prompts.")
    return said


def _fidelity(meta: dict) -> str:
    return str(meta.get("fidelity", "recorded"))


def _where(meta: dict) -> str:
    parts = [str(meta[name]) for name in ("pair", "machine", "dtype") if meta.get(name)]
    parts.append(str(meta.get("date", "date unknown"))[:10])
    return ", ".join(parts) + (f", by: {meta['command']}" if meta.get("command") else "")


def _formula(iid: dict | None) -> str:
    if not iid or iid["speedup"] is None:
        return "–"
    return f"k = {iid['best_k']}, {times(iid['speedup'])}" if iid["best_k"] else "off"


def _measured(document: dict, load: int) -> bool:
    return any(row["measured"] is not None for found in document["routes"].values()
               if str(load) in found["loads"] for row in found["loads"][str(load)]["table"])


def _clause(reason: str) -> str:
    """A reason, fit to follow "because"."""
    reason = " ".join((reason or "nothing is known").split()).rstrip(".")
    return reason if reason[:2].isupper() else reason[:1].lower() + reason[1:]


def _figure(name: str, document: dict, *where) -> Block:
    import matplotlib as mpl

    from course_lib import plots

    with mpl.rc_context():
        plots.style()
        mpl.rcParams["text.parse_math"] = False  # a route may be called $x$
        drawn, alt = getattr(plots, name)(document, *where)
        return Block("figure", alt, svg=plots.svg(drawn))


