"""Stages in lock step: the published system."""

from collections import deque

from pipelineserve_simulator.kernel.events import EventHeap
from pipelineserve_simulator.kernel.ticks import to_ticks
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.faults import SlowedStages
from pipelineserve_simulator.pipeline.leader import Leader
from pipelineserve_simulator.pipeline.passage import Passage


class LockStepConveyor:
    """One step after the other; see `LockStep`.

    Raises:
        ValueError: there is not one slot per stage.
    """

    def __init__(self, leader: Leader, heap: EventHeap, slowed: SlowedStages) -> None:
        self._num_stages = leader.costs.num_stages
        num_slots = leader.scheduler.settings.num_slots
        if num_slots != self._num_stages:
            raise ValueError(
                f"lock step: expected one slot for each of {self._num_stages} stages, "
                f"got {num_slots}; set num_slots or let the stages run free"
            )
        self._leader = leader
        self._heap = heap
        self._slowed = slowed
        # By stage; None where a slot had nothing to run.
        self._residents: deque[Passage | None] = deque([None] * self._num_stages)
        self._idle_ticks = [0] * self._num_stages
        self._next_slot = 0
        self._step_end_ticks = 0

    def turn(self, now_ticks: int) -> None:
        """Begin a step, if the one before has ended and there is anything to run."""
        if now_ticks < self._step_end_ticks or not self._leader.scheduler.has_work:
            return
        newest = self._compose(now_ticks)
        self._residents.appendleft(newest)
        self._residents.pop()
        if any(self._residents):
            self._step(now_ticks)

    def reset(self, open_ticks: int) -> None:
        """See `Conveyor`."""
        self._residents = deque([None] * self._num_stages)
        self._idle_ticks = [open_ticks] * self._num_stages
        self._step_end_ticks = open_ticks
        self._heap.push(open_ticks, Rank.WAKE, self._end_step)

    def _compose(self, now_ticks: int) -> Passage | None:
        """Compose for the slot whose turn it is; with nothing in flight, for the next that can."""
        num_tried = 1 if any(self._residents) else self._num_stages
        for _ in range(num_tried):
            slot_index = self._next_slot
            self._next_slot = (slot_index + 1) % self._num_stages
            passage = self._leader.compose(slot_index, now_ticks)
            if passage is not None:
                return passage
        return None

    def _step(self, now_ticks: int) -> None:
        """All stages compute at once; the step is over when the slowest has handed on."""
        costs = self._leader.costs
        present = [passage for passage in self._residents if passage is not None]
        # Noise is the machine's in this step; of each resident anew, the maximum would be a bias.
        factor = present[0].noise_factor
        fullest = max(passage.load.num_requests for passage in present)
        start_ticks = now_ticks + to_ticks(costs.host_s(fullest))
        over_ticks = start_ticks
        for stage_index, passage in enumerate(self._residents):
            if passage is None:
                continue
            work_ticks = passage.work_ticks(stage_index, factor)
            end_ticks = self._slowed.end_ticks(stage_index, start_ticks, work_ticks)
            idle_ticks = max(self._idle_ticks[stage_index], self._leader.work_since_ticks)
            passage.note(idle_ticks, start_ticks, end_ticks)
            self._idle_ticks[stage_index] = end_ticks
            is_last = stage_index == self._num_stages - 1
            transfer_s = 0.0 if is_last else costs.transfer_s(passage.load.num_tokens)
            over_ticks = max(over_ticks, end_ticks + to_ticks(transfer_s))
        newest = self._residents[0]
        if newest is not None:
            newest.lock_step_ticks = over_ticks - now_ticks
        self._step_end_ticks = over_ticks
        self._heap.push(over_ticks, Rank.RETURN, self._end_step)

    def _end_step(self, now_ticks: int) -> None:
        """The oldest comes back; the end of a step that was lost falls into another one or none."""
        oldest = self._residents[-1]
        if oldest is not None and now_ticks == self._step_end_ticks:
            self._residents[-1] = None
            self._leader.take_back(oldest, now_ticks)
