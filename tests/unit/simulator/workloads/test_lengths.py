"""Sources of lengths keep their distributions and their streams of chance."""

import math
from itertools import islice
from statistics import correlation, fmean, stdev

import pytest

from pipelineserve.load.lengths import Fixed, Uniform
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads.curves import JointCurves, QuantileCurve
from pipelineserve_simulator.workloads.lengths import (
    FittedLengths,
    IndependentLengths,
    LengthSource,
    LogNormalPair,
    ReversedLengths,
)

CURVE = QuantileCurve((0.0, 1.0), (100.0, 200.0))
FITTED = FittedLengths("a trace", JointCurves(CURVE, CURVE, ((1, 0), (0, 1))))
CNN = LogNormalPair(6.664, 0.501, 4.075, 0.427, 0.37)


def drawn(source: LengthSource, count: int, seed: int = 1) -> list[tuple[int, int]]:
    return list(islice(source.pairs(Chance(seed)), count))


@pytest.mark.parametrize(
    "source", [FITTED, CNN, ReversedLengths(CNN), IndependentLengths(Uniform(1, 9), Uniform(1, 9))]
)
def test_fewer_pairs_are_the_beginning_of_more(source: LengthSource) -> None:
    assert drawn(source, 10) == drawn(source, 100)[:10]
    assert drawn(source, 100) != drawn(source, 100, seed=2)


def test_logarithms_have_the_mean_the_spread_and_the_correlation_asked_for() -> None:
    prompts, outputs = zip(*drawn(CNN, 40_000), strict=True)
    one, other = [math.log(n) for n in prompts], [math.log(n) for n in outputs]
    assert (fmean(one), stdev(one)) == pytest.approx((6.664, 0.501), rel=0.01)
    assert (fmean(other), stdev(other)) == pytest.approx((4.075, 0.427), rel=0.01)
    assert correlation(one, other) == pytest.approx(0.37, abs=0.015)


def test_reversed_lengths_are_the_same_the_other_way_round() -> None:
    assert drawn(ReversedLengths(CNN), 50) == [(o, p) for p, o in drawn(CNN, 50)]


def test_prompts_can_be_scaled_and_outputs_stay() -> None:
    scaled = FittedLengths("a trace", FITTED.curves, input_scale=2.0)
    for (prompt, output), (twice, same) in zip(drawn(FITTED, 50), drawn(scaled, 50), strict=True):
        assert abs(twice - 2 * prompt) <= 1
        assert same == output
    assert scaled.description == "fitted to a trace, in x 2"


def test_prompt_lengths_do_not_change_with_how_outputs_are_drawn() -> None:
    fixed = IndependentLengths(Uniform(1, 500), Fixed(3))
    drawn_too = IndependentLengths(Uniform(1, 500), Uniform(1, 9))
    assert [p for p, _ in drawn(fixed, 50)] == [p for p, _ in drawn(drawn_too, 50)]
    assert fixed.description == "in: uniform 1 to 500; out: 3"
