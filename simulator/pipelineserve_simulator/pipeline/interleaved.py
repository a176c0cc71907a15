"""Several virtual stages per worker; of what waits for a worker the oldest goes first."""

from functools import partial
from heapq import heappop, heappush

from pipelineserve_simulator.kernel.events import EventHeap
from pipelineserve_simulator.kernel.ticks import to_ticks
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.faults import SlowedStages
from pipelineserve_simulator.pipeline.leader import Leader
from pipelineserve_simulator.pipeline.passage import Passage
from pipelineserve_simulator.pipeline.sending import Sending


class InterleavedConveyor:
    """A worker chooses what to run when it is idle, so every stage is an event of its own.

    The oldest first keeps micro-batches in order on every virtual stage: the older one of two ends
    each stage before the younger begins it, so it also comes first to the next one.

    Args:
        leader: composes; its costs are by virtual stage.
        heap: of the run.
        slowed: by worker.
        num_workers: which virtual stages are shared among, in turn.

    Raises:
        ValueError: the virtual stages do not fill the workers evenly.
    """

    def __init__(
        self, leader: Leader, heap: EventHeap, slowed: SlowedStages, num_workers: int
    ) -> None:
        self._num_stages = leader.costs.num_stages
        if num_workers < 1 or self._num_stages % num_workers:
            raise ValueError(
                f"interleaved: expected the {self._num_stages} virtual stages to be a multiple of "
                f"the workers, got {num_workers} of them"
            )
        self._leader = leader
        self._heap = heap
        self._slowed = slowed
        self._num_workers = num_workers
        # (sequence, virtual stage, micro-batch) by worker.
        self._queues: list[list[tuple[int, int, Passage]]] = [[] for _ in range(num_workers)]
        self._free_ticks = [0] * num_workers
        self._sending = Sending(leader, heap, self._send)

    def turn(self, now_ticks: int) -> None:
        """Let idle workers begin, then fill empty slots."""
        for worker_index, queue in enumerate(self._queues):
            if queue and self._free_ticks[worker_index] <= now_ticks:
                _, stage_index, passage = heappop(queue)
                self._begin(passage, stage_index, now_ticks)
        self._sending.fill(now_ticks)

    def reset(self, open_ticks: int) -> None:
        """See `Conveyor`."""
        self._queues = [[] for _ in self._queues]
        self._free_ticks = [open_ticks] * self._num_workers
        self._sending.close_until(open_ticks)

    def _send(self, passage: Passage, ready_ticks: int) -> None:
        self._heap.push(ready_ticks, Rank.STAGE, partial(self._queue, passage, 0))

    def _queue(self, passage: Passage, stage_index: int, now_ticks: int) -> None:
        """Its input for this stage is there."""
        del now_ticks
        if not passage.is_lost:
            entry = (passage.micro_batch.sequence, stage_index, passage)
            heappush(self._queues[stage_index % self._num_workers], entry)

    def _begin(self, passage: Passage, stage_index: int, now_ticks: int) -> None:
        worker_index = stage_index % self._num_workers
        work_ticks = passage.work_ticks(stage_index, passage.noise_factor)
        end_ticks = self._slowed.end_ticks(worker_index, now_ticks, work_ticks)
        idle_ticks = max(self._free_ticks[worker_index], self._leader.work_since_ticks)
        passage.note(idle_ticks, now_ticks, end_ticks)
        self._free_ticks[worker_index] = end_ticks
        self._heap.push(end_ticks, Rank.STAGE, partial(self._end, passage, stage_index))

    def _end(self, passage: Passage, stage_index: int, now_ticks: int) -> None:
        if passage.is_lost:
            return
        costs = self._leader.costs
        if stage_index == self._num_stages - 1:
            back_ticks = now_ticks + to_ticks(costs.return_s())
            self._heap.push(back_ticks, Rank.RETURN, partial(self._return, passage))
            return
        there_ticks = now_ticks + to_ticks(costs.transfer_s(passage.load.num_tokens))
        self._heap.push(there_ticks, Rank.STAGE, partial(self._queue, passage, stage_index + 1))

    def _return(self, passage: Passage, now_ticks: int) -> None:
        if not passage.is_lost:
            self._leader.take_back(passage, now_ticks)
