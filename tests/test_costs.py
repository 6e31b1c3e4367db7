"""Protects the other half of the answer: what a round costs; speedup, break-even and the k that follow."""

import json
import math
import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from course_lib.costs import CostTable, Linear, RoundCosts
from course_lib.replay import adaptive_cost, replay_rounds
from course_lib.theory import arithmetic_growth, expected_tokens

MOE = {1: 8.47, 2: 13.49, 3: 15.64, 5: 20.67, 8: 28.13}  # ms, a mixture of experts: width is not free
alphas, ks = st.floats(0, 1), st.integers(1, 20)
cs = st.floats(0, 2)


def net_speedup(alpha, K, t_draft, t_verify_base, t_verify_per_token):
    """The first source article's function, as printed there."""
    expected = (1 - alpha ** (K + 1)) / (1 - alpha)
    draft_time = K * t_draft
    verify_time = t_verify_base + K * t_verify_per_token
    round_time = draft_time + verify_time
    baseline_time = expected * (t_verify_base + t_verify_per_token)
    return baseline_time / round_time


def leviathan(alpha, k, c):
    return expected_tokens(alpha, k) / (k * c + 1)


def in_target_steps(c):
    """Leviathan's assumption: a target step takes 1 whatever its width, a draft step c."""
    return RoundCosts.linear(t_draft=c, base=1.0, per_token=0.0)


@given(st.floats(0, 0.999), ks, st.floats(0, 5), st.floats(0, 5), st.floats(0, 5))
def test_linear_costs_are_the_articles_function(alpha, k, t_draft, base, per_token):
    assume(base + per_token > 1e-6)
    costs = RoundCosts.linear(t_draft, base, per_token)
    theirs = net_speedup(alpha, k, t_draft, base, per_token)
    assert costs.speedup(expected_tokens(alpha, k), k) == pytest.approx(theirs, rel=1e-9)


def test_where_the_articles_function_is_off_by_one_token_and_this_one_is_not():
    costs = RoundCosts.linear(1.0, base=8.0, per_token=2.0)
    assert net_speedup(0.8, 0, 1.0, 8.0, 2.0) == pytest.approx(10 / 8)  # a gain from not speculating
    assert costs.speedup(1.0, 0) == 1.0
    # A verify of one draft reads two tokens, and costs what a plain step does: one per_token is missing.
    assert costs.verify_seconds(2) == costs.verify_seconds(1) == 10.0
    every_token = RoundCosts(1.0, {width: 8.0 + 2.0 * width for width in range(1, 9)})
    tokens = expected_tokens(0.8, 4)
    assert every_token.speedup(tokens, 4) == pytest.approx(tokens * 10 / 22)
    assert costs.speedup(tokens, 4) == pytest.approx(tokens * 10 / 20)


def test_a_round_is_its_drafts_a_verify_one_wider_and_the_overhead():
    costs = RoundCosts(2.0, {1: 10.0, 2: 11.0, 4: 14.0, 9: 29.0}, overhead=0.5)
    assert costs.round_seconds(0) == 10.0  # plain decoding drafts nothing and pays no overhead
    assert costs.round_seconds(1) == 2.0 + 11.0 + 0.5
    assert costs.round_seconds(3) == 6.0 + 14.0 + 0.5
    assert costs.round_seconds(2) == 4.0 + 12.5 + 0.5  # width 3, half way from 2 to 4
    assert costs.round_cost(3) == pytest.approx([1.0, 1.35, 1.7, 2.05])
    assert costs.break_even_tokens(3) == pytest.approx(2.05)
    assert costs.speedup(2.05, 3) == pytest.approx(1.0)
    assert costs.speedup([1.0, 2.05, 4.1], 3) == pytest.approx([1 / 2.05, 1.0, 2.0])
    assert math.isnan(costs.speedup(math.nan, 3))  # one prompt: its interval has no ends


@given(st.dictionaries(st.integers(2, 30), st.floats(0.1, 10), min_size=1), st.data())
def test_interpolation_is_between_its_neighbours_and_exact_at_them(table, data):
    table = {1: 0.5, **table}
    costs = RoundCosts(0.0, dict(reversed(table.items())))  # in any order
    width = data.draw(st.integers(1, max(table)))
    below = max(w for w in table if w <= width)
    above = min(w for w in table if w >= width)
    low, high = sorted((table[below], table[above]))
    assert low - 1e-9 <= costs.verify_seconds(width) <= high + 1e-9
    if width in table:
        assert costs.verify_seconds(width) == table[width]


def test_wider_than_measured_is_refused_and_the_largest_named():
    costs = RoundCosts(0.1, {1: 1.0, 5: 1.2})
    assert costs.round_seconds(4) == pytest.approx(1.6)
    for ask in (costs.round_seconds, costs.break_even_tokens, costs.round_cost, costs.break_even_alpha):
        with pytest.raises(ValueError, match=r"largest width is 5 \(k=4\)"):
            ask(5)
    with pytest.raises(ValueError, match="largest width is 5"):
        costs.best_k(0.8, max_k=5)
    assert RoundCosts.linear(0.1, 1.0, 0.1).round_seconds(500) == pytest.approx(101)  # a line has no end


@pytest.mark.parametrize(
    ("alpha", "k", "operations", "speed"),
    [(0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44),
     (0.8, 5, 1.63, 3.69), (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86)],
)  # fmt: skip
def test_leviathan_table_1(alpha, k, operations, speed):
    assert in_target_steps(0).speedup(expected_tokens(alpha, k), k) == pytest.approx(speed, abs=0.00501)
    assert arithmetic_growth(alpha, k, 0) == pytest.approx(operations, abs=0.00501)


@pytest.mark.parametrize(
    ("k", "alpha", "c", "expected"),
    [(7, 0.75, 0.02, 3.2), (7, 0.80, 0.04, 3.3), (7, 0.82, 0.11, 2.5),
     (7, 0.62, 0.02, 2.3), (5, 0.68, 0.04, 2.4), (3, 0.71, 0.11, 2.0)],
)  # fmt: skip
def test_leviathan_table_4_expected_column(k, alpha, c, expected):
    """alpha and c are printed with two decimals, so the speedup is known between two ends only."""
    ends = [
        in_target_steps(c - off).speedup(expected_tokens(alpha + off, k), k) for off in (-0.00501, 0.00501)
    ]
    assert ends[0] - 0.05 <= expected <= ends[1] + 0.05


@given(alphas, ks, cs)
def test_flat_costs_are_leviathans_speedup(alpha, k, c):
    assert in_target_steps(c).speedup(expected_tokens(alpha, k), k) == pytest.approx(leviathan(alpha, k, c))
    assert in_target_steps(c).break_even_tokens(k) == pytest.approx(k * c + 1)


@given(alphas, cs)
def test_some_k_helps_exactly_where_alpha_exceeds_c(alpha, c):
    """Corollary 3.9 of Leviathan: if alpha > c, by at least (1 + alpha) / (1 + c); else none does."""
    k, speedup = in_target_steps(c).best_k(alpha, 20)
    if alpha > c + 1e-9:
        assert k >= 1 and speedup >= (1 + alpha) / (1 + c) - 1e-12
    elif alpha < c - 1e-9:
        assert (k, speedup) == (0, 1.0)


@given(alphas, st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.5), st.integers(0, 12))
def test_best_k_is_the_best_by_brute_force(alpha, t_draft, per_token, overhead, max_k):
    costs = RoundCosts.linear(t_draft, 1.0, per_token, overhead)
    k, speedup = costs.best_k(alpha, max_k)
    every = [1.0] + [costs.speedup(expected_tokens(alpha, k), k) for k in range(1, max_k + 1)]
    assert speedup == max(every) and k == every.index(max(every))


def test_best_k_from_measured_tokens_takes_any_table_of_k():
    costs = RoundCosts(0.1, {1: 1.0, 9: 1.4}, overhead=0.05)
    tokens = {8: 2.9, 1: 1.5, 2: 1.9, 4: 2.5}
    k, speedup = costs.best_measured_k(tokens)
    assert k == 4 and speedup == pytest.approx(2.5 / (0.4 + 1.2 + 0.05))
    assert costs.best_measured_k(pd.Series(tokens)) == (k, speedup)
    assert costs.best_measured_k(dict.fromkeys(tokens, 1.0)) == (0, 1.0) == costs.best_measured_k({})
    # A tie goes to the smaller k, and one with plain decoding to off.
    flat = RoundCosts(0.0, {1: 1.0, 9: 1.0})
    assert flat.best_measured_k({3: 2.0, 2: 2.0})[0] == 2 and flat.best_measured_k({2: 1.0}) == (0, 1.0)


@given(ks, cs, st.floats(0, 0.3), st.floats(0, 0.5))
def test_break_even_alpha_is_where_the_speedup_is_one(k, c, per_token, overhead):
    costs = RoundCosts.linear(c, 1.0, per_token, overhead)
    alpha = costs.break_even_alpha(k)
    if math.isnan(alpha):
        assert costs.speedup(k + 1, k) < 1  # not even if every draft is accepted
        return
    tokens = expected_tokens(alpha, k)
    assert costs.speedup(tokens, k) == pytest.approx(1.0, abs=1e-6) or (alpha == 0 and tokens == 1)
    if alpha < 0.98:
        assert costs.speedup(expected_tokens(alpha + 0.01, k), k) > 1


def test_break_even_alpha_of_one_free_verify_is_c():
    assert in_target_steps(0.3).break_even_alpha(1) == pytest.approx(0.3)
    assert in_target_steps(0.3).break_even_alpha(2) > 0.3  # and k = 1 is the easiest to satisfy
    faster_when_wide = RoundCosts(0.0, {1: 1.0, 2: 0.98})  # noise of a measurement
    assert faster_when_wide.break_even_alpha(1) == 0.0


def test_a_mixture_of_experts_pays_for_width():
    costs = RoundCosts(0.0, MOE)
    assert costs.break_even_alpha(1) == pytest.approx(13.49 / 8.47 - 1)
    assert costs.best_k(0.54, 7) == (0, 1.0)  # a free draft, right more often than not, and still a loss
    assert RoundCosts(0.0, dict.fromkeys(MOE, 8.47)).best_k(0.54, 7)[0] == 7
    # The second token of width costs less than the first: here two drafts pay before one does.
    assert costs.break_even_alpha(2) < 0.55 < costs.break_even_alpha(1)


def test_adaptive_gain_is_best_fixed_over_least_cost():
    rng = np.random.default_rng(3)
    accepts = [rng.beta(0.6, 0.4, 80) for _ in range(5)]
    costs = RoundCosts(0.15, {1: 1.0, 9: 1.3}, overhead=0.1)
    price = [costs.break_even_tokens(k) for k in range(9)]
    fixed = min((replay_rounds(accepts, [k]) * price[k]).sum() for k in range(9))
    gain = costs.adaptive_gain(accepts, 8)
    assert gain == pytest.approx(fixed / adaptive_cost(accepts, price).sum()) and gain > 1.1
    assert costs.adaptive_gain([np.full(2000, 0.8)], 8) == pytest.approx(1.0, abs=5e-3)  # nothing to adapt to
    assert costs.adaptive_gain(accepts, 0) == 1.0
    with pytest.raises(ValueError, match="no tokens"):
        costs.adaptive_gain([], 8)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [((-1.0, {1: 1.0}), "t_draft is -1.0"), ((math.nan, {1: 1.0}), "t_draft is nan"),
     (("2", {1: 1.0}), "t_draft is '2'"), ((1.0, {1: 1.0}, math.inf), "overhead is inf"),
     ((1.0, {2: 1.0}), "lacks width 1"), ((1.0, {}), "lacks width 1"), ((1.0, {1: 0.0}), "width 1 is 0"),
     ((1.0, {1: 1.0, 3: -2.0}), "width 3 is -2.0"), ((1.0, {0: 1.0, 1: 1.0}), "must be 1 or more"),
     ((1.0, {1: 1.0, 1.5: 2.0}), "must be an integer"), ((1.0, 3.0), "base, per_token"),
     ((1.0, (1.0,)), "base, per_token"), ((1.0, (0.0, 0.0)), "takes time"),
     ((1.0, (-1.0, 2.0)), "base is -1")],
)  # fmt: skip
def test_costs_that_cannot_be_are_refused_with_the_reason(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        RoundCosts(*arguments)


def test_questions_that_cannot_be_answered_are_refused():
    costs = RoundCosts.linear(0.1, 1.0, 0.1)
    for ask, bad in ((costs.round_seconds, -1), (costs.round_seconds, 1.5), (costs.break_even_alpha, 0)):
        with pytest.raises(ValueError, match=r"must be (an integer|\d or more)"):
            ask(bad)
    for bad in (0.0, [1.0, -2.0]):
        with pytest.raises(ValueError, match="at least one token"):
            costs.speedup(bad, 2)
    with pytest.raises(ValueError, match="a probability"):
        costs.best_k(1.2, 4)


META = {"machine": "a laptop", "date": "2026-12-01", "command": "python -m course_lib costs", "pair": "smol"}


def table(meta=META):
    one = RoundCosts(0.002, {1: 0.01, 5: 0.013}, 1e-4)
    return CostTable({1: one, 8: RoundCosts.linear(0.1, 1, 0.2)}, meta)


def test_costs_come_back_from_their_file(tmp_path):
    path = tmp_path / "costs.json"
    table().save(path)
    back = CostTable.load(path)
    assert back == table()
    assert back.at(1).t_verify == {1: 0.01, 5: 0.013} and back.at(8).t_verify == Linear(1, 0.2)
    assert os.listdir(tmp_path) == ["costs.json"]
    with pytest.raises(ValueError, match="batch 4 was not measured: this table has 1, 8"):
        back.at(4)


def test_costs_without_provenance_are_not_saved(tmp_path):
    for missing in ("machine", "date", "command"):
        with pytest.raises(ValueError, match=missing):
            table({**META, missing: ""}).save(tmp_path / "costs.json")
    with pytest.raises(ValueError, match="no costs"):
        CostTable({}, META).save(tmp_path / "costs.json")
    with pytest.raises(ValueError):
        table({**META, "temperature": math.nan}).save(tmp_path / "costs.json")  # no JSON for it
    assert os.listdir(tmp_path) == []


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "costs.json"
    table().save(path)
    before = path.read_text()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        CostTable({2: RoundCosts(0.0, {1: 1.0})}, META).save(path)
    assert path.read_text() == before and os.listdir(tmp_path) == ["costs.json"]


def test_damaged_and_foreign_files_are_refused_with_the_reason(tmp_path):
    path = tmp_path / "costs.json"
    with pytest.raises(ValueError, match=r"costs.json cannot be read: No such file"):
        CostTable.load(path)
    table().save(path)
    good = json.loads(path.read_text())

    def refused(document, reason):
        path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
        with pytest.raises(ValueError, match=reason):
            CostTable.load(path)

    refused(json.dumps(good).encode()[:-40], "damaged or no file of costs")
    refused(b"PAR1\xff\xfe", "damaged or no file of costs")
    refused([1, 2], "its format is not")
    refused({**good, "format": "course_lib costs 9"}, "its format is not")
    refused({key: value for key, value in good.items() if key != "batches"}, "damaged: 'batches'")
    refused({**good, "batches": {}}, "lacks costs")
    refused({**good, "batches": {"0": good["batches"]["1"]}}, "lacks costs")
    refused({**good, "meta": {}}, "machine, date, command")
    one = good["batches"]["1"]
    refused({**good, "batches": {"1": {"t_draft": 1.0}}}, "damaged: .*t_verify")
    refused({**good, "batches": {"1": {**one, "t_draft": -1}}}, "damaged: t_draft is -1")
    refused({**good, "batches": {"1": {**one, "t_verify": {"wide": 1}}}}, "must be an integer")
    refused({**good, "batches": {"one": one}}, "damaged")
