"""A recorded run's arrivals and lengths, served again on virtual time: by a profile's costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipelineserve.partition import LayerPartition
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.step_time import StepTimeModel
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import Layout
from pipelineserve_simulator.hardware.measured import measured_model
from pipelineserve_simulator.hardware.noise import ProfileNoise
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.options import ControlTurns, FreeRunning, PipelineOptions
from pipelineserve_simulator.replay.contents import RecordedTokens
from pipelineserve_simulator.replay.recorded import (
    Adopted,
    Completed,
    Ended,
    Queued,
    RecordedRun,
    Sent,
    Tried,
)
from pipelineserve_simulator.workloads.requests import SimulatedRequest

# How often the twin looks whether a recorded change of policy is due.
_POLICY_PERIOD_S = 0.05

SchedulerMaker = Callable[[SchedulerSettings, StepTimeModel], Scheduler]
"""Makes the scheduler that is asked about."""


class Adopting(Protocol):
    """What takes policies."""

    def adopt(self, policy: SchedulingPolicy) -> int:
        """See `Scheduler.adopt`."""
        ...


@dataclass(frozen=True, slots=True)
class Rerun:
    """What is to be simulated.

    Attributes:
        run: whose requests are served again, each with as many tokens as it got.
        profile: of the machine.
        make_scheduler: another scheduler; None: the recorded one, policy changes at their times.
        seed: of the noise.
    """

    run: RecordedRun
    profile: HardwareProfile
    make_scheduler: SchedulerMaker | None = None
    seed: int = 0


def requests_of(run: RecordedRun) -> tuple[SimulatedRequest, ...]:
    """Those that got a token, in order of arrival; times count from the first arrival."""
    tokens = RecordedTokens(run.calls, run.sizes.block_tokens)
    outputs = {call.request_id: call.output_tokens for call in run.calls if isinstance(call, Ended)}
    queued = [call for call in run.calls if isinstance(call, Queued)]
    begin_s = min((call.at_s for call in queued), default=0.0)
    served = [call for call in queued if outputs.get(call.request_id, 0) > 0]
    return tuple(
        SimulatedRequest(
            index=index,
            arrival_s=call.at_s - begin_s,
            prompt_tokens=call.prompt_tokens,
            output_tokens=outputs[call.request_id],
            client_id=call.client_id,
            priority=call.priority,
            prompt_token_ids=tokens.first(call.request_id, call.prompt_tokens),
        )
        for index, call in enumerate(served)
    )


def simulate_again(rerun: Rerun) -> RunOutcome:
    """Serve them."""
    run, profile = rerun.run, rerun.profile
    layout = Layout(LayerPartition(run.layers_per_stage))
    control: ControlTurns | None = None
    if rerun.make_scheduler is None:
        scheduler = Scheduler(run.sizes, run.policy.chunking, schedule=run.schedule)
        scheduler.adopt(run.policy)
        control = _recorded_policies(scheduler, changes_of(run))
    else:
        model = measured_model(profile, layout, run.sizes.max_chunk_tokens, has_host=False)
        scheduler = rerun.make_scheduler(run.sizes, model)
    noise = ProfileNoise(profile.noise, Chance(rerun.seed).stream("noise"))
    return run_pipeline(
        requests_of(run),
        scheduler,
        ProfileCosts(profile, layout),
        PipelineOptions(timing=FreeRunning(), noise=noise, control=control),
    )


def changes_of(run: RecordedRun) -> tuple[tuple[float, SchedulingPolicy], ...]:
    """Changes of policy with their times, that of the call before each, from the first arrival."""
    begin_s = min((call.at_s for call in run.calls if isinstance(call, Queued)), default=0.0)
    now_s = begin_s
    changes = []
    for call in run.calls:
        match call:
            case Queued() | Tried() | Sent() | Completed() | Ended():
                now_s = call.at_s
            case Adopted(policy):
                changes.append((max(0.0, now_s - begin_s), policy))
            case _:
                pass
    return tuple(changes)


def _recorded_policies(
    scheduler: Adopting, changes: Sequence[tuple[float, SchedulingPolicy]]
) -> ControlTurns | None:
    if not changes:
        return None
    left = list(changes)

    def take(now_s: float) -> None:
        while left and left[0][0] <= now_s:
            scheduler.adopt(left.pop(0)[1])

    return ControlTurns(_POLICY_PERIOD_S, take)
