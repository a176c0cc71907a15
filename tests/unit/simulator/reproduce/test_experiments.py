"""The list is complete: every row of the acceptance table concludes and judges something."""

from dataclasses import replace

import pytest

from pipelineserve.load.summaries import Summary
from pipelineserve_simulator.reproduce.effort import FULL, QUICK, Effort
from pipelineserve_simulator.reproduce.experiments import EXPERIMENTS, Experiment
from pipelineserve_simulator.reproduce.figures import Attained, TrialFigures
from pipelineserve_simulator.reproduce.findings import Verdict
from pipelineserve_simulator.reproduce.forecast import forecast_trials, stand_in
from pipelineserve_simulator.reproduce.study import MissingTrialsError, Study
from pipelineserve_simulator.reproduce.systems import OURS_BY_ARRIVAL
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import Trial
from pipelineserve_simulator.workloads.registry import REPLAY_WINDOWS

ROWS = tuple(str(row) for row in range(1, 15))
NOT_JUDGED = frozenset({"delay-transient"})
# Their tolerances are for more requests than a first look takes.
NOT_JUDGED_QUICKLY = NOT_JUDGED | {
    "7", "8", "aim-steady", "aim-tail", "aim-bursts", "aim-replay", "aim-overload",
    "aim-everywhere",
}  # fmt: skip


def find_nothing(trial: Trial) -> None:
    del trial


BOTH = (Source.FITTED, Source.ROWS)


def test_every_row_of_the_acceptance_table_is_there_once() -> None:
    rows = [experiment.row for experiment in EXPERIMENTS]
    assert rows[:14] == list(ROWS)
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.row)
@pytest.mark.parametrize("effort", [QUICK, FULL], ids=lambda effort: effort.name)
def test_every_experiment_concludes_with_verdicts(effort: Effort, experiment: Experiment) -> None:
    result = experiment.conclude(Study(effort, stand_in))
    assert result.row == experiment.row
    verdicts = {finding.verdict for finding in result.findings}
    assert verdicts
    not_judged = NOT_JUDGED if effort is FULL else NOT_JUDGED_QUICKLY
    assert (verdicts == {Verdict.REPORTED}) == (experiment.row in not_judged)
    assert all(finding.basis for finding in (*result.findings, *result.supports))


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.row)
def test_nothing_concludes_on_figures_that_are_not_there(experiment: Experiment) -> None:
    study = Study(QUICK, find_nothing)
    if experiment.row in {"1", "2"}:  # straight from the profile
        assert experiment.conclude(study).findings
        return
    with pytest.raises(MissingTrialsError) as missing:
        experiment.conclude(study)
    assert len(set(missing.value.trials)) == len(missing.value.trials) > 0


def test_a_line_whose_run_is_cut_short_is_not_judged() -> None:
    (scales,) = (experiment for experiment in EXPERIMENTS if experiment.row == "9")
    for effort in (FULL, QUICK):
        *_, whole, tight = scales.conclude(Study(effort, stand_in)).findings
        assert whole.verdict is not Verdict.REPORTED
        assert (tight.verdict is Verdict.REPORTED) == (effort is QUICK)


def test_all_five_windows_of_the_replay_are_asked_for() -> None:
    asked: list[Trial] = []

    def find(trial: Trial) -> TrialFigures:
        asked.append(trial)
        return stand_in(trial)

    (replay,) = (experiment for experiment in EXPERIMENTS if experiment.row == "aim-replay")
    replay.conclude(Study(FULL, find))
    assert {trial.load.name for trial in asked} == set(REPLAY_WINDOWS)
    whole = {trial.load.num_requests for trial in asked}
    assert whole == {FULL.num_replayed, None}


def test_the_windows_count_alike() -> None:
    def find(trial: Trial) -> TrialFigures:
        is_met = trial.load.name is not REPLAY_WINDOWS[2]
        shares = tuple(
            Attained(pair, float(is_met), float(is_met)) for pair in trial.judged_targets
        )
        return replace(stand_in(trial), attained=shares)

    (replay,) = (experiment for experiment in EXPERIMENTS if experiment.row == "aim-replay")
    (line,) = replay.conclude(Study(FULL, find)).findings
    assert line.ours == pytest.approx(0.8)
    assert line.verdict is Verdict.MISSES


def test_dynamic_chunks_must_cut_more_in_the_papers_order() -> None:
    def find(trial: Trial) -> TrialFigures:
        p90_s = {"FastppGreedy": 0.5, "FastppPredictive": 0.6}.get(trial.system.rules.value, 1.0)
        one = Summary(1, 1.0, 1.0, p90_s, 1.0, 1.0, 1.0)
        return replace(stand_in(trial), tpot_s=one, e2e_s=one)

    (cuts,) = (experiment for experiment in EXPERIMENTS if experiment.row == "6")
    (order,) = (line for line in cuts.conclude(Study(FULL, find)).findings if "order" in line.what)
    assert order.ours == pytest.approx(-0.1)
    assert order.verdict is Verdict.MISSES


@pytest.mark.parametrize(("ageing_s", "verdict"), [(2.9, Verdict.FITS), (3.1, Verdict.MISSES)])
def test_under_overload_nobody_may_wait_half_as_long_again_as_by_arrival(
    ageing_s: float, verdict: Verdict
) -> None:
    def find(trial: Trial) -> TrialFigures:
        p99_s = 2.0 if trial.system == OURS_BY_ARRIVAL else ageing_s
        one = Summary(1, 1.0, 1.0, 1.0, 1.0, p99_s, 1.0)
        return replace(stand_in(trial), ttft_s=one)

    (overload,) = (experiment for experiment in EXPERIMENTS if experiment.row == "aim-overload")
    ageing, triage = overload.conclude(Study(FULL, find)).findings
    assert ageing.verdict is verdict
    assert triage.verdict is Verdict.REPORTED


def test_ours_is_compared_with_the_best_of_each_workload() -> None:
    def find(trial: Trial) -> TrialFigures:
        ratio = {"FastppGreedy": 0.9, "Paced": 0.85}.get(trial.system.rules.value, 0.1)
        shares = tuple(Attained(pair, ratio, ratio) for pair in trial.judged_targets)
        return replace(stand_in(trial), attained=shares)

    (everywhere,) = (e for e in EXPERIMENTS if e.row == "aim-everywhere")
    lines = everywhere.conclude(Study(FULL, find)).findings
    assert [line.ours for line in lines] == pytest.approx([-0.05] * len(lines))
    assert all("greedy" in line.what and line.verdict is Verdict.MISSES for line in lines)


def test_a_trace_doubles_what_depends_on_it() -> None:
    asked: list[Trial] = []

    def find(trial: Trial) -> None:
        asked.append(trial)

    forecast_trials(EXPERIMENTS, QUICK, BOTH, find)
    sources = {trial.load.source for trial in asked}
    assert sources == set(BOTH)


def test_quick_is_far_less_than_everything() -> None:
    quick, full = (
        forecast_trials(EXPERIMENTS, effort, (Source.FITTED,), find_nothing)
        for effort in (QUICK, FULL)
    )
    assert 3 * quick < full


def test_the_forecast_leaves_out_what_is_there() -> None:
    (sweep,) = (experiment for experiment in EXPERIMENTS if experiment.row == "6")
    assert forecast_trials([sweep], QUICK, (Source.FITTED,), stand_in) == 0
