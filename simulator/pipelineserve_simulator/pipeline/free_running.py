"""Stages that run free: FIFO, each as soon as it and its input are there."""

from functools import partial

from pipelineserve_simulator.kernel.events import EventHeap
from pipelineserve_simulator.kernel.ticks import to_ticks
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.faults import SlowedStages
from pipelineserve_simulator.pipeline.leader import Leader
from pipelineserve_simulator.pipeline.passage import Passage
from pipelineserve_simulator.pipeline.sending import Sending


class FreeRunningConveyor:
    """Micro-batches never overtake, so all times of one are known when it is sent.

    Stage k begins with it when it has ended on k - 1 and travelled, and when k has ended with the
    one before: one event per micro-batch is enough.
    """

    def __init__(self, leader: Leader, heap: EventHeap, slowed: SlowedStages) -> None:
        self._leader = leader
        self._heap = heap
        self._slowed = slowed
        self._free_ticks = [0] * leader.costs.num_stages
        self._sending = Sending(leader, heap, self._send)

    def turn(self, now_ticks: int) -> None:
        """Fill empty slots."""
        self._sending.fill(now_ticks)

    def reset(self, open_ticks: int) -> None:
        """See `Conveyor`."""
        self._free_ticks = [open_ticks] * len(self._free_ticks)
        self._sending.close_until(open_ticks)

    def _send(self, passage: Passage, ready_ticks: int) -> None:
        costs, slowed, free_ticks = self._leader.costs, self._slowed, self._free_ticks
        transfer_ticks = to_ticks(costs.transfer_s(passage.load.num_tokens))
        work_since_ticks = self._leader.work_since_ticks
        at_ticks = ready_ticks
        for stage_index, idle_ticks in enumerate(free_ticks):
            start_ticks = max(at_ticks, idle_ticks)
            work_ticks = passage.work_ticks(stage_index, passage.noise_factor)
            end_ticks = slowed.end_ticks(stage_index, start_ticks, work_ticks)
            passage.note(max(idle_ticks, work_since_ticks), start_ticks, end_ticks)
            free_ticks[stage_index] = end_ticks
            at_ticks = end_ticks + transfer_ticks
        back_ticks = free_ticks[-1] + to_ticks(costs.return_s())
        self._heap.push(back_ticks, Rank.RETURN, partial(self._return, passage))

    def _return(self, passage: Passage, now_ticks: int) -> None:
        if not passage.is_lost:
            self._leader.take_back(passage, now_ticks)
