"""The scheduler under one of FastPP's chunk laws, for comparisons.

The laws decide from what their authors' scheduler had at hand: the queue's prompts, each slot's
last micro-batch, latencies per micro-batch. That is kept here, beside the scheduler that serves.
"""

from typing import Generic, Protocol, TypeVar

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.fastpp.latency_model import FastppStep
from pipelineserve.policy.fastpp.signals import Signals
from pipelineserve.policy.fastpp.views import FastppView
from pipelineserve.policy.preemption import UNMEASURED, KvCosts
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.schedule import Schedule
from pipelineserve.policy.views import LoadView
from pipelineserve.scheduler.fastpp_records import FastppRecords
from pipelineserve.scheduler.messages import Emission, MicroBatch, StepResult
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings


class FastppMemory(Protocol):
    """What every law's memory has."""

    @property
    def chunk_tokens(self) -> int:
        """The chunk in force."""
        ...

    @property
    def signals(self) -> Signals:
        """Latencies as of the last decision."""
        ...


MemoryT = TypeVar("MemoryT", bound=FastppMemory)


class FastppLaw(Protocol[MemoryT]):
    """A chunk law with the memory that it hands back."""

    @property
    def ttft_target_s(self) -> float:
        """Target of TTFT."""
        ...

    def start(self) -> MemoryT:
        """The memory before the first decision."""
        ...

    def is_due(self, step_index: int, num_slots: int) -> bool:
        """Whether this micro-batch gets a decision."""
        ...

    def decide(self, memory: MemoryT, view: FastppView) -> tuple[ChunkDecision, MemoryT]:
        """Choose for the next micro-batch."""
        ...

    def observe(self, memory: MemoryT, step: FastppStep) -> MemoryT:
        """Learn from a step."""
        ...


class FastppScheduler(Scheduler, Generic[MemoryT]):
    """Serves as any scheduler does, in order of arrival; the law sets every chunk.

    Args:
        settings: sizes.
        law: one of FastPP's, with its targets.
        schedule: the order of micro-batches.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        law: FastppLaw[MemoryT],
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(settings, self, schedule=schedule)
        self._law = law
        self._memory = law.start()
        self._records = FastppRecords(settings.num_slots, law.ttft_target_s)

    @property
    def memory(self) -> MemoryT:
        """What the law has learned."""
        return self._memory

    def decide(self, view: LoadView) -> ChunkDecision:
        """The law's chunk for the micro-batch being composed; see `ChunkPolicy`."""
        if not self._law.is_due(self._records.num_steps, view.num_slots):
            chunk_tokens = min(self._memory.chunk_tokens, view.max_chunk_tokens)
            return ChunkDecision(chunk_tokens, Reason.NOT_YET_DUE)
        kv_tokens = (
            self.kv.pool.num_free * self.kv.block_tokens,
            self.settings.num_blocks * self.kv.block_tokens,
        )
        seen = self._records.view(view, self._waiting, self._prefilling.values(), kv_tokens)
        decision, self._memory = self._law.decide(self._memory, seen)
        if self._memory.signals.seen == seen.totals:
            self._records.note_drained()
        return decision

    def next_micro_batch(
        self, slot_index: int, now_s: float, costs: KvCosts = UNMEASURED
    ) -> MicroBatch | None:
        """See `Scheduler.next_micro_batch`."""
        micro_batch = super().next_micro_batch(slot_index, now_s, costs)
        if micro_batch is not None:
            in_flight = [other for other, _ in self._in_flight.values()]
            self._records.note_launch(micro_batch, in_flight, now_s)
        return micro_batch

    def complete(self, slot_index: int, result: StepResult, now_s: float) -> list[Emission]:
        """See `Scheduler.complete`."""
        emissions = super().complete(slot_index, result, now_s)
        step = self._records.note_result(slot_index, emissions, now_s)
        if step is not None:
            self._memory = self._law.observe(self._memory, step)
        return emissions

    def recall_all(self) -> int:
        """See `Scheduler.recall_all`."""
        self._records.forget_in_flight()
        return super().recall_all()
