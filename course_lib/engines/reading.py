"""What an engine's text says, before anything is concluded from it: counts, or rates where it has no counts.

Counts can be added (pooling) and, if cumulative, subtracted (what happened between two scrapes). Rates can
be neither: averaging the rates of intervals gives a quiet minute the weight of a busy one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from course_lib.whole import LONGEST_DRAFT

COUNTS = ("rounds", "drafted", "accepted", "judged", "emitted", "generated")
_LARGEST_COUNT = 1e18
SINCE_THE_START = "Counts since the engine started: for now, take two scrapes."
CUT_OFF = "the text was cut off"  # so begins every warning that something is missing from a scrape


@dataclass(frozen=True)
class Reading:
    """One engine's counts of one model, from one source.

    engine, source, model: who counted, in what kind of text, for which model (None if it does not say).
    cumulative: counts since the engine started, as opposed to one interval, request or benchmark.
    k: drafts in a full round. rounds, drafted, accepted: as in `theory.Counts`.
    judged: accepted as vLLM V0 counts it, where every position is judged by itself.
    emitted: tokens the rounds put into the text. generated: all tokens, with rounds that drafted or not.
    positions: rounds that accepted position 1 ... k. tokens_per_round, prefix_rate: only where the engine
    gives a rate and no counts. created: when the counters began (seconds), to notice a restart.
    reported: definition -> the engine's own name for it, for what stands in this text.
    """

    engine: str
    source: str
    model: str | None = None
    cumulative: bool = False
    k: int | None = None
    rounds: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    judged: float | None = None
    emitted: float | None = None
    generated: float | None = None
    positions: tuple[float, ...] | None = None
    tokens_per_round: float | None = None
    prefix_rate: float | None = None
    created: float | None = None
    reported: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in COUNTS:
            count(getattr(self, name), name)
        for number in self.positions or ():
            count(number, "accepted at a position")
        draft_length(self.k)
        for name in ("tokens_per_round", "prefix_rate"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= LONGEST_DRAFT + 1:
                raise ValueError(f"{name} is {value:g}: no engine can have measured that.")

    @property
    def who(self) -> str:
        """The engine, with the model where it is known, for messages."""
        return f"{self.engine} {self.source}" + (f", model {self.model!r}" if self.model else "")


def count(value: float | None, name: str) -> float | None:
    """The count itself; ValueError if no counter can show it."""
    if value is not None and not 0 <= value < _LARGEST_COUNT:
        raise ValueError(f"{name} is {value:g}: a count must be 0 or more, and finite.")
    return value


def draft_length(k: int | None) -> int | None:
    """k itself; ValueError unless it is a whole number of drafts a round can have."""
    if k is not None and (k != int(k) or not 1 <= k <= LONGEST_DRAFT):
        raise ValueError(f"k is {k}: drafts per round must be a whole number from 1 to {LONGEST_DRAFT}.")
    return k


def agree(given: int | None, found: float | None, where: str) -> int | None:
    """k from the user and k from the text; ValueError if they contradict each other."""
    if found is not None and (not math.isfinite(found) or found != int(found)):
        raise ValueError(f"{where} says k={found:g}, which is not a whole number.")
    found = draft_length(None if found is None else int(found))
    if given is not None and found is not None and given != found:
        raise ValueError(f"k={given} was given, but {where} says k={found}: leave k out, or read other text.")
    return draft_length(given if found is None else found)


def pool(readings: Sequence[Reading]) -> Reading:
    """The sum of readings that are not cumulative: intervals of a log, requests, runs of a benchmark.

    A count that one of them lacks is unknown for all. Raises ValueError for readings of different engines,
    models or k, for cumulative ones and for rates without counts.
    """
    first = readings[0]
    if len(readings) == 1:
        return first
    for other in readings:
        if (other.engine, other.source, other.model, other.k) != (
                first.engine, first.source, first.model, first.k):
            raise ValueError(f"{first.who} (k={first.k}) and {other.who} (k={other.k}) do not pool.")
        if other.cumulative:
            raise ValueError(f"{other.who}: cumulative counts hold each other; use the last, or `since`.")
        if other.tokens_per_round is not None or other.prefix_rate is not None:
            raise ValueError(f"{other.who}: rates without counts cannot be pooled.")
    totals = {name: _sum([getattr(reading, name) for reading in readings]) for name in COUNTS}
    return replace(first, **totals, positions=_add([reading.positions for reading in readings]),
                   notes=tuple(dict.fromkeys(note for r in readings for note in r.notes)),
                   warnings=tuple(dict.fromkeys(warning for r in readings for warning in r.warnings)),
                   reported={name: called for r in readings for name, called in r.reported.items()})


def difference(later: Reading, earlier: Reading) -> Reading:
    """What happened between two scrapes of the same counters.

    If they were reset in between (the engine restarted), the counts since the restart, and a warning. If the
    earlier text was cut off, there is a warning, too.
    Raises ValueError where a difference has no meaning: other engine, model or k, rates, not cumulative.
    """
    if (later.engine, later.model) != (earlier.engine, earlier.model):
        raise ValueError(f"the scrapes are of {later.who} and of {earlier.who}: take both from one engine.")
    if not (later.cumulative and earlier.cumulative):
        raise ValueError(f"{later.who}: only counters since the start can be subtracted; this is not one.")
    if later.k and earlier.k and later.k != earlier.k:
        raise ValueError(f"k was {earlier.k} in the earlier scrape and is {later.k} now: two deployments.")
    if all(getattr(later, name) is None for name in COUNTS):
        raise ValueError(f"{later.who}: there are gauges only, and gauges cannot be subtracted: "
                         "read each scrape by itself.")
    back = [f"{name} went from {before:g} to {after:g}" for name in COUNTS
            if (before := getattr(earlier, name)) is not None
            and (after := getattr(later, name)) is not None and after < before]
    if later.created and earlier.created and later.created != earlier.created:
        back.append("the counters have a new date of creation")
    # The gauges speak of a moment, not of the interval.
    later = replace(later, tokens_per_round=None, prefix_rate=None, cumulative=False, k=later.k or earlier.k,
                    notes=tuple(note for note in later.notes if note != SINCE_THE_START),
                    warnings=(*later.warnings, *(f"of the earlier scrape: {warning}" for warning in
                                                 earlier.warnings if warning.startswith(CUT_OFF))))
    if back:
        reset = (f"the engine restarted between the scrapes ({back[0]}): these are the counts since then, "
                 "and what it counted before is lost.")
        return replace(later, warnings=(*later.warnings, reset))
    totals = {name: None if (now := getattr(later, name)) is None else now - (getattr(earlier, name) or 0.0)
              for name in COUNTS}
    before = tuple(-number for number in earlier.positions or ())
    return replace(later, **totals, positions=_add([later.positions, before]) if later.positions else None)


def _sum(values: list[float | None]) -> float | None:
    return None if None in values else math.fsum(values)


def _add(rows: list[tuple[float, ...] | None]) -> tuple[float, ...] | None:
    """Position by position; a row that ends early counted nothing further on."""
    if None in rows:
        return None
    width = max(map(len, rows))
    # Rates printed to three digits, times rounds, leave crumbs below zero.
    return tuple(max(math.fsum(row[i] for row in rows if i < len(row)), 0.0) for i in range(width))
