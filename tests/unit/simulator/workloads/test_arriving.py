"""Rates that change do so when they should."""

import random
from itertools import islice
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.load.arrivals import Poisson
from pipelineserve_simulator.workloads.arriving import ChangingRate, RandomArrivals

RATES = st.lists(st.just(0.0) | st.floats(0.01, 20.0), min_size=1, max_size=6).filter(any)


@given(RATES, st.floats(0.1, 10), st.floats(0.2, 5), st.integers(0, 99))
def test_times_rise_end_in_time_and_avoid_silence(
    rates: list[float], bin_s: float, rate_scale: float, seed: int
) -> None:
    source = ChangingRate("a trace", tuple(rates), bin_s, rate_scale)
    times_s = list(source.times_s(random.Random(seed)))
    assert times_s == sorted(times_s)
    assert times_s[-1] <= len(rates) * bin_s / rate_scale * (1 + 1e-9)
    for at_s in times_s:
        # A time on the border of two bins may round to either.
        at = at_s * rate_scale / bin_s
        near = {int(at + 1e-6), max(0, int(at - 1e-6))} & set(range(len(rates)))
        assert any(rates[index] > 0 for index in near)


def test_each_bin_has_its_own_rate() -> None:
    source = ChangingRate("a trace", (2.0, 0.0, 10.0), 1000.0)
    times_s = list(source.times_s(random.Random(1)))
    first = sum(at_s < 1000 for at_s in times_s)
    last = sum(at_s >= 2000 for at_s in times_s)
    assert first == pytest.approx(2000, rel=0.07)
    assert last == pytest.approx(10_000, rel=0.03)
    assert first + last == len(times_s)


def test_a_scaled_rate_is_the_same_arrivals_in_less_time() -> None:
    slow, fast = (
        list(ChangingRate("a trace", (2.0, 5.0), 100.0, scale).times_s(random.Random(1)))
        for scale in (1.0, 2.0)
    )
    assert fast == pytest.approx([at_s / 2 for at_s in slow])


def test_random_arrivals_do_not_end() -> None:
    times_s = list(islice(RandomArrivals(Poisson(4.0)).times_s(random.Random(1)), 10_000))
    assert fmean([10_000 / times_s[-1]]) == pytest.approx(4.0, rel=0.03)
    assert RandomArrivals(Poisson(4.0)).description == "Poisson, 4/s"
