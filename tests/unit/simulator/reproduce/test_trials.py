"""A trial is the system that it names, under the load that it names."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_simulator.measures.criteria import Criterion, Latency
from pipelineserve_simulator.reproduce.figures import JUDGED, PAPER_TARGETS, STRICT_TPOT
from pipelineserve_simulator.reproduce.forecast import stand_in
from pipelineserve_simulator.reproduce.systems import (
    GREEDY,
    OURS,
    PREDICTIVE,
    PREDICTIVE_DELAY,
    TENSOR_PARALLEL,
    ModelName,
    System,
    static,
)
from pipelineserve_simulator.reproduce.traces import Source, find_trace
from pipelineserve_simulator.reproduce.trials import Load, make_trial, run_trial
from pipelineserve_simulator.workloads.registry import WorkloadName

LOAD = Load(WorkloadName.PREFILL_HEAVY, 4.0, 10)
SYSTEMS = (TENSOR_PARALLEL, static(256), GREEDY, PREDICTIVE, PREDICTIVE_DELAY, OURS)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.title)
def test_every_system_serves_all_requests(system: System) -> None:
    figures = run_trial(make_trial(ModelName.QWEN_32B, system, LOAD, 1), None)
    assert figures.num_finished == figures.num_requests == 10
    assert figures.step_curve_s[0][1] <= figures.step_s.p50 <= figures.step_curve_s[-1][1]
    assert figures.step_curve_s[90][1] == figures.step_s.p90
    assert figures.attainment(PAPER_TARGETS).ratio >= figures.attainment(STRICT_TPOT).ratio
    assert figures.attainment(PAPER_TARGETS).soon_ratio <= figures.attainment(PAPER_TARGETS).ratio


def test_a_step_of_the_published_system_is_that_of_all_stages() -> None:
    figures = run_trial(make_trial(ModelName.QWEN_32B, static(512), LOAD, 1), None)
    # A full step takes 50 ms with the leader's work.
    assert figures.step_s.p90 == pytest.approx(0.051, rel=0.1)


def test_tensor_parallelism_has_no_bubble_and_long_steps() -> None:
    tensor, pipeline = (
        run_trial(make_trial(ModelName.QWEN_32B, system, LOAD, 1), None)
        for system in (TENSOR_PARALLEL, static(2048))
    )
    assert tensor.num_micro_batches < pipeline.num_micro_batches
    assert tensor.tpot_s.p50 != pipeline.tpot_s.p50


def test_watching_the_predictor_changes_nothing_but_tells_its_errors() -> None:
    trial = make_trial(ModelName.QWEN_32B, PREDICTIVE, replace(LOAD, num_requests=30), 1)
    plain, seen = (run_trial(t, None) for t in (trial, replace(trial, watches_predictor=True)))
    assert plain.predictor is None
    assert seen.predictor is not None
    assert replace(seen, predictor=None) == plain
    assert seen.predictor.num_steps > 50
    assert 0.0 < seen.predictor.full_ratio < seen.predictor.tokens_only_ratio < 0.5


def test_a_percentile_of_requests_that_failed_is_infinite() -> None:
    high = make_trial(ModelName.QWEN_32B, PREDICTIVE, Load(WorkloadName.AZURE_400, 1e3), 1)
    for latency, percent in JUDGED:
        assert stand_in(high).judged(Criterion(latency, percent, 1.0)) == math.inf
    low = replace(high, load=Load(WorkloadName.AZURE_400, 1.0))
    assert stand_in(low).judged(Criterion(Latency.TTFT, 90, 1.0)) == 0.0


def test_rows_of_a_trace_are_used_where_they_are_asked_for(tmp_path: Path) -> None:
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens", *(f"{at},1000,7" for at in range(20))]
    (tmp_path / "AzureLLMInferenceTrace_conv_2023.csv").write_text("\n".join(lines) + "\n")
    trace = find_trace(tmp_path)
    load = Load(WorkloadName.AZURE_400, 4.0, 20, Source.ROWS)
    figures = run_trial(make_trial(ModelName.QWEN_32B, static(512), load, 1), trace)
    assert figures.num_requests == 20
    fitted = run_trial(
        make_trial(ModelName.QWEN_32B, static(512), replace(load, source=Source.FITTED), 1), trace
    )
    assert fitted.e2e_s.max > 2 * figures.e2e_s.max


def test_a_folder_without_the_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="--traces"):
        find_trace(tmp_path)
    with pytest.raises(InvalidInputError, match="--traces"):
        find_trace(tmp_path / "nowhere")
