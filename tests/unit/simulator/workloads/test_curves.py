"""Curves give back the quantiles that they are made of; joint draws keep both margins."""

import random
from itertools import islice, pairwise
from statistics import correlation, fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_simulator.workloads.curves import JointCurves, QuantileCurve


@st.composite
def curves(draw: st.DrawFn) -> QuantileCurve:
    inner = draw(st.lists(st.integers(1, 999), unique=True, max_size=10))
    ranks = (0.0, *(rank / 1000 for rank in sorted(inner)), 1.0)
    values = sorted(draw(st.lists(st.floats(0, 1e5), min_size=len(ranks), max_size=len(ranks))))
    return QuantileCurve(ranks, tuple(values))


LINE = QuantileCurve((0.0, 1.0), (0.0, 100.0))


@given(curves())
def test_a_curve_goes_through_its_knots(curve: QuantileCurve) -> None:
    assert [curve.at(rank) for rank in curve.ranks] == pytest.approx(list(curve.values))


@given(curves(), st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_a_curve_never_falls_and_stays_within_its_ends(
    curve: QuantileCurve, ranks: list[float]
) -> None:
    values = [curve.at(rank) for rank in sorted(ranks)]
    for earlier, later in pairwise(values):
        assert later >= earlier - 1e-6
    assert min(values) >= curve.values[0] - 1e-6
    assert max(values) <= curve.values[-1] + 1e-6


@given(curves())
def test_the_mean_is_the_area_under_the_curve(curve: QuantileCurve) -> None:
    area = fmean(curve.at((at + 0.5) / 5000) for at in range(5000))
    assert curve.mean == pytest.approx(area, rel=0.02, abs=50)


@pytest.mark.parametrize(
    ("ranks", "values", "part"),
    [
        ((0.0, 1.0), (1.0,), "2 ranks and 1 values"),
        ((0.0, 0.9), (1.0, 2.0), "from 0.0 to 0.9, expected from 0 to 1"),
        ((0.0, 0.5, 0.5, 1.0), (1.0, 2.0, 3.0, 4.0), "do not rise"),
        ((0.0, 1.0), (2.0, 1.0), "fall or are negative"),
        ((0.0, 1.0), (-2.0, 1.0), "fall or are negative"),
    ],
)
def test_what_is_no_distribution_is_refused(
    ranks: tuple[float, ...], values: tuple[float, ...], part: str
) -> None:
    with pytest.raises(ValueError, match=part):
        QuantileCurve(ranks, values)


@pytest.mark.parametrize(
    ("weights", "part"),
    [
        (((1, 2), (3,)), "as many in each row"),
        (((1, 2),), "as many in each row"),
        (((0, 0), (0, 0)), "nothing but 0"),
        (((2, -1), (0, 0)), "below 0"),
    ],
)
def test_what_is_no_table_is_refused(weights: tuple[tuple[int, ...], ...], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        JointCurves(LINE, LINE, weights)


def test_pairs_come_as_often_as_the_table_says() -> None:
    joint = JointCurves(LINE, LINE, ((6, 1), (1, 2)))
    pairs = list(islice(joint.draws(random.Random(1)), 50_000))
    low_low = fmean(first < 50 and second < 50 for first, second in pairs)
    low_high = fmean(first < 50 <= second for first, second in pairs)
    assert low_low == pytest.approx(0.6, abs=0.01)
    assert low_high == pytest.approx(0.1, abs=0.01)


def test_a_diagonal_table_correlates_and_a_flat_one_does_not() -> None:
    def drawn(weights: tuple[tuple[int, ...], ...]) -> float:
        draws = islice(JointCurves(LINE, LINE, weights).draws(random.Random(1)), 20_000)
        return correlation(*zip(*draws, strict=True))

    # Independent halves that always go together: 1 - the variance within ÷ the whole.
    assert drawn(((1, 0), (0, 1))) == pytest.approx(0.75, abs=0.02)
    assert drawn(((1, 1), (1, 1))) == pytest.approx(0.0, abs=0.02)
