"""llama.cpp: /metrics, a response's `timings`, and what the server and the examples print.

Its drafts end early (low confidence, end of the text), so drafted is often below k x rounds. "#acc drafts /
#gen drafts" in its statistics is the share of rounds that accepted their first token, not a token rate.
"""

import re

from course_lib.engines.reading import SINCE_THE_START, Reading, agree, pool
from course_lib.engines.text import Scrape, draft_counters, number
from course_lib.engines.vllm import field, rounds_from_length

ENGINE = "llama.cpp"
MARK = r"^llamacpp:"
MISSING = ("no llamacpp:spec_decode_* metrics: the server does not speculate (--spec-type, -md), has not "
           "drafted yet, or is an older build: then its log and each response's timings have the counts.")
CALLED = {"tokens_per_round": "mean len, #mean acc len", "prefix_rate": "draft acceptance (rate)",
          "per_position": "#acc rate/pos, acceptance rate per position"}
_S = "llamacpp:spec_decode_num_"
_VALUES = r"\(((?:\s*\d\.\d+,?)*)\s*\)"


def promql(selector: str, k: int | None) -> dict[str, str]:
    """A PromQL expression for each definition; selector: label matchers, such as 'instance="host:8080"'."""
    drafts, drafted, accepted = (f"sum(rate({_S}{name}_total{{{selector}}}[5m]))"
                                 for name in ("drafts", "draft_tokens", "accepted_tokens"))
    position = f"sum by (position) (rate({_S}accepted_tokens_per_pos_total{{{selector}}}[5m]))"
    tokens = f"sum(rate(llamacpp:tokens_predicted_total{{{selector}}}[5m]))"
    return {
        "k": f"{drafted} / {drafts}",
        "rounds": drafts,
        "drafted": drafted,
        "accepted": accepted,
        "tokens_per_round": f"1 + {accepted} / {drafts}",
        "prefix_rate": f"{accepted} / {drafted}",
        "per_position": f"{position} / scalar({drafts})",
        "tokens_per_step": f"{tokens} / ({tokens} - {accepted})",
    }


def read_scrape(scrape: Scrape, k: int | None) -> list[Reading]:
    """One reading a model; the server's own labels name none."""
    return [Reading(
        ENGINE, "metrics", model, cumulative=True, **draft_counters(scrape, _S, model, k),
        generated=scrape.total("llamacpp:tokens_predicted", model),
        notes=(SINCE_THE_START,))
        for model in scrape.models("llamacpp:spec_decode")]


def read_object(node: dict, model: str | None, k: int | None) -> Reading | None:
    """A response's `timings`, which hold drafted and accepted tokens but not rounds."""
    if "draft_n" not in node:
        return None
    return Reading(
        ENGINE, "request", model, k=k, drafted=number(node, "draft_n"),
        accepted=number(node, "draft_n_accepted") or 0.0, generated=number(node, "predicted_n"),
        warnings=() if k else (_NO_K,), reported={"drafted": "draft_n", "accepted": "draft_n_accepted"})


def read_log(lines: list[str], k: int | None) -> list[Reading]:
    """One reading a drafter from statistics lines, else one from all request lines or example summaries.

    Statistics hold the same traffic as the request lines beside them, and rounds as well.
    """
    return _statistics(lines, k) or _requests(lines, k) or _example(lines, k)


_NO_K = ("rounds are not in this text: pass --k (--spec-draft-n-max) for tokens per round and alpha. "
         "Accepted / drafted is the prefix rate, below alpha unless k=1.")


def _statistics(lines: list[str], k: int | None) -> list[Reading]:
    last: dict[str, Reading] = {}
    for line in lines:
        found = re.search(r"statistics\s+([^\s:]+)\s*:(.*)", line)
        if not found:
            continue
        name, rest = found.groups()
        values = [field(rest, f"#{what}") for what in ("gen drafts", "gen tokens", "acc tokens")]
        if None in values:
            continue
        rounds, drafted, accepted = values
        calls = re.search(r"#calls\(b,g,a\)\s*=\s*\d+\s+\d+\s+(\d+)", rest)
        rates = _rates(re.search(r"#acc rate/pos\s*=\s*" + _VALUES, rest))
        counted = "#gen drafts"
        if calls and float(calls[1]) > 0:
            rounds = float(calls[1])  # the rounds that the mean and the rates are over
            counted = "the last of #calls(b,g,a)"
        last[name] = Reading(  # each line holds those before it
            ENGINE, "log", name, cumulative=True, rounds=rounds, drafted=drafted, accepted=accepted,
            k=agree(k, len(rates) or None, "the list of positions"),
            positions=tuple(rate * rounds for rate in rates) or None,
            notes=(SINCE_THE_START, "Of one drafter. #acc drafts / #gen drafts is the chance that the first "
                   "token is accepted, not a token rate."),
            reported={"tokens_per_round": "#mean acc len", "per_position": "#acc rate/pos",
                      "rounds": counted, "drafted": "#gen tokens", "accepted": "#acc tokens"})
    return list(last.values())


def _requests(lines: list[str], k: int | None) -> list[Reading]:
    by_k: dict[int | None, list[Reading]] = {}
    for line in lines:
        found = re.search(r"draft acceptance(?: rate)?\s*=\s*[\d.]+\s*"
                          r"\(\s*(\d+) accepted\s*/\s*(\d+) generated\)(.*)", line)
        if not found or float(found[2]) == 0:
            continue
        accepted, drafted, rest = float(found[1]), float(found[2]), found[3]
        rates = _rates(re.search(r"acceptance rate per position\s*=\s*" + _VALUES, rest))
        named = re.search("mean (?:acceptance length|len)", rest)
        length = field(rest, named[0]) if named else None
        longest = agree(k, len(rates) or None, "the line")
        rounds = rounds_from_length(accepted, drafted, length, longest) if length is not None else None
        by_k.setdefault(longest, []).append(Reading(
            ENGINE, "log", k=longest, drafted=drafted, accepted=accepted, rounds=rounds,
            positions=tuple(rate * rounds for rate in rates) if rates and rounds else None,
            warnings=() if longest or rounds else (_NO_K,),
            notes=("One line a request; they are pooled by their counts.",),
            reported={"prefix_rate": "draft acceptance (rate)",
                      "tokens_per_round": named[0] if named else "mean len",
                      "drafted": "generated", "accepted": "accepted"}))
    return [pool(readings) for readings in by_k.values()]


def _example(lines: list[str], k: int | None) -> list[Reading]:
    """What the speculative examples print at their end: n_draft (which is k), n_drafted, n_accept."""
    text = "\n".join(lines)
    drafted, accepted = field(text, "n_drafted"), field(text, "n_accept")
    if drafted is None or accepted is None:
        return []
    k = agree(k, field(text, "n_draft"), "n_draft")
    return [Reading(ENGINE, "log", k=k, drafted=drafted, accepted=accepted,
                    warnings=() if k else (_NO_K,),
                    reported={"prefix_rate": "accept", "drafted": "n_drafted", "accepted": "n_accept"})]


def _rates(found: re.Match | None) -> list[float]:
    return [float(value) for value in re.findall(r"\d\.\d+", found[1])] if found else []
