"""Guards on what a controller sends: bounded, in small steps, not too often, not for nothing.

They bound parameters and modes, never the choice that a predictive policy makes for a micro-batch.
"""

from dataclasses import dataclass
from enum import Enum
from math import copysign, isfinite
from typing import Generic, TypeVar

from pipelineserve.policy.reasons import Reason

ModeT = TypeVar("ModeT", bound=Enum)


@dataclass(frozen=True, slots=True)
class GuardMemory:
    """The number in force and when it was last changed; None if never."""

    value: float
    changed_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class GuardDecision:
    """The number to send, and why it is, or is not, what was proposed."""

    value: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class NumberGuard:
    """Guards one number.

    Attributes:
        least: lower bound.
        most: upper bound.
        largest_step: furthest that one change may go.
        least_period_s: shortest time between two changes.
        hysteresis: changes of this size or less are not made.

    Raises:
        ValueError: the bounds are empty, or a change could never happen.
    """

    least: float
    most: float
    largest_step: float
    least_period_s: float = 0.0
    hysteresis: float = 0.0

    def __post_init__(self) -> None:
        if not self.least <= self.most:
            raise ValueError(f"guard: expected least <= most, got {self.least} and {self.most}")
        if not 0.0 <= self.hysteresis < self.largest_step:
            raise ValueError(
                f"guard: expected 0 <= hysteresis < largest step, got {self.hysteresis} "
                f"and {self.largest_step}"
            )

    def decide(
        self, memory: GuardMemory, proposed: float, now_s: float
    ) -> tuple[GuardDecision, GuardMemory]:
        """Let the proposal pass as far as it may.

        A value in force that lies outside the bounds, since these have just changed, comes inside
        at once: bounds are the user's word, the other guards only keep the peace.
        """
        inside = self._clamped(memory.value)
        if inside != memory.value:
            return _changed(inside, Reason.GUARD_OUT_OF_BOUNDS, now_s)
        if not isfinite(proposed):
            return GuardDecision(memory.value, Reason.GUARD_NOT_FINITE), memory
        wanted = self._clamped(proposed)
        change = wanted - memory.value
        if abs(change) <= self.hysteresis:
            return GuardDecision(memory.value, Reason.GUARD_TOO_SMALL), memory
        if memory.changed_at_s is not None and now_s - memory.changed_at_s < self.least_period_s:
            return GuardDecision(memory.value, Reason.GUARD_TOO_SOON), memory
        if abs(change) > self.largest_step:
            stepped = memory.value + copysign(self.largest_step, change)
            return _changed(stepped, Reason.GUARD_STEP_LIMITED, now_s)
        is_clamped = wanted != proposed
        reason = Reason.GUARD_OUT_OF_BOUNDS if is_clamped else Reason.GUARD_PASSED
        return _changed(wanted, reason, now_s)

    def _clamped(self, value: float) -> float:
        return min(self.most, max(self.least, value))


@dataclass(frozen=True, slots=True)
class ModeMemory(Generic[ModeT]):
    """The mode in force, and one that is proposed instead since a time."""

    mode: ModeT
    proposed: ModeT | None = None
    proposed_since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ModeDecision(Generic[ModeT]):
    """The mode to send, and why."""

    mode: ModeT
    reason: Reason


@dataclass(frozen=True, slots=True)
class ModeGuard:
    """Guards a choice among modes: another one must be proposed without a break for a while.

    Attributes:
        settle_s: that while.
    """

    settle_s: float

    def decide(
        self, memory: ModeMemory[ModeT], proposed: ModeT, now_s: float
    ) -> tuple[ModeDecision[ModeT], ModeMemory[ModeT]]:
        """Let the proposal pass once it has settled."""
        if proposed is memory.mode:
            return ModeDecision(memory.mode, Reason.GUARD_PASSED), ModeMemory(memory.mode)
        since_s = memory.proposed_since_s if proposed is memory.proposed else now_s
        if now_s - since_s < self.settle_s:
            waiting = ModeMemory(memory.mode, proposed, since_s)
            return ModeDecision(memory.mode, Reason.GUARD_UNSETTLED), waiting
        return ModeDecision(proposed, Reason.GUARD_PASSED), ModeMemory(proposed)


def _changed(value: float, reason: Reason, now_s: float) -> tuple[GuardDecision, GuardMemory]:
    return GuardDecision(value, reason), GuardMemory(value, now_s)
