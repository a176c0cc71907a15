"""Percentiles are numpy's; Wilson's interval is the published one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.load.summaries import percentile, share_of, summarise

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


@given(VALUES, st.floats(0, 100))
def test_percentiles_equal_numpys(values: list[float], percent: float) -> None:
    expected = float(np.percentile(values, percent))
    assert percentile(sorted(values), percent) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(VALUES)
def test_percentiles_rise_and_stay_within_the_sample(values: list[float]) -> None:
    summary = summarise(values)
    assert summary is not None
    ordered = [min(values), summary.p50, summary.p90, summary.p95, summary.p99, summary.max]
    assert ordered == sorted(ordered)
    assert summary.max == max(values)
    assert summary.num_values == len(values)
    assert summary.mean == pytest.approx(sum(values) / len(values))


def test_an_empty_sample_has_no_summary() -> None:
    assert summarise([]) is None


@pytest.mark.parametrize(
    ("num_met", "num_judged", "low", "high"),
    [  # Newcombe 1998, Statistics in Medicine 17, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_wilsons(num_met: int, num_judged: int, low: float, high: float) -> None:
    share = share_of(num_met, num_judged)
    assert share is not None
    assert (share.low_ratio, share.high_ratio) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_share_and_is_symmetric(counts: tuple[int, int]) -> None:
    share, opposite = share_of(*counts), share_of(counts[1] - counts[0], counts[1])
    assert share is not None
    assert opposite is not None
    assert 0 <= share.low_ratio <= share.ratio <= share.high_ratio <= 1
    assert share.low_ratio == pytest.approx(1 - opposite.high_ratio)


def test_nothing_judged_is_no_share() -> None:
    assert share_of(0, 0) is None
