"""One simulation of an experiment: all that its figures depend on, as plain data."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from pipelineserve.policy.step_time import StepTimeModel
from pipelineserve.scheduler.fastpp import FastppScheduler
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.baselines.options import LatencyTargets
from pipelineserve_simulator.baselines.registry import (
    make_scheduler,
    predictive_law,
    slot_admission,
)
from pipelineserve_simulator.reproduce.figures import (
    PAPER_TARGETS,
    STRICT_TPOT,
    TIGHTER_TARGETS,
    TargetPair,
    TrialFigures,
    figures_of,
)
from pipelineserve_simulator.reproduce.predictors import ErrorSums, watch
from pipelineserve_simulator.reproduce.systems import ModelName, System
from pipelineserve_simulator.reproduce.traces import Source, TraceFile
from pipelineserve_simulator.scenario import Scenario, simulate
from pipelineserve_simulator.workloads.registry import (
    WorkloadName,
    WorkloadOptions,
    make_workload,
)
from pipelineserve_simulator.workloads.requests import Workload


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a system; None is the workload's own."""

    name: WorkloadName
    rate_per_s: float | None = None
    num_requests: int | None = None
    source: Source = Source.FITTED

    def at(self, rate_per_s: float) -> "Load":
        """The same at another rate."""
        return replace(self, rate_per_s=rate_per_s)

    def workload(self, trace: TraceFile | None) -> Workload:
        """Its requests."""
        file = trace.rows if self.source is Source.ROWS and trace is not None else None
        return make_workload(
            self.name,
            WorkloadOptions(rate_per_s=self.rate_per_s, num_requests=self.num_requests, file=file),
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulation.

    Attributes:
        targets: what the system tries to meet; those of the paper for one that tries nothing.
        watches_predictor: whether FastPP's predictions are compared with what came; of its
            predictive law without delay scheduling alone.
    """

    model: ModelName
    system: System
    load: Load
    seed: int
    targets: TargetPair = PAPER_TARGETS
    watches_predictor: bool = False

    @property
    def judged_targets(self) -> tuple[TargetPair, ...]:
        """The targets for which attainment is told."""
        judged = (PAPER_TARGETS, STRICT_TPOT, *TIGHTER_TARGETS, self.targets)
        return tuple(dict.fromkeys(judged))

    def as_json(self) -> dict[str, Any]:
        """Everything that it is, for its name and for whoever looks into its file."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    def key(self, fingerprint: str, trace: TraceFile | None) -> str:
        """A name for its figures: the same for the same simulation by the same code."""
        digest = trace.digest if self.load.source is Source.ROWS and trace is not None else ""
        content = {"trial": self.as_json(), "code": fingerprint, "trace": digest}
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def make_trial(
    model: ModelName,
    system: System,
    load: Load,
    seed: int,
    targets: TargetPair = PAPER_TARGETS,
) -> Trial:
    """A trial; systems that go by no target share theirs, whatever is asked."""
    return Trial(model, system, load, seed, PAPER_TARGETS if system.is_static else targets)


def run_trial(trial: Trial, trace: TraceFile | None) -> TrialFigures:
    """Simulate and measure."""
    sums = ErrorSums()
    profile = trial.model.profile

    def make(sizes: SchedulerSettings, model: StepTimeModel) -> Scheduler:
        targets = LatencyTargets(trial.targets.ttft_s, trial.targets.tpot_s)
        options = trial.system.options
        if trial.watches_predictor:
            law = watch(predictive_law(sizes, targets, model, options), sums)
            return FastppScheduler(sizes, law, admission=slot_admission(sizes))
        return make_scheduler(trial.system.rules, sizes, targets, model, options)

    run = simulate(
        Scenario(
            profile=profile,
            layout=trial.system.layout(profile),
            workload=trial.load.workload(trace),
            make_scheduler=make,
            timing=trial.system.timing,
            seed=trial.seed,
        )
    )
    return figures_of(run, trial.judged_targets, sums.errors())


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case Enum():
            return value.value
        case _:
            return value
