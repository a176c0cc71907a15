"""Runs the shared scheduler on virtual time: arrivals, faults, control, and micro-batches."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_simulator.kernel.events import EventHeap
from pipelineserve_simulator.kernel.ticks import to_seconds, to_ticks
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.pipeline.control import ControlledRun
from pipelineserve_simulator.pipeline.conveyor import Conveyor, Rank
from pipelineserve_simulator.pipeline.costs import PipelineCosts
from pipelineserve_simulator.pipeline.faults import (
    ControlFault,
    SlowedStages,
    StageLost,
    StageSlowed,
)
from pipelineserve_simulator.pipeline.free_running import FreeRunningConveyor
from pipelineserve_simulator.pipeline.interleaved import InterleavedConveyor
from pipelineserve_simulator.pipeline.leader import Leader
from pipelineserve_simulator.pipeline.lock_step import LockStepConveyor
from pipelineserve_simulator.pipeline.options import (
    FreeRunning,
    Interleaved,
    LockStep,
    PipelineOptions,
)
from pipelineserve_simulator.pipeline.sharing import SharingConveyor
from pipelineserve_simulator.workloads.requests import SimulatedRequest


def run_pipeline(
    requests: Sequence[SimulatedRequest],
    scheduler: Scheduler,
    costs: PipelineCosts,
    options: PipelineOptions,
) -> RunOutcome:
    """Serve requests until all have ended; the same inputs give the same outcome.

    Args:
        requests: in the order of arrival.
        scheduler: with its policies, as it was made; nothing may be live in it.
        costs: what steps take.
        options: the rest.

    Raises:
        ValueError: the requests are not in order, a fault is that of a controller and there is
            none, or the scheduler shares prefixes of prompts whose tokens are not known: they would
            be all alike, and every one found in the cache.
    """
    is_unknown = any(request.prompt_token_ids is None for request in requests)
    if scheduler.settings.shares_prefixes and is_unknown:
        raise ValueError("expected a scheduler that shares no prefixes; set shares_prefixes=False")
    if any(a.arrival_s > b.arrival_s for a, b in pairwise(requests)):
        raise ValueError("expected requests in the order of arrival; sort them by arrival_s")
    if options.control is None and any(isinstance(f, ControlFault) for f in options.faults):
        raise ValueError("expected a controller for its faults, got none; set make_control")
    return _Run(requests, scheduler, costs, options).to_end()


class _Run:
    def __init__(
        self,
        requests: Sequence[SimulatedRequest],
        scheduler: Scheduler,
        costs: PipelineCosts,
        options: PipelineOptions,
    ) -> None:
        self._requests = requests
        self._num_arrived = 0
        self._open_ticks = 0
        self._heap = EventHeap()
        self._leader = Leader(scheduler, costs, options)
        self._conveyor = self._conveyor_of(options)
        self._push_arrival()
        for lost in [fault for fault in options.faults if isinstance(fault, StageLost)]:
            self._heap.push(to_ticks(lost.at_s), Rank.FAULT, partial(self._lose, lost))
        if options.control is not None:
            faults, num_stages = options.faults, costs.num_stages
            options.control.begin(ControlledRun(num_stages, faults, self._plan))

    def to_end(self) -> RunOutcome:
        """Go from instant to instant while a request is live or to come."""
        scheduler = self._leader.scheduler
        while self._has_work:
            if not self._heap:
                raise RuntimeError(
                    f"nothing will happen, yet requests are live: {scheduler.lost()}"
                )
            self._conveyor.turn(self._heap.run_instant())
        return self._leader.records.outcome(scheduler.tally.preemptions)

    @property
    def _has_work(self) -> bool:
        return self._num_arrived < len(self._requests) or self._leader.scheduler.has_work

    def _conveyor_of(self, options: PipelineOptions) -> Conveyor:
        leader, heap = self._leader, self._heap
        slowed = SlowedStages([f for f in options.faults if isinstance(f, StageSlowed)])
        match options.timing:
            case FreeRunning() if leader.costs.sharing_ratio > 1.0:
                return SharingConveyor(leader, heap, slowed)
            case FreeRunning():
                return FreeRunningConveyor(leader, heap, slowed)
            case LockStep():
                return LockStepConveyor(leader, heap, slowed)
            case Interleaved(num_workers):
                return InterleavedConveyor(leader, heap, slowed, num_workers)

    def _push_arrival(self) -> None:
        if self._num_arrived < len(self._requests):
            at_ticks = to_ticks(self._requests[self._num_arrived].arrival_s)
            self._heap.push(at_ticks, Rank.ARRIVAL, self._arrive)

    def _arrive(self, now_ticks: int) -> None:
        self._leader.submit(self._requests[self._num_arrived], now_ticks)
        self._num_arrived += 1
        self._push_arrival()

    def _plan(self, at_s: float, rank: Rank, action: Callable[[float], None]) -> None:
        """See `Agenda`."""
        at_ticks = max(self._heap.now_ticks, to_ticks(at_s))
        self._heap.push(at_ticks, rank, partial(self._act, action))

    def _act(self, action: Callable[[float], None], now_ticks: int) -> None:
        if self._has_work:
            action(to_seconds(now_ticks))

    def _lose(self, lost: StageLost, now_ticks: int) -> None:
        self._leader.lose_all()
        self._open_ticks = max(self._open_ticks, now_ticks + to_ticks(lost.down_s))
        self._conveyor.reset(self._open_ticks)
