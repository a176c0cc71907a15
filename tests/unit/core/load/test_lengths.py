"""Lengths are written in a few forms, and drawn as written."""

import math
import random
from statistics import fmean, median, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.load.lengths import Fixed, LogNormal, Uniform, draw, parse_lengths


def test_reads_every_form() -> None:
    assert parse_lengths("512") == Fixed(512)
    assert parse_lengths("uniform:32,64") == Uniform(32, 64)
    assert parse_lengths("lognormal:median=100,sigma=0.5,max=300") == LogNormal(
        math.log(100), 0.5, 300
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "-3", "1.5", "many", "uniform:", "uniform:5", "uniform:9,3", "uniform:1,2,3"),
        *("uniform:0,4", "lognormal:mean=10", "lognormal:mean=10,sigma=1", "lognormal:mean=10,cv"),
        *("lognormal:mean=nan,cv=1", "lognormal:mean=10,cv=-1", "lognormal:median=inf,sigma=1"),
        *("lognormal:mean=10,cv=1,most=4", "lognormal:mean=10,cv=1,max=0", "99999999999"),
    ],
)
def test_refuses_the_rest_and_shows_what_is_expected(text: str) -> None:
    with pytest.raises(ValueError, match=rf'got "{text}", expected "512", "uniform:32,64"'):
        parse_lengths(text)


def test_a_log_normal_has_the_mean_and_variation_asked_for() -> None:
    lengths = parse_lengths("lognormal:mean=880,cv=0.5")
    chance = random.Random(1)
    drawn = [draw(lengths, chance) for _ in range(20_000)]
    assert fmean(drawn) == pytest.approx(880, rel=0.02)
    assert pstdev(drawn) / fmean(drawn) == pytest.approx(0.5, rel=0.03)


def test_a_log_normal_has_the_median_asked_for() -> None:
    lengths = parse_lengths("lognormal:median=814,sigma=0.5")
    chance = random.Random(1)
    assert median(draw(lengths, chance) for _ in range(20_000)) == pytest.approx(814, rel=0.02)


@given(st.integers(1, 50), st.integers(0, 50), st.integers())
def test_uniform_lengths_stay_within_their_bounds(low: int, width: int, seed: int) -> None:
    assert low <= draw(Uniform(low, low + width), random.Random(seed)) <= low + width


@given(st.floats(0, 20), st.floats(0, 5), st.integers(1, 1000), st.integers())
def test_log_normal_lengths_stay_within_their_bounds(
    mu: float, sigma: float, most: int, seed: int
) -> None:
    assert 1 <= draw(LogNormal(mu, sigma, most), random.Random(seed)) <= most
