"""Stages that run free and share what they compute with: each is faster while others wait."""

from collections import deque
from functools import partial

from pipelineserve_simulator.kernel.events import EventHeap
from pipelineserve_simulator.kernel.ticks import to_ticks
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.faults import SlowedStages
from pipelineserve_simulator.pipeline.leader import Leader
from pipelineserve_simulator.pipeline.passage import Passage
from pipelineserve_simulator.pipeline.sending import Sending


class _Stage:
    """One stage: what waits for it, what it computes, and how much of that is left."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.waiting: deque[Passage] = deque()
        self.current: Passage | None = None
        # At the pace of all stages computing at once, and of a stage that nothing slows.
        self.left_ticks = 0.0
        self.slow_factor = 1.0
        self.start_ticks = 0
        self.free_ticks = 0

    def clear(self, open_ticks: int) -> None:
        """Forget all work; the stage can be used again from then on, and is as slow as before."""
        self.waiting.clear()
        self.current, self.left_ticks, self.free_ticks = None, 0.0, open_ticks

    def advance(self, done_ticks: float) -> None:
        """So much would be done on a stage that nothing slows."""
        self.left_ticks = max(0.0, self.left_ticks - done_ticks / self.slow_factor)


class SharingConveyor:
    """As `FreeRunningConveyor`, but how fast a stage computes depends on how many compute.

    With all of them its work lasts as the costs say, alone 1 / `sharing_ratio` of it, and in
    between as the number of others says. So ends move whenever a stage begins or ends, and whenever
    a fault makes one slower or ends. A slow one slows the others for as long as it computes.

    Args:
        leader: composes; its costs have the ratio.
        heap: of the run.
        slowed: when which stage is slow.
    """

    def __init__(self, leader: Leader, heap: EventHeap, slowed: SlowedStages) -> None:
        self._leader = leader
        self._heap = heap
        self._ratio = leader.costs.sharing_ratio
        self._stages = [_Stage(index) for index in range(leader.costs.num_stages)]
        self._at_ticks = 0
        self._pace = 1.0
        # Which of the planned ends still hold: those of the latest plan.
        self._plan = 0
        self._sending = Sending(leader, heap, self._send)
        for at_ticks, stage_index, factor in slowed.changes():
            change = partial(self._change, self._stages[stage_index], factor)
            heap.push(at_ticks, Rank.FAULT, change)

    def turn(self, now_ticks: int) -> None:
        """Let idle stages begin, then fill empty slots."""
        begun = [stage for stage in self._stages if self._begin(stage, now_ticks)]
        if begun:
            self._plan_ends(now_ticks)
        self._sending.fill(now_ticks)

    def reset(self, open_ticks: int) -> None:
        """See `Conveyor`."""
        self._plan += 1
        for stage in self._stages:
            stage.clear(open_ticks)
        self._sending.close_until(open_ticks)

    def _send(self, passage: Passage, ready_ticks: int) -> None:
        self._heap.push(ready_ticks, Rank.STAGE, partial(self._arrive, passage, 0))

    def _arrive(self, passage: Passage, stage_index: int, now_ticks: int) -> None:
        """Its input for this stage is there."""
        del now_ticks
        if not passage.is_lost:
            self._stages[stage_index].waiting.append(passage)

    def _begin(self, stage: _Stage, now_ticks: int) -> bool:
        """Start the next of an idle stage; the work of the others goes on until now as before."""
        if stage.current is not None or not stage.waiting or now_ticks < stage.free_ticks:
            return False
        self._advance(now_ticks)
        stage.current = stage.waiting.popleft()
        stage.left_ticks = float(stage.current.work_ticks(stage.index, stage.current.noise_factor))
        stage.start_ticks = now_ticks
        return True

    def _advance(self, now_ticks: int) -> None:
        done_ticks = (now_ticks - self._at_ticks) * self._pace
        for stage in self._stages:
            stage.advance(done_ticks)
        self._at_ticks = now_ticks

    def _change(self, stage: _Stage, factor: float, now_ticks: int) -> None:
        """From now on this stage takes so many times as long."""
        self._advance(now_ticks)
        stage.slow_factor = factor
        self._plan_ends(now_ticks)

    def _plan_ends(self, now_ticks: int) -> None:
        """From now on at another pace."""
        self._advance(now_ticks)
        self._plan += 1
        busy = [stage for stage in self._stages if stage.current is not None]
        others = max(1, len(self._stages) - 1)
        share = (len(busy) - 1) / others
        self._pace = self._ratio / (1.0 + (self._ratio - 1.0) * share) if busy else 1.0
        for stage in busy:
            end_ticks = now_ticks + round(stage.left_ticks * stage.slow_factor / self._pace)
            self._heap.push(end_ticks, Rank.STAGE, partial(self._end, stage, self._plan))

    def _end(self, stage: _Stage, plan: int, now_ticks: int) -> None:
        passage = stage.current
        if plan != self._plan or passage is None:
            return  # another stage has begun or ended meanwhile, and this end was planned anew
        self._advance(now_ticks)
        idle_ticks = max(stage.free_ticks, self._leader.work_since_ticks)
        passage.note(idle_ticks, stage.start_ticks, now_ticks)
        stage.current, stage.left_ticks, stage.free_ticks = None, 0.0, now_ticks
        self._pass_on(passage, stage.index, now_ticks)
        self._begin(stage, now_ticks)
        self._plan_ends(now_ticks)

    def _pass_on(self, passage: Passage, stage_index: int, now_ticks: int) -> None:
        costs = self._leader.costs
        if stage_index == len(self._stages) - 1:
            back_ticks = now_ticks + to_ticks(costs.return_s())
            self._heap.push(back_ticks, Rank.RETURN, partial(self._return, passage))
            return
        there_ticks = now_ticks + to_ticks(costs.transfer_s(passage.load.num_tokens))
        self._heap.push(there_ticks, Rank.STAGE, partial(self._arrive, passage, stage_index + 1))

    def _return(self, passage: Passage, now_ticks: int) -> None:
        if not passage.is_lost:
            self._leader.take_back(passage, now_ticks)
