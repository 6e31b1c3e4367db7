"""What a running engine counted between two moments, in JSON, whatever it can or cannot say."""

from __future__ import annotations

from typing import NamedTuple

from course_lib.engines import Acceptance, read_all
from course_lib.engines.client import root
from course_lib.engines.scrape import fetch_text

FIELDS = ("k", "rounds", "drafted", "accepted", "tokens_per_round", "prefix_rate", "alpha", "per_position",
          "generated")


class Snapshot(NamedTuple):
    """The counters of one moment; acceptance is None where there are none; drafts: does it speculate?"""

    acceptance: Acceptance | None
    says: str = ""
    drafts: bool | None = None


def snapshot(base: str, model: str | None = None) -> Snapshot:
    """Read the counters of the engine at this address (of this model, if it serves several). Never raises."""
    try:
        found = read_all(fetch_text(root(base)))
    except (ValueError, OSError) as error:
        return Snapshot(None, str(error), False if "does not speculate" in str(error) else None)
    named = found if len(found) == 1 else [one for one in found if one.model == model]
    if len(named) != 1:
        return Snapshot(None, f"{base} counts for several models, and {model} is not one of them.")
    return Snapshot(named[0], drafts=True)


def between(before: Snapshot, after: Snapshot) -> dict:
    """The counts from one moment to the next: FIELDS (None where unknown; rounds 0 where nothing speculates)
    and warnings, those of the reading included."""
    nothing = dict.fromkeys(FIELDS)
    if after.acceptance is None:
        return nothing | ({"rounds": 0, "warnings": []} if after.drafts is False
                          else {"warnings": [f"no counters: {after.says}"]})
    one, warnings = after.acceptance, []
    if before.acceptance is not None:
        try:
            one = one.since(before.acceptance)
        except ValueError as error:
            return nothing | {"warnings": [f"no difference of counters: {error}"]}
    elif before.drafts is None:
        warnings = ["the counters before could not be read: these are since the engine started."]
    found = {name: getattr(one, name) for name in FIELDS[:-1]}
    found["generated"] = one.reading.generated  # tokens of the whole service, drafted or not
    found["per_position"] = list(one.per_position) if one.per_position else None
    return found | {"warnings": [*warnings, *one.warnings]}
