"""What moves micro-batches through the stages, as the executor sees it, and the ranks of events."""

from enum import IntEnum
from typing import Protocol


class Rank(IntEnum):
    """The order of what happens at one instant.

    Stages first, so that a result that is there counts before the fault that would have lost it;
    arrivals before all of control and before composition, so that whoever decides at an instant
    sees everything of it. Composition itself comes when all these have happened.

    Of control, the engine's side first, as in the engine's own loop: a policy that arrives at the
    instant at which the lease before it ends is in time, and what is told then says so. What
    reaches the controller at the instant of a turn is heard in it.
    """

    STAGE = 0
    RETURN = 1
    FAULT = 2
    ARRIVAL = 3
    POLICY = 4
    LEASE = 5
    TELLING = 6
    HEARING = 7
    CONTROL = 8
    WAKE = 9


class Conveyor(Protocol):
    """Composes where it may and moves what was composed."""

    def turn(self, now_ticks: int) -> None:
        """Go on; called once after everything of an instant has happened."""
        ...

    def reset(self, open_ticks: int) -> None:
        """Forget all that was in flight; the stages can be used again from `open_ticks` on."""
        ...
