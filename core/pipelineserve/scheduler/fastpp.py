"""The scheduler under one of FastPP's chunk laws, for comparisons.

The laws decide from what their authors' scheduler had at hand: the queue's prompts, each slot's
last micro-batch, latencies per micro-batch. That is kept here, beside the scheduler that serves.
"""

from typing import Generic, Protocol, TypeVar

from pipelineserve.policy.admission import KnownLengths
from pipelineserve.policy.assignment import SlotBound
from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.fastpp.bounds import kv_free_ratio
from pipelineserve.policy.fastpp.delay import FastppDelay, FastppDelayView
from pipelineserve.policy.fastpp.latency_model import FastppStep
from pipelineserve.policy.fastpp.signals import Signals
from pipelineserve.policy.fastpp.views import FastppView
from pipelineserve.policy.preemption import UNMEASURED, KvCosts
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.schedule import Schedule
from pipelineserve.policy.views import LoadView, SchedulerView
from pipelineserve.scheduler.emissions import Emissions
from pipelineserve.scheduler.fastpp_holds import FastppHolds
from pipelineserve.scheduler.fastpp_records import FastppRecords
from pipelineserve.scheduler.messages import MicroBatch, StepResult
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
    """Serves in order of arrival; the law sets every chunk, and decodes are bound to their slot.

    Args:
        settings: sizes.
        law: one of FastPP's, with its targets.
        schedule: the order of micro-batches.
        delay: delay scheduling beside the law; None: nothing is held.
        admission: looks ahead by known output lengths, as the published runs do.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        law: FastppLaw[MemoryT],
        schedule: Schedule | None = None,
        *,
        delay: FastppDelay | None = None,
        admission: KnownLengths | None = None,
    ) -> None:
        super().__init__(
            settings, self, assignment=SlotBound(), schedule=schedule, admission=admission
        )
        if delay is not None:
            self._holds = FastppHolds(self._decodes, delay, self._delay_view)
        self._law = law
        self._memory = law.start()
        self._records = FastppRecords(settings.num_slots, law.ttft_target_s)
        # Published with each decision: prompt tokens in the queue, and the share of KV free.
        self._published = (0, 1.0)

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
        self._published = (
            view.waiting_tokens,
            kv_free_ratio(seen, [slot.num_running for slot in seen.slots]),
        )
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

    def complete(self, slot_index: int, result: StepResult, now_s: float) -> Emissions:
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

    def _delay_view(self, view: SchedulerView) -> FastppDelayView:
        """What delay scheduling sees before a slot is filled.

        The chunk of the same micro-batch is decided after it, so that what a decision publishes
        reaches it one micro-batch later than in the released code, which lets it be up to two
        cycles old anyway.
        """
        waiting_tokens, kv_free = self._published
        return FastppDelayView(
            slot_index=view.slot_index,
            slots=self._records.slots(self._prefilling.values()),
            num_ready=view.num_ready_decodes,
            num_held=self.num_held,
            tpot_signal_s=self._memory.signals.tpot_s,
            waiting_tokens=waiting_tokens,
            kv_free_ratio=kv_free,
        )
