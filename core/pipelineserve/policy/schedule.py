"""Schedules: whether an empty slot may be filled now, or waits for others."""

from dataclasses import dataclass
from typing import Protocol

from pipelineserve.policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class SlotsView:
    """The slots at the moment in which one of them could be filled.

    Attributes:
        num_slots: micro-batches that can be in flight at once.
        num_in_flight: micro-batches that are.
        num_sent: micro-batches sent since none was in flight.
    """

    num_slots: int
    num_in_flight: int
    num_sent: int


@dataclass(frozen=True, slots=True)
class FillDecision:
    """Fill the slot now, or not before another micro-batch has come back."""

    may_fill: bool
    reason: Reason


_FILL = FillDecision(may_fill=True, reason=Reason.SLOT_EMPTY)


class Schedule(Protocol):
    """The order of micro-batches."""

    def decide(self, view: SlotsView) -> FillDecision:
        """Decide about one empty slot; with nothing in flight it must be filled."""
        ...


@dataclass(frozen=True, slots=True)
class Continuous:
    """Each slot is filled again as soon as it is empty."""

    def decide(self, view: SlotsView) -> FillDecision:
        """Fill."""
        del view
        return _FILL


@dataclass(frozen=True, slots=True)
class FillDrain:
    """All slots are filled, then all are awaited before the next round (as in GPipe).

    The pipeline runs empty between rounds: for comparisons, not for use.
    """

    def decide(self, view: SlotsView) -> FillDecision:
        """Fill until the first micro-batch of the round has come back."""
        if view.num_sent > view.num_in_flight:
            return FillDecision(may_fill=False, reason=Reason.ROUND_DRAINS)
        return _FILL
