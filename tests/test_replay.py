"""Replay against coins: every outcome enumerated, and an independent simulation that knows no recursion."""

import math
import random
import time
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.intervals import ratio_interval
from course_lib.replay import (
    adaptive_cost,
    expected_rounds,
    fixed_cost,
    position_rates,
    replay_rounds,
    round_starts,
    tokens_per_round,
)
from course_lib.theory import expected_tokens, unconditional_from_conditional

texts = st.lists(st.floats(0, 1), min_size=0, max_size=25).map(np.array)


def play(coins, k_at):
    """Rounds as a decoder runs them, for given coins: (start, accepted, judged) of each."""
    rounds, t = [], 0
    while t < len(coins):
        start, drafts = t, k_at(t)
        while t < len(coins) and t - start < drafts and coins[t]:
            t += 1
        accepted = t - start
        judged = accepted + (t < len(coins) and accepted < drafts)
        rounds.append((start, accepted, judged))
        t += 1  # the resampled or the bonus token
    return rounds


def outcomes(accept):
    """Every outcome of one coin a token, with its chance."""
    for coins in product([True, False], repeat=len(accept)):
        chance = math.prod(a if coin else 1 - a for a, coin in zip(accept, coins, strict=True))
        if chance:
            yield coins, chance


@pytest.mark.parametrize("length", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 8, 12])
def test_expected_rounds_equal_all_outcomes_added_up(length, k):
    accept = np.random.default_rng(length).random(length)
    exact = sum(chance * len(play(coins, lambda t: k)) for coins, chance in outcomes(accept))
    assert expected_rounds(accept, k) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("k", [0, 1, 2, 8])
def test_where_rounds_start_equals_all_outcomes_added_up(k):
    accepts = [np.random.default_rng(length).random(length) for length in (3, 0, 7)]
    found = round_starts(accepts, k)
    assert found.shape == (3, 7)
    for row, accept in zip(found, accepts, strict=True):
        exact = np.zeros(7)
        for coins, chance in outcomes(accept):
            for start, _, _ in play(coins, lambda t: k):
                exact[start] += chance
        assert row == pytest.approx(exact, abs=1e-12)
    assert found.sum(axis=1) == pytest.approx(replay_rounds(accepts, [k])[:, 0])


@pytest.mark.parametrize("k", [1, 3, 8])
def test_expected_rounds_equal_a_simulation(k):
    accept = np.random.default_rng(1).beta(3, 1, 60).tolist()
    coin = random.Random(k)
    counts = [len(play([coin.random() < a for a in accept], lambda t: k)) for _ in range(8000)]
    z = (np.mean(counts) - expected_rounds(accept, k)) / (np.std(counts) / math.sqrt(len(counts)))
    assert abs(z) < 3.5


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 9))
def test_greedy_replay_is_the_decoder_round_for_round(match, k):
    rounds = play(match, lambda t: k)
    assert expected_rounds(np.array(match, float), k) == len(rounds)
    table = position_rates([np.array(match, float)], k)
    judged = [sum(j >= i for _, _, j in rounds) for i in range(1, k + 1)]
    accepted = [sum(a >= i for _, a, _ in rounds) for i in range(1, k + 1)]
    np.testing.assert_array_equal(table.reached, judged)
    np.testing.assert_allclose(table.unconditional * max(len(rounds), 1), accepted if rounds else np.nan)


@given(texts)
def test_rounds_fall_with_k_and_stay_between_the_extremes(accept):
    rounds = replay_rounds([accept], range(12))[0]
    assert rounds[0] == len(accept)
    assert (np.diff(rounds) <= 1e-9).all()
    assert all(rounds[k] >= math.ceil(len(accept) / (k + 1)) - 1e-9 for k in range(12))


@given(st.integers(0, 50), st.integers(0, 12))
def test_perfect_and_hopeless_drafts(length, k):
    assert expected_rounds(np.ones(length), k) == math.ceil(length / (k + 1))
    assert expected_rounds(np.zeros(length), k) == length


@pytest.mark.parametrize("alpha", [0.2, 0.8, 0.95])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_equal_chances_on_a_long_text_give_the_formula(alpha, k):
    text = np.full(20_000, alpha)
    assert len(text) / expected_rounds(text, k) == pytest.approx(expected_tokens(alpha, k), rel=1e-3)
    rates = position_rates([text], k)
    np.testing.assert_allclose(rates.conditional, alpha, rtol=1e-12)
    np.testing.assert_allclose(rates.unconditional, unconditional_from_conditional([alpha] * k), rtol=2e-3)


@given(st.lists(texts, min_size=1, max_size=6), st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_prompts_of_different_lengths_do_not_touch_each_other(accepts, ks):
    together = replay_rounds(accepts, ks)
    alone = [[expected_rounds(accept, k) for k in ks] for accept in accepts]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@given(texts, st.integers(0, 9))
def test_every_token_is_an_accepted_draft_or_ends_a_round(accept, k):
    table = position_rates([accept], k)
    rounds = expected_rounds(accept, k)
    if len(accept):
        surplus = rounds * (1 + table.unconditional.sum()) - len(accept)
        assert -1e-9 <= surplus <= 1 + 1e-9  # only the last round may lack its extra token
    if k and len(accept):
        assert table.reached[0] == pytest.approx(rounds)  # a round always judges its first draft


@pytest.mark.parametrize("k", [1, 3, 6])
def test_position_rates_equal_all_outcomes_added_up(k):
    accepts = [np.random.default_rng(seed).random(length) for seed, length in ((1, 7), (2, 4), (3, 0))]
    reached, passed, rounds = np.zeros(k), np.zeros(k), 0.0
    for accept in accepts:
        for coins, chance in outcomes(accept):
            for _, accepted, judged in play(coins, lambda t: k):
                rounds += chance
                reached[:judged] += chance
                passed[:accepted] += chance
    table = position_rates(accepts, k)
    assert table.position.tolist() == list(range(1, k + 1))
    np.testing.assert_allclose(table.reached, reached, atol=1e-12)
    np.testing.assert_allclose(table.conditional, passed / np.where(reached, reached, np.nan), rtol=1e-11)
    np.testing.assert_allclose(table.unconditional, passed / rounds, rtol=1e-11, atol=1e-15)


def sticky_text(rng, length, easy, hard, stay):
    regime = np.cumsum(rng.random(length) > stay) + rng.integers(2)
    return np.array([easy, hard])[regime % 2]


def test_every_position_as_a_round_start_is_length_biased():
    """Runs of easy text, k=8, from the chain's matrix: true 4.634, formula 4.865, every position 5.362."""
    k, easy, hard, stay = 8, 0.97, 0.70, 0.92
    move = np.array([[stay, 1 - stay], [1 - stay, stay]])
    accepted, rejected = np.diag([easy, hard]), np.diag([1 - easy, 1 - hard])
    length, next_start, here = np.ones(2), np.zeros((2, 2)), np.eye(2)
    for _ in range(k):
        next_start += here @ rejected @ move
        here = here @ accepted
        length += here.sum(axis=1)
        here = here @ move
    next_start += here @ move
    true = (np.linalg.matrix_power(next_start, 1000) @ length)[0]
    every_position = length.mean()
    formula = expected_tokens((easy + hard) / 2, k)
    assert (true, formula, every_position) == pytest.approx((4.634, 4.865, 5.362), abs=6e-4)

    rng = np.random.default_rng(11)
    accepts = [sticky_text(rng, 1000, easy, hard, stay) for _ in range(300)]
    measured = ratio_interval([1000] * 300, replay_rounds(accepts, [k])[:, 0])
    assert measured.low < true < measured.high and measured.high < formula < every_position
    rates = position_rates(accepts, k)
    assert (np.diff(rates.conditional) > 0).all()  # survivors sit in easy text: it looks as if depth helped


@pytest.mark.parametrize("seed", range(6))
def test_adaptive_cost_is_the_best_of_all_policies(seed):
    rng = np.random.default_rng(seed)
    accept, cost = rng.random(5), np.concatenate([[1.0], 1 + np.cumsum(rng.random(2))])
    every = [
        sum(
            chance * sum(cost[policy[start]] for start, _, _ in play(coins, policy.__getitem__))
            for coins, chance in outcomes(accept)
        )
        for policy in product(range(3), repeat=5)  # k at each t: nothing before t can matter to what follows
    ]
    assert adaptive_cost([accept], cost)[0] == pytest.approx(min(every), abs=1e-12)
    constant = [every[0], every[len(every) // 2], every[-1]]  # the policies 00000, 11111 and 22222
    assert fixed_cost([accept], [0, 1, 2], cost)[0] == pytest.approx(constant)


@pytest.mark.parametrize("seed", range(4))
def test_adaptive_cost_by_place_is_the_best_of_all_policies(seed):
    rng = np.random.default_rng(seed)
    accepts, costs = [rng.random(n) for n in (4, 2)], [1 + rng.random((n, 3)) for n in (4, 2)]
    found = adaptive_cost(accepts, costs)
    for accept, cost, least in zip(accepts, costs, found, strict=True):
        every = [
            sum(
                chance * sum(cost[start, policy[start]] for start, _, _ in play(coins, policy.__getitem__))
                for coins, chance in outcomes(accept)
            )
            for policy in product(range(3), repeat=len(accept))
        ]
        assert least == pytest.approx(min(every), abs=1e-12)
    same = [np.tile([1.0, 1.5, 1.7], (n, 1)) for n in (4, 2)]
    assert adaptive_cost(accepts, same) == pytest.approx(adaptive_cost(accepts, [1.0, 1.5, 1.7]))
    for wrong in (costs[:1], [costs[0], costs[0]], [costs[0], -costs[1]]):
        with pytest.raises(ValueError, match="round costs"):
            adaptive_cost(accepts, wrong)


@given(st.lists(texts, min_size=1, max_size=4), st.lists(st.floats(0.5, 4), min_size=1, max_size=6))
def test_no_fixed_k_costs_less_than_the_adaptive_bound(accepts, cost):
    fixed = fixed_cost(accepts, range(len(cost)), cost)
    assert (adaptive_cost(accepts, cost) <= fixed.min(axis=1) + 1e-9).all()
    np.testing.assert_array_equal(fixed_cost(accepts, range(len(cost))[::-1], cost), fixed[:, ::-1])
    assert fixed_cost(accepts, [0], [1.0])[:, 0].tolist() == [len(accept) for accept in accepts]


def trace(**accepts_by_prompt):
    rows = [(name[:4], name, t, a) for name, text in accepts_by_prompt.items() for t, a in enumerate(text)]
    return SimpleNamespace(rows=pd.DataFrame(rows, columns=["route", "prompt", "t", "accept"]))


def test_tokens_per_round_pools_prompts_of_a_route():
    texts = {"chat1": [0.5] * 8, "chat2": [0.9] * 20, "json1": [1.0] * 12}
    table = tokens_per_round(trace(**texts), [1, 4])
    assert table.columns.tolist() == ["route", "k", "prompts", "tokens", "mean", "low", "high"]
    assert table[["route", "k", "prompts", "tokens"]].values.tolist() == [
        ["chat", 1, 2, 28], ["chat", 4, 2, 28], ["json", 1, 1, 12], ["json", 4, 1, 12]]  # fmt: skip
    rounds = [expected_rounds(texts["chat1"], 4), expected_rounds(texts["chat2"], 4)]
    assert tuple(table.loc[1, ["mean", "low", "high"]]) == pytest.approx(ratio_interval([8, 20], rounds))
    assert table.loc[3, "mean"] == 12 / 3 and math.isnan(table.loc[3, "low"])


def test_texts_of_one_prompt_are_one_cluster():
    once = trace(chat1=[0.5] * 8, chat2=[0.9] * 20)
    many = tokens_per_round([once] * 10, [4])
    assert many.prompts[0] == 2 and many.tokens[0] == 280
    assert many.loc[0, ["mean", "low", "high"]].tolist() == pytest.approx(
        tokens_per_round(once, [4]).loc[0, ["mean", "low", "high"]].tolist()
    )


def test_rows_are_put_in_order_of_t():
    shuffled = trace(chat1=[1, 1, 0, 0, 1, 1, 0])
    ordered = tokens_per_round(shuffled, [2])
    shuffled.rows = shuffled.rows.sample(frac=1, random_state=0)
    assert tokens_per_round(shuffled, [2]).equals(ordered)


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf])
def test_a_chance_that_is_none_is_refused_and_its_prompt_named(bad):
    for refuse, argument in ((replay_rounds, [2]), (position_rates, 2), (adaptive_cost, [1.0])):
        with pytest.raises(ValueError, match=r"prompt 2: .* not a chance"):
            refuse([[0.5, 0.5], [], [0.5, bad]], argument)


def test_bad_shapes_ks_and_costs_are_refused_with_the_reason():
    with pytest.raises(ValueError, match="1-D"):
        replay_rounds([np.ones((2, 2))], [1])
    with pytest.raises(ValueError, match="1-D"):
        replay_rounds(np.ones(3), [1])
    with pytest.raises(ValueError, match="integer"):
        replay_rounds([np.ones(3)], [1.5])
    with pytest.raises(ValueError, match="0 or more"):
        expected_rounds(np.ones(3), -1)
    with pytest.raises(ValueError, match="ends at k=1"):
        fixed_cost([np.ones(3)], [2], [1.0, 1.2])
    for cost in ([], [1.0, math.nan], [-1.0], [[1.0]]):
        with pytest.raises(ValueError, match="round_cost must be"):
            adaptive_cost([np.ones(3)], cost)
    with pytest.raises(ValueError, match="no rows"):
        tokens_per_round(trace(), [1])


def test_no_prompts_is_an_empty_answer():
    assert replay_rounds([], [1, 2]).shape == (0, 2) and adaptive_cost([], [1.0]).shape == (0,)


def test_ten_thousand_prompts_take_less_than_two_seconds():
    accepts = list(np.random.default_rng(0).random((10_000, 100)))
    start = time.process_time()
    replay_rounds(accepts, range(1, 17))
    assert time.process_time() - start < 2


def test_one_k_that_is_not_in_a_list_is_refused():
    with pytest.raises(ValueError, match="ks is 3: give a list"):
        replay_rounds([[0.5]], 3)
