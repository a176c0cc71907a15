"""How many trials a run will take, before it is run: for the progress bar, not for any result.

Experiments are asked with figures that stand for what is not known: everything is served up to a
rate that differs a little from seed to seed, and nothing above it. A bisection takes about as many
steps wherever it ends.
"""

from collections.abc import Callable, Sequence

from pipelineserve.load.summaries import Summary
from pipelineserve_simulator.reproduce.effort import Effort
from pipelineserve_simulator.reproduce.experiments import Experiment
from pipelineserve_simulator.reproduce.figures import (
    JUDGED,
    Attained,
    PredictorErrors,
    TrialFigures,
)
from pipelineserve_simulator.reproduce.study import Study
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import Trial

_BEARABLE_PER_S = 6.0
_SPREAD_RATIO = 0.05


def forecast_trials(
    experiments: Sequence[Experiment],
    effort: Effort,
    sources: tuple[Source, ...],
    find: Callable[[Trial], TrialFigures | None],
) -> int:
    """About how many trials are still to be run.

    Args:
        experiments: which are to conclude.
        effort: of the run.
        sources: of Azure's requests.
        find: figures that are there already.
    """
    missing: set[Trial] = set()

    def find_or_stand_in(trial: Trial) -> TrialFigures:
        found = find(trial)
        if found is None:
            missing.add(trial)
            return stand_in(trial)
        return found

    study = Study(effort, find_or_stand_in, sources)
    for experiment in experiments:
        experiment.conclude(study)
    return len(missing)


def stand_in(trial: Trial) -> TrialFigures:
    """Figures that have the right shape and mean nothing."""
    bearable_per_s = _BEARABLE_PER_S * (1 + _SPREAD_RATIO * trial.seed)
    is_borne = (trial.load.rate_per_s or 0.0) <= bearable_per_s
    one = Summary(1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    judged_s = (0.0 if is_borne else None,) * len(JUDGED)
    return TrialFigures(
        num_requests=1,
        num_finished=1,
        num_micro_batches=1,
        num_preemptions=0,
        duration_s=1.0,
        ttft_s=one,
        tpot_s=one,
        e2e_s=one,
        longest_gap_s=one,
        step_s=one,
        step_curve_s=((0.0, 1.0), (100.0, 1.0)),
        judged_s=judged_s,
        steady_judged_s=judged_s,
        attained=tuple(Attained(targets, 1.0, 1.0) for targets in trial.judged_targets),
        bubble_ratio=0.0,
        kv_used_ratio_max=1.0,
        kv_used_ratio_mean=1.0,
        predictor=PredictorErrors(1, 1.0, 1.0, 1.0),
    )
