"""Percentiles for a verdict count every request, also those that failed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.load.targets import Target, Targets, Window
from pipelineserve_simulator.measures.criteria import (
    Criterion,
    Latency,
    p90_criteria,
    percentile_s,
    with_tail,
)
from pipelineserve_simulator.measures.figures import measure, whole_window
from pipelineserve_simulator.measures.runs import RequestOutcome
from simulated_runs import request_outcome, run_of

P90_TTFT = Criterion(Latency.TTFT, 90, 2.0)
P90_TPOT = Criterion(Latency.TPOT, 90, 0.2)
ALWAYS = Window(0.0, math.inf)


def with_failures(num_successes: int, num_failures: int) -> list[RequestOutcome]:
    failures = [request_outcome(ttft_s=None, is_success=False) for _ in range(num_failures)]
    return [*failures, *(request_outcome() for _ in range(num_successes))]


@pytest.mark.parametrize(
    ("num_successes", "num_failures", "expected"),
    [
        (10, 0, 1.0),
        (10, 1, 1.0),  # the percentile is the last one that succeeded
        (9, 1, math.inf),  # it lies between that one and the failure
        (8, 2, math.inf),
        (0, 3, math.inf),
        (0, 0, 0.0),
    ],
)
def test_a_failed_request_is_infinitely_late(
    num_successes: int, num_failures: int, expected: float
) -> None:
    run = run_of(with_failures(num_successes, num_failures))
    assert percentile_s(run, P90_TTFT, ALWAYS) == expected


@given(
    st.lists(
        st.builds(request_outcome, ttft_s=st.floats(0, 50), tpot_s=st.floats(0, 5)), min_size=1
    )
)
def test_without_failures_they_are_the_figures(requests: list[RequestOutcome]) -> None:
    run = run_of(requests)
    figures = measure(run, Targets(), whole_window(run))
    assert figures.ttft_s is not None
    assert figures.tpot_s is not None
    assert figures.e2e_s is not None
    found = [
        percentile_s(run, Criterion(latency, 90, 1.0), whole_window(run)) for latency in Latency
    ]
    assert found == [figures.ttft_s.p90, figures.tpot_s.p90, figures.e2e_s.p90]


def test_answers_of_one_token_have_no_say_about_tpot() -> None:
    run = run_of([request_outcome(tpot_s=0.3), *(request_outcome(output_tokens=1),) * 50])
    assert percentile_s(run, P90_TPOT, ALWAYS) == pytest.approx(0.3)


def test_requests_outside_the_window_do_not_count() -> None:
    run = run_of([request_outcome(ttft_s=9.0), request_outcome(arrival_s=5.0)])
    assert percentile_s(run, P90_TTFT, Window(1.0, 6.0)) == 1.0


def test_criteria_read_as_sentences() -> None:
    targets = Targets(Target(99, 2.0), Target(90, 0.2))
    assert [str(criterion) for criterion in with_tail(p90_criteria(targets))] == [
        "P90 TTFT <= 2000 ms", "P90 TPOT <= 200 ms", "P99 TTFT <= 8000 ms"
    ]  # fmt: skip
