"""The leader's own time: it composes and sends one micro-batch after the other."""

from collections.abc import Callable

from pipelineserve_simulator.kernel.events import EventHeap
from pipelineserve_simulator.kernel.ticks import to_ticks
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.leader import Leader
from pipelineserve_simulator.pipeline.passage import Passage


class Sending:
    """Fills empty slots, the lowest first, each after the leader's work on the one before.

    Args:
        leader: composes.
        heap: of the run.
        send: takes a micro-batch, and when the first stage can have it.
    """

    def __init__(
        self, leader: Leader, heap: EventHeap, send: Callable[[Passage, int], None]
    ) -> None:
        self._leader = leader
        self._heap = heap
        self._send = send
        self._free_ticks = 0
        self._wake_ticks = -1

    def fill(self, now_ticks: int) -> None:
        """Compose for every empty slot that there is time and work for."""
        scheduler = self._leader.scheduler
        if not scheduler.has_work:
            return
        for slot_index in range(scheduler.settings.num_slots):
            if scheduler.is_slot_in_flight(slot_index):
                continue
            if now_ticks < self._free_ticks:
                self._wake_at(self._free_ticks)
                return
            passage = self._leader.compose(slot_index, now_ticks)
            if passage is not None:
                host_s = self._leader.costs.host_s(passage.load.num_requests)
                self._free_ticks = now_ticks + to_ticks(host_s)
                self._send(passage, self._free_ticks)

    def close_until(self, open_ticks: int) -> None:
        """Send nothing before."""
        self._free_ticks = open_ticks

    def _wake_at(self, at_ticks: int) -> None:
        """Make sure that there is a turn then."""
        if self._wake_ticks != at_ticks:
            self._wake_ticks = at_ticks
            self._heap.push(at_ticks, Rank.WAKE, _nothing)


def _nothing(now_ticks: int) -> None:
    """The turn that follows every instant is all that is wanted."""
    del now_ticks
