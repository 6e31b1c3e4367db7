"""Closed forms against explicit sums and published tables; conversions against their own inverses."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.theory import (
    Counts,
    accepted_pmf,
    accepted_prefix,
    alpha_from_prefix_rate,
    alpha_from_tokens,
    arithmetic_growth,
    conditional_from_rounds,
    conditional_from_unconditional,
    counts_from_histogram,
    counts_from_v0,
    expected_accepted,
    expected_tokens,
    prefix_rate,
    tokens_from_unconditional,
    unconditional_from_conditional,
)

alphas = st.floats(0, 1)
ks = st.integers(1, 40)


def enumerated(alpha, k):
    """P(n accepted) by adding up every outcome of k coins, stopping at the first that fails."""
    chances = np.zeros(k + 1)
    for coins in product([True, False], repeat=k):
        chances[accepted_prefix(coins)] += math.prod(alpha if coin else 1 - alpha for coin in coins)
    return chances


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("k", [0, 1, 2, 5, 8])
def test_every_form_agrees_with_all_outcomes_of_k_coins(alpha, k):
    chances = enumerated(alpha, k)
    counts = np.arange(k + 1)
    np.testing.assert_allclose(accepted_pmf(alpha, k), chances, atol=1e-14)
    assert expected_accepted(alpha, k) == pytest.approx(chances @ counts, abs=1e-13)
    assert expected_tokens(alpha, k) == pytest.approx(chances @ (counts + 1), abs=1e-13)
    if k:
        assert prefix_rate(alpha, k) == pytest.approx(chances @ counts / k, abs=1e-13)


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 0.5, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("k", [1, 5, 100])
def test_no_digits_are_lost_next_to_alpha_one(alpha, k):
    powers = math.fsum(alpha**i for i in range(1, k + 1))
    assert expected_accepted(alpha, k) == pytest.approx(powers, rel=1e-13)
    assert expected_tokens(alpha, k) == pytest.approx(1 + powers, rel=1e-13)


def test_limits_are_exact():
    assert expected_tokens(1, 5) == 6 and expected_accepted(1, 5) == 5
    assert expected_tokens(0, 5) == 1 and expected_accepted(0, 5) == 0
    assert expected_tokens(0.3, 0) == 1 and expected_accepted(0.7, 0) == 0
    assert accepted_pmf(0.7, 0).tolist() == [1.0]
    assert type(expected_tokens(np.float64(0.8), np.int64(4))) is float


def test_right_values_where_the_articles_slip():
    right = [(5, 3.689), (8, 4.329), (12, 4.725), (20, 4.954)]
    assert all(round(expected_tokens(0.8, k), 3) == tokens for k, tokens in right)
    assert expected_tokens(0.8, 8) / 5 == pytest.approx(0.866, abs=5e-4)  # share of the ceiling 1/(1-alpha)
    assert expected_tokens(0.7, 5) == pytest.approx(2.941, abs=5e-4)
    assert expected_tokens(0.3, 5) == pytest.approx(1.4275, abs=5e-5)
    assert expected_accepted(0.8, 4) == pytest.approx(2.3616)  # not + 0.8^4: the last draft counts once


@pytest.mark.parametrize(
    "alpha, k, operations, speed",
    [(0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44),
     (0.8, 5, 1.63, 3.69), (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86)],
)  # fmt: skip
def test_leviathan_table_1(alpha, k, operations, speed):
    assert arithmetic_growth(alpha, k, c=0) == pytest.approx(operations, abs=0.0051)
    assert expected_tokens(alpha, k) == pytest.approx(speed, abs=0.0051)


@pytest.mark.parametrize(
    "k, alpha, c, speedup",
    [(7, 0.75, 0.02, 3.2), (7, 0.80, 0.04, 3.3), (7, 0.82, 0.11, 2.5),
     (7, 0.62, 0.02, 2.3), (5, 0.68, 0.04, 2.4), (3, 0.71, 0.11, 2.0)],
)  # fmt: skip
def test_leviathan_table_4_expected_speedup(k, alpha, c, speedup):
    # The paper prints alpha and c to two digits and the speedup to one: the ranges they leave must meet.
    least = expected_tokens(alpha - 0.005, k) / (k * (c + 0.005) + 1)
    most = expected_tokens(alpha + 0.005, k) / (k * (c - 0.005) + 1)
    assert least <= speedup + 0.05 and most >= speedup - 0.05


def test_arithmetic_grows_by_the_drafts_own_work():
    assert arithmetic_growth(0.8, 4, c=0.1) == pytest.approx((4 * 0.1 + 5) / 3.3616)
    assert arithmetic_growth(0.3, 0, c=0.5) == 1
    with pytest.raises(ValueError, match="0 or more"):
        arithmetic_growth(0.8, 4, c=-1)


@given(alphas, ks)
def test_inverses_undo_the_forms(alpha, k):
    assert alpha_from_prefix_rate(prefix_rate(alpha, k), k) == pytest.approx(alpha, abs=1e-12)
    assert alpha_from_tokens(expected_tokens(alpha, k), k) == pytest.approx(alpha, abs=1e-12)


@given(st.floats(0, 1), ks)
def test_forms_undo_the_inverses(share, k):
    assert prefix_rate(alpha_from_prefix_rate(share, k), k) == pytest.approx(share, abs=1e-12)
    assert expected_tokens(alpha_from_tokens(1 + k * share, k), k) == pytest.approx(1 + k * share, abs=1e-11)


@given(alphas, ks)
def test_tokens_rise_with_k_and_stay_below_the_ceiling(alpha, k):
    here, more = expected_tokens(alpha, k), expected_tokens(alpha, k + 1)
    assert here <= more * (1 + 1e-15) and here <= k + 1
    if alpha < 1:
        assert more <= 1 / (1 - alpha) * (1 + 1e-12)
    assert accepted_pmf(alpha, k).sum() == pytest.approx(1)


@pytest.mark.parametrize("form", [expected_accepted, expected_tokens, accepted_pmf, prefix_rate])
def test_impossible_alpha_and_k_are_refused(form):
    for alpha in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            form(alpha, 3)
    with pytest.raises(ValueError, match="or more"):
        form(0.5, -1)
    with pytest.raises(ValueError, match="integer"):
        form(0.5, 2.5)


def test_nothing_drafted_has_no_rate():
    for refused in (prefix_rate, alpha_from_prefix_rate, alpha_from_tokens):
        with pytest.raises(ValueError, match="1 or more"):
            refused(1.0, 0)


@pytest.mark.parametrize(
    "inverse, value, reason",
    [(alpha_from_prefix_rate, 1.3, "accepted exceeds drafted: the bonus token is being counted as accepted"),
     (alpha_from_prefix_rate, -0.1, "between 0 and 1"),
     (alpha_from_prefix_rate, math.nan, "between 0 and 1"),
     (alpha_from_tokens, 6.1, "at most 6"),
     (alpha_from_tokens, 0.8, "counts accepted drafts only"),
     (alpha_from_tokens, math.nan, "not a number")],
)  # fmt: skip
def test_impossible_measurements_are_refused_with_the_reason(inverse, value, reason):
    with pytest.raises(ValueError, match=reason):
        inverse(value, 5)


def test_rounding_just_outside_the_range_is_forgiven():
    assert alpha_from_prefix_rate(1 + 1e-12, 3) == 1 and alpha_from_tokens(1 - 1e-12, 3) == 0


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=12))
def test_conditional_and_unconditional_undo_each_other(conditional):
    unconditional = unconditional_from_conditional(conditional)
    np.testing.assert_allclose(conditional_from_unconditional(unconditional), conditional, rtol=1e-9)
    np.testing.assert_allclose(unconditional, np.cumprod(conditional))


@given(alphas, ks)
def test_equal_conditional_rates_give_back_the_formula(alpha, k):
    rates = unconditional_from_conditional([alpha] * k)
    assert tokens_from_unconditional(rates) == pytest.approx(expected_tokens(alpha, k), rel=1e-12)


def test_after_a_zero_the_conditional_rate_is_unknown():
    conditional = conditional_from_unconditional([0.5, 0.0, 0.0])
    np.testing.assert_array_equal(conditional, [0.5, 0.0, math.nan])
    np.testing.assert_array_equal(unconditional_from_conditional(conditional), [0.5, 0.0, 0.0])
    with pytest.raises(ValueError, match="between 0 and 1"):
        unconditional_from_conditional([0.5, math.nan, 0.2])


def test_rates_that_rise_are_not_unconditional():
    for refused in (conditional_from_unconditional, tokens_from_unconditional):
        with pytest.raises(ValueError, match=r"from 0.7 to 0.8 at position 2.*conditional rates already"):
            refused([0.7, 0.8])
        with pytest.raises(ValueError, match="between 0 and 1"):
            refused([1.2, 0.8])
    assert conditional_from_unconditional([0.5, 0.5 + 1e-12])[1] == 1


def test_positions_never_drafted_are_unobserved_not_rejected():
    # Two full rounds of 3; a round cut to 1 draft, accepted; a round cut to 0.
    rates = conditional_from_rounds(drafted=[3, 3, 1, 0], accepted=[3, 1, 1, 0])
    np.testing.assert_allclose(rates, [1.0, 0.5, 1.0])
    np.testing.assert_array_equal(conditional_from_rounds([2, 2], [0, 0]), [0.0, math.nan])
    assert conditional_from_rounds([], []).size == 0
    with pytest.raises(ValueError, match="exceeds drafted"):
        conditional_from_rounds([2], [3])
    with pytest.raises(ValueError, match="equally long"):
        conditional_from_rounds([2, 2], [1])


def test_cutting_rounds_short_does_not_bias_the_conditional_rate():
    rng = np.random.default_rng(3)
    drafted = rng.integers(0, 6, 40_000)
    accepted = np.minimum(rng.geometric(1 - 0.7, drafted.size) - 1, drafted)
    np.testing.assert_allclose(conditional_from_rounds(drafted, accepted), 0.7, atol=0.025)


def test_impossible_counts_are_refused_with_the_reason():
    for counts in ((0, 5, 3), (5, -1, 0), (5, 10, math.nan), (5, math.inf, 3)):
        with pytest.raises(ValueError, match="at least one round"):
            Counts(*counts)
    with pytest.raises(ValueError, match="bonus token is being counted as accepted"):
        Counts(rounds=10, drafted=50, accepted=51)
    with pytest.raises(ValueError, match="not a whole number of rounds"):
        counts_from_v0(k=4, drafted=53715, accepted=0, emitted=13429)
    with pytest.raises(ValueError, match="k \\+ 1 counts"):
        counts_from_histogram([1, -1])
    assert math.isnan(Counts(rounds=3, drafted=0, accepted=0).prefix_rate)


def test_numbers_of_other_kinds_are_read_in_full_or_refused():
    thirds = np.float32(1 / 3)
    assert expected_accepted(thirds, 5) == expected_accepted(float(thirds), 5)
    for alpha, k in (("x", 3), (None, 3), (0.5, 10**400), (1.0, 10**400)):
        with pytest.raises(ValueError):
            expected_tokens(alpha, k)
    with pytest.raises(ValueError, match="whole numbers"):
        conditional_from_rounds(drafted=[3.5, 2], accepted=[1, 1])
    with pytest.raises(ValueError, match="nan, not a number"):
        alpha_from_tokens(math.nan, 3)


@pytest.mark.filterwarnings("error")
def test_counts_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="k \\+ 1 counts"):
        counts_from_histogram([math.inf, 1])
    for emitted, why in ((9, "at least 1 token"), (16, "only 1 token of its own")):
        with pytest.raises(ValueError, match=why):
            counts_from_v0(k=4, drafted=40, accepted=5, emitted=emitted)
    # Fewer emitted than accepted is possible: accepted also counts what came after a rejection.
    assert counts_from_v0(k=4, drafted=40, accepted=30, emitted=10)[0].accepted == 0
