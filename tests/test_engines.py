"""Engines' texts become the same `Acceptance`: every format, every misreading refused or said."""

import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from course_lib import __main__ as cli
from course_lib.engines import implied_alpha, ledger, pooled, promql, read_all, read_metrics, sglang
from course_lib.engines.reading import CUT_OFF
from course_lib.engines.scrape import fetch_text
from course_lib.theory import alpha_from_prefix_rate, alpha_from_tokens, expected_tokens

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures" / "engines"
CASES = {case["id"]: case for case in json.loads((HERE / "acceptance_cases.json").read_text())["cases"]}


def text(name):
    return (FIXTURES / f"{name}.txt").read_text()


def read(name, **options):
    return read_metrics(text(name), **options)


def case(name):
    return CASES[name]["input"], CASES[name]["expect"]


def vllm(drafts, drafted, accepted, positions=(), model="m", created=None, generated=None):
    """A V1 exposition with these counts."""
    at = f'engine="0",model_name="{model}"'
    lines = [f"vllm:spec_decode_num_{name}_total{{{at}}} {value}" for name, value in
             (("drafts", drafts), ("draft_tokens", drafted), ("accepted_tokens", accepted))]
    lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{at},position="{i}"}} {value}'
              for i, value in enumerate(positions)]
    if created:
        lines.append(f"vllm:spec_decode_num_drafts_created{{{at}}} {created}")
    if generated is not None:
        lines.append(f"vllm:generation_tokens_total{{{at}}} {generated}")
    return "\n".join(lines) + "\n"


# What each text says: engine, source, k, rounds, drafted, accepted, tokens per round, prefix rate.
SAYS = {
    "vllm_v1": ("vLLM V1", "metrics", 3, 1000, 3000, 1600, 2.6, 1600 / 3000),
    "vllm_v1_recorded": ("vLLM V1", "metrics", 3, 1813, 5439, 135, 1 + 135 / 1813, 135 / 5439),
    "vllm_v1_openmetrics": ("vLLM V1", "metrics", 2, 100, 200, 120, 2.2, 0.6),
    "vllm_cliff": ("vLLM V1", "metrics", 3, 412, 1236, 160, 1 + 160 / 412, 160 / 1236),
    "vllm_v0": ("vLLM V0", "metrics", 4, 13429, 53716, 20815, 34244 / 13429, 20815 / 53716),
    "vllm_v0_log": ("vLLM V0", "log", 4, 13429, 53716, 20815, 34244 / 13429, 20815 / 53716),
    "vllm_v1_log_0.9": ("vLLM V1", "log", 2, 120, 240, 130, 1 + 130 / 120, 130 / 240),
    "vllm_v1_log_2025": ("vLLM V1", "log", 3, 110, 330, 203, 1 + 203 / 110, 203 / 330),
    "vllm_bench": ("vLLM V1", "benchmark", 3, 600, 1800, 1200, 3.0, 2 / 3),
    "vllm_bench_json": ("vLLM V1", "benchmark", 3, 600, 1800, 1200, 3.0, 2 / 3),
    "vllm_request": ("vLLM V1", "request", 3, 43, 129, 10, 53 / 43, 10 / 129),
    "sglang": ("SGLang", "metrics", 3, 1000, 3000, 1500, 2.5, 0.5),
    "sglang_gauges": ("SGLang", "metrics", 3, None, None, None, 2.8, 0.6),
    "sglang_tree": ("SGLang", "metrics", 3, None, None, None, 2.5, 0.5),
    "sglang_log_newer": ("SGLang", "log", 3, None, None, None, (2.53 + 3 * 2.17) / 4, 0.42),
    "sglang_log_older": ("SGLang", "log", 3, None, None, None, 2.35, 0.45),
    "sglang_request": ("SGLang", "request", 3, 10, 30, 15, 2.5, 0.5),
    "tensorrt_llm": ("TensorRT-LLM", "metrics", 3, 300, 900, 410, 1 + 410 / 300, 410 / 900),
    "tensorrt_llm_totals": ("TensorRT-LLM", "metrics", None, None, 900, 450, 2.9, 0.5),
    "tensorrt_llm_iterations": ("TensorRT-LLM", "iterations", 3, 10, 30, 12, 2.2, 0.4),
    "tensorrt_llm_request": ("TensorRT-LLM", "request", 4, 10, 40, 16, 2.6, 0.4),
    "llama_cpp": ("llama.cpp", "metrics", 3, 87, 259, 167, 254 / 87, 167 / 259),
    "llama_cpp_log_requests": ("llama.cpp", "log", None, None, 339, 178, None, 178 / 339),
    "llama_cpp_log_positions": ("llama.cpp", "log", 4, 97, 388, 257, 354 / 97, 257 / 388),
    "llama_cpp_example": ("llama.cpp", "log", 5, 52, 260, 208, 5.0, 0.8),
    "llama_cpp_timings": ("llama.cpp", "request", None, None, 60, 36, None, 0.6),
}
SEVERAL = {"two_models", "llama_cpp_log"}


@pytest.mark.parametrize("name", SAYS)
def test_each_text_says_what_the_engine_counted(name):
    engine, source, k, rounds, drafted, accepted, tokens, rate = SAYS[name]
    one = read(name)
    assert (one.engine, one.source, one.k, one.rounds) == (engine, source, k, rounds)
    assert (one.drafted, one.accepted) == (drafted, accepted)
    assert one.tokens_per_round == (None if tokens is None else pytest.approx(tokens))
    assert one.prefix_rate == pytest.approx(rate)
    assert one.reported and json.dumps(one.as_dict(), allow_nan=False)


def test_every_fixture_is_read():
    assert {path.stem for path in FIXTURES.glob("*.txt")} == SAYS.keys() | SEVERAL


@pytest.mark.parametrize("name", [name for name, says in SAYS.items() if says[2] and says[6]])
def test_definitions_agree_with_each_other(name):
    one = read(name)
    if not any("k varies" in warning for warning in one.warnings):
        assert one.tokens_per_round == pytest.approx(1 + one.k * one.prefix_rate)
        assert one.alpha == pytest.approx(alpha_from_tokens(one.tokens_per_round, one.k), abs=1e-9)
        assert expected_tokens(one.alpha, one.k) == pytest.approx(one.tokens_per_round)
    if one.per_position and one.source != "log":  # a log's rates are rounded
        assert 1 + sum(one.per_position) == pytest.approx(one.tokens_per_round)
        reached = np.cumprod([1 if rate is None else rate for rate in one.conditional])
        np.testing.assert_allclose(reached[: np.count_nonzero(one.per_position)],
                                   [rate for rate in one.per_position if rate])


# The cases that public bug reports show people getting wrong, as an engine prints them.


def test_case_v0_independent_counter():
    given, expect = case("v0-independent-counter")
    line = ("INFO metrics.py] Speculative metrics: Draft acceptance rate: 0.607, System efficiency: 0.510, "
            f"Number of speculative tokens: {given['k']}, Number of accepted tokens: {given['accepted']}, "
            f"Number of draft tokens: {given['drafted']}, Number of emitted tokens: {given['emitted']}.")
    for one in (read_metrics(line), read("vllm_v0")):
        assert one.rounds == expect["rounds"] and one.accepted == expect["prefix_accepted"]
        assert one.tokens_per_round == pytest.approx(expect["tokens_per_round"], abs=5e-5)
        assert one.prefix_rate == pytest.approx(expect["prefix_rate"], abs=5e-5)
        assert any(expect["flag"] in warning for warning in one.warnings)
    # A neighbour that adds up is not flagged, and one of another k is refused.
    honest = line.replace(str(given["accepted"]), str(expect["prefix_accepted"]))
    assert not read_metrics(honest).warnings
    with pytest.raises(ValueError, match="whole number of rounds of k=5"):
        read_metrics(line.replace("speculative tokens: 4", "speculative tokens: 5"))


def test_case_prefix_rate_is_not_alpha():
    given, expect = case("prefix-rate-is-not-alpha")
    k, drafted, accepted = given["k"], given["drafted"], given["accepted"]
    timings = json.dumps({"timings": {"draft_n": drafted, "draft_n_accepted": accepted}})
    line = f"draft acceptance rate = 0.8 ( {accepted} accepted / {drafted} generated)"
    for one in (read("llama_cpp_example"), read_metrics(timings, k=k), read_metrics(line, k=k)):
        assert one.rounds == expect["rounds"] and one.tokens_per_round == expect["tokens_per_round"]
        assert one.prefix_rate == expect["naive_alpha"]
        assert one.alpha == pytest.approx(expect["alpha"], abs=5e-5)
    assert read_metrics(timings).alpha is None and "--k" in read_metrics(timings).warnings[0]


def test_case_unconditional_positions():
    given, expect = case("unconditional-positions")
    rates = given["per_position"]
    text = json.dumps({"spec_decode_num_drafts": 10_000, "spec_decode_draft_tokens": 80_000,
                       "spec_decode_accepted_tokens": round(10_000 * sum(rates)),
                       "spec_decode_per_position_acceptance_rates": rates})
    one = read_metrics(text)
    assert one.tokens_per_round == pytest.approx(expect["tokens_per_round"], abs=5e-5)
    np.testing.assert_allclose(one.conditional, expect["conditional"], atol=6e-5)
    np.testing.assert_allclose(one.per_position, rates)
    # Conditional rates in their place rise, and no unconditional rate does.
    with pytest.raises(ValueError, match="conditional rates already"):
        read_metrics(text.replace(json.dumps(rates), json.dumps(expect["conditional"])))


def test_case_llama_cpp_counters():
    given, expect = case("llama-cpp-counters")
    one = read("llama_cpp")
    assert (one.k, one.rounds, one.drafted, one.accepted) == (
        given["k"], given["rounds"], given["drafted"], given["accepted"])
    assert one.tokens_per_round == pytest.approx(expect["tokens_per_round"], abs=5e-5)
    np.testing.assert_allclose(one.per_position, given["per_position"], atol=5e-4)
    assert "259 drafted is below k x rounds = 3 x 87" in one.warnings[0]
    assert "unobserved, not rejected" in one.warnings[0]
    # alpha allows for the short round: more than if its missing drafts had been rejected.
    assert alpha_from_tokens(one.tokens_per_round, 3) < one.alpha < alpha_from_prefix_rate(one.prefix_rate, 3)


def test_case_histogram():
    given, expect = case("histogram")
    one = read("vllm_request")
    assert {name: getattr(one, name) for name in ("rounds", "accepted", "drafted")}.items() <= expect.items()
    assert one.k == given["k"] and one.prefix_rate == pytest.approx(expect["prefix_rate"], abs=5e-6)
    assert one.tokens_per_round == pytest.approx(expect["tokens_per_round"], abs=5e-6)
    assert one.per_position == pytest.approx([4 / 43, 3 / 43, 3 / 43])
    torn = read_metrics(text("vllm_request").replace("[39, 1, 0, 3]", "[39, 1, 0, 4]"))
    assert torn.per_position is None and "histogram is left out" in torn.warnings[0]
    alone = json.loads(text("vllm_request"))
    part = alone["metrics"]["speculative_decoding"]
    alone["metrics"]["speculative_decoding"] = {
        key: part[key] for key in ("acceptance_histogram", "num_spec_tokens")}
    same = read_metrics(json.dumps(alone))
    for name in ("k", "rounds", "accepted", "drafted", "tokens_per_round", "alpha", "per_position"):
        assert getattr(same, name) == getattr(one, name), name


@pytest.mark.parametrize("form", ["metrics", "log", "request", "llama"])
def test_case_rate_above_one(form):
    given, expect = case("rate-above-one")
    drafted, accepted = given["drafted"], given["accepted"]
    texts = {
        "metrics": vllm(25, drafted, accepted),
        "log": f"SpecDecoding metrics: Mean acceptance length: 6.2, Accepted: {accepted} tokens, "
               f"Drafted: {drafted} tokens, Per-position acceptance rate: 1.0, 1.0, 1.0, 1.0",
        "request": json.dumps({"meta_info": {"spec_verify_ct": 25, "spec_accept_token_num": accepted,
                                             "spec_draft_token_num": drafted}}),
        "llama": json.dumps({"draft_n": drafted, "draft_n_accepted": accepted}),
    }
    with pytest.raises(ValueError, match=expect["error"]):
        read_metrics(texts[form])


# What else is refused or said.


def test_a_cliff_to_zero_is_said_and_an_ordinary_tail_is_not():
    assert "cliff to zero" in read("vllm_cliff").warnings[0]
    later = read_metrics(vllm(1000, 4000, 1100, (600, 500, 0, 0)))
    assert "position 2 is accepted 50.0% of the time, position 3 never" in later.warnings[0]
    assert not read_metrics(vllm(20, 60, 2, (2, 0, 0))).warnings  # few rounds, low rate: zeros are ordinary
    assert not read_metrics(vllm(100, 300, 0, (0, 0, 0))).warnings


def test_no_traffic():
    one = read_metrics(vllm(0, 0, 0, (0, 0, 0)))
    assert "no traffic" in one.warnings[0] and one.k == 3
    assert one.tokens_per_round is one.prefix_rate is one.alpha is None


def test_k_that_varies_and_k_that_is_wrong():
    assert not any("k varies" in warning for warning in read("vllm_v1").warnings)
    assert "2.500 a round" in read_metrics(vllm(100, 250, 100)).warnings[0]
    assert read_metrics(vllm(100, 250, 100)).k == 3
    with pytest.raises(ValueError, match="more than k=2"):
        read_metrics(vllm(100, 300, 100), k=2)
    with pytest.raises(ValueError, match="k=5 was given, but the number of position labels says k=3"):
        read("vllm_v1", k=5)
    for k in (0, -1, 1001):
        with pytest.raises(ValueError, match="whole number from 1"):
            read("vllm_v1", k=k)


def test_tokens_past_the_end_of_the_text():
    assert "never reached the text" in read_metrics(vllm(100, 300, 150, generated=240)).warnings[0]
    one = read_metrics(vllm(100, 300, 150, generated=450))
    assert not one.warnings and one.tokens_per_step == pytest.approx(450 / 300)
    assert one.tokens_per_step < one.tokens_per_round


def test_counts_that_are_not_whole_or_do_not_add_up():
    assert "not a whole number" in read_metrics(vllm(33.3, 100, 50)).warnings[0]
    assert "positions add up to 900" in read_metrics(vllm(1000, 2000, 1500, (600, 300))).warnings[0]
    with pytest.raises(ValueError, match="more than|between 0 and 1"):
        read_metrics(vllm(100, 200, 150, (120, 30)))  # more acceptances at a position than rounds


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-5", "1e300"])
def test_values_no_counter_has(value):
    with pytest.raises(ValueError, match="must be 0 or more, and finite"):
        read_metrics(vllm(value, 100, 50))


def test_gauges_that_are_not_what_their_name_says():
    assert "not what its name says" in read("sglang_gauges").warnings[0]
    v0 = text("vllm_v0").replace("0.6067837516", "0.3875")
    assert "one of them is not what its name says" in " ".join(read_metrics(v0).warnings)
    stale = read_metrics(text("sglang").replace("2.53", "3.4").replace("0.51", "0.8"))
    assert stale.tokens_per_round == 2.5 and "is of the last interval only" in stale.warnings[0]
    percent = read_metrics(text("vllm_bench_json").replace("66.66666666666667", "0.6667"))
    assert "a percentage in some versions" in percent.warnings[0]
    assert "last iteration" in read("tensorrt_llm_totals").warnings[0]
    with_k = read("tensorrt_llm_totals", k=3)
    assert with_k.tokens_per_round == 2.5 and with_k.rounds == 300


def test_a_tree_is_not_read_as_a_chain():
    assert "the draft is a tree" in read("sglang_tree").warnings[0]
    line = "Decode batch. #running-req: 1, accept len: 2.50, accept rate: 0.10, cuda graph: True,"
    assert "several k (15, 23" in read_metrics(line).warnings[0]  # only who set the steps knows of the tree
    one = read_metrics(line, k=3)
    assert one.k == 3 and "the draft is a tree" in one.warnings[0]
    meta = text("sglang_request").replace('"spec_num_proposed_drafts": 30', '"spec_num_proposed_drafts": 150')
    one = read_metrics(meta, k=3)
    assert one.drafted == 30 and "the draft is a tree" in one.warnings[0]


def test_the_two_accept_rates_of_sglang_are_told_apart():
    assert "not what its name says" in read("sglang_log_older").warnings[0]
    assert not read("sglang_log_newer").warnings
    for k in range(1, 9):
        for length in np.linspace(1.2, k + 0.9, 7):
            newer = [(round(length, 2), round((length - 1) / k, 2))]
            older = [(round(length, 2), round(length / (k + 1), 2))]
            assert ("newer", k) in sglang.definitions(newer, 0.005)
            assert ("older", k) in sglang.definitions(older, 0.005)
    # One pair may fit several; then the rate is not read, until k is given.
    few = "Decode batch. #running-req: 1, accept len: 1.02, accept rate: 0.00, gen throughput (token/s): 1"
    assert "several k" in read_metrics(few).warnings[0] and read_metrics(few).prefix_rate is None
    assert read_metrics(few, k=4).prefix_rate == pytest.approx(0.005)
    odd = "Decode batch. #running-req: 1, accept len: 2.50, accept rate: 0.99, cuda graph: True,"
    assert "neither definition" in read_metrics(odd).warnings[0]


def test_log_intervals_pool_by_counts_not_by_rates():
    one = read("vllm_v1_log_0.9")
    assert one.prefix_rate == pytest.approx(130 / 240) and one.prefix_rate != pytest.approx((0.6 + 0.25) / 2)
    assert one.per_position == pytest.approx([(70 + 6) / 120, (50 + 4) / 120])
    varied = ("SpecDecoding metrics: Mean acceptance length: 2.00, Accepted: 40 tokens, Drafted: 90 tokens, "
              "Per-position acceptance rate: 0.600, 0.300, 0.100")
    assert read_metrics(varied).rounds == 40  # the mean length knows; 90 / 3 would be 30 rounds
    assert "k varies" in read_metrics(varied).warnings[0]


def test_llama_cpp_drafters_stay_apart():
    drafters = read_all(text("llama_cpp_log"))
    assert [(one.model, one.rounds, one.accepted) for one in drafters] == [
        ("draft-simple", 268, 630), ("ngram-mod", 40, 100)]
    assert [one.tokens_per_round for one in drafters] == pytest.approx([3.35, 3.50], abs=0.005)
    assert read("llama_cpp_log", model="ngram-mod").accepted == 100


def test_several_models_are_named_and_chosen():
    with pytest.raises(ValueError, match="several here: vLLM V1 metrics, model 'a', k=3; vLLM V1 metrics, "
                                         "model 'b', k=5; llama.cpp metrics"):
        read("two_models")
    assert read("two_models", model="b").tokens_per_round == 1.5
    with pytest.raises(ValueError, match="no model 'c'"):
        read("two_models", model="c")
    assert [one.model for one in read_all(text("two_models"))] == ["a", "b", None]


def test_a_chat_that_quotes_a_log_is_not_a_log():
    assert read("vllm_request").accepted == 10
    quoted = json.dumps({"choices": [{"text": text("vllm_v1_log_2025") + text("vllm_v1")}]})
    with pytest.raises(ValueError, match="nothing here is recognised"):
        read_metrics(quoted)
    assert read_metrics(quoted + "\n" + text("llama_cpp_log_requests")).engine == "llama.cpp"


def test_requests_are_pooled_and_streams_counted_once():
    lines = "\n".join(json.dumps({"timings": {"draft_n": n, "draft_n_accepted": n // 2, "predicted_n": n}})
                      for n in (10, 20, 30))
    assert (read_metrics(lines).drafted, read_metrics(lines).accepted) == (60, 30)
    stream = "\n\n".join("data: " + line for line in lines.splitlines()) + "\n\ndata: [DONE]\n"
    assert (read_metrics(stream).drafted, read_metrics(stream).accepted) == (30, 15)  # each holds the last
    assert pooled([read_metrics(line) for line in lines.splitlines()]).drafted == 60
    with pytest.raises(ValueError, match="do not pool"):
        pooled([read_metrics(lines), read("vllm_request")])
    with pytest.raises(ValueError, match="cumulative"):
        pooled([read("vllm_v1"), read("vllm_v1")])


def test_prefixes_and_line_ends_are_tolerated():
    for name in ("vllm_v1_log_2025", "vllm_v0_log", "sglang_log_newer", "llama_cpp_log_requests"):
        plain = read(name)
        for dressed in ("\r\n".join(text(name).splitlines()),
                        "\n".join("engine-1  | 2026-12-01T10:00:00Z " + line
                                  for line in text(name).splitlines())):
            assert read_metrics(dressed).as_dict() == plain.as_dict()


def test_names_without_total_and_text_around_do_not_matter():
    bare = text("vllm_v1").replace("_total{", "{")
    assert read_metrics(bare).accepted == 1600
    broken = 'vllm:lora_requests_info{this is "broken\n' + text("vllm_v1")
    assert read_metrics(broken).accepted == 1600
    with pytest.raises(ValueError, match="appears twice with the same labels"):
        read_metrics(text("vllm_v1") * 2)
    with pytest.raises(ValueError, match="line 1 is not a Prometheus sample"):
        read_metrics('vllm:spec_decode_num_drafts_total{model_name="a" 3')


@pytest.mark.parametrize(("given", "message"), [
    ("", "the text is empty"), ("  \n", "the text is empty"), ("hello", "nothing here is recognised"),
    ("vllm:num_requests_running 1.0", "--speculative-config"), ("sglang:token_usage 0.1", "--speculative-al"),
    ("llamacpp:n_decode_total 3", "--spec-type"), ("trtllm_num_active_requests 1", "speculative_config"),
    ("[" * 100_000, "nothing here is recognised"), ('{"draft_n": true}', "a number belongs there"),
    ('{"draft_n": 1' + "0" * 400 + "}", "too large"),
])
def test_other_text_is_refused_in_one_line(given, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        read_metrics(given)
    assert "\n" not in str(error.value)


# A scrape that was cut off.


@pytest.mark.parametrize("name", sorted({path.stem for path in FIXTURES.glob("*.txt")}))
def test_whole_text_is_not_called_cut_off_with_or_without_its_last_line_end(name):
    for whole in (text(name), text(name).rstrip("\n")):
        assert not any(CUT_OFF in warning for one in read_all(whole) for warning in one.warnings)


LATENCY = """# TYPE vllm:latency histogram
vllm:latency_bucket{engine="0",le="0.5"} 3.0
vllm:latency_bucket{engine="0",le="+Inf"} 4.0
vllm:latency_count{engine="0"} 4.0
vllm:latency_sum{engine="0"} 1.5
"""


@pytest.mark.parametrize("end", [
    "vll", "vllm:latency_bucket{eng", 'vllm:latency_bucket{engine="0",le="0.5"}', "vllm:latency 1.78e+",
    "# HE", "# HELP vllm:latency", "# HELP vllm:latency Long.\n", "# TYPE vllm:la", "# TYPE vllm:latency hi",
    *(LATENCY[:LATENCY.index(line)] for line in ('vllm:latency_bucket{engine="0",le="+', "vllm:latency_count",
                                                 "vllm:latency_sum")),
    LATENCY + LATENCY.partition("\n")[2].replace('"0"', '"1"').partition("vllm:latency_s")[0],
])
def test_a_scrape_that_was_cut_off_says_so_and_is_read_as_far_as_it_goes(end):
    one = read_metrics(vllm(100, 300, 150) + end)
    assert one.accepted == 150 and [warning.startswith(CUT_OFF) for warning in one.warnings] == [True]
    assert one.warnings[0].endswith("Scrape again.")


@pytest.mark.parametrize("end", [
    "# TYPE vllm:latency histogram", LATENCY, LATENCY + "# EOF", "# a word of ours", "# This too", "#", "END",
    "user@host:~$", "INFO starting", 'INFO {"a":', "vllm:latency_sum 5", "vllm:latency_sum 5 1780274620",
])
def test_what_may_be_whole_is_not_called_cut_off(end):
    assert not read_metrics(vllm(100, 300, 150) + end).warnings


def test_counts_that_a_cut_took_away_are_missed():
    whole = text("vllm_v1")
    for start, count in (("# HELP vllm:spec_decode_num_draft_tokens", 0),
                         ('vllm:spec_decode_num_accepted_tokens_total{engine="1"', 1)):
        warnings = read_metrics(whole[:whole.index(start)]).warnings
        assert f"tokens_total is there for {count} of 2 series" in " ".join(warnings)
    older = re.sub(r".*num_drafts_total.*\n", "", whole)  # a build that does not count drafts
    assert not any(CUT_OFF in warning for warning in read_metrics(older).warnings)
    with pytest.raises(ValueError, match="vLLM V1: the text was cut off in its last line, 'vllm:spec'"):
        read_metrics("vllm:num_requests_running 1.0\nvllm:spec_decode_x 1\nvllm:spec")


def test_a_difference_says_that_the_earlier_scrape_was_cut_off():
    earlier = read_metrics(vllm(100, 300, 150) + "vllm:lat{")
    one = read_metrics(vllm(300, 900, 600)).since(earlier)
    assert one.warnings[0].startswith(f"of the earlier scrape: {CUT_OFF}")


# Two scrapes.


def test_the_difference_of_two_scrapes():
    later = read_metrics(vllm(300, 900, 600, (270, 200, 130), generated=1000))
    one = later.since(read_metrics(vllm(100, 300, 150, (80, 50, 20), generated=300)))
    assert (one.rounds, one.drafted, one.accepted) == (200, 600, 450)
    assert one.per_position == pytest.approx([190 / 200, 150 / 200, 110 / 200])
    assert one.tokens_per_round == 3.25 and one.tokens_per_step == pytest.approx(700 / 250)
    assert "no traffic" in later.since(later).warnings[0]
    assert "take two scrapes" in later.notes[0] and one.notes == ()  # it is the difference of two
    v0 = read("vllm_v0").since(read_metrics(
        text("vllm_v0").replace("32594", "220").replace("53716", "400").replace("34244", "240")))
    assert v0.emitted == 34004 and v0.rounds == 13329 and "estimates alpha" in v0.warnings[0]
    assert read("sglang").since(read_metrics(text("sglang").replace("1000.0", "400.0").replace(
        "2520", "1300").replace("num_requests_total{engine_type=\"unified\",model_name=\"llama\"} 20",
                                "num_requests_total{engine_type=\"unified\",model_name=\"llama\"} 10"))
                                ).tokens_per_round == pytest.approx(1210 / 600)


def test_a_reset_between_scrapes_is_found():
    before = read_metrics(vllm(300, 900, 600, created=1e9))
    smaller = read_metrics(vllm(100, 300, 150, created=1e9)).since(before)
    assert smaller.rounds == 100
    assert "restarted between the scrapes (rounds went from 300 to 100)" in smaller.warnings[0]
    # A restart that overtook the old counts shows in the date alone.
    overtaken = read_metrics(vllm(400, 1200, 700, created=2e9)).since(before)
    assert overtaken.rounds == 400 and "date of creation" in overtaken.warnings[0]


def test_differences_without_meaning_are_refused():
    for later, earlier, why in (
            (read("vllm_v1"), read("llama_cpp"), "take both from one engine"),
            (read("vllm_request"), read("vllm_request"), "only counters since the start"),
            (read("sglang_gauges"), read("sglang_gauges"), "only counters since the start"),
            (read("vllm_v1"), read_metrics(vllm(9, 27, 9)), "take both from one engine"),
            (read_metrics(vllm(9, 45, 9, (5, 4, 0, 0, 0))), read_metrics(vllm(3, 9, 3, (2, 1, 0))),
             "k was 3")):
        with pytest.raises(ValueError, match=why):
            later.since(earlier)


def test_alpha_for_rounds_of_mixed_length():
    for k in (1, 2, 3, 8):
        for accepted in (0.0, 0.3 * k, 0.9 * k, k):
            assert implied_alpha(accepted, k) == pytest.approx(alpha_from_tokens(accepted + 1, k), abs=1e-9)
    # Half the rounds draft 2, half 3, each draft accepted with .7: brute force over both lengths.
    accepted = np.mean([sum(0.7**i for i in range(1, k + 1)) for k in (2, 3)])
    assert implied_alpha(accepted, 2.5) == pytest.approx(0.7)
    with pytest.raises(ValueError, match="accepted exceeds drafted"):
        implied_alpha(2.6, 2.5)


# The ledger and its command.


@pytest.mark.parametrize("name", ["vllm_v1", "sglang", "tensorrt_llm", "llama_cpp"])
def test_promql_uses_metrics_that_the_engine_exports(name):
    expressions = promql(read(name))
    assert {"tokens_per_round", "prefix_rate", "rounds"} <= expressions.keys()
    exported = set(re.findall(r"^([\w:]+)", text(name), re.MULTILINE))
    for expression in expressions.values():
        names = re.findall(r"([a-z]+(?::|_)[\w:]+)\{", expression)
        assert names and set(names) <= exported
        assert expression.count("(") == expression.count(")")
    assert promql(read("vllm_v0")) == {}


def test_promql_gives_the_ledgers_numbers():
    """The expressions, computed: rate(x) of a constant slope is proportional to x."""
    one = read("vllm_v1")
    totals = {name: float(value) for name, value in (("drafts", 1000), ("draft_tokens", 3000),
                                                     ("accepted_tokens", 1600))}
    for definition in ("tokens_per_round", "prefix_rate", "k"):
        expression = re.sub(r"sum\(rate\(vllm:spec_decode_num_(\w+)_total\{[^}]*\}\[5m\]\)\)",
                            lambda found: str(totals[found[1]]), promql(one)[definition])
        assert re.fullmatch(r"[\d. +/]+", expression)
        assert eval(expression) == pytest.approx(getattr(one, definition))


def test_the_ledger_shows_every_definition():
    console = Console(width=120, record=True, file=open("/dev/null", "w"))
    ledger.show(read("vllm_v1"), None, console)
    shown = console.export_text()
    for words in ("tokens per round", "2.6000", "prefix rate", "0.5333", "0.720  0.720", "0.7171", "PromQL",
                  "sum(rate(vllm:spec_decode_num_drafts_total", "Mean acceptance length", "note:",
                  "alpha (accepted / judged)  sum("):
        assert words in shown or words == "0.720  0.720"
    assert "0.720  0.520  0.360" in shown and "0.720  0.722  0.692" in shown


def run(*arguments, **options):
    return CliRunner().invoke(cli.app, ["metrics", *map(str, arguments)], **options)


def test_command(tmp_path):
    done = run(FIXTURES / "vllm_v1.txt", "--json")
    assert done.exit_code == 0
    (document,) = json.loads(done.stdout)
    assert document["tokens_per_round"] == 2.6 and "prefix_rate" in document["promql"]
    assert run(FIXTURES / "two_models.txt", "--json", "--model", "b").exit_code == 0
    assert len(json.loads(run(FIXTURES / "two_models.txt", "--json").stdout)) == 3
    assert json.loads(run("-", "--json", input=text("llama_cpp")).stdout)[0]["k"] == 3
    earlier = tmp_path / "earlier.txt"
    earlier.write_text(vllm(400, 1200, 640, (300, 200, 140), model="meta-llama/Llama-3.1-8B-Instruct"))
    (document,) = json.loads(run(FIXTURES / "vllm_v1.txt", "--since", earlier, "--json").stdout)
    assert (document["rounds"], document["accepted"]) == (600, 960)
    table = run(FIXTURES / "vllm_v1.txt")
    assert table.exit_code == 0 and "tokens per round" in table.stdout and "PromQL" in table.stdout


@pytest.mark.parametrize(("arguments", "message"), [
    (["no-such-file.txt"], "there is no file no-such-file.txt"), (["localhost:8000"], "write http://localhost:8000"),
    (["http://127.0.0.1:9/metrics"], "is the server up"),
    *(([source], f"{source!r} is no address: write http://HOST:PORT.") for source in (
        "http://", "http:/localhost:8000", "http:localhost:8000", "http://:8000", "http://localhost:80000",
        "http://localhost:0", "http://localhost:8000a", "http://localhost 8000", "ftp://localhost")),
    (["-", "--watch", "1"], "standard input"), ([str(FIXTURES / "llama_cpp.txt"), "--watch", "0"], "above 0"),
    ([str(FIXTURES / "llama_cpp.txt"), "--costs", "none.json"], "none.json cannot be read"),
    ([str(FIXTURES / "llama_cpp.txt"), "--model", "x"], "no model 'x'"), (["README.md"], "nothing here"),
    ([str(FIXTURES / "llama_cpp.txt"), "--since", str(FIXTURES / "vllm_v1.txt")], "in common"),
])
def test_command_refuses_in_one_line(arguments, message, monkeypatch):
    monkeypatch.chdir(HERE.parent)
    done = run(*arguments)
    assert done.exit_code == 2 and done.stdout == ""
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_of_two_texts_the_one_that_cannot_be_read_is_named(tmp_path):
    whole, empty = FIXTURES / "two_models.txt", tmp_path / "empty.txt"
    empty.touch()
    for arguments, said in (([whole, "--since", empty], f"{empty}: the text is empty."),
                            ([empty, "--since", whole], f"{empty}: the text is empty."),
                            (["-", "--since", whole], "standard input: the text is empty."),
                            ([whole, "--since", FIXTURES / "llama_cpp.txt", "--model", "b"],
                             f"{FIXTURES / 'llama_cpp.txt'}: no model 'b' here: there is llama.cpp."),
                            ([empty], "the text is empty.")):
        assert run(*arguments).stderr == f"metrics: {said}\n"


def test_costs_give_the_best_k(tmp_path):
    from course_lib.costs import CostTable, RoundCosts

    batches = {1: RoundCosts(0.1, {1: 1.0, 9: 1.1}), 32: RoundCosts(0.5, {1: 1.0, 4: 4.0})}
    CostTable(batches, {"machine": "m", "date": "d", "command": "c"}).save(tmp_path / "costs.json")
    done = run(FIXTURES / "vllm_v1.txt", "--costs", tmp_path / "costs.json", "--json")
    (document,) = json.loads(done.stdout)
    fast, slow = document["best_k"]
    assert (fast["best_k"], fast["speedup"]) == pytest.approx(batches[1].best_k(document["alpha"], 8))
    assert slow["best_k"] == 0 and slow["largest_k_measured"] == 3
    shown = run(FIXTURES / "vllm_v1.txt", "--costs", tmp_path / "costs.json").stdout
    assert f"k={fast['best_k']}" in shown and "off, no k gains" in shown
    unknown = run(FIXTURES / "llama_cpp_timings.txt", "--costs", tmp_path / "costs.json").stdout
    assert "alpha is unknown" in unknown


@contextmanager
def server(answers):
    """A real server: answers maps a path to (status, text), or is called with the path."""
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answers(self.path) if callable(answers) else answers.get(self.path, (404, "no"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{service.server_port}"
    finally:
        service.shutdown()
        service.server_close()


def test_an_address_is_scraped_and_helped():
    with server({"/metrics": (200, text("vllm_v1"))}) as address:
        for given in (address, address + "/", address + "/metrics"):
            assert read_metrics(fetch_text(given)).accepted == 1600
        with pytest.raises(ValueError, match="answers 404.*--enable-metrics.*/prometheus/metrics"):
            fetch_text(address + "/v1/metrics")


def test_a_silent_server_is_given_up():
    wait = threading.Event()

    def answer(_):
        wait.wait(5)
        return 200, "late"

    with server(answer) as address:
        with pytest.raises(ValueError, match="does not answer within 0.2 s"):
            fetch_text(address, timeout=0.2)
        wait.set()


def test_watch_gives_intervals_and_survives_a_restart():
    scrapes = iter([vllm(100, 300, 150), vllm(160, 480, 270), vllm(160, 480, 270), vllm(10, 30, 15)])
    with server(lambda _: (200, next(scrapes))) as address:
        intervals = ledger.watch(address, 1, sleep=lambda _: None)
        passed, (first,) = next(intervals)
        assert (first.rounds, first.accepted, first.tokens_per_round) == (60, 120, 3.0)
        assert "tokens per round 3.000" in ledger.interval_line(passed, first)
        assert "360 rounds, 1,080 drafted, 720 accepted" in ledger.interval_line(10.0, first)
        assert ledger.interval_line(*_pair(next(intervals))).endswith("no traffic")
        passed, (restarted,) = next(intervals)
        assert restarted.rounds == 10 and "restarted" in ledger.interval_line(passed, restarted)


def _pair(interval):
    passed, (one,) = interval
    return passed, one


def test_readings_do_not_change_when_read_twice():
    one = read("vllm_v0")
    assert replace(one, reading=None) == replace(one.since(read_metrics(
        re.sub(r"(tokens_total\{.*\}) \d+\.0", r"\1 0.0", text("vllm_v0")))), reading=None,
        reported=one.reported, notes=one.notes)
