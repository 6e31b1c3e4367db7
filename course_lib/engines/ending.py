"""Does a Prometheus text end where a whole one can? One that was cut off may still look fine."""

import re

from course_lib.engines.reading import CUT_OFF
from course_lib.engines.text import sample

_TYPES = ("counter", "gauge", "histogram", "summary", "untyped", "unknown", "info", "stateset",
          "gaugehistogram")
_NAME = r"[a-zA-Z_:][\w:]*"


def cut_off(text: str) -> str | None:
    """A warning, if this text ends in the middle of a line, of a histogram or of a summary; None otherwise.

    Whole text may lack its last line end, hold numbers of few digits, and end in the # TYPE of a family
    that has no samples yet: a text that was cut there is not told apart.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    last, before = lines[-1], lines[:-1]
    if _is_part_of_comment(last) or (not text.endswith("\n") and _is_part_of_sample(last, before)):
        where = f"its last line, {last[:60]!r}"
    elif name := _family_without_end(lines):
        where = name
    else:
        return None
    return f"{CUT_OFF} in {where}: what came after that is missing. Scrape again."


def _is_part_of_comment(line: str) -> bool:
    """Of a # TYPE, or a # HELP, in which no text ends."""
    mark, kind, *rest = [*line.split(), "", ""]
    if mark != "#" or not kind or not ("HELP".startswith(kind) or "TYPE".startswith(kind)):
        return False
    return kind != "TYPE" or rest[1:2] == [""] or rest[1] not in _TYPES


def _is_part_of_sample(line: str, before: list[str]) -> bool:
    if re.fullmatch(_NAME, line):  # may be anything, unless the lines before have such a name
        return any(other.removeprefix("# TYPE ").startswith(line) for other in before)
    if not re.fullmatch(_NAME + r"(\{.*|\s+[\d.eE+-]+)", line):
        return False
    try:
        sample(line, 0)
    except ValueError:
        return True
    return False


def _family_without_end(lines: list[str]) -> str | None:
    """The name of the last family, if it is a histogram or a summary and a series of it lacks its end."""
    declared = [at for at, line in enumerate(lines) if line.startswith("# TYPE ")]
    _, _, name, kind, *_ = [*lines[declared[-1]].split(), "", ""] if declared else [""] * 4
    if kind not in ("histogram", "summary"):
        return None
    series: dict[tuple, set[str]] = {}
    for line in lines[declared[-1] + 1:]:
        try:
            found, labels, _ = sample(line, 0)
        except ValueError:
            continue
        part = found.removeprefix(name) if labels.pop("le", "+Inf") == "+Inf" else "a bucket"
        labels.pop("quantile", None)
        series.setdefault(tuple(sorted(labels.items())), set()).add(part)
    for parts in series.values():
        if {"_sum", "_count", *(["_bucket"] if "a bucket" in parts else [])} - parts:
            return name
    return None
