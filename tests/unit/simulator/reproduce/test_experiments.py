"""The list is complete: every row of the acceptance table concludes and judges something."""

import pytest

from pipelineserve_simulator.reproduce.effort import FULL, QUICK, Effort
from pipelineserve_simulator.reproduce.experiments import EXPERIMENTS, Experiment
from pipelineserve_simulator.reproduce.findings import Verdict
from pipelineserve_simulator.reproduce.forecast import forecast_trials, stand_in
from pipelineserve_simulator.reproduce.study import MissingTrialsError, Study
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import Trial

ROWS = tuple(str(row) for row in range(1, 15))
NOT_JUDGED = frozenset({"delay-transient"})


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
    assert (verdicts == {Verdict.REPORTED}) == (experiment.row in NOT_JUDGED)
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
