"""What goes wrong in a run, as inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelineserve_simulator.kernel.ticks import to_ticks


@dataclass(frozen=True, slots=True)
class StageSlowed:
    """A stage computes slower for a while.

    Attributes:
        factor: by which its work takes longer, at least 1; where several overlap, the largest.
        start_s, end_s: from when until when.

    Raises:
        ValueError: the factor is below 1, or the end is not after the start.
    """

    stage_index: int
    factor: float
    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        if self.factor < 1.0 or not 0.0 <= self.start_s < self.end_s:
            raise ValueError(f"expected a factor of at least 1 and an end after 0, got {self}")


@dataclass(frozen=True, slots=True)
class StageLost:
    """A stage dies with everybody's KV; the group is there again after a while.

    Attributes:
        at_s: when it dies; what is in flight then never comes back.
        down_s: how long nothing can be sent, at least 0.

    Raises:
        ValueError: one of the times is below 0.
    """

    stage_index: int
    at_s: float
    down_s: float

    def __post_init__(self) -> None:
        if self.at_s < 0.0 or self.down_s < 0.0:
            raise ValueError(f"expected times of at least 0, got {self}")


@dataclass(frozen=True, slots=True)
class ControllerGone:
    """The controller's process is away for a while; the lease of its policy then ends.

    Attributes:
        start_s, end_s: from when until when; another process then begins.
        keeps_journal: whether that one begins with the step-time model that this one had learned.

    Raises:
        ValueError: the end is not after the start.
    """

    start_s: float
    end_s: float
    keeps_journal: bool = True

    def __post_init__(self) -> None:
        _require_span(self.start_s, self.end_s)


@dataclass(frozen=True, slots=True)
class RecordsLost:
    """What the engine tells in that time never reaches the controller; its policies still arrive.

    Attributes:
        start_s, end_s: from when until when.

    Raises:
        ValueError: the end is not after the start.
    """

    start_s: float
    end_s: float

    def __post_init__(self) -> None:
        _require_span(self.start_s, self.end_s)


ControlFault = ControllerGone | RecordsLost
Fault = StageSlowed | StageLost | ControlFault


def _require_span(start_s: float, end_s: float) -> None:
    if not 0.0 <= start_s < end_s:
        raise ValueError(f"expected 0 <= start_s < end_s, got {start_s} and {end_s}")


class SlowedStages:
    """How slow each stage is when, and so when work on it ends.

    Args:
        slowed: of all stages, in any order.
    """

    def __init__(self, slowed: Sequence[StageSlowed]) -> None:
        # By stage, ascending: from when on its work takes so many times as long.
        self._spans: dict[int, list[tuple[int, float]]] = {}
        for stage_index in {fault.stage_index for fault in slowed}:
            mine = [fault for fault in slowed if fault.stage_index == stage_index]
            self._spans[stage_index] = _factors(mine)

    def changes(self) -> list[tuple[int, int, float]]:
        """When which stage begins to take how many times as long, in no order among stages."""
        return [
            (at_ticks, stage_index, factor)
            for stage_index, spans in self._spans.items()
            for at_ticks, factor in spans
        ]

    def end_ticks(self, stage_index: int, start_ticks: int, work_ticks: int) -> int:
        """When work that takes `work_ticks` at full speed ends."""
        changes = self._spans.get(stage_index)
        if changes is None:
            return start_ticks + work_ticks
        at, left, factor = start_ticks, float(work_ticks), 1.0
        for change_ticks, next_factor in changes:
            if change_ticks > at:
                done = (change_ticks - at) / factor
                if done >= left:
                    break
                at, left = change_ticks, left - done
            factor = next_factor
        return at + max(1, round(left * factor))


def _factors(slowed: Sequence[StageSlowed]) -> list[tuple[int, float]]:
    """When the factor of one stage changes, and to what."""
    moments = sorted({moment for fault in slowed for moment in (fault.start_s, fault.end_s)})
    return [
        (
            to_ticks(moment),
            max((f.factor for f in slowed if f.start_s <= moment < f.end_s), default=1.0),
        )
        for moment in moments
    ]
