"""Protects the simulated rounds: that they follow the law they claim, and count what a decoder counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.replay import expected_rounds
from course_lib.simulate import rounds_along_text, simulate_rounds, sticky_coins
from course_lib.theory import accepted_pmf, expected_tokens


@pytest.mark.parametrize(("alpha", "k"), [(0.8, 4), (0.3, 2), (0.95, 8), (0.5, 1)])
def test_accepted_counts_follow_the_pmf(alpha, k):
    n = 100_000
    rounds = simulate_rounds(alpha, k, n, seed=1)
    share = np.bincount(rounds.accepted, minlength=k + 1) / n
    pmf = accepted_pmf(alpha, k)
    assert share.shape == pmf.shape
    assert (np.abs(share - pmf) < 4.5 * np.sqrt(pmf * (1 - pmf) / n)).all()


def test_edges_are_exact():
    for alpha, k, accepted in [(0.0, 4, 0), (1.0, 4, 4), (0.7, 0, 0), ([1, 1, 0, 1], 4, 2)]:
        rounds = simulate_rounds(alpha, k, n=50, seed=0)
        assert (rounds.accepted == accepted).all() and (rounds.emitted == accepted + 1).all()
        assert (rounds.drafted == k).all() and len(rounds.drafted) == 50


def test_position_chances_are_conditional():
    n = 100_000
    accepted = simulate_rounds([0.9, 0.5, 0.2], 3, n, seed=2).accepted
    for position, chance in [(1, 0.9), (2, 0.45), (3, 0.09)]:
        noise = 4.5 * np.sqrt(chance * (1 - chance) / n)
        assert np.mean(accepted >= position) == pytest.approx(chance, abs=noise)


def test_a_seed_repeats_and_another_does_not():
    assert (simulate_rounds(0.8, 4, 99, 3).accepted == simulate_rounds(0.8, 4, 99, 3).accepted).all()
    assert (simulate_rounds(0.8, 4, 99, 3).accepted != simulate_rounds(0.8, 4, 99, 4).accepted).any()
    assert (sticky_coins(0.9, 0.4, 99, 3) == sticky_coins(0.9, 0.4, 99, 3)).all()


def test_sticky_coins_stick():
    coins = sticky_coins(stay=0.9, leave=0.4, n=100_000, seed=4)
    assert coins.mean() == pytest.approx(0.8, abs=0.01)
    assert coins[1:][coins[:-1]].mean() == pytest.approx(0.9, abs=0.005)
    assert coins[1:][~coins[:-1]].mean() == pytest.approx(0.4, abs=0.015)
    first = [sticky_coins(stay=0.9, leave=0.1, n=1, seed=seed)[0] for seed in range(2000)]
    assert np.mean(first) == pytest.approx(0.5, abs=0.05)  # no text starts in a stretch of its own kind


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 9))
def test_rounds_along_a_text_are_those_of_the_replay(coins, k):
    rounds = rounds_along_text(coins, k)
    assert len(rounds.emitted) == expected_rounds(coins, k)
    assert rounds.emitted.sum() == len(coins)
    assert (rounds.accepted <= rounds.drafted).all() and (rounds.drafted <= k).all()
    assert (rounds.emitted[:-1] == rounds.accepted[:-1] + 1).all()


def test_rounds_along_a_text_by_hand():
    #                            1  1  0  1  1  1  1  0  1: rounds end at places 2, 6 (a bonus), 7 and 8
    rounds = rounds_along_text([1, 1, 0, 1, 1, 1, 1, 0, 1], k=3)
    assert rounds.drafted.tolist() == [3, 3, 2, 1]
    assert rounds.accepted.tolist() == [2, 3, 0, 1]
    assert rounds.emitted.tolist() == [3, 4, 1, 1]


def test_fair_coins_give_the_formula_and_sticky_ones_their_own_mean():
    def tokens_per_round(coins):
        return rounds_along_text(coins, k=4).emitted.mean()

    n = 200_000
    fair = sticky_coins(0.8, 0.8, n, seed=5)
    assert tokens_per_round(fair) == pytest.approx(expected_tokens(0.8, 4), abs=0.03)
    # By hand: a round that starts after tails (heads) accepts .4 (.9) x (1 + .9 + .9^2 + .9^3) on average;
    # a share x starts after a head nobody saw, x = .9 (x .9^4 + (1 - x) .4 .9^3).
    x = 0.9 * 0.4 * 0.9**3 / (1 - 0.9 * (0.9**4 - 0.4 * 0.9**3))
    exact = 1 + (x * 0.9 + (1 - x) * 0.4) * (1 + 0.9 + 0.9**2 + 0.9**3)
    assert exact == pytest.approx(3.047, abs=5e-4)
    assert tokens_per_round(sticky_coins(0.9, 0.4, n, seed=5)) == pytest.approx(exact, abs=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate_rounds(1.2, 4, 10, 0), "alpha is 1.2"),
        (lambda: simulate_rounds(float("nan"), 4, 10, 0), "alpha is nan"),
        (lambda: simulate_rounds([0.5, 0.5], 3, 10, 0), "k=3"),
        (lambda: simulate_rounds(0.5, 2.5, 10, 0), "k is 2.5"),
        (lambda: simulate_rounds(0.5, -1, 10, 0), "k is -1"),
        (lambda: simulate_rounds(0.5, 2, 0, 0), "n is 0"),
        (lambda: sticky_coins(1.0, 0.0, 10, 0), "not 1 with 0"),
        (lambda: sticky_coins(0.9, -0.1, 10, 0), "leave=-0.1"),
        (lambda: rounds_along_text([], 3), "at least one"),
        (lambda: rounds_along_text([0.5, 1], 3), "True and False"),
        (lambda: rounds_along_text([True], -1), "k is -1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
