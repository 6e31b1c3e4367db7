"""The metric ledger: every definition beside its value, the engine's name for it, and its PromQL."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console, Group
from rich.table import Column, Table
from rich.text import Text

from course_lib.engines import Acceptance, called, promql, read_all
from course_lib.engines.scrape import fetch_text

# Definition, how people say it, and which values of an acceptance it shows.
ROWS = {
    "k": "drafts a full round (k)",
    "rounds": "rounds",
    "drafted": "drafted tokens",
    "accepted": "accepted tokens",
    "tokens_per_round": "tokens per round (1 + accepted / rounds)",
    "prefix_rate": "prefix rate (accepted / drafted)",
    "per_position": "per position, of all rounds",
    "conditional": "per position, of rounds that got there",
    "alpha": "alpha, if all drafts were accepted alike",
    "tokens_per_step": "tokens per target step, drafted or not",
}
# PromQL cannot solve for the ledger's alpha: its expression is another estimate of it, and is named so.
EXPRESSIONS = {"alpha": "alpha (accepted / judged)"}


def read(source: str, since: str | None = None, k: int | None = None,
         model: str | None = None) -> list[Acceptance]:
    """The acceptances of a source (see `scrape.fetch_text`); with `since`, what came after that scrape.

    Raises ValueError where nothing is left for this model, or the scrapes have nothing in common; of two
    sources it says which one is meant.
    """
    def found(place: str) -> list[Acceptance]:
        text = fetch_text(place)
        try:
            return _of_model(read_all(text, k), model)
        except ValueError as error:
            if not since:
                raise
            raise ValueError(f"{'standard input' if place == '-' else place}: {error}") from None

    return between(found(source), found(since)) if since else found(source)


def between(now: list[Acceptance], before: list[Acceptance]) -> list[Acceptance]:
    """Each acceptance of now since its counterpart before. Raises ValueError if none has one."""
    earlier = {(one.engine, one.source, one.model): one for one in before}
    pairs = [(one, earlier[key]) for one in now if (key := (one.engine, one.source, one.model)) in earlier]
    if not pairs:
        raise ValueError("the two texts have no engine and model in common.")
    return [one.since(other) for one, other in pairs]


def watch(source: str, seconds: float, k: int | None = None, model: str | None = None,
          sleep: Callable[[float], None] = time.sleep) -> Iterator[tuple[float, list[Acceptance]]]:
    """For ever: wait, scrape, and yield (seconds that passed, acceptances of that interval).

    Raises ValueError for `-`, which can be read once only, and for seconds that are not above 0.
    """
    if source == "-":
        raise ValueError("standard input can be read once only: give --watch a file or an address.")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"--watch {seconds:g}: give the seconds between two scrapes, above 0.")
    before, then = read(source, None, k, model), time.monotonic()
    while True:
        sleep(seconds)
        now, moment = read(source, None, k, model), time.monotonic()
        yield moment - then, between(now, before)
        before, then = now, moment


def best_ks(one: Acceptance, costs: Path, max_k: int = 16) -> list[dict]:
    """The best k at each batch size of a file of costs (`costs.CostTable`), for this alpha.

    It assumes drafts that are all accepted alike, which counters cannot check. [] where alpha is unknown.
    """
    from course_lib.costs import CostTable

    table, found = CostTable.load(costs), []
    for batch, costs_there in sorted(table.batches.items()):
        widths = costs_there.t_verify
        longest = min(max_k, max(widths) - 1) if isinstance(widths, dict) else max_k
        if one.alpha is not None:
            best, speedup = costs_there.best_k(one.alpha, longest)
            found.append({"batch": batch, "best_k": best, "speedup": speedup, "largest_k_measured": longest})
    return found


def document(one: Acceptance, best: list[dict] | None = None) -> dict:
    """The ledger as JSON."""
    found = {**one.as_dict(), "called": called(one), "promql": promql(one)}
    return found if best is None else {**found, "best_k": best}


def show(one: Acceptance, best: list[dict] | None = None, console: Console | None = None) -> None:
    """Print the ledger."""
    table = Table("", "value", Column("the engine calls it", overflow="fold"), title=one.reading.who,
                  title_justify="left")
    names = called(one)
    for name, words in ROWS.items():
        if (value := getattr(one, name)) is None:
            continue
        here = one.reported.get(name) or (f"({names[name]})" if name in names else "")
        table.add_row(words, shown(value, name), here)
    parts = [table]
    if expressions := promql(one):
        parts.append(Text("\nPromQL, over five minutes", style="bold"))
    lines = {EXPRESSIONS.get(name, name): expression for name, expression in expressions.items()
             if getattr(one, name) is not None}
    width = max(map(len, lines), default=0)
    # As plain lines, not in the table: an expression that is folded cannot be pasted.
    parts += [Text(f"  {name:{width}}  {expression}", no_wrap=True, overflow="ignore")
              for name, expression in lines.items()]
    parts += [Text(f"{'' if i else chr(10)}note: {note}", style="dim") for i, note in enumerate(one.notes)]
    parts += [Text(f"\nwarning: {warning}", style="yellow") for warning in one.warnings]
    if best:
        parts.append(Text(f"\nbest k for alpha {one.alpha:.3f}, if all drafts are accepted alike",
                          style="bold"))
        parts += [Text(f"  batch {row['batch']:>4}: " + (
            f"k={row['best_k']}, {row['speedup']:.2f} times as fast as without" if row["best_k"]
            else "off, no k gains")) for row in best]
    elif best is not None:
        parts.append(Text("\nbest k: alpha is unknown here, so there is none"))
    (console or Console()).print(Group(*parts), soft_wrap=True)


def interval_line(passed: float, one: Acceptance) -> str:
    """One interval of `watch` as a line: rates per minute and the acceptance of that interval."""
    def rate(count: float | None) -> str:
        return "?" if count is None else f"{count * 60 / passed:,.0f}"

    if one.tokens_per_round is None and one.prefix_rate is None:
        return f"{one.model or one.engine}  no traffic"
    line = (f"{one.model or one.engine}  per minute: {rate(one.rounds)} rounds, {rate(one.drafted)} drafted, "
            f"{rate(one.accepted)} accepted")
    for name, words in (("tokens_per_round", "tokens per round"), ("prefix_rate", "prefix rate"),
                        ("alpha", "alpha")):
        if (value := getattr(one, name)) is not None:
            line += f"  {words} {value:.3f}"
    return line + "".join(f"\n  warning: {warning}" for warning in one.warnings)


def shown(value: float | tuple, name: str = "") -> str:
    """A value of the ledger, as people read it."""
    if isinstance(value, tuple):
        return "  ".join("  –  " if rate is None else f"{rate:.3f}" for rate in value)
    return f"{value:,.10g}" if name in ("k", "rounds", "drafted", "accepted") else f"{value:.4f}"


def _of_model(found: list[Acceptance], model: str | None) -> list[Acceptance]:
    named = [one for one in found if model is None or one.model == model]
    if not named:
        raise ValueError(f"no model {model!r} here: there is "
                         + ", ".join(str(one.model or one.engine) for one in found) + ".")
    return named
