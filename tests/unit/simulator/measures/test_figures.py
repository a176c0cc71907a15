"""Figures follow their definitions, and every request that arrived is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.load.targets import Target, Targets, Window
from pipelineserve_simulator.measures.figures import (
    RunFigures,
    measure,
    steady_window_of,
    whole_window,
)
from pipelineserve_simulator.measures.runs import RequestOutcome, RunOutcome
from simulated_runs import request_outcome, run_of, step_outcome

TARGETS = Targets(Target(90, 2.0), Target(90, 0.2))
REQUESTS = st.builds(
    request_outcome,
    arrival_s=st.floats(0, 100),
    ttft_s=st.floats(0, 10),
    tpot_s=st.floats(0, 1),
    output_tokens=st.integers(1, 50),
    is_success=st.booleans(),
)


def whole(run: RunOutcome, targets: Targets = TARGETS) -> RunFigures:
    return measure(run, targets, whole_window(run))


def test_latencies_are_counted_from_the_arrival() -> None:
    request = request_outcome(arrival_s=3.0, ttft_s=1.5, tpot_s=0.25, output_tokens=5)
    assert (request.ttft_s, request.tpot_s, request.e2e_s) == (1.5, 0.25, 2.5)


def test_one_token_has_no_tpot_and_meets_its_target() -> None:
    figures = whole(run_of([request_outcome(output_tokens=1)]))
    assert figures.tpot_s is None
    assert figures.attainment is not None
    assert figures.attainment.ratio == 1.0


@given(st.lists(REQUESTS, max_size=30))
def test_every_request_finished_or_failed_and_failures_are_misses(
    requests: list[RequestOutcome],
) -> None:
    figures = whole(run_of(requests), Targets())
    assert figures.num_arrived == len(requests) == figures.num_finished + figures.num_failed
    num_successes = sum(request.is_success for request in requests)
    if figures.attainment is None:
        assert requests == []
    else:
        assert figures.attainment.num_met == num_successes == figures.num_finished


@given(st.lists(REQUESTS, min_size=1, max_size=30), st.floats(0.01, 10), st.floats(1, 3))
def test_attainment_never_falls_when_targets_loosen(
    requests: list[RequestOutcome], bound_s: float, factor: float
) -> None:
    run = run_of(requests)
    strict, loose = (
        whole(run, Targets(Target(90, scale * bound_s), Target(90, scale * bound_s / 10)))
        for scale in (1.0, factor)
    )
    assert strict.attainment is not None
    assert loose.attainment is not None
    assert strict.attainment.num_met <= loose.attainment.num_met
    assert strict.goodput_per_s <= loose.goodput_per_s


@given(st.lists(REQUESTS, min_size=1, max_size=30))
def test_percentiles_lie_within_what_was_seen(requests: list[RequestOutcome]) -> None:
    figures = whole(run_of(requests))
    seen = [request.ttft_s for request in requests if request.is_success]
    if figures.ttft_s is None:
        assert seen == []
    else:
        found = figures.ttft_s
        assert min(map(float_of, seen)) <= found.p50 <= found.p90 <= found.p99 <= found.max
        assert found.max == max(map(float_of, seen))


def float_of(value: float | None) -> float:
    assert value is not None
    return value


def test_goodput_and_rates_are_over_the_window_with_its_drain() -> None:
    slow = request_outcome(index=1, arrival_s=2.0, ttft_s=7.0)  # ends at 10 s
    figures = whole(run_of([request_outcome(), slow]))
    assert figures.window == Window(0.0, 10.0)
    assert figures.goodput_per_s == 0.1
    assert figures.requests_per_s == 0.2
    assert figures.output_tokens_per_s == pytest.approx(2.2)
    assert figures.attainment is not None
    assert figures.attainment.ratio == 0.5


def test_the_steady_window_leaves_warm_up_and_drain_out() -> None:
    run = run_of(request_outcome(index=i, arrival_s=float(i)) for i in range(101))
    window = steady_window_of(run)
    assert window == Window(10.0, 90.0)
    figures = measure(run, TARGETS, window)
    assert figures.num_arrived == 81
    assert figures.requests_per_s == pytest.approx(81 / 80)


def test_the_largest_gap_is_that_of_one_request() -> None:
    run = run_of([request_outcome(longest_gap_s=0.3), request_outcome(longest_gap_s=28.0)])
    figures = whole(run)
    assert figures.longest_gap_s is not None
    assert figures.longest_gap_s.max == 28.0


def test_a_bubble_is_idle_time_out_of_idle_and_busy_time_per_stage() -> None:
    steps = [
        step_outcome(stage_times_s=(0.03, 0.02), bubbles_s=(0.0, 0.02)),
        step_outcome(start_s=0.03, stage_times_s=(0.03, 0.02), bubbles_s=(0.02, 0.04)),
        step_outcome(start_s=99.0, stage_times_s=(9.0, 9.0)),  # outside the window
    ]
    figures = measure(run_of([request_outcome()], steps), TARGETS, Window(0.0, 5.0)).steps
    assert figures is not None
    assert figures.num_steps == 2
    assert figures.bubble_ratios == pytest.approx((0.02 / 0.08, 0.06 / 0.1))
    assert figures.mean_bubble_ratio == pytest.approx((0.25 + 0.6) / 2)
    assert figures.longest_stage_s.max == 0.03
    assert figures.span_s.max == pytest.approx(0.05)


def test_a_run_without_requests_has_no_figures_and_no_error() -> None:
    figures = whole(run_of([]))
    assert (figures.num_arrived, figures.ttft_s, figures.attainment) == (0, None, None)
    assert figures.goodput_per_s == 0.0


def test_preemptions_and_requeues_are_counted() -> None:
    requests = [request_outcome(num_requeues=2), request_outcome()]
    figures = whole(run_of(requests, num_preemptions=2))
    assert (figures.num_preemptions, figures.num_requeued) == (2, 1)
