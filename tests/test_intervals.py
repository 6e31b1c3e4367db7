"""Intervals: equal to scipy's where it has one, covering as often as they say, honest about one prompt."""

import math

import numpy as np
import pytest
from scipy import stats

from course_lib.intervals import Interval, mean_interval, ratio_difference, ratio_interval


def test_mean_interval_is_students():
    values = [4.704, 3.432, 2.702, 3.735, 4.233]
    low, high = stats.t.interval(0.9, 4, np.mean(values), stats.sem(values))
    assert mean_interval(values, 0.9) == pytest.approx((np.mean(values), low, high))


def test_equal_denominators_reduce_a_ratio_to_a_mean():
    values = np.array([5.0, 7.0, 6.0])
    assert ratio_interval(values * 10, [10, 10, 10]) == pytest.approx(mean_interval(values))


def test_ratio_weighs_prompts_by_their_size():
    assert ratio_interval([90, 1], [30, 1]).mean == pytest.approx(91 / 31)


@pytest.mark.parametrize("prompts", [8, 24])
def test_ratio_interval_covers_the_truth_as_often_as_it_says(prompts):
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(2000):
        rate = rng.beta(8, 4, prompts)  # each prompt has its own rate; its text is long or short
        rounds = rng.integers(20, 60, prompts)
        interval = ratio_interval(rng.binomial(rounds, rate), rounds)
        covered += interval.low <= 8 / 12 <= interval.high
    assert 0.93 < covered / 2000 < 0.97


def test_tokens_taken_as_independent_would_cover_far_too_rarely():
    # The negative control of the test above: the same data, the interval over tokens.
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(500):
        rate, rounds = rng.beta(8, 4, 24), rng.integers(20, 60, 24)
        hits = rng.binomial(rounds, rate).sum()
        low, high = stats.binom.interval(0.95, rounds.sum(), hits / rounds.sum())
        covered += low / rounds.sum() <= 8 / 12 <= high / rounds.sum()
    assert covered / 500 < 0.75


def test_one_prompt_gives_no_interval():
    interval = ratio_interval([30.0], [10.0])
    assert interval.mean == 3 and math.isnan(interval.low) and math.isnan(interval.high)
    assert math.isnan(interval.half_width)
    assert Interval(2.0, 1.5, 2.5).half_width == 0.5


@pytest.mark.parametrize(
    "arguments, reason",
    [(([], []), "at least one prompt"), (([1.0], [1.0, 2.0]), "one number for each prompt"),
     (([1.0, math.nan], [1, 1]), "nan"), (([1, 1], [1, -1]), "0 or more"), (([1, 1], [0, 0]), "not all 0"),
     (([1, 1], [1, 1], 95), "level is 95")],
)  # fmt: skip
def test_bad_input_is_refused_with_the_reason(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        ratio_interval(*arguments)


def test_an_interval_prints_as_mean_and_half_width():
    assert f"{Interval(3.7612, 2.8112, 4.7112):.2f}" == "3.76 ± 0.95"
    assert f"{Interval(0.1, -0.1, 0.3):+.1f}" == "+0.1 ± 0.2"  # the sign belongs to the mean
    assert f"{mean_interval([3.0]):.1f}" == "3.0 ± ?"
    assert f"{Interval(1.0, 0.0, 2.0)}" == "Interval(mean=1.0, low=0.0, high=2.0)"


def test_the_difference_of_ratios_covers_as_promised_and_pairs_the_prompts():
    rng = np.random.default_rng(7)
    covered = paired = apart = 0
    for _ in range(600):
        ease = rng.normal(0, 0.5, 12)  # what a prompt is like, for both sides
        rounds = rng.integers(20, 60, (2, 12)).astype(float)
        tokens = rounds * (2.5 + ease + rng.normal(0, 0.1, (2, 12)))
        tokens[0] += 0.2 * rounds[0]
        difference = ratio_difference((tokens[0], rounds[0]), (tokens[1], rounds[1]))
        covered += difference.low <= 0.2 <= difference.high
        paired += difference.half_width
        apart += math.hypot(*(ratio_interval(tokens[i], rounds[i]).half_width for i in (0, 1)))
        plain = tokens[0].sum() / rounds[0].sum() - tokens[1].sum() / rounds[1].sum()
        assert difference.mean == pytest.approx(plain)
    assert 0.92 <= covered / 600 <= 0.98
    assert paired < 0.75 * apart


def test_a_difference_of_ratios_with_itself_is_zero_and_needs_the_same_prompts():
    one = ([3.0, 5.0, 4.0], [2.0, 2.0, 3.0])
    assert ratio_difference(one, one) == Interval(0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="same prompts"):
        ratio_difference(one, ([3.0, 5.0], [2.0, 2.0]))
