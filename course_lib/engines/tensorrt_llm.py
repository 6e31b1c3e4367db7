"""TensorRT-LLM: /prometheus/metrics, iteration stats (`specDecodingStats`), per-response statistics.

Two families of counters do not cover the same requests: `..._num_draft_tokens_total` is counted every
iteration, `..._drafted_tokens_total{token_position}` when a request completes. The second is preferred,
since its first position counts rounds. The gauge of acceptance length is of the last iteration only.
"""

import math

from course_lib.engines.reading import Reading, agree
from course_lib.engines.text import Scrape, number, numbers
from course_lib.engines.vllm import from_histogram

ENGINE = "TensorRT-LLM"
MARK = r"^trtllm_"
MISSING = ("no trtllm_spec_decode_* metrics: the server does not speculate (speculative_config), or has not "
           "drafted since it started.")
CALLED = {"tokens_per_round": "acceptance_length, acceptanceLength", "prefix_rate": "acceptance_rate"}
_S = "trtllm_spec_decode_"


def promql(selector: str, k: int | None) -> dict[str, str]:
    """A PromQL expression for each definition; selector: label matchers, such as 'model_name="m"'."""
    def rate(name: str, more: str = "") -> str:
        labels = ",".join(filter(None, (selector, more)))
        return f"sum(rate({_S}{name}_total{{{labels}}}[5m]))"

    drafted, accepted, first = "drafted_tokens", "accepted_tokens", 'token_position="0"'
    position = f"sum by (token_position) (rate({_S}{accepted}_total{{{selector}}}[5m]))"
    return {
        "k": f"{rate(drafted)} / {rate(drafted, first)}",
        "rounds": rate(drafted, first),
        "drafted": rate(drafted),
        "accepted": rate(accepted),
        "tokens_per_round": f"1 + {rate(accepted)} / {rate(drafted, first)}",
        "prefix_rate": f"{rate(accepted)} / {rate(drafted)}",
        "per_position": f"{position} / scalar({rate(drafted, first)})",
    }


def read_scrape(scrape: Scrape, k: int | None) -> list[Reading]:
    """One reading a model."""
    return [_of_model(scrape, model, k) for model in scrape.models(_S)]


def read_object(node: dict, model: str | None, k: int | None) -> Reading | None:
    """A response's statistics, or one iteration's `specDecodingStats`."""
    stats = node.get("specDecodingStats")
    if isinstance(stats, dict) and "numDraftTokens" in stats:
        if node.get("attentionDpRank") not in (None, 0):
            return Reading(ENGINE, "iterations", model, k=k, rounds=0.0, drafted=0.0, accepted=0.0)
        return Reading(
            ENGINE, "iterations", model, k=k, rounds=number(stats, "numRequestsWithDraftTokens"),
            drafted=number(stats, "numDraftTokens"), accepted=number(stats, "numAcceptedTokens"),
            notes=("Iterations are pooled by counts; ranks above 0 repeat rank 0 and are left out.",),
            reported={"tokens_per_round": "acceptanceLength", "drafted": "numDraftTokens",
                      "accepted": "numAcceptedTokens", "rounds": "numRequestsWithDraftTokens"})
    if "total_accepted_draft_tokens" not in node:
        return None
    reading = Reading(
        ENGINE, "request", model, k=agree(k, number(node, "num_spec_tokens"), "num_spec_tokens"),
        rounds=number(node, "num_spec_steps"), drafted=number(node, "total_draft_tokens"),
        accepted=number(node, "total_accepted_draft_tokens"),
        notes=("avg_decoded_tokens_per_iter beside it divides by all iterations, drafts or not. For a tree, "
               "drafted counts one path.",),
        reported={"prefix_rate": "acceptance_rate", "drafted": "total_draft_tokens",
                  "accepted": "total_accepted_draft_tokens", "rounds": "num_spec_steps"})
    return from_histogram(reading, numbers(node, "acceptance_histogram"))


def read_log(lines: list[str], k: int | None) -> list[Reading]:
    """None: its log prints statistics as JSON, which `read_object` reads."""
    return []


def _of_model(scrape: Scrape, model: str | None, k: int | None) -> Reading:
    said = scrape.label("trtllm_speculative_config_info", "spec_num_tokens", model)
    k = agree(k, said, "trtllm_speculative_config_info")
    drafted = scrape.positions(f"{_S}drafted_tokens", "token_position", model)
    accepted = scrape.positions(f"{_S}accepted_tokens", "token_position", model) or ()
    if drafted and len(accepted) > len(drafted):
        raise ValueError(f"{_S}accepted_tokens has more positions than {_S}drafted_tokens: accepted exceeds "
                         "drafted.")
    generated = scrape.total("trtllm_generation_tokens", model)
    if drafted:
        return Reading(
            ENGINE, "metrics", model, cumulative=True, k=agree(k, len(drafted), "the number of positions"),
            rounds=drafted[0], drafted=math.fsum(drafted), accepted=math.fsum(accepted),
            positions=accepted + (0.0,) * (len(drafted) - len(accepted)), generated=generated,
            created=scrape.created(f"{_S}drafted_tokens", model),
            notes=("Counted when a request completes, since the engine started.",),
            reported={"rounds": f'{_S}drafted_tokens_total{{token_position="0"}}',
                      "drafted": f"{_S}drafted_tokens_total", "accepted": f"{_S}accepted_tokens_total",
                      "per_position": f"{_S}accepted_tokens_total / rounds"})
    total, taken = (scrape.total(f"{_S}num_{name}_tokens", model) for name in ("draft", "accepted"))
    length, warnings = scrape.gauge(f"{_S}acceptance_length", model), []
    if k is None and length:
        warnings.append(f"the gauge {_S}acceptance_length is of the last iteration, not since the start, and "
                        "these counters do not hold rounds: pass --k for tokens per round since the start.")
    if length is not None and length < 1:
        length = None  # 0 before the first round
    return Reading(
        ENGINE, "metrics", model, cumulative=True, k=k, drafted=total, accepted=taken, generated=generated,
        tokens_per_round=None if k else length, warnings=tuple(warnings),
        created=scrape.created(f"{_S}num_draft_tokens", model),
        reported={"drafted": f"{_S}num_draft_tokens_total", "accepted": f"{_S}num_accepted_tokens_total",
                  "tokens_per_round": f"{_S}acceptance_length (last iteration)"})
