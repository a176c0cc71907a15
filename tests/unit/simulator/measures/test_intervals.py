"""Intervals cover what they claim."""

import random
from math import comb
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_simulator.measures.intervals import estimate, median_interval, t_quantile

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("degrees_of_freedom", "published"),
    [(1, 12.706), (4, 2.776), (9, 2.262), (20, 2.086), (21, 2.080), (30, 2.042), (120, 1.980)],
)
def test_quantiles_are_those_of_the_published_table(
    degrees_of_freedom: int, published: float
) -> None:
    assert t_quantile(degrees_of_freedom) == pytest.approx(published, abs=5e-4)


def test_a_known_interval() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None
    assert (found.mean, found.num_runs) == (3.0, 5)
    assert (found.low, found.high) == pytest.approx((3 - 1.9634, 3 + 1.9634), abs=1e-3)


def test_one_run_has_no_interval_and_none_has_no_estimate() -> None:
    found = estimate([3.0])
    assert found is not None
    assert (found.mean, found.low, found.high) == (3.0, None, None)
    assert estimate([]) is None
    assert median_interval([]) is None


def test_the_t_interval_holds_the_true_mean_in_19_of_20_cases() -> None:
    chance = random.Random(1)
    hits = 0
    for _ in range(4000):
        found = estimate([chance.gauss(7, 2) for _ in range(5)])
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 7 <= found.high
    assert 0.94 <= hits / 4000 <= 0.96


@given(VALUES)
def test_the_interval_of_the_median_holds_the_samples_median(values: list[float]) -> None:
    found = median_interval(values)
    assert found is not None
    assert min(values) <= found.low <= median(values) <= found.high <= max(values)


@pytest.mark.parametrize(("count", "cut"), [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (20, 5)])
def test_the_interval_of_the_median_is_the_binomial_one(count: int, cut: int) -> None:
    found = median_interval([float(value) for value in range(count)])
    assert found is not None
    assert (found.low, found.high) == (cut, count - 1 - cut)
    inside = sum(comb(count, k) for k in range(cut + 1, count - cut)) / 2**count
    assert found.confidence == pytest.approx(inside)


def test_the_mean_is_within_its_interval() -> None:
    found = estimate([1.0, 1.5])
    assert found is not None
    assert found.mean == fmean([1.0, 1.5])
