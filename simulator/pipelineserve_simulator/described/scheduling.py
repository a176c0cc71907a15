"""The scheduler of a described simulation, and the controller if it has one."""

from dataclasses import dataclass
from math import inf

from pipelineserve.errors import Fault
from pipelineserve.policy.control.objectives import HoldLaw, LatencyGoal, Objectives, OrderLaw
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.rebalancing import HoldMode
from pipelineserve.policy.schedule import Continuous, FillDrain, Schedule
from pipelineserve.policy.step_time import StepTimeModel
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.baselines.options import BaselineName, BaselineOptions, LatencyTargets
from pipelineserve_simulator.baselines.registry import make_scheduler
from pipelineserve_simulator.control.objectives import Asked, objectives_of
from pipelineserve_simulator.control.settings import ControlSettings, Edit
from pipelineserve_simulator.described.description import (
    Control,
    PolicyName,
    SimulationDescription,
    Targets,
    TimingName,
)
from pipelineserve_simulator.hardware.description import HardwareProfile

_MS_PER_S = 1000.0
# They follow both targets; the others look at none, or have a controller that can do without one.
_NEED_TARGETS = frozenset(
    {
        PolicyName.PREDICTIVE,
        PolicyName.PACED,
        PolicyName.FASTPP_GREEDY,
        PolicyName.FASTPP_PREDICTIVE,
        PolicyName.FASTPP_GREEDY_DELAY,
        PolicyName.FASTPP_PREDICTIVE_DELAY,
    }
)
_HAVE_ORDER = frozenset({PolicyName.PREDICTIVE, PolicyName.CONTROLLED})
_HAVE_HOLDING = frozenset({PolicyName.PREDICTIVE, PolicyName.PACED, PolicyName.CONTROLLED})
_HOLD_MODES = {HoldLaw.TPOT_FIRST: HoldMode.TPOT_FIRST, HoldLaw.E2E_FIRST: HoldMode.E2E_FIRST}


@dataclass(frozen=True, slots=True)
class DescribedScheduling:
    """A `SchedulerMaker`."""

    name: BaselineName
    targets: LatencyTargets
    options: BaselineOptions
    schedule: Schedule

    def __call__(self, sizes: SchedulerSettings, model: StepTimeModel) -> Scheduler:
        """A scheduler under the rules of the name."""
        scheduler = make_scheduler(self.name, sizes, self.targets, model, self.options)
        scheduler.schedule = self.schedule
        return scheduler


def scheduling_of(given: SimulationDescription, profile: HardwareProfile) -> DescribedScheduling:
    """What schedules; a controller begins on the static chunk."""
    is_controlled = given.policy is PolicyName.CONTROLLED
    targets, chunks = given.targets, given.chunks
    return DescribedScheduling(
        BaselineName.STATIC if is_controlled else BaselineName(given.policy.value),
        LatencyTargets(_seconds(targets.ttft_ms) or inf, _seconds(targets.tpot_ms) or inf),
        BaselineOptions(
            static_chunk_tokens=chunks.static_tokens,
            min_chunk_tokens=chunks.min_tokens,
            max_chunk_tokens=chunks.max_tokens,
            step_chunk_tokens=chunks.step_tokens,
            order=Arrival() if given.order is OrderLaw.ARRIVAL else Ageing(),
            hold_mode=None if given.holding is None else _HOLD_MODES.get(given.holding),
            boundaries=tuple(stair.tokens for stair in profile.linear.stairs),
        ),
        FillDrain() if given.timing is TimingName.FILL_DRAIN else Continuous(),
    )


def control_of(given: SimulationDescription) -> ControlSettings | None:
    """The controller; None for policies without one."""
    if given.policy is not PolicyName.CONTROLLED:
        return None
    control, targets, edits = given.control or Control(), given.targets, []
    for index, edit in enumerate(control.edits):
        targets = targets.model_copy(update=edit.targets.model_dump(exclude_none=True))
        edits.append(Edit(edit.at_s, _objectives(given, control, targets, generation=2 + index)))
    return ControlSettings(
        objectives=_objectives(given, control, given.targets, generation=1),
        edits=tuple(edits),
        period_s=control.period_s,
        delay_s=control.delay_s,
    )


def scheduling_faults(given: SimulationDescription) -> list[Fault]:
    """What cannot be, between the fields of chunks, targets, order, holding and control."""
    return [*_chunk_faults(given), *_target_faults(given), *_choice_faults(given)]


def _chunk_faults(given: SimulationDescription) -> list[Fault]:
    chunks = given.chunks
    faults = []
    if chunks.min_tokens > chunks.max_tokens:
        text = f"expected at most max_tokens, {chunks.max_tokens}, got {chunks.min_tokens}"
        faults.append(Fault("chunks.min_tokens", text))
    elif not chunks.min_tokens <= chunks.static_tokens <= chunks.max_tokens:
        text = f"from min_tokens, {chunks.min_tokens}, to max_tokens, {chunks.max_tokens}"
        faults.append(Fault("chunks.static_tokens", f"expected {text}, got {chunks.static_tokens}"))
    return faults


def _target_faults(given: SimulationDescription) -> list[Fault]:
    named = (("ttft_ms", given.targets.ttft_ms), ("tpot_ms", given.targets.tpot_ms))
    if given.policy not in _NEED_TARGETS:
        return []
    text = f"expected a bound, got none: {given.policy.value} follows both targets"
    return [Fault(f"targets.{name}", text) for name, value in named if value is None]


def _choice_faults(given: SimulationDescription) -> list[Fault]:
    policy = given.policy
    is_controlled = policy is PolicyName.CONTROLLED
    faults = []
    if given.order is not None and policy not in _HAVE_ORDER:
        faults.append(Fault("order", f"got one, expected none: {policy.value} has its own"))
    elif given.order is OrderLaw.TRIAGE and not is_controlled:
        text = f"expected Arrival or Ageing with {policy.value}, got Triage; Paced has it"
        faults.append(Fault("order", text))
    if given.holding not in (None, HoldLaw.OFF) and policy not in _HAVE_HOLDING:
        faults.append(Fault("holding", f"got one, expected none: {policy.value} has its own"))
    elif given.holding is HoldLaw.AUTO and not is_controlled:
        text = "expected Off, TpotFirst or E2eFirst, got Auto; that is the controller's choice"
        faults.append(Fault("holding", text))
    if given.control is not None and not is_controlled:
        text = f"got settings, expected none: {policy.value} has no controller; use Controlled"
        faults.append(Fault("control", text))
    elif given.control is not None:
        times_s = [edit.at_s for edit in given.control.edits]
        if times_s != sorted(times_s):
            faults.append(Fault("control.edits", f"expected the order of time, got {times_s}"))
    return faults


def _objectives(
    given: SimulationDescription, control: Control, targets: Targets, generation: int
) -> Objectives:
    chunks = given.chunks
    asked = Asked(
        ttft=_goal(targets.ttft_ms, targets.percentile),
        tpot=_goal(targets.tpot_ms, targets.percentile),
        static_tokens=chunks.static_tokens,
        min_tokens=chunks.min_tokens,
        max_tokens=chunks.max_tokens,
        step_tokens=chunks.step_tokens,
        chunk_law=control.chunk_law,
        order_law=given.order or OrderLaw.AGEING,
        hold_law=given.holding or HoldLaw.AUTO,
        window_s=control.window_s,
        lease_s=control.lease_s,
        stale_s=control.stale_s,
    )
    return objectives_of(asked, generation)


def _goal(milliseconds: float | None, percentile: int) -> LatencyGoal | None:
    bound_s = _seconds(milliseconds)
    return None if bound_s is None else LatencyGoal(percentile, bound_s)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / _MS_PER_S
