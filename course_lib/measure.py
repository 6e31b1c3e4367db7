"""The measurement: prompts in, acceptance and tokens per round for every route and k out.

    pair, prompts -> traces.measure_trace -> `document` (JSON) -> `table` (what people read)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from course_lib.bars import Progress
from course_lib.files import check_writable
from course_lib.intervals import Interval, ratio_interval
from course_lib.prompts import ROUTES, Prompt, load_prompts, read_prompts
from course_lib.replay import tokens_per_round
from course_lib.traces import Trace, measure_trace
from course_lib.whole import LONGEST_DRAFT, whole

KS = (1, 2, 3, 4, 5, 8)
FIGURE_KS = range(1, 13)
SETTINGS = ("target", "draft", "lookup", "draft_mode", "top_k", "top_p", "seed", "new_tokens", "near_ties",
            "cut", "seconds", "versions", "machine", "date", "command")
REMARKS = ("estimates", "doubt")  # sentences that a trace may have: which number is an estimate, what is odd


def run_measure(pair, prompts: Sequence[Prompt], sampling, new_tokens: int = 96, draft_mode: str = "sample",
                seed: int = 0, ks: Sequence[int] = KS, batch: int = 16, cut: bool = False,
                out: Path | None = None, figure: Path | None = None, command: str = "",
                progress: Progress | None = None, say: Callable[[str], None] = print) -> dict:
    """Measure the pair on these prompts; return the JSON document (see `document`).

    Arguments as in `traces.measure_trace`. ks: drafts a round to report. out: where to save the trace.
    figure: where to save the picture; its alternative text goes to `say`.
    Raises ValueError before the first forward if something is wrong with the arguments.
    """
    if batch < 1:
        raise ValueError(f"batch must be 1 or more texts at a time, not {batch}")
    check_arguments(new_tokens, seed, out, figure)
    trace = measure_trace(pair, prompts, sampling, new_tokens, draft_mode, batch, seed, cut, command,
                          progress)
    return finish(trace, ks, out, figure, say)


def check_arguments(new_tokens: int, seed: int, out: Path | None, figure: Path | None) -> None:
    """Raise ValueError for what would go wrong later: now, not after an hour of measuring."""
    if figure is not None and figure.suffix.lower() != ".png":
        raise ValueError(f"the picture is a PNG: give it a name that ends in .png, not {figure}")
    for path in (out, figure):
        if path is not None:
            check_writable(path)
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number from 0 to 2**63 - 1, not {seed}")
    if new_tokens < 1:
        raise ValueError(f"new tokens must be 1 or more, not {new_tokens}")


def finish(trace: Trace, ks: Sequence[int], out: Path | None, figure: Path | None,
           say: Callable[[str], None]) -> dict:
    """Save the trace and its picture where they are wanted; return its `document`."""
    if out is not None:
        trace.save(out)
    if figure is not None:
        from course_lib.plots import save, style, tokens_per_round_figure

        style()
        drawn, alt = tokens_per_round_figure(tokens_per_round(trace, FIGURE_KS))
        save(drawn, figure)
        say(f"{figure}: {alt}")
    return document(trace, ks)


def document(trace: Trace, ks: Sequence[int] = KS, fidelity: str = "live") -> dict:
    """What a trace says, as JSON: pair, fidelity, device, dtype, temperature, routes and settings.

    fidelity: "live", or "recorded" for a trace read from a file. Of each route: prompts, tokens,
    alpha by three definitions (overlap: mean of sum(min(p, q)); coupled: mean chance that a draft is
    accepted given the target's own text; greedy_match: how often the draft's likeliest token is the
    text's), alpha_interval (95 % over prompts, of overlap) and tokens_per_round by k, each with mean, low
    and high. An end that one prompt cannot give is null.
    """
    table = tokens_per_round(trace, ks)
    routes = {}
    for route, rows in trace.rows.groupby("route", sort=False):
        sums = rows.astype({"overlap": float}).groupby("prompt", sort=False).agg(
            overlap=("overlap", "sum"), tokens=("t", "size"))
        interval = ratio_interval(sums.overlap, sums.tokens)
        routes[route] = {
            "prompts": len(sums), "tokens": len(rows),
            "alpha": {"overlap": interval.mean, "coupled": float(rows.accept.to_numpy(float).mean()),
                      "greedy_match": float(rows.match.mean())},
            "alpha_interval": [_or_none(interval.low), _or_none(interval.high)],
            "tokens_per_round": {
                str(row.k): {"mean": row.mean, "low": _or_none(row.low), "high": _or_none(row.high)}
                for row in table[table.route == route].itertuples(index=False, name="Row")},
        }
    meta = trace.meta
    return {"pair": meta["pair"], "fidelity": fidelity, "device": meta["device"], "dtype": meta["dtype"],
            "temperature": meta["temperature"], "routes": routes,
            "settings": {name: meta[name] for name in SETTINGS}
            | {name: meta[name] for name in REMARKS if meta.get(name)}}


def table(found: dict) -> Group:
    """A `document` for people: how it was measured, then a line a route, the best first."""
    routes = sorted(found["routes"].items(), key=lambda item: -item[1]["alpha"]["overlap"])
    ks = list(routes[0][1]["tokens_per_round"])
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    drawn.add_column("route", no_wrap=True)
    drawn.add_column("α", no_wrap=True)
    for k in ks:
        drawn.add_column(f"k={k}", no_wrap=True)
    for route, values in routes:
        drawn.add_row(route, _short(values["alpha"]["overlap"]),
                      *(_with_error(values["tokens_per_round"][k]) for k in ks))
    notes = [Text("tokens per round [95 % over prompts]; α is the overlap of target and draft"), drawn]
    settings = found["settings"]
    notes += [Text(settings[name]) for name in REMARKS if name in settings]
    if settings["near_ties"]:
        notes.append(Text(f"{settings['near_ties']} near-ties: at the next look the target would have taken "
                          "another token there (rounding)."))
    if settings["cut"]:
        notes.append(Text(f"Cut to fit the context: {', '.join(settings['cut'])}."))
    if any(values["prompts"] == 1 for values in found["routes"].values()):
        notes.append(Text("One prompt gives no interval: measure more."))
    return Group(Text(banner(found), style="bold"), *notes)


def show(found: dict) -> None:
    """Print `table`, at whatever width it needs."""
    content = table(found)
    needed = Console(width=1000).measure(content).maximum
    Console(width=max(Console().width, needed)).print(content)


def banner(found: dict) -> str:
    """One line that says how real the numbers of a `document` are."""
    settings, counts = found["settings"], sorted({values["prompts"] for values in found["routes"].values()})
    many = "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    law = f"T={found['temperature']:g}"
    law += f" top-k {settings['top_k']}" if settings["top_k"] else ""
    law += f" top-p {settings['top_p']:g}" if settings["top_p"] < 1 else ""
    if settings["lookup"]:
        law += " lookup, then draft" if settings["draft"] else " lookup"
    law += " greedy draft" if settings["draft_mode"] == "greedy" and found["temperature"] else ""
    return " · ".join([found["pair"], found["fidelity"], f"{found['device']} {found['dtype']}", law,
                       f"{many} prompt{'s' * (counts[-1] > 1)} a route, {settings['new_tokens']} tokens",
                       settings["date"][:10]])


def choose_prompts(file: Path | None, routes: Sequence[str] | None, limit: int | None, skip_bad: bool = False,
                   say: Callable[[str], None] = print, read: Callable = read_prompts) -> list[Prompt]:
    """The course's held-out prompts, or those of a file; of these routes, at most `limit` of each.

    read: reads the file, called as `prompts.read_prompts` is.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be 1 or more prompts a route, not {limit}")
    if file is None:
        return load_prompts(ROUTES if routes is None else dict.fromkeys(routes), limit=limit)
    by_route: dict[str, list[Prompt]] = {}
    for prompt in read(file, skip_bad, say):
        by_route.setdefault(prompt.route, []).append(prompt)
    for route in routes or ():
        if route not in by_route:
            raise ValueError(f"{file.name} has no route {route!r}: it has {', '.join(by_route)}")
    chosen = by_route if routes is None else dict.fromkeys(routes)
    return [prompt for route in chosen for prompt in by_route[route][:limit]]


def numbers(text: str, what: str) -> list[int]:
    """"1,2,4" as sorted whole numbers without repeats. Raises ValueError naming `what` for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{what} is {text!r}: write whole numbers with commas between, such as 1,2,4,8")
    return sorted({int(part) for part in parts})


def drafts_a_round(text: str, least: int = 0) -> list[int]:
    """The k of --ks, `least` or more each, sorted. Raises ValueError, also where a comma was forgotten."""
    ks = [whole("a k of --ks", k, least) for k in numbers(text, "--ks")]
    if ks[-1] > LONGEST_DRAFT:
        raise ValueError(f"a k of --ks is {ks[-1]}: nobody drafts more than {LONGEST_DRAFT} tokens a round. "
                         "Was a comma forgotten?")
    return ks


def _short(value: float) -> str:
    return f"{value:.2f}".removeprefix("0")


def _with_error(interval: dict) -> str:
    half = Interval(**interval).half_width if interval["low"] is not None else None
    return f"{interval['mean']:.2f}" + ("" if half is None else f" ±{_short(half)}")


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
