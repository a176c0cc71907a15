"""Latencies are written when they change by a step, and not too often."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.api import LatencyTarget, SloSpec
from pipelineserve.api.status import SloStatus
from pipelineserve_operator.conditions.figures import (
    LEAST_INTERVAL_S,
    next_figures,
    summary_of,
)

OLD = SloStatus(attainment_percent=97, ttft_milliseconds=1000, tpot_milliseconds=100, requests=1000)


@pytest.mark.parametrize(
    "newest",
    [
        OLD.model_copy(update={"ttft_milliseconds": 1040}),
        OLD.model_copy(update={"tpot_milliseconds": 96}),
        OLD.model_copy(update={"requests": 1090}),
        None,
    ],
)
def test_less_than_a_step_is_not_written(newest: SloStatus | None) -> None:
    assert next_figures(OLD, newest, None, 0.0).slo == OLD


@pytest.mark.parametrize(
    "newest",
    [
        OLD.model_copy(update={"attainment_percent": 96}),
        OLD.model_copy(update={"ttft_milliseconds": 1100}),
        OLD.model_copy(update={"tpot_milliseconds": None}),
        OLD.model_copy(update={"requests": 2000}),
    ],
)
def test_a_step_is_written_once_the_interval_is_over(newest: SloStatus) -> None:
    too_early = next_figures(OLD, newest, 10.0, 10.0 + LEAST_INTERVAL_S - 0.1)
    assert (too_early.slo, too_early.look_again_s) == (OLD, 10.0 + LEAST_INTERVAL_S)
    assert next_figures(OLD, newest, 10.0, 10.0 + LEAST_INTERVAL_S).slo == newest
    assert next_figures(OLD, newest, None, 0.0).slo == newest


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 100)), max_size=60))
def test_figures_are_never_written_more_often_than_allowed(
    moments: list[tuple[float, int]],
) -> None:
    said, written_s, now_s = None, None, 0.0
    writes = []
    for pause_s, percent in moments:
        now_s += pause_s
        found = next_figures(said, SloStatus(attainment_percent=percent), written_s, now_s)
        if found.slo != said:
            said, written_s = found.slo, now_s
            writes.append(now_s)
    assert all(b - a >= LEAST_INTERVAL_S - 1e-9 for a, b in pairwise(writes))


def test_a_summary_shows_what_is_measured_against_what_is_wanted() -> None:
    spec = SloSpec(ttft=LatencyTarget(milliseconds=2000), tpot=LatencyTarget(milliseconds=200))
    slo = SloStatus(attainment_percent=97, ttft_milliseconds=1834, tpot_milliseconds=95)
    summary = summary_of(slo, spec, 1, 2)
    assert (summary.replicas, summary.ttft, summary.tpot, summary.slo) == (
        *("1/2", "1.83s/2s", "95ms/200ms", "97%"),
    )
    unknown = summary_of(None, spec, 0, 2)
    assert (unknown.ttft, unknown.slo) == ("-/2s", "")
