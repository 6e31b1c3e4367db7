"""Inputs that public bug reports show people getting wrong (acceptance_cases.json), each with a neighbour.

A case that needs a decoder or a model pair is tested beside it: ELSEWHERE says where.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from course_lib.intervals import mean_interval
from course_lib.theory import (
    Counts,
    accepted_prefix,
    alpha_from_prefix_rate,
    alpha_from_tokens,
    conditional_from_rounds,
    conditional_from_unconditional,
    counts_from_histogram,
    counts_from_v0,
    expected_tokens,
    prefix_rate,
    tokens_from_unconditional,
    unconditional_from_conditional,
)

HERE = Path(__file__).parent
CASES = {case["id"]: case for case in json.loads((HERE / "acceptance_cases.json").read_text())["cases"]}
ELSEWHERE = {
    "eos-inside-draft": "tests/test_speculate.py",
    "greedy-draft-softmax-q": "tests/test_sampling.py",
    "vocab": "tests/test_pairs.py",
}


def case(name):
    return CASES[name]["input"], CASES[name]["expect"]


def test_no_case_is_forgotten():
    here = {name for name in CASES if f"test_{name.replace('-', '_')}" in globals()}
    assert here | ELSEWHERE.keys() == CASES.keys() and not here & ELSEWHERE.keys()
    for name, path in ELSEWHERE.items():
        file = HERE.parent / path
        assert not file.exists() or name in file.read_text(), f"{path} should test the case {name}"


def test_count_after_reject():
    given, expect = case("count-after-reject")
    accepted = accepted_prefix(given["accepted_flags"])
    assert accepted == expect["accepted_prefix"]
    assert Counts(rounds=1, drafted=4, accepted=accepted).tokens_per_round == expect["emitted"]
    neighbours = ([], [False, True], [True, True, False], [True, True])
    assert [accepted_prefix(flags) for flags in neighbours] == [0, 0, 2, 2]


def test_v0_independent_counter():
    given, expect = case("v0-independent-counter")
    counts, note = counts_from_v0(**given)
    assert counts.rounds == expect["rounds"] and counts.accepted == expect["prefix_accepted"]
    assert counts.tokens_per_round == pytest.approx(expect["tokens_per_round"], abs=5e-5)
    assert counts.prefix_rate == pytest.approx(expect["prefix_rate"], abs=5e-5)
    assert note.startswith(expect["flag"])
    # A counter that stops at the first rejection adds up, and is not flagged.
    assert counts_from_v0(k=4, drafted=400, accepted=150, emitted=250) == (Counts(100, 400, 150), None)


def test_v0_counter_of_independent_positions_estimates_alpha():
    # Its kind, from coins: all positions judged on their own, alpha .6.
    coins = np.random.default_rng(0).random((50_000, 4)) < 0.6
    prefix = np.cumprod(coins, axis=1).sum()
    counts, note = counts_from_v0(4, coins.size, int(coins.sum()), int(prefix + len(coins)))
    assert "(0.6" in note or "(0.59" in note
    assert counts.prefix_rate == pytest.approx(prefix_rate(0.6, 4), abs=0.005)
    assert alpha_from_prefix_rate(counts.prefix_rate, 4) == pytest.approx(0.6, abs=0.005)


def test_prefix_rate_is_not_alpha():
    given, expect = case("prefix-rate-is-not-alpha")
    counts = Counts(given["drafted"] / given["k"], given["drafted"], given["accepted"])
    assert counts.rounds == expect["rounds"] and counts.tokens_per_round == expect["tokens_per_round"]
    assert counts.prefix_rate == expect["naive_alpha"]
    assert expected_tokens(counts.prefix_rate, 5) == pytest.approx(expect["naive_tokens_per_round"], abs=5e-5)
    alpha = alpha_from_prefix_rate(counts.prefix_rate, 5)
    assert alpha == pytest.approx(expect["alpha"], abs=5e-5)
    assert alpha == pytest.approx(alpha_from_tokens(counts.tokens_per_round, 5))
    assert expected_tokens(alpha, 5) == pytest.approx(expect["tokens_per_round"])
    # With one draft a round, and only then, the two are the same.
    assert alpha_from_prefix_rate(0.8, 1) == pytest.approx(0.8) and alpha_from_prefix_rate(0.8, 2) > 0.8


def test_unconditional_positions():
    given, expect = case("unconditional-positions")
    rates = given["per_position"]
    assert tokens_from_unconditional(rates) == pytest.approx(expect["tokens_per_round"], abs=5e-5)
    conditional = conditional_from_unconditional(rates)
    np.testing.assert_allclose(conditional, expect["conditional"], atol=6e-5)
    # The neighbour: fed back as if they were unconditional, the conditional rates rise, and are refused.
    with pytest.raises(ValueError, match="conditional rates already"):
        tokens_from_unconditional(conditional)
    # Read as conditional, the same rates would claim a far shorter round.
    assert 1 + unconditional_from_conditional(rates).sum() < 3.2


def test_llama_cpp_counters():
    given, expect = case("llama-cpp-counters")
    counts = Counts(given["rounds"], given["drafted"], given["accepted"])
    assert counts.tokens_per_round == pytest.approx(expect["tokens_per_round"], abs=5e-5)
    assert counts.drafted < given["k"] * counts.rounds
    assert counts.tokens_per_round != pytest.approx(1 + given["k"] * counts.prefix_rate, abs=5e-3)
    from_positions = tokens_from_unconditional(given["per_position"])  # printed to three digits
    assert from_positions == pytest.approx(expect["tokens_per_round"], abs=1.5e-3)
    # 87 rounds that add up to these counters, the last one cut to one draft: its missing positions leave
    # the denominator. Counted as rejections they would lower the rate at position 2.
    drafted = [3] * 86 + [1]
    accepted = [3] * 42 + [2] * 13 + [1] * 15 + [0] * 17
    accepted = accepted[:69] + accepted[70:] + [1]
    assert (sum(drafted), sum(accepted)) == (counts.drafted, counts.accepted)
    rates = conditional_from_rounds(drafted, accepted)
    np.testing.assert_allclose(rates, [70 / 87, 55 / 69, 42 / 55])
    assert conditional_from_unconditional([70 / 87, 55 / 87, 42 / 87])[1] < rates[1]


def test_histogram():
    given, expect = case("histogram")
    counts = counts_from_histogram(given["accepted_histogram"])
    assert (counts.rounds, counts.accepted, counts.drafted) == (43, 10, 129)
    assert counts.prefix_rate == pytest.approx(expect["prefix_rate"], abs=5e-6)
    assert counts.tokens_per_round == pytest.approx(expect["tokens_per_round"], abs=5e-6)
    # A trailing zero is a longer draft, whose last token was never accepted: another rate, same tokens.
    longer = counts_from_histogram([*given["accepted_histogram"], 0])
    assert longer.tokens_per_round == counts.tokens_per_round and longer.prefix_rate < counts.prefix_rate


def test_one_prompt_false_precision():
    given, expect = case("one-prompt-false-precision")
    values = given["tokens_per_round_by_prompt"]
    interval = mean_interval(values)
    assert interval.mean == pytest.approx(expect["mean"]) and interval.half_width > 0.5
    assert np.isnan(mean_interval(values[:1]).half_width)  # one prompt says nothing about the others
    assert mean_interval(values * 20).half_width < 0.2  # what repeats would pretend, if they were let in


def test_moe_verify_cost():
    costs = pytest.importorskip("course_lib.costs")
    given, expect = case("moe-verify-cost")
    widths = {int(width): ms / 1000 for width, ms in given["verify_ms_by_width"].items()}
    measured = costs.RoundCosts(t_draft=0.0, t_verify=widths)
    for label, tokens in expect["break_even_tokens_per_round_free_draft"].items():
        k = int(label.removeprefix("k="))
        assert measured.break_even_tokens(k) == pytest.approx(tokens, abs=5e-5)
    # The neighbour: where verifying any width costs the same, a free draft breaks even at one token.
    flat = costs.RoundCosts(t_draft=0.0, t_verify=dict.fromkeys(widths, 0.00847))
    assert flat.break_even_tokens(4) == pytest.approx(1.0)


def test_jensen():
    given, expect = case("jensen")
    tokens = [expected_tokens(alpha, given["k"]) for alpha in given["alphas"]]
    assert np.mean(tokens) == pytest.approx(expect["mean_of_tokens"], abs=5e-5)
    at_mean = expected_tokens(np.mean(given["alphas"]), given["k"])
    assert at_mean == pytest.approx(expect["tokens_at_mean_alpha"], abs=5e-5)
    assert 2 / np.sum(1 / np.array(tokens)) == pytest.approx(expect["throughput_harmonic"], abs=5e-5)
    # At k=1 tokens are linear in alpha, so the mean is safe; the harmonic mean is below it at every k.
    ones = np.array([expected_tokens(alpha, 1) for alpha in given["alphas"]])
    assert ones.mean() == pytest.approx(expected_tokens(0.7, 1)) and 2 / np.sum(1 / ones) < ones.mean()


def test_rate_above_one():
    given, expect = case("rate-above-one")
    with pytest.raises(ValueError, match=expect["error"]):
        alpha_from_prefix_rate(given["accepted"] / given["drafted"], 5)
    with pytest.raises(ValueError, match=expect["error"]):
        Counts(rounds=30, drafted=given["drafted"], accepted=given["accepted"])
    # Exactly all accepted is possible; so is 130 emitted, once the 30 extra tokens are taken out.
    assert alpha_from_prefix_rate(1.0, 5) == 1
    assert Counts(rounds=30, drafted=100, accepted=130 - 30).prefix_rate == 1
