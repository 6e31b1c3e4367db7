"""Whatever text comes in, out comes an `Acceptance` or one ValueError of one line, no other exception."""

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib.engines import Acceptance, ledger, read_all, read_metrics

FIXTURES = sorted((Path(__file__).parent / "fixtures" / "engines").glob("*.txt"))
TEXTS = [path.read_text() for path in FIXTURES]
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
ODD = ["0", "-1", "1", "2", "0.5", "1e-300", "1e17", "1e300", "1e999", "-0.0", "NaN", "+Inf", "-Inf", "nan",
       "inf", "", "٣", "0x10", "1_000", "1,000", "true", "null", '"3"', "[]", "{}", "9" * 30, "9" * 5000]


@st.composite
def mutated(draw):
    """A fixture, or two, with numbers exchanged, lines lost, repeated or moved, and characters spoilt."""
    text = "\n".join(draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["number", "number", "number", "cut", "drop", "repeat", "spoil", "swap"]))
        if kind == "number" and (found := list(NUMBER.finditer(text))):
            hit = draw(st.sampled_from(found))
            new = draw(st.sampled_from(ODD) | st.integers(0, 3000).map(str) | st.floats().map(str))
            text = text[: hit.start()] + new + text[hit.end():]
        elif kind in ("drop", "repeat") and (lines := text.splitlines()):
            at = draw(st.integers(0, len(lines) - 1))
            lines[at:at + 1] = [] if kind == "drop" else [lines[at]] * 2
            text = "\n".join(lines)
        elif kind == "cut":
            text = text[: draw(st.integers(0, len(text)))]
        elif kind == "swap":
            one, other = draw(st.sampled_from([
                ("position", "token_position"), ("_total", ""), ("model_name", "model"),
                ("vllm:", "llamacpp:"), ("llamacpp:", "vllm:"),
                ("{", "["), ('"', ""), (",", ""), (":", "="), ("accepted", "draft")]))
            text = text.replace(one, other)
        elif kind == "spoil" and text:
            at = draw(st.integers(0, len(text) - 1))
            text = text[:at] + draw(st.text(max_size=5)) + text[at + draw(st.integers(0, 3)):]
    return text


@st.composite
def counted(draw):
    """An exposition of any engine, with any numbers in its counters and any number of positions."""
    prefix, names, label = draw(st.sampled_from([
        ("vllm:spec_decode_num_", ["drafts", "draft_tokens", "accepted_tokens", "emitted_tokens"],
         "position"),
        ("llamacpp:spec_decode_num_", ["drafts", "draft_tokens", "accepted_tokens"], "position"),
        ("trtllm_spec_decode_", ["num_draft_tokens", "num_accepted_tokens", "acceptance_length"],
         "token_position"),
        ("sglang:spec_", ["verify_calls", "accept_length", "accept_rate", "num_steps", "num_draft_tokens"],
         "x")]))
    value = (st.integers(0, 400) | st.floats(0, 5) | st.floats() | st.integers(0, 10**20)).map(str)
    lines = [f"{prefix}{name}{draw(st.sampled_from(['', '_total']))} {draw(value)}"
             for name in names if draw(st.booleans()) or draw(st.booleans())]
    for name in ("accepted_tokens_per_pos", "drafted_tokens", "accepted_tokens"):
        lines += [f'{prefix}{name}_total{{{label}="{i}"}} {draw(value)}'
                  for i in draw(st.lists(st.integers(0, 5) | st.integers(), max_size=6))]
    for name in ("vllm:generation_tokens", "sglang:generation_tokens", "sglang:num_requests",
                 "vllm:spec_decode_efficiency", "vllm:spec_decode_draft_acceptance_rate"):
        if draw(st.booleans()):
            lines.append(f"{name} {draw(value)}")
    return "\n".join(draw(st.permutations(lines)))


_json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from([
        "meta_info", "timings", "metrics", "speculative_decoding", "specDecodingStats", "model", "choices",
        "draft_n", "draft_n_accepted", "predicted_n", "spec_verify_ct", "spec_accept_token_num",
        "spec_draft_token_num", "spec_accept_histogram", "completion_tokens", "num_spec_steps",
        "num_accepted_draft_tokens", "num_draft_tokens", "num_spec_tokens", "acceptance_histogram",
        "total_draft_tokens", "total_accepted_draft_tokens", "numDraftTokens", "numAcceptedTokens",
        "numRequestsWithDraftTokens", "attentionDpRank", "spec_decode_num_drafts", "spec_decode_draft_tokens",
        "spec_decode_accepted_tokens", "spec_decode_acceptance_rate", "spec_decode_acceptance_length",
        "spec_decode_per_position_acceptance_rates"]), inner, max_size=8), max_leaves=25)
_streamed = st.lists(_json_value.map(lambda value: "data: " + json.dumps(value)), max_size=3)
responses = _json_value.map(json.dumps) | _streamed.map("\n".join)
texts = st.one_of(mutated(), mutated(), counted(), responses, st.text(max_size=200),
                  st.binary(max_size=300).map(lambda raw: raw.decode(errors="replace")))
ks = st.none() | st.none() | st.integers(1, 8) | st.integers()


def reads_or_refuses(text, k):
    try:
        found = read_all(text, k)
    except ValueError as error:
        assert str(error) and "\n" not in str(error)
        return
    assert found
    for one in found:
        assert isinstance(one, Acceptance)
        believable(one)
        json.dumps(ledger.document(one), allow_nan=False)
        ledger.interval_line(1.0, one)
        try:
            believable(one.since(one))
        except ValueError as error:
            assert str(error)
    try:
        assert read_metrics(text, k) in found
    except ValueError as error:
        assert len(found) > 1 and "several" in str(error)


def believable(one):
    """The claims that hold for any acceptance, whatever it was read from."""
    for name in ("prefix_rate", "alpha"):
        value = getattr(one, name)
        assert value is None or -1e-9 <= value <= 1 + 1e-5
    assert one.k is None or 1 <= one.k <= 1000
    for name in ("tokens_per_round", "tokens_per_step"):
        value = getattr(one, name)
        assert value is None or 1 <= value < math.inf
    if one.tokens_per_round is not None and one.k is not None:
        assert one.tokens_per_round <= (one.k + 1) * 1.011
    for rates in (one.per_position, one.conditional):
        assert all(rate is None or 0 <= rate <= 1 + 1e-9 for rate in rates or ())
    if one.drafted == 0 or one.rounds == 0:
        assert any("no traffic" in warning for warning in one.warnings)


_any_pace = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=300, suppress_health_check=_any_pace)
@given(texts, ks)
def test_an_acceptance_or_one_value_error(text, k):
    reads_or_refuses(text, k)


@pytest.mark.slow
@settings(max_examples=10_000, suppress_health_check=_any_pace)
@given(texts, ks)
def test_ten_thousand_texts(text, k):
    reads_or_refuses(text, k)


@pytest.mark.parametrize("text", [
    *("\n".join(['vllm:spec_decode_num_drafts_total{model_name="m"} ' + value,
                 'vllm:spec_decode_num_draft_tokens_total{model_name="m"} ' + other])
      for value in ("5e-324", "1e-5", "0", "3") for other in ("1e17", "0", "5e-324", "inf")),
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="999999999999"} 1',
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="٣"} 1',
    "Decode batch. accept len: 1e999, accept rate: 1e999", "statistics x: #gen drafts = " + "9" * 5000,
    '{"draft_n": ' + "9" * 5000 + "}", "data: " + "[" * 100_000, "{" * 5000, "\x00" * 50, "\ud800",
    "draft acceptance = 1.0 ( 0 accepted / 0 generated)", "SpecDecoding metrics: Accepted: , Drafted: ",
])
def test_texts_that_break_parsers(text):
    reads_or_refuses(text, None)
