"""Text in, records out: Prometheus samples and JSON objects, whatever else surrounds them."""

import json
import math
import re
from collections import deque
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from course_lib.engines.reading import CUT_OFF, agree, count
from course_lib.whole import LONGEST_DRAFT

# Only these lines of an exposition matter here; a broken line among the thousand others does not.
_OURS = re.compile(
    r"(vllm:(spec_decode|generation_tokens)|sglang:(spec_|generation_tokens|num_requests)"
    r"|trtllm_(spec_|speculative_config|generation_tokens)|llamacpp:(spec_decode|tokens_predicted_total)"
    r"|(sglang:)?speculative_config_info)")
_NOT_VALUES = ("_bucket", "_sum", "_count")


class Scrape:
    """The speculative samples of one Prometheus text, in the classic or the OpenMetrics spelling.

    Counters are found with or without their `_total`. Values are added over all labels but the model's
    (several engines or ranks behind one address). Raises ValueError for a sample that cannot be read.
    """

    def __init__(self, text: str) -> None:
        self._samples: dict[str, dict[tuple, float]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not _OURS.match(line):
                continue
            name, labels, value = sample(line, number)
            if name.endswith(_NOT_VALUES):
                continue
            series = self._samples.setdefault(name, {})
            key = tuple(sorted(labels.items()))
            if key in series:
                raise ValueError(f"line {number}: {name} appears twice with the same labels: the text holds "
                                 "two scrapes. Keep one, and give the earlier one as --since.")
            series[key] = value

    def models(self, prefix: str) -> list[str | None]:
        """The models for which a name that begins with `prefix` has samples, in order."""
        return list(dict.fromkeys(_model(dict(key)) for name, series in self._samples.items()
                                  if name.startswith(prefix) for key in series))

    def total(self, name: str, model: str | None) -> float | None:
        """A counter's value; None if it is not there."""
        values = [value for _, value in self._of(name, model)]
        return count(math.fsum(values), name) if values else None

    def positions(self, name: str, label: str, model: str | None) -> tuple[float, ...] | None:
        """A counter with one series a position (0, 1, ...), as a list in order; None if it is not there."""
        found: dict[int, float] = {}
        for labels, value in self._of(name, model):
            at = labels.get(label, "")
            if not re.fullmatch(r"\d{1,4}", at) or int(at) >= LONGEST_DRAFT:
                raise ValueError(f"{name} has the {label} {at!r}: a position is a number from 0.")
            found[int(at)] = found.get(int(at), 0.0) + count(value, name)
        return tuple(found.get(i, 0.0) for i in range(max(found) + 1)) if found else None

    def gauge(self, name: str, model: str | None) -> float | None:
        """The mean of a gauge over ranks; None if it is not there, or is nan (nothing measured yet)."""
        values = [value for _, value in self._of(name, model) if math.isfinite(value)]
        return math.fsum(values) / len(values) if values else None

    def label(self, name: str, label: str, model: str | None) -> float | None:
        """A number that an info gauge carries in a label; None if there is none."""
        for labels, _ in [*self._of(name, model), *self._of(name, None)]:
            if re.fullmatch(r"\d{1,4}", labels.get(label, "")):
                return float(labels[label])
        return None

    def created(self, name: str, model: str | None) -> float | None:
        """When a counter began, from its `_created` gauge: never a count, but it tells of a restart."""
        return self.gauge(f"{name}_created", model)

    def series(self, name: str, model: str | None) -> set[tuple]:
        """The labels of a counter's samples, one for each engine or rank behind the address."""
        return {tuple(sorted(labels.items())) for labels, _ in self._of(name, model)}

    def _of(self, name: str, model: str | None) -> list[tuple[dict, float]]:
        series = self._samples.get(f"{name}_total") or self._samples.get(name) or {}
        return [(labels, value) for key, value in series.items()
                if _model(labels := dict(key)) == model]


def sample(line: str, at: int) -> tuple[str, dict, float]:
    """Name, labels and value of line number `at`; ValueError if that is no sample."""
    line = line.partition(" # ")[0]  # an OpenMetrics exemplar
    try:
        (family,) = text_string_to_metric_families(line + "\n")
        (found,) = family.samples
        return found.name, dict(found.labels), float(found.value)
    except Exception as error:  # the parser meets broken lines with whatever went wrong inside it
        raise ValueError(f"line {at} is not a Prometheus sample ({error}): {line[:60]!r}. Was the text "
                         "cut off? Scrape again.") from None


def draft_counters(scrape: Scrape, start: str, model: str | None, k: int | None) -> dict:
    """The four counters that vLLM V1 and llama.cpp name alike after `start`, as fields of a Reading.

    An engine counts drafts, drafted and accepted tokens together. A warning says which of them lacks series
    that another has; only drafts may be missing as a whole, as from older builds.
    """
    positions = scrape.positions(f"{start}accepted_tokens_per_pos", "position", model)
    names = {"rounds": "drafts", "drafted": "draft_tokens", "accepted": "accepted_tokens"}
    values = {ours: scrape.total(start + theirs, model) for ours, theirs in names.items()}
    reported = {ours: f"{start}{theirs}_total" for ours, theirs in names.items() if values[ours] is not None}
    if positions:
        reported["per_position"] = f"{start}accepted_tokens_per_pos_total / {start}drafts_total"
    k = agree(k, len(positions) if positions else None, "the number of position labels")
    series = {theirs: scrape.series(start + theirs, model) for theirs in names.values()}
    every = set().union(*series.values())
    lacking = [theirs for theirs, found in series.items() if found != every and (found or theirs != "drafts")]
    warnings = [f"{CUT_OFF}, or filtered: {start}{theirs}_total is there for {len(series[theirs])} of "
                f"{len(every)} series, so counts are missing. Scrape again." for theirs in lacking]
    return {**values, "positions": positions, "k": k, "reported": reported, "warnings": tuple(warnings)}


def is_json(text: str) -> bool:
    """Is the whole text one JSON document?"""
    try:
        _load(text)
    except ValueError:
        return False
    return True


def json_objects(text: str) -> Iterator[tuple[dict, str | None]]:
    """Every object in a JSON document, or in lines of JSON among other lines, with its model's name.

    Strings are never looked into: a chat's own text may well contain an engine's log line. Of a streamed
    response (`data:` lines) only the last object comes, since its counts include those before it.
    """
    try:
        yield from _walk(_load(text))
        return
    except ValueError:
        pass
    streamed = None
    for line in text.splitlines():
        line = line.strip()
        event = line.startswith("data:")
        line = line.removeprefix("data:").strip()
        if not line.startswith(("{", "[")):
            continue
        try:
            document = _load(line)
        except ValueError:
            continue
        if event:
            streamed = document if _has_counts(document) else streamed
        else:
            yield from _walk(document)
    if streamed is not None:
        yield from _walk(streamed)


def number(node: dict, *keys: str) -> float | None:
    """The first of the keys that holds a number; ValueError if what it holds is none."""
    for key in keys:
        value = node.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key} is {str(value)[:40]!r}: a number belongs there.")
        try:
            return count(float(value), key)
        except OverflowError:
            raise ValueError(f"{key} is too large for a count.") from None
    return None


def numbers(node: dict, *keys: str) -> tuple[float, ...] | None:
    """The first of the keys that holds a list, as numbers; ValueError if it holds anything else."""
    for key in keys:
        values = node.get(key)
        if isinstance(values, list) and values:
            if len(values) > LONGEST_DRAFT:
                raise ValueError(f"{key} has {len(values)} entries: no draft is that long.")
            return tuple(number({key: value}, key) or 0.0 for value in values)
    return None


def _model(labels: dict) -> str | None:
    return labels.get("model_name") or labels.get("model") or None


def _load(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply.") from None


def _walk(document: object) -> Iterator[tuple[dict, str | None]]:
    queue: deque[tuple[object, str | None]] = deque([(document, None)])
    while queue:
        node, model = queue.popleft()
        if isinstance(node, dict):
            name = next((node[key] for key in ("model", "model_id") if isinstance(node.get(key), str)), model)
            yield node, name
            queue.extend((value, name) for value in node.values() if isinstance(value, dict | list))
        elif isinstance(node, list):
            queue.extend((value, model) for value in node if isinstance(value, dict | list))


def _has_counts(document: object) -> bool:
    keys = {"speculative_decoding", "spec_verify_ct", "draft_n", "total_draft_tokens", "specDecodingStats"}
    return any(keys & node.keys() for node, _ in _walk(document))
