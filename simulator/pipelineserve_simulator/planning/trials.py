"""A layout in the twin: all its replicas under one seed of the workload, measured together."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain

from pipelineserve.api.targets import ChunkingPolicy
from pipelineserve.load.targets import Target, Targets
from pipelineserve.policy.step_time import StepTimeModel
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.baselines.options import (
    BaselineName,
    BaselineOptions,
    LatencyTargets,
)
from pipelineserve_simulator.baselines.registry import make_scheduler
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.measures.criteria import Criterion, Latency, percentile_s
from pipelineserve_simulator.measures.figures import (
    RunFigures,
    measure,
    steady_window_of,
    whole_window,
)
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.planning.demand import ReplicaShare
from pipelineserve_simulator.planning.forecasts import CHUNK_STEP_TOKENS
from pipelineserve_simulator.planning.layouts import Placed
from pipelineserve_simulator.scenario import Scenario, simulate
from pipelineserve_simulator.workloads.requests import Workload

# Schedulers want both targets; this long a wait is none.
_NO_TARGET_S = 3600.0
_LEAST_CONTEXT_TOKENS = 16_384


class ChunkPolicyName(Enum):
    """Policies that are tried; values as in the resource."""

    STATIC = ChunkingPolicy.STATIC.value
    PREDICTIVE = ChunkingPolicy.PREDICTIVE.value


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is tried.

    Attributes:
        static_tokens: the fixed chunk, and what an engine without a controller keeps.
    """

    placed: Placed
    num_replicas: int
    policy: ChunkPolicyName
    static_tokens: int

    @property
    def num_devices(self) -> int:
        """Devices of all replicas."""
        return self.num_replicas * self.placed.shape.num_devices


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what it is tried; the same for all deployments that are compared.

    Attributes:
        workload: of all replicas together.
        longest_tokens: prompt and output of its longest request.
    """

    profile: HardwareProfile
    workload: Workload
    targets: Targets
    max_chunk_tokens: int
    longest_tokens: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One deployment under one seed."""

    deployment: Deployment
    conditions: Conditions
    seed: int


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What came of it.

    Attributes:
        figures: of the steady window of all replicas together; of the whole run if that is short.
        ttft_s, tpot_s: at the percentiles that are judged; a failed request is infinitely late.
        meets_targets: whether both meet their targets.
    """

    figures: RunFigures
    ttft_s: float
    tpot_s: float
    meets_targets: bool


def run_trial(trial: Trial) -> TrialResult:
    """Simulate every replica; the same trial gives the same result."""
    outcome = together([simulate(scenario) for scenario in _scenarios(trial)])
    window = steady_window_of(outcome) or whole_window(outcome)
    targets = trial.conditions.targets
    ttft, tpot = criterion(Latency.TTFT, targets.ttft), criterion(Latency.TPOT, targets.tpot)
    ttft_s, tpot_s = (percentile_s(outcome, judged, window) for judged in (ttft, tpot))
    return TrialResult(
        figures=measure(outcome, targets, window),
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        meets_targets=ttft_s <= ttft.bound_s and tpot_s <= tpot.bound_s,
    )


def criterion(latency: Latency, target: Target | None) -> Criterion:
    """The percentile that is judged and shown; P90 without a bound where there is no target."""
    if target is None:
        return Criterion(latency, 90, float("inf"))
    return Criterion(latency, target.percentile, target.target_s)


def together(outcomes: Sequence[RunOutcome]) -> RunOutcome:
    """Replicas that ran side by side, as one run; requests in order of arrival, numbered as before.

    KV shares are of all pools, which are equally large; the highest is that of one replica.
    """
    requests = chain.from_iterable(outcome.requests for outcome in outcomes)
    steps = chain.from_iterable(outcome.steps for outcome in outcomes)
    return RunOutcome(
        requests=tuple(sorted(requests, key=lambda request: request.arrival_s)),
        steps=tuple(sorted(steps, key=lambda step: step.start_s)),
        duration_s=max(outcome.duration_s for outcome in outcomes),
        kv_used_ratio_max=max(outcome.kv_used_ratio_max for outcome in outcomes),
        kv_used_ratio_mean=sum(o.kv_used_ratio_mean for o in outcomes) / len(outcomes),
        num_preemptions=sum(outcome.num_preemptions for outcome in outcomes),
    )


def _scenarios(trial: Trial) -> list[Scenario]:
    deployment, conditions = trial.deployment, trial.conditions
    count = deployment.num_replicas
    return [
        Scenario(
            profile=conditions.profile,
            layout=deployment.placed.layout,
            workload=ReplicaShare(conditions.workload, trial.seed, count, index),
            make_scheduler=partial(_make_scheduler, deployment, conditions.targets),
            # Replicas stall and hesitate each by itself.
            seed=trial.seed * count + index,
            pool_tokens=deployment.placed.pool_tokens,
            max_chunk_tokens=conditions.max_chunk_tokens,
            max_context_tokens=max(_LEAST_CONTEXT_TOKENS, conditions.longest_tokens),
        )
        for index in range(count)
    ]


def _make_scheduler(
    deployment: Deployment, targets: Targets, sizes: SchedulerSettings, model: StepTimeModel
) -> Scheduler:
    match deployment.policy:
        case ChunkPolicyName.STATIC:
            name = BaselineName.STATIC
        case ChunkPolicyName.PREDICTIVE:
            name = BaselineName.PREDICTIVE
    options = BaselineOptions(
        static_chunk_tokens=deployment.static_tokens,
        min_chunk_tokens=CHUNK_STEP_TOKENS,
        max_chunk_tokens=sizes.max_chunk_tokens,
        step_chunk_tokens=CHUNK_STEP_TOKENS,
    )
    return make_scheduler(name, sizes, _latency_targets(targets), model, options)


def _latency_targets(targets: Targets) -> LatencyTargets:
    return LatencyTargets(
        ttft_s=_NO_TARGET_S if targets.ttft is None else targets.ttft.target_s,
        tpot_s=_NO_TARGET_S if targets.tpot is None else targets.tpot.target_s,
    )
