"""Arrivals keep their rate and their character."""

import random
from itertools import islice, pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.load.arrivals import (
    Bursts,
    Constant,
    Gamma,
    Poisson,
    Process,
    arrival_times_s,
)

RATES = st.floats(0.01, 1000)
PROCESSES = st.one_of(
    st.builds(Poisson, RATES),
    st.builds(Constant, RATES),
    st.builds(Gamma, RATES, st.floats(0.1, 10)),
    st.builds(Bursts, RATES, st.floats(0.1, 100), st.floats(0.1, 100)),
)


def first_times_s(process: Process, count: int, seed: int = 1) -> list[float]:
    return list(islice(arrival_times_s(process, random.Random(seed)), count))


def gaps_s(process: Process) -> list[float]:
    return [later - earlier for earlier, later in pairwise(first_times_s(process, 20_000))]


@given(PROCESSES, st.integers())
def test_times_begin_at_0_never_fall_and_follow_from_the_seed(process: Process, seed: int) -> None:
    times_s = first_times_s(process, 50, seed)
    assert times_s[0] == 0.0
    assert times_s == sorted(times_s)
    assert times_s == first_times_s(process, 50, seed)


@pytest.mark.parametrize(
    ("process", "cv"),
    [(Poisson(4.0), 1.0), (Gamma(4.0, 3.0), 3.0), (Gamma(4.0, 0.5), 0.5), (Constant(4.0), 0.0)],
)
def test_gaps_have_the_mean_and_the_variation_asked_for(process: Process, cv: float) -> None:
    gaps = gaps_s(process)
    assert fmean(gaps) == pytest.approx(0.25, rel=0.06)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.06, abs=1e-6)


def test_bursts_keep_the_mean_rate_and_pause_in_between() -> None:
    process = Bursts(4.0, on_s=2.0, off_s=6.0)
    times_s = first_times_s(process, 20_000)
    assert 20_000 / times_s[-1] == pytest.approx(4.0, rel=0.05)
    assert max(at_s % 8.0 for at_s in times_s) <= 2.0
    assert process.on_rate_per_s == 16.0


def test_constant_arrivals_do_not_drift() -> None:
    assert first_times_s(Constant(10.0), 100_001)[-1] == 10_000.0
