"""What a sweep document says, in the order in which someone who must decide wants to read it.

Decisions first, then one k for an engine, tables and figures, settings to paste, and how far to trust it:
what was measured where and when, and what the intervals leave out. Plain words; `page` escapes them.
"""

from __future__ import annotations

import math

from course_lib.page import Block
from course_lib.settings import ENGINES, OFF, all_loads, groups, loads, models, one_k, settings

FEW = 8  # prompts of a route, below which the report warns of its interval


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
            Block("text", _banner(document)),
            *_one_setting(document)]
    for load in (load for load in at if load == at[0] or _measured(document, load)):
        said += [Block("heading", f"Routes and k at load {load}"),
                 _figure("speedup_by_k_figure", document, load), _table_by_k(document, load)]
    if document.get("check"):
        said += _check(document["check"])
    said += [Block("heading", "Decision by route and load"), _table_by_load(document)]
    if len(at) > 1:
        said.append(_figure("speedup_by_load_figure", document))
    said += [Block("list", items=tuple(_readings(document, at[0]))),
             Block("heading", "Settings to paste"), *_pasted(document)]
    return [*said, Block("heading", "How far to trust this"), Block("list", items=tuple(_caveats(document)))]


def decision(route: str, found: dict) -> str:
    """One sentence: where this route should speculate, with which k, and where and why not."""
    at = sorted((int(load), one) for load, one in found["loads"].items())
    on, by_load, parts = [(load, one["best_k"]) for load, one in at], dict(at), []
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


def strict(value):
    """The same with None for every nan and infinity, which JSON does not know."""
    if isinstance(value, dict):
        return {str(name): strict(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
        if not mix["k"] and mix["low"] is not None:
            text += f", since the best k gives {times(mix['speedup'])}{interval((mix['low'], mix['high']))}"
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
    header += ["predicted for those timed", "measured", "error of prediction"] if measured else []
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
                cells[-1:] = [times(row.get("predicted_checked")), cells[-1], _percent(row["error"])]
            rows.append(tuple(cells))
            if row["k"] == one["best_k"]:
                best.add(len(rows))
    text = "In brackets: 95 % intervals over prompts. In bold: the k to take; a route without it stays off."
    return Block("table", text, (tuple(header), *rows), frozenset(best))


def _table_by_load(document: dict) -> Block:
    header = ("route", "load", "decision", "speedup", "most an adaptive k adds", "i.i.d. formula says")
    rows, best = [], set()
    for route, found in document["routes"].items():
        for load, one in sorted(found["loads"].items(), key=lambda pair: int(pair[0])):
            k = one["best_k"]
            rows.append((route, load, f"k = {k}" if k else "off",
                         f"{times(one['speedup'])}{interval(one['speedup_interval'])}"
                         + ("" if k else f" with k = {_best(one)}"),
                         _percent(None if one["adaptive"] is None else one["adaptive"] - 1),
                         _formula(one["iid"])))
            if k:
                best.add(len(rows))
    text = ("The load is the number of requests decoded together. The speedup is that of the best k, even "
            "where that is too little, or too uncertain, to switch on.")
    return Block("table", text, (header, *rows), frozenset(best))


def _best(one: dict) -> int | str:
    """The k that predicts the most, whether it is to be switched on or not."""
    return max((row for row in one["table"] if row["predicted"] is not None),
               key=lambda row: row["predicted"], default={"k": "?"})["k"]


def _pasted(document: dict) -> list[Block]:
    """Settings of every engine; where the mix is off, of an engine for the route that gains most."""
    pasted, said = settings(document), []
    if set(pasted.values()) == {OFF}:
        gains = {route: max((one["speedup"] for one in found["loads"].values() if one["best_k"]), default=0)
                 for route, found in document["routes"].items()}
        best = max(gains, key=gains.get)
        if not gains[best]:
            return [Block("text", f"For every engine: {OFF}.")]
        said = [Block("text", f"For an engine that serves all these routes: {OFF}. For one that serves "
                              f"only the route {best}:")]
        pasted = settings(document | {"routes": {best: document["routes"][best]}})
    return said + [Block("code", text, (ENGINES[engine],)) for engine, text in pasted.items()]


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
            here = f"k = {_best(one)}, {times(one['speedup'])}" + ("" if one["best_k"] else
                    f"{interval(one['speedup_interval'])}, and by its interval off")
            said.append(f"{route}: from α = {found['alpha']:.3f} alone the i.i.d. formula would have said "
                        f"{_formula(one['iid'])} at load {load}; the replay of the text finds {here}.")
    return said


def _check(check: dict) -> list[Block]:
    """Predicted against measured: what the wall clock says about the predictions."""
    rows = [(str(row["k"]), times(row["predicted"]), times(row["measured"]), _percent(row["error"]))
            for row in check["pooled"]]
    decoded = ", ".join(f"{route} {count}" for route, count in check["prompts"].items())
    worst = check["worst"]
    text = ("Measured is the decoder of this package against its plain decoding, taking turns in one run, on "
            f"some of the prompts ({decoded}); the error compares the prediction for those same prompts. "
            f"Over routes and k its median is {check['median'] * 100:.1f} %, the worst "
            f"{_percent(worst['error'])} ({worst['route']}, k = {worst['k']}).")
    header = ("k", "predicted", "measured", "error of prediction")
    return [Block("text", text), Block("table", "All routes together:", (header, *rows))]


def _banner(document: dict) -> str:
    """One line that says how real the numbers are."""
    meta, real = document["meta"], document.get("fidelity", {})
    first, counts = meta["traces"][0], sorted({found["prompts"] for found in document["routes"].values()})
    many = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return " · ".join([str(first.get("pair", "pair unknown")),
                       f"acceptance {real.get('traces', 'recorded')} {_date(first)}",
                       f"round costs {real.get('costs', 'recorded')} {_date(meta['costs'])}", _law(first),
                       f"{many} prompt{'s' * (counts[-1] > 1)} a route"])


def _caveats(document: dict) -> list[str]:
    """Where every number is from, and what it does not cover."""
    meta, said = document["meta"], []
    for trace in meta["traces"]:
        said.append(f"Acceptance: {_law(trace)}, {_where(trace)}."
                    + (f" Prompts cut to fit the context: {len(trace['cut'])}." if trace.get("cut") else ""))
    context = [value for value in (meta["costs"].get("context") or {}).values() if value]
    said.append(f"Round costs: {_where(meta['costs'])}"
                + (f", rows of about {sum(context) / len(context):.0f} tokens" if context else "")
                + ". Another engine, device or context length has other costs: measure them there before you "
                "trust k.")
    if not any(_measured(document, load) for load in all_loads(document)):
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
    if few := [f"{route} {count}" for route, count in counts.items() if 1 < count < FEW]:
        said.append(f"Few prompts ({', '.join(few)}): their intervals are wide, can hold what cannot be "
                    "(less than one token a round), and miss the truth more often than one time in twenty. "
                    "Measure more before you switch anything on.")
    return said + list(document.get("notes", ()))


def _law(trace: dict) -> str:
    """How tokens were drawn: "T=0.8, top-p 0.9, sampled drafts"."""
    drafts = {"sample": "sampled drafts", "greedy": "greedy drafts"}.get(trace.get("draft_mode"))
    return ", ".join([f"T={trace['temperature']:g}" if "temperature" in trace else "T unknown",
                      *([f"top-k {trace['top_k']}"] if trace.get("top_k") else ()),
                      *([f"top-p {trace['top_p']}"] if (trace.get("top_p") or 1) < 1 else ()),
                      *([drafts] if drafts and trace.get("temperature") else ())])


def _where(meta: dict) -> str:
    parts = [str(meta[name]) for name in ("pair", "machine", "dtype") if meta.get(name)]
    return ", ".join([*parts, _date(meta)]) + (f", by: {meta['command']}" if meta.get("command") else "")


def _date(meta: dict) -> str:
    return str(meta.get("date", "date unknown"))[:10]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:+.1f} %"


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
