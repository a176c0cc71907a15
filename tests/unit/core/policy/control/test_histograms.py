"""Percentiles that can be merged, with an error that is known."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.control.histograms import LEAST_VALUE_S, MOST_VALUE_S, Histogram

EMPTY = Histogram()
values_in_range = st.floats(LEAST_VALUE_S * 1.0001, MOST_VALUE_S)
samples = st.lists(st.just(0.0) | values_in_range, max_size=80)
odd_samples = st.lists(st.sampled_from([0.0, -1.0, math.nan]) | values_in_range, max_size=40)


def exact_percentile(values: list[float], percentile: int) -> float:
    rank = max(1, math.ceil(Fraction(len(values) * percentile, 100)))
    return sorted(values)[rank - 1]


def test_nothing_has_no_percentile() -> None:
    assert EMPTY.percentile(90) is None


def test_a_percentile_is_a_value_that_so_many_are_not_above() -> None:
    histogram = EMPTY.plus(float(value) for value in range(1, 101))
    assert histogram.percentile(90) == pytest.approx(90.0, rel=0.01)
    assert histogram.percentile(0) == pytest.approx(1.0, rel=0.01)
    assert histogram.percentile(100) == pytest.approx(100.0, rel=0.01)


@given(
    values=samples.filter(bool),
    percentile=st.integers(0, 100),
    error=st.sampled_from([0.001, 0.01, 0.05]),
)
def test_a_percentile_is_within_the_stated_error(
    values: list[float], percentile: int, error: float
) -> None:
    found = Histogram(error_ratio=error).plus(values).percentile(percentile)
    exact = exact_percentile(values, percentile)
    assert found is not None
    assert abs(found - exact) <= error * exact * (1 + 1e-9)


@given(a=samples, b=samples, c=samples)
def test_merging_is_associative_and_commutative(
    a: list[float], b: list[float], c: list[float]
) -> None:
    one, two, three = (EMPTY.plus(values) for values in (a, b, c))
    assert one.merged(two) == two.merged(one)
    assert one.merged(two).merged(three) == one.merged(two.merged(three))
    assert one.merged(EMPTY) == one


@given(a=odd_samples, b=odd_samples)
def test_merging_is_the_same_as_counting_everything_in_one(a: list[float], b: list[float]) -> None:
    assert EMPTY.plus(a).merged(EMPTY.plus(b)) == EMPTY.plus(a + b) == EMPTY.plus(a).plus(b)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=60))
def test_every_value_is_counted_once(values: list[float]) -> None:
    histogram = EMPTY.plus(values)
    assert histogram.num_values + histogram.num_refused == len(values)
    impossible = [value for value in values if not (math.isfinite(value) and value >= 0)]
    assert histogram.num_refused == len(impossible)


def test_values_beyond_the_range_count_at_its_bounds() -> None:
    assert EMPTY.plus([1e-9]).percentile(50) == 0.0
    assert EMPTY.plus([1e30]).percentile(50) == pytest.approx(MOST_VALUE_S, rel=0.01)


def test_histograms_of_different_buckets_do_not_merge() -> None:
    with pytest.raises(ValueError, match=r"got 0.01 and 0.02"):
        Histogram(error_ratio=0.01).merged(Histogram(error_ratio=0.02))


def test_the_number_of_buckets_is_bounded_whatever_comes() -> None:
    values = [10.0 ** (exponent / 400) for exponent in range(-4000, 4000)]
    assert len(EMPTY.plus(values).buckets) < 1400
