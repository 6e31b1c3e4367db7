"""vLLM: /metrics of V1 and V0, per-request `metrics.speculative_decoding`, `vllm bench serve`, log lines.

V1 counts rounds (drafts), drafted and accepted tokens, and accepted tokens by position; a token counts as
accepted only if all before it were. V0 judged every position by itself, so its acceptance rate estimated
alpha, and only `emitted` tells what reached the text. Logs of V1 are per interval, of V0 since the start.
"""

import math
import re
from dataclasses import replace

from course_lib.engines.reading import SINCE_THE_START, Reading, agree, pool
from course_lib.engines.text import Scrape, draft_counters, number, numbers

ENGINE = "vLLM V1"
V0 = "vLLM V0"
MARK = r"^vllm:"
MISSING = ("no vllm:spec_decode_* metrics: the server does not speculate (--speculative-config), or has not "
           "drafted since it started.")
CALLED = {
    "tokens_per_round": "Mean acceptance length (log), Acceptance length (bench)",
    "prefix_rate": "Avg Draft acceptance rate (log), Acceptance rate (bench)",
    "per_position": "Per-position acceptance rate (log, bench)",
}
CALLED_V0 = {"alpha": "Draft acceptance rate"}
_S = "vllm:spec_decode_num_"


def promql(selector: str, k: int | None) -> dict[str, str]:
    """A PromQL expression for each definition; selector: label matchers, such as 'model_name="m"'."""
    def rate(name: str, more: str = "") -> str:
        labels = ",".join(filter(None, (selector, more)))
        return f"sum(rate({_S}{name}_total{{{labels}}}[5m]))"

    drafts, drafted, accepted = rate("drafts"), rate("draft_tokens"), rate("accepted_tokens")
    position = f"sum by (position) (rate({_S}accepted_tokens_per_pos_total{{{selector}}}[5m]))"
    found = {
        "k": f"{drafted} / {drafts}",
        "rounds": drafts,
        "drafted": drafted,
        "accepted": accepted,
        "tokens_per_round": f"1 + {accepted} / {drafts}",
        "prefix_rate": f"{accepted} / {drafted}",
        "per_position": f"{position} / scalar({drafts})",
    }
    if k:
        last = rate("accepted_tokens_per_pos", f'position="{k - 1}"')
        # Accepted over accepted and rejected: what alpha is, by maximum likelihood, if all drafts are alike.
        found["alpha"] = f"{accepted} / ({accepted} + {drafts} - {last})"
        if k > 1:  # of the last position, as an example: PromQL has no way to divide each by the one before
            before = rate("accepted_tokens_per_pos", f'position="{k - 2}"')
            found["conditional"] = f"{last} / {before}"
    return found


def read_scrape(scrape: Scrape, k: int | None) -> list[Reading]:
    """One reading a model."""
    return [_v0(scrape, model, k) if scrape.total("vllm:spec_decode_num_emitted_tokens", model) is not None
            else _v1(scrape, model, k) for model in scrape.models("vllm:spec_decode")]


def read_object(node: dict, model: str | None, k: int | None) -> Reading | None:
    """A response's `metrics.speculative_decoding`, or the JSON that `vllm bench serve` saves."""
    request = node.get("speculative_decoding")
    ours = {"num_accepted_draft_tokens", "acceptance_histogram"}  # TensorRT-LLM has a histogram, too
    if isinstance(request, dict) and ours & request.keys() and "total_accepted_draft_tokens" not in request:
        return _request(request, node, model, k)
    if "spec_decode_acceptance_length" in node or "spec_decode_num_drafts" in node:
        return _bench_json(node, model, k)
    return None


def read_log(lines: list[str], k: int | None) -> list[Reading]:
    """Readings from a server's log, or from the printed result of `vllm bench serve`."""
    return [*_log_v0(lines, k), *_log_v1(lines, k), *_bench_text(lines, k)]


def _v1(scrape: Scrape, model: str | None, k: int | None) -> Reading:
    return Reading(
        ENGINE, "metrics", model, cumulative=True, **draft_counters(scrape, _S, model, k),
        generated=scrape.total("vllm:generation_tokens", model), created=scrape.created(f"{_S}drafts", model),
        notes=(SINCE_THE_START,))


def _v0(scrape: Scrape, model: str | None, k: int | None) -> Reading:
    drafted, judged, emitted = (scrape.total(f"{_S}{name}_tokens", model)
                                for name in ("draft", "accepted", "emitted"))
    rate = scrape.gauge("vllm:spec_decode_draft_acceptance_rate", model)
    efficiency = scrape.gauge("vllm:spec_decode_efficiency", model)
    warnings = []
    if drafted and judged is not None and rate is not None and abs(rate - judged / drafted) > 0.01:
        warnings.append(f"the gauge spec_decode_draft_acceptance_rate says {rate:.3f}, the counters "
                        f"{judged / drafted:.3f}: one of them is not what its name says.")
    if k is None and drafted and emitted and efficiency:
        share = efficiency * drafted / emitted  # efficiency is emitted / (rounds (k + 1)), rounds drafted / k
        found = share / (1 - share) if share < 1 else math.nan
        k = round(found) if 0.5 < found < 100 and abs(found - round(found)) < 0.05 * found else None
    return Reading(
        V0, "metrics", model, cumulative=True, k=k, drafted=drafted, judged=judged, emitted=emitted,
        reported={"drafted": f"{_S}draft_tokens_total", "emitted": f"{_S}emitted_tokens_total",
                  "alpha": "vllm:spec_decode_draft_acceptance_rate"},
        notes=(_V0_NOTE,), warnings=tuple(warnings))


def _request(request: dict, node: dict, model: str | None, k: int | None) -> Reading:
    return from_histogram(Reading(
        ENGINE, "request", model, k=agree(k, number(request, "num_spec_tokens"), "num_spec_tokens"),
        rounds=number(request, "num_spec_steps"), drafted=number(request, "num_draft_tokens"),
        accepted=number(request, "num_accepted_draft_tokens"),
        reported={"tokens_per_round": "mean_acceptance_length", "prefix_rate": "draft_acceptance_rate",
                  "rounds": "num_spec_steps"}), numbers(request, "acceptance_histogram"))


def from_histogram(reading: Reading, histogram: tuple[float, ...] | None) -> Reading:
    """Positions from a histogram, whose entry j is how many rounds accepted exactly j drafts."""
    if not histogram:
        return reading
    rounds, accepted = math.fsum(histogram), math.fsum(j * n for j, n in enumerate(histogram))
    if reading.rounds is None or reading.accepted is None:
        reading = replace(reading, rounds=rounds, accepted=accepted)
    if (reading.rounds, reading.accepted) != (rounds, accepted):
        return replace(reading, warnings=(
            *reading.warnings, f"the histogram holds {rounds:g} rounds and {accepted:g} accepted, the counts "
            f"say {reading.rounds} and {reading.accepted}: the histogram is left out."))
    return replace(reading, positions=tuple(math.fsum(histogram[i:]) for i in range(1, len(histogram))))


def _bench_json(node: dict, model: str | None, k: int | None) -> Reading:
    rates = numbers(node, "spec_decode_per_position_acceptance_rates")
    return _bench(model, k, number(node, "spec_decode_num_drafts"), number(node, "spec_decode_draft_tokens"),
                  number(node, "spec_decode_accepted_tokens"), number(node, "spec_decode_acceptance_length"),
                  number(node, "spec_decode_acceptance_rate"), rates, "spec_decode_acceptance_rate")


def _bench(model, k, rounds, drafted, accepted, length, percent, rates, name) -> Reading:
    warnings = []
    if drafted and accepted is not None and percent is not None:
        if abs(percent / 100 - accepted / drafted) > 0.001:
            warnings.append(f"{name} is {percent:g}, but accepted / drafted is {accepted / drafted:.1%}: it "
                            "is a percentage in some versions and files, and a fraction in others.")
    counted = rounds is not None and accepted is not None
    return Reading(
        ENGINE, "benchmark", model, k=agree(k, len(rates) if rates else None, "the list of positions"),
        rounds=rounds, drafted=drafted, accepted=accepted,
        positions=tuple(rate * rounds for rate in rates) if rates and rounds is not None else None,
        tokens_per_round=None if counted else length,
        prefix_rate=None if counted or percent is None else percent / 100,
        reported={"tokens_per_round": "Acceptance length", "prefix_rate": "Acceptance rate (%)",
                  "per_position": "Per-position acceptance"}, warnings=tuple(warnings))


_N = r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_LIST = r"((?:[\d.]+|nan)(?:,\s*(?:[\d.]+|nan))*)"
_V0_NOTE = ("V0's draft acceptance rate judges every position by itself and estimates alpha; its system "
            "efficiency is emitted / (rounds x (k + 1)), the share of the most a round could emit.")


def field(text: str, label: str) -> float | None:
    """The number after `label:` (or `label =`); None if there is none, or nan."""
    found = re.search(rf"{label}\s*[:=]\s*{_N}", text)
    return float(found[1]) if found else None


def _log_v0(lines: list[str], k: int | None) -> list[Reading]:
    found = None
    for line in lines:
        _, mark, rest = line.partition("Speculative metrics:")
        values = [field(rest, rf"Number of {name} tokens(?: tokens)?")
                  for name in ("speculative", "draft", "accepted", "emitted")] if mark else [None]
        if None not in values:
            said, drafted, judged, emitted = values
            # Each line holds those before it: the last one is all there is.
            found = Reading(V0, "log", cumulative=True, drafted=drafted, judged=judged, emitted=emitted,
                            k=agree(k, said, "'Number of speculative tokens'"), notes=(_V0_NOTE,),
                            reported={"alpha": "Draft acceptance rate", "drafted": "Number of draft tokens",
                                      "emitted": "Number of emitted tokens"})
    return [found] if found else []


def _log_v1(lines: list[str], k: int | None) -> list[Reading]:
    by_k: dict[int | None, list[Reading]] = {}
    for line in lines:
        _, mark, rest = line.partition("SpecDecoding metrics:")
        if not mark:
            continue
        accepted, drafted = field(rest, "Accepted"), field(rest, "Drafted")
        if drafted is None or accepted is None:
            continue
        listed = re.search(rf"Per-position acceptance rate:\s*{_LIST}", rest)
        # An interval without drafts prints nan for every rate.
        rates = [float(rate) if drafted else 0.0 for rate in re.split(r",\s*", listed[1])] if listed else []
        length, this_k = field(rest, "Mean acceptance length"), agree(k, len(rates) or None, "the positions")
        rounds = rounds_from_length(accepted, drafted, length, this_k)
        by_k.setdefault(this_k, []).append(Reading(
            ENGINE, "log", k=this_k, rounds=rounds, drafted=drafted, accepted=accepted,
            positions=tuple(rate * rounds for rate in rates) if rates and rounds is not None else None,
            reported={"tokens_per_round": "Mean acceptance length", "per_position": CALLED["per_position"],
                      "prefix_rate": "Draft acceptance rate"},
            notes=("Each line is one interval; they are pooled by their counts.",)))
    return [pool(readings) for readings in by_k.values()]


def rounds_from_length(accepted: float, drafted: float, length: float | None, k: int | None) -> float | None:
    """Rounds, which a line does not print: drafted / k if every round drafted k, else from the mean length.

    length is printed to two digits, so that rounds are good to about one in a hundred.
    """
    if not drafted:
        return 0.0
    if k and drafted % k == 0:
        full = drafted / k
        if length is None or abs(1 + accepted / full - length) < 0.0051:
            return full
    if length is not None and length > 1 and accepted:
        return float(max(round(accepted / (length - 1)), 1))
    return float(math.ceil(drafted / k)) if k else None


def _bench_text(lines: list[str], k: int | None) -> list[Reading]:
    blocks: list[str] = []
    for line in lines:
        if re.search(r"Acceptance rate \(%\):", line):
            blocks.append("")
        if blocks:
            blocks[-1] += line + "\n"
    found: dict[int | None, list[Reading]] = {}
    for block in blocks:
        found_rates = {int(at): float(rate) / 100
                       for at, rate in re.findall(r"Position (\d{1,3}):\s*(\d{1,3}(?:\.\d+)?)\b", block)}
        if sorted(found_rates) != list(range(len(found_rates))):
            raise ValueError("the benchmark's positions do not run from 0 without a gap: the text is cut.")
        rates = [found_rates[i] for i in range(len(found_rates))]
        reading = _bench(None, k, field(block, r"(?<!\w)Drafts"), field(block, "Draft tokens"),
                         field(block, "Accepted tokens"), field(block, "Acceptance length"),
                         field(block, r"Acceptance rate \(%\)"), rates or None, "Acceptance rate (%)")
        found.setdefault(reading.k, []).append(reading)
    return [pool(readings) for readings in found.values()]
