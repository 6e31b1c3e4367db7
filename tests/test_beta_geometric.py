"""Protects the beta-geometric law: its limits, its numbers against an integral, and the fit against coins."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from course_lib.beta_geometric import BetaGeometric, fit_beta_geometric
from course_lib.theory import expected_tokens


@pytest.mark.parametrize("mean, spread", [(0.7, 0.2), (0.4, 0.5), (0.9, 0.05)])
def test_tokens_are_the_formula_averaged_over_the_beta_law(mean, spread):
    size = 1 / spread - 1
    law = beta(mean * size, (1 - mean) * size)
    for k in (1, 3, 8):
        average = quad(lambda alpha, k=k: law.pdf(alpha) * expected_tokens(alpha, k), 0, 1, limit=200)[0]
        assert BetaGeometric(mean, spread).expected_tokens(k) == pytest.approx(average, rel=1e-6)
    assert law.var() == pytest.approx(spread * mean * (1 - mean))


@given(st.floats(0, 1), st.integers(0, 30))
def test_without_spread_it_is_the_geometric_formula(mean, k):
    assert BetaGeometric(mean, 0.0).expected_tokens(k) == pytest.approx(expected_tokens(mean, k))
    assert BetaGeometric(mean, 1e-12).expected_tokens(k) == pytest.approx(expected_tokens(mean, k), rel=1e-6)


@given(st.floats(0, 1), st.integers(0, 30))
def test_with_full_spread_a_round_is_accepted_entirely_or_not_at_all(mean, k):
    assert BetaGeometric(mean, 1.0).expected_tokens(k) == pytest.approx(1 + k * mean)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_the_odds_rise_along_a_straight_line(mean, spread):
    rates = BetaGeometric(mean, spread).rates(6)
    odds = rates / (1 - rates)
    np.testing.assert_allclose(np.diff(odds), odds[1] - odds[0], rtol=1e-6)
    assert rates[0] == pytest.approx(mean)


def counts(alphas, k, rng):
    """Reached and accepted at each position, of one round for each alpha, coin by coin."""
    passed = np.cumprod(rng.random((len(alphas), k)) < alphas[:, None], axis=1).sum(axis=0)
    return np.concatenate([[len(alphas)], passed[:-1]]), passed


def test_the_fit_finds_the_law_that_made_the_rounds():
    rng = np.random.default_rng(5)
    for mean, spread in ((0.7, 0.25), (0.5, 0.1), (0.6, 0.6)):
        size = 1 / spread - 1
        reached, accepted = counts(rng.beta(mean * size, (1 - mean) * size, 200_000), 6, rng)
        fit = fit_beta_geometric(reached, accepted)
        assert fit.mean == pytest.approx(mean, abs=0.005) and fit.spread == pytest.approx(spread, abs=0.015)


@given(st.floats(0.02, 0.98), st.floats(0.0, 0.9), st.integers(2, 12))
def test_the_fit_gives_back_a_law_from_its_own_expected_counts(mean, spread, k):
    rates = BetaGeometric(mean, spread).rates(k)
    passed = 1000 * np.cumprod(rates)
    reached = np.concatenate([[1000.0], passed[:-1]])
    fit = fit_beta_geometric(reached, passed)
    for each in (1, k):
        assert fit.expected_tokens(each) == pytest.approx(
            BetaGeometric(mean, spread).expected_tokens(each), rel=1e-3
        )


def test_rounds_that_do_not_differ_get_no_spread():
    rng = np.random.default_rng(6)
    fit = fit_beta_geometric(*counts(np.full(200_000, 0.7), 6, rng))
    assert fit.mean == pytest.approx(0.7, abs=0.005) and fit.spread < 0.01
    falling = fit_beta_geometric([100, 80, 40], [80, 40, 10])
    assert falling.spread == 0 and falling.mean == pytest.approx(130 / 220)


def test_the_ends_are_certain_and_unreached_positions_count_for_nothing():
    assert fit_beta_geometric([9, 9], [9, 9]) == (1, 0) and fit_beta_geometric([9, 0.1], [0, 0]) == (0, 0)
    short = fit_beta_geometric([100, 60, 42], [60, 42, 33])
    assert fit_beta_geometric([100, 60, 42, 0], [60, 42, 33, 0]) == pytest.approx(short, abs=1e-6)
    # The fit is at least as likely as its neighbours.
    reached, accepted = np.array([100, 60, 42]), np.array([60, 42, 33])

    def likelihood(law):
        rates = law.rates(3)
        return accepted @ np.log(rates) + (reached - accepted) @ np.log(1 - rates)

    for step in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01)):
        assert likelihood(short) >= likelihood(BetaGeometric(short.mean + step[0], short.spread + step[1]))


def test_what_cannot_be_is_refused_with_the_reason():
    for reached, accepted, why in (
        ([10], [5], "one rate says nothing"),
        ([10, 0], [5, 0], "one rate says nothing"),
        ([10, 5], [11, 2], "between 0 and reached"),
        ([10, 5], [5, math.nan], "between 0 and reached"),
        ([10, 5], [5], "one number for each position"),
    ):
        with pytest.raises(ValueError, match=why):
            fit_beta_geometric(reached, accepted)
    with pytest.raises(ValueError, match="between 0 and 1"):
        BetaGeometric(1.2, 0.1).rates(3)
    with pytest.raises(ValueError, match="integer"):
        BetaGeometric(0.5, 0.1).rates(2.5)
    with pytest.raises(ValueError, match="0 or more"):
        BetaGeometric(0.5, 0.1).expected_tokens(-1)
