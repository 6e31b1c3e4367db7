"""SGLang: /metrics, a response's `meta_info`, and the decode-batch log line.

Its gauges speak of the last log interval only. The one cumulative number is a quotient of counters:
(generated tokens - requests) / verify calls, since the first token of a text comes from its prefill.

Its "accept rate" changed definition. Older builds put the bonus token in the numerator and
num_draft_tokens = k + 1 below: length / (k + 1). Newer ones leave both out: (length - 1) / k, the prefix
rate. The pair (length, rate) tells which, since only one of the two makes k a whole number.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from course_lib.engines.reading import Reading, agree
from course_lib.engines.text import Scrape, number, numbers
from course_lib.engines.vllm import field, from_histogram

ENGINE = "SGLang"
MARK = r"^sglang:"
MISSING = ("no sglang:spec_* metrics: the server does not speculate (--speculative-algorithm), or has not "
           "drafted since it started.")
CALLED = {"tokens_per_round": "spec_accept_length, accept len",
          "prefix_rate": "spec_accept_rate, accept rate"}
_TREE = ("the draft is a tree ({nodes} drafted tokens for {k} steps, or top-k above 1): a rate divides by "
         "all branches, of which only one can be accepted. Read tokens per round; alpha here is of the "
         "best branch, and the chain formula does not predict another k.")


def promql(selector: str, k: int | None) -> dict[str, str]:
    """A PromQL expression for each definition; selector: label matchers, such as 'model_name="m"'."""
    def rate(name: str) -> str:
        return f"sum(rate(sglang:{name}_total{{{selector}}}[5m]))"

    emitted = f"({rate('generation_tokens')} - {rate('num_requests')})"
    calls = rate("spec_verify_calls")
    found = {"rounds": calls, "tokens_per_round": f"{emitted} / {calls}"}
    if k:
        found["prefix_rate"] = f"({emitted} / {calls} - 1) / {k}"
    return found


def read_scrape(scrape: Scrape, k: int | None) -> list[Reading]:
    """One reading a model."""
    return [_of_model(scrape, model, k) for model in scrape.models("sglang:spec_")]


def read_object(node: dict, model: str | None, k: int | None) -> Reading | None:
    """A response's `meta_info`."""
    if "spec_verify_ct" not in node:
        return None
    rounds = number(node, "spec_verify_ct")
    accepted = number(node, "spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
    drafted = number(node, "spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
    completion = number(node, "completion_tokens")
    if accepted is None and completion and rounds:
        accepted = max(completion - 1 - rounds, 0.0)  # the first token came from the prefill
    found = drafted / rounds if drafted and rounds else None
    chain, warnings = k, []
    if found is not None and k is not None and k < found:
        warnings.append(_TREE.format(nodes=f"{found:g}", k=k))
        drafted = k * rounds
    else:
        chain = agree(k, found, "spec_num_proposed_drafts / spec_verify_ct")
    reading = Reading(
        ENGINE, "request", model, k=chain, rounds=rounds, drafted=drafted, accepted=accepted,
        generated=completion, warnings=tuple(warnings),
        notes=("Drafted is verify calls x (num_draft_tokens - 1). spec_accept_length is completion tokens / "
               "verify calls, which counts the prefill's token too.",),
        reported={"tokens_per_round": "spec_accept_length", "prefix_rate": "spec_accept_rate",
                  "rounds": "spec_verify_ct"})
    return from_histogram(reading, numbers(node, "spec_correct_drafts_histogram", "spec_accept_histogram"))


def read_log(lines: list[str], k: int | None) -> list[Reading]:
    """One reading from all decode-batch lines."""
    pairs, weights = [], []
    for line in lines:
        _, mark, rest = line.partition("Decode batch")
        length = field(rest, "accept len") if mark else None
        if length and length >= 1:  # 0.00 is printed while nothing speculates
            pairs.append((length, field(rest, "accept rate")))
            weights.append(max(field(rest, "#running-req") or 0.0, 1.0))
    if not pairs:
        return []
    mean = math.fsum(w * length for w, (length, _) in zip(weights, pairs, strict=True)) / math.fsum(weights)
    notes = ["These lines carry no counts. Each covers the same number of steps, so they are weighted by the "
             "requests that were running."] if len(pairs) > 1 else []
    chain, warnings, said = _chain(pairs, 0.005, k)
    return [Reading(ENGINE, "log", k=chain, tokens_per_round=mean, notes=(*notes, *said),
                    warnings=tuple(warnings),
                    reported={"tokens_per_round": "accept len", "prefix_rate": "accept rate"})]


def definitions(pairs: Sequence[tuple[float, float | None]], rounding: float) -> list[tuple[str, int]]:
    """The (definition, k) that explain every pair (length, rate); definition is "older" or "newer".

    rounding: how far a printed number may be from the true one.
    """
    pairs = [(length, rate) for length, rate in pairs if rate is not None]
    found = []
    for k in range(1, 129 if pairs else 0):
        for name, below, bonus in (("newer", k, 1.0), ("older", k + 1, 0.0)):
            slack = rounding * (1 + 1 / below) + 1e-9
            if all(abs((length - bonus) / below - rate) <= slack and length <= k + 1 + rounding
                   for length, rate in pairs):
                found.append((name, k))
    return found


def _chain(pairs: Sequence[tuple[float, float | None]], rounding: float, k: int | None) -> tuple:
    """k for a chain, warnings, and what was concluded from the pairs."""
    found = definitions(pairs, rounding)
    if not any(rate is not None for _, rate in pairs):
        return k, [], []
    if not found:
        return k, ["no k and neither definition of the accept rate explain these pairs of length and rate: "
                   "the draft length varies, or the draft is a tree. The rate is left out."], []
    fitting = [(name, nodes) for name, nodes in found if nodes == k] if k else found
    if k and not fitting:
        nodes = min(nodes for _, nodes in found)
        if nodes > k:
            return k, [_TREE.format(nodes=nodes, k=k)], []
        raise ValueError(f"k={k} was given, but accept length and rate fit k={nodes} only.")
    names, ks = {name for name, _ in fitting}, {nodes for _, nodes in fitting}
    if len(ks) > 1:
        return k, [f"length and rate fit several k ({', '.join(map(str, sorted(ks)[:6]))}): pass --k. Until "
                   "then the accept rate cannot be read."], []
    if names == {"older"}:
        return ks.pop(), ["the accept rate is not what its name says: this build puts the bonus token in the "
                          "numerator and k + 1 below. The prefix rate here is computed from the length."], []
    return ks.pop(), [], ["The accept rate is the prefix rate in this build."] if len(names) == 1 else []


def _of_model(scrape: Scrape, model: str | None, k: int | None) -> Reading:
    info = next((name for name in ("sglang:speculative_config_info", "speculative_config_info")
                 if scrape.label(name, "spec_num_steps", model) is not None), "speculative_config_info")
    steps = scrape.gauge("sglang:spec_num_steps", model) or scrape.label(info, "spec_num_steps", model)
    tokens = (scrape.gauge("sglang:spec_num_draft_tokens", model)
              or scrape.label(info, "spec_num_draft_tokens", model))
    topk = scrape.label(info, "spec_eagle_topk", model)
    length = scrape.gauge("sglang:spec_accept_length", model)
    rate = scrape.gauge("sglang:spec_accept_rate", model)
    warnings, notes = [], []
    length = length if length else None  # 0 until the first interval is over
    known = k or steps or (tokens - 1 if tokens else None)
    chain = agree(k, known, "the gauge of draft tokens or steps")
    if length is not None and rate is not None:
        exact = bool(definitions([(length, rate)], 1e-6))  # else a text that was rounded
        chain, warnings, notes = _chain([(length, rate)], 1e-6 if exact else 0.005, chain)
    if chain and ((tokens and tokens - 1 > chain) or (topk and topk > 1)):
        warnings = [_TREE.format(nodes=f"{(tokens or 0) - 1:g}", k=chain)]
    reading = Reading(
        ENGINE, "metrics", model, k=chain, tokens_per_round=length, warnings=tuple(warnings),
        notes=(*notes, "The gauges speak of the last log interval only."),
        reported={"tokens_per_round": "sglang:spec_accept_length", "prefix_rate": "sglang:spec_accept_rate"})
    return _with_counters(reading, scrape, model)


def _with_counters(reading: Reading, scrape: Scrape, model: str | None) -> Reading:
    """The same with the cumulative counts, where their quotient is one that rounds can have."""
    calls = scrape.total("sglang:spec_verify_calls", model)
    generated, requests = (scrape.total(f"sglang:{name}", model)
                           for name in ("generation_tokens", "num_requests"))
    if calls is None or generated is None or requests is None:
        return reading
    accepted = generated - requests - calls
    if accepted < 0 or (reading.k and accepted > reading.k * calls):
        return replace(reading, warnings=(
            *reading.warnings, f"{generated:g} generated tokens less {requests:g} requests over {calls:g} "
            "verify calls is no number of tokens per round: not all requests speculated. The gauge is used."))
    mean = 1 + accepted / calls if calls else None
    warnings, gauge = reading.warnings, reading.tokens_per_round
    if mean and gauge and abs(gauge / mean - 1) > 0.1:
        warnings = (*warnings, f"the gauge spec_accept_length says {gauge:.2f}, the counters since the start "
                    f"{mean:.2f}: the gauge is of the last interval only, and is not used.")
    return replace(
        reading, cumulative=True, rounds=calls, accepted=accepted, emitted=generated - requests,
        generated=generated, tokens_per_round=None, prefix_rate=None, warnings=warnings,
        created=scrape.created("sglang:spec_verify_calls", model),
        reported={**reading.reported, "rounds": "sglang:spec_verify_calls_total"},
        notes=(*reading.notes, "Emitted is generated tokens - requests: prefill makes a text's first one."))
