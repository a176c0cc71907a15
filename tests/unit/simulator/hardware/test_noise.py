"""Chance in step times."""

from random import Random
from statistics import fmean, pstdev

import pytest

from pipelineserve_simulator.hardware.description import NoiseCosts
from pipelineserve_simulator.hardware.noise import ProfileNoise


def noise(sigma: float = 0.03, stall_ratio: float = 0.0, stall_s: float = 0.5) -> ProfileNoise:
    costs = NoiseCosts(sigma_ratio=sigma, stall_ratio=stall_ratio, stall_s=stall_s)
    return ProfileNoise(costs, Random(1))


def test_factors_spread_around_one() -> None:
    source = noise(sigma=0.3)
    factors = [source.factor() for _ in range(20_000)]
    assert fmean(factors) == pytest.approx(1.0, abs=0.01)
    assert pstdev(factors) == pytest.approx(0.3, rel=0.05)


def test_stalls_are_as_rare_and_as_long_as_said_on_all_stages_alike() -> None:
    source = noise(stall_ratio=0.2)
    stalls = [source.stall(4) for _ in range(20_000)]
    real = [(stage_index, seconds) for stage_index, seconds in stalls if seconds]
    assert len(real) / len(stalls) == pytest.approx(0.2, rel=0.05)
    assert fmean(seconds for _, seconds in real) == pytest.approx(0.5, rel=0.05)
    assert {stage_index for stage_index, _ in real} == {0, 1, 2, 3}


@pytest.mark.parametrize(("ratio", "length_s"), [(0.0, 1.0), (1.0, 0.0)])
def test_there_is_no_stall_where_none_is_said(ratio: float, length_s: float) -> None:
    assert noise(stall_ratio=ratio, stall_s=length_s).stall(4) == (0, 0.0)
