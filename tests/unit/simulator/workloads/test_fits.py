"""The shipped fits have the published statistics of the data that they were made from.

P50, P90, P99 and means are those published with the data sets' descriptions; the correlations are
of the rows themselves.
"""

import math
from itertools import islice, pairwise
from random import Random
from statistics import correlation, fmean

import pytest

from pipelineserve.load.summaries import percentile
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads.arriving import ChangingRate, FittedGaps
from pipelineserve_simulator.workloads.curves import QuantileCurve
from pipelineserve_simulator.workloads.fits import FitName, fit
from pipelineserve_simulator.workloads.lengths import FittedLengths
from pipelineserve_simulator.workloads.registry import REPLAY_WINDOW_ROWS

# Mean, P50, P90, P99.
PROMPTS = {
    FitName.AZURE_CONVERSATION: (1155, 1020, 2734, 4142),
    FitName.AZURE_CONVERSATION_FIRST_400: (928, 990, 1314, 4085),
    FitName.AZURE_CONVERSATION_FIRST_15_MIN: (1173, 1047, 2423, 4109),
    FitName.AZURE_CONVERSATION_WINDOW_2: (1225, 1037, 4075, 4118),
    FitName.AZURE_CONVERSATION_WINDOW_3: (1288, 488.5, 4080, 4133),
    FitName.AZURE_CONVERSATION_WINDOW_4: (1015, 955, 2222, 5122),
    FitName.AZURE_CONVERSATION_WINDOW_5: (1060, 1039, 1961, 5139),
    FitName.AZURE_CODE: (2048, 1469, 5188, 7436),
    FitName.SHAREGPT: (219.6, 105, 605, 878),
}
OUTPUTS = {
    FitName.AZURE_CONVERSATION: (211, 129, 424, 601),
    FitName.AZURE_CONVERSATION_FIRST_400: (260, 217, 427, 575),
    FitName.AZURE_CONVERSATION_FIRST_15_MIN: (254, 205, 430, 626),
    FitName.AZURE_CONVERSATION_WINDOW_2: (221.3, 145.5, 427, 616),
    FitName.AZURE_CONVERSATION_WINDOW_3: (150.9, 96, 405, 565),
    FitName.AZURE_CONVERSATION_WINDOW_4: (188.4, 116, 414, 560),
    FitName.AZURE_CONVERSATION_WINDOW_5: (247.9, 182.5, 429, 607),
    FitName.AZURE_CODE: (28, 13, 55, 251),
    FitName.SHAREGPT: (202.9, 135, 495, 797),
}
# Of the lengths, of their logarithms.
CORRELATIONS = {
    FitName.AZURE_CONVERSATION: (-0.112, 0.087),
    FitName.AZURE_CONVERSATION_FIRST_400: (0.031, 0.281),
    FitName.AZURE_CONVERSATION_FIRST_15_MIN: (-0.146, 0.125),
    FitName.AZURE_CONVERSATION_WINDOW_2: (-0.171, 0.023),
    FitName.AZURE_CONVERSATION_WINDOW_3: (-0.156, -0.088),
    FitName.AZURE_CONVERSATION_WINDOW_4: (0.001, 0.190),
    FitName.AZURE_CONVERSATION_WINDOW_5: (-0.025, 0.231),
    FitName.AZURE_CODE: (0.001, -0.005),
    FitName.SHAREGPT: (-0.268, -0.449),
}
NUM_DRAWN = 60_000


def statistics_of(values: tuple[int, ...]) -> tuple[float, ...]:
    ordered = sorted(values)
    return (fmean(ordered), *(percentile(ordered, percent) for percent in (50, 90, 99)))


def second_moment(curve: QuantileCurve) -> float:
    return sum(
        (high - low) * (below**2 + below * above + above**2) / 3
        for (low, high), (below, above) in zip(
            pairwise(curve.ranks), pairwise(curve.values), strict=True
        )
    )


@pytest.mark.parametrize("name", FitName)
def test_drawn_lengths_have_the_published_statistics(name: FitName) -> None:
    source = FittedLengths(name.value, fit(name).lengths)
    prompts, outputs = zip(*islice(source.pairs(Chance(1)), NUM_DRAWN), strict=True)
    assert statistics_of(prompts) == pytest.approx(PROMPTS[name], rel=0.03)
    assert statistics_of(outputs) == pytest.approx(OUTPUTS[name], rel=0.03)
    # Four standard errors of a correlation of this many pairs.
    found = (
        correlation(prompts, outputs),
        correlation([math.log(n) for n in prompts], [math.log(n) for n in outputs]),
    )
    assert found == pytest.approx(CORRELATIONS[name], abs=4 / math.sqrt(NUM_DRAWN))


def test_code_arrives_at_the_published_rate_and_unevenness() -> None:
    arrivals = fit(FitName.AZURE_CODE).arrivals
    assert isinstance(arrivals, FittedGaps)
    mean_s, variance = arrivals.gap_s.mean, second_moment(arrivals.gap_s) - arrivals.gap_s.mean**2
    assert 1 / mean_s == pytest.approx(2.57, rel=0.005)
    assert math.sqrt(variance) / mean_s == pytest.approx(13.15, rel=0.03)


def test_code_comes_in_bursts_between_silences() -> None:
    arrivals = fit(FitName.AZURE_CODE).arrivals
    assert arrivals is not None
    times_s = list(islice(arrivals.times_s(Random(1)), 20_000))
    gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
    silent_s = sum(gap_s for gap_s in gaps_s if gap_s > 5.0)
    assert silent_s / times_s[-1] == pytest.approx(0.75, abs=0.1)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (FitName.AZURE_CONVERSATION_FIRST_15_MIN, REPLAY_WINDOW_ROWS[0]),
        (FitName.AZURE_CONVERSATION_WINDOW_2, REPLAY_WINDOW_ROWS[1]),
        (FitName.AZURE_CONVERSATION_WINDOW_3, REPLAY_WINDOW_ROWS[2]),
        (FitName.AZURE_CONVERSATION_WINDOW_4, REPLAY_WINDOW_ROWS[3]),
        (FitName.AZURE_CONVERSATION_WINDOW_5, REPLAY_WINDOW_ROWS[4]),
    ],
)
def test_15_min_have_their_rate_in_every_half_minute(name: FitName, rows: tuple[int, int]) -> None:
    arrivals = fit(name).arrivals
    assert isinstance(arrivals, ChangingRate)
    assert len(arrivals.rates_per_s) * arrivals.bin_s == 900
    assert fmean(arrivals.rates_per_s) == pytest.approx((rows[1] - rows[0]) / 900, rel=0.001)


@pytest.mark.parametrize("name", FitName)
def test_every_fit_names_its_source(name: FitName) -> None:
    assert fit(name).citation
    assert fit(name).origin
