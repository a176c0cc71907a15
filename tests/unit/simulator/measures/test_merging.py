"""Runs of several seeds become means with intervals, and pooled shares."""

import pytest

from pipelineserve.load.targets import Target, Targets
from pipelineserve_simulator.measures.figures import RunFigures, measure, whole_window
from pipelineserve_simulator.measures.merging import merge
from simulated_runs import request_outcome, run_of, step_outcome

TARGETS = Targets(Target(90, 2.0))


def figures_of(ttft_s: float, num_requests: int = 10) -> RunFigures:
    requests = [
        request_outcome(index=i, arrival_s=float(i), ttft_s=ttft_s) for i in range(num_requests)
    ]
    run = run_of(requests, [step_outcome(bubbles_s=(0.02, 0.03))], num_preemptions=2)
    return measure(run, TARGETS, whole_window(run))


def test_each_percentile_is_a_mean_over_runs_with_its_interval() -> None:
    merged = merge([figures_of(1.0), figures_of(2.0), figures_of(3.0)])
    assert merged.ttft_s is not None
    p90 = merged.ttft_s.p90
    assert p90.mean == pytest.approx(2.0)
    assert p90.num_runs == 3
    assert (p90.low, p90.high) == pytest.approx((2 - 2.484, 2 + 2.484), abs=1e-3)
    assert merged.ttft_s.max == pytest.approx(3.0)


def test_attainment_is_given_over_runs_and_pooled() -> None:
    merged = merge([figures_of(1.0, 30), figures_of(3.0, 10)])
    assert merged.attainment_ratio is not None
    assert merged.pooled_attainment is not None
    assert merged.attainment_ratio.mean == 0.5
    assert merged.pooled_attainment.ratio == 0.75
    assert (merged.num_arrived, merged.num_finished, merged.num_preemptions) == (40, 40, 4)


def test_bubbles_and_steps_are_merged() -> None:
    merged = merge([figures_of(1.0), figures_of(1.0)])
    assert merged.bubble_ratio is not None
    assert merged.bubble_ratio.mean == pytest.approx(0.5)
    assert merged.longest_stage_s is not None
    assert merged.longest_stage_s.p90.mean == pytest.approx(0.03)


def test_what_no_run_has_is_none() -> None:
    empty = run_of([])
    merged = merge([measure(empty, TARGETS, whole_window(empty))])
    assert (merged.ttft_s, merged.attainment_ratio, merged.bubble_ratio) == (None, None, None)
    assert merge([]).goodput_per_s is None
