"""What people read of a sweep and of round costs: tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from course_lib.costs import CostTable


def sweep_table(document: dict) -> Group:
    """A document of `sweep.decide` or `sweep.check`: of every route and load a sentence and the table."""
    parts = [Text(_origin(document["meta"]), style="bold")]
    for route, found in document["routes"].items():
        for load, one in found["loads"].items():
            choice = f"k={one['best_k']}" if one["best_k"] else "off"
            parts += [Text(""), Text(f"{route}, load {load}: {choice}. {one['reason']}", style="bold")]
            measured = any(row["measured"] is not None for row in one["table"])
            drawn = _table("k", "tokens/round", "predicted", *(["of those timed", "measured", "error"]
                                                              if measured else []))
            for row in one["table"]:
                cells = [str(row["k"]), _with_error(row, "tokens_per_round", "tokens"),
                         _with_error(row, "predicted", "predicted")]
                if row["measured"] is not None:
                    cells += [f"{row['predicted_checked']:.2f}", _with_error(row, "measured", "measured"),
                              f"{row['error']:+.1%}"]
                drawn.add_row(*cells)
            iid = one["iid"]
            formula = (f"k={iid['best_k']}, a speedup of {iid['speedup']:.2f}" if iid["best_k"]
                       else "no draft at all")
            parts += [drawn, Text(f"{found['prompts']} prompts, α {found['alpha']:.2f}. From α alone the "
                                  f"formula would take {formula}. A k chosen anew each round could gain at "
                                  f"most {one['adaptive'] - 1:.0%} more.")]
    if "check" in document:
        parts += [Text(""), *_check(document["check"]), *_scattered(document)]
    return Group(*parts)


def cost_table(costs: CostTable) -> Group:
    """Round costs by batch: a draft step, a verify at each width and the rest, in milliseconds."""
    meta = costs.meta
    parts = [Text(" · ".join(str(meta[name]) for name in ("pair", "machine", "dtype", "threads", "date")
                             if meta.get(name)), style="bold")]
    for batch, one in sorted(costs.batches.items()):
        step = one.verify_seconds(1)
        parts += [Text(""), Text(f"batch {batch}: a plain step takes {_ms(step)} ms, a draft step "
                                 f"{_ms(one.t_draft)} ms (c = {one.t_draft / step:.3f}), the rest of a round "
                                 f"{_ms(one.overhead)} ms", style="bold")]
        if not isinstance(one.t_verify, dict):
            parts.append(Text(f"a verify: {_ms(one.t_verify.base)} ms and {_ms(one.t_verify.per_token)} ms "
                              "a token"))
            continue
        alone = meta.get("forwards", {}).get(str(batch), {}).get("verify", {})
        drawn = _table("width", "verify, ms", "of a plain step", *(["forward alone, ms"] if alone else []),
                       "tokens a round must emit")
        for width, seconds in one.t_verify.items():
            other = [_ms(alone[str(width)]) if str(width) in alone else ""] if alone else []
            drawn.add_row(str(width), _ms(seconds), f"{seconds / step:.2f}", *other,
                          f"{one.break_even_tokens(width - 1):.2f}" if width > 1 else "")
        parts.append(drawn)
    return Group(*parts)


def show(content: Group) -> None:
    """Print it at whatever width it needs."""
    needed = Console(width=1000).measure(content).maximum
    Console(width=max(Console().width, needed)).print(content)


def _check(check: dict) -> Sequence[Text | Table]:
    counts = ", ".join(f"{count} {route}" for route, count in check["prompts"].items())
    drawn = _table("k", "predicted", "measured", "error")
    for row in check["pooled"]:
        drawn.add_row(str(row["k"]), f"{row['predicted']:.3f}", f"{row['measured']:.3f}",
                      f"{row['error']:+.1%}")
    worst = check["worst"]
    return (Text(f"all routes together, {counts} prompts timed, each decoded at every k and plainly in turn",
                 style="bold"), drawn,
            Text("The error is that of the prediction for the prompts timed; predicted is for all prompts. "
                 f"Over routes and k its median is {check['median']:.1%}, the worst {worst['error']:+.1%} "
                 f"({worst['route']}, k={worst['k']})."),
            Text("Told the tokens per round of these runs, the prediction is off by "
                 f"{check['median_cost_error']:.1%} in the median: that much comes from the costs, "
                 f"{check['costs']}."))


def _scattered(document: dict) -> list[Text]:
    """A warning where measured speedups scatter so much that they say little."""
    wild = [f"{route} k={row['k']}" for route, found in document["routes"].items()
            for row in found["loads"]["1"]["table"] if row["measured_low"] is not None
            and row["measured_high"] - row["measured_low"] > row["measured"]]
    return [Text(f"± more than half of what was measured at {', '.join(wild)}: the machine was busy, or too "
                 "few prompts were timed. Time them again when it is quiet, or more of them (--limit).")
            ] if wild else []


def _origin(meta: dict) -> str:
    trace, costs = meta["traces"][0], meta["costs"]
    return (f"{trace['pair']} · T={trace['temperature']:g} · trace: {trace['machine']}, {trace['date'][:10]} "
            f"· costs: {costs.get('machine', 'not said where')}, {str(costs.get('date', ''))[:10]}")


def _table(*columns: str) -> Table:
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for column in columns:
        drawn.add_column(column, no_wrap=True)
    return drawn


def _with_error(row: dict, name: str, ends: str) -> str:
    low, high = row[f"{ends}_low"], row[f"{ends}_high"]
    return f"{row[name]:.2f}" + ("" if low is None else f" ±{(high - low) / 2:.2f}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g}"
