"""FastPP's greedy controller: KV first, then a step down or up by two latencies."""

from dataclasses import dataclass, replace

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.fastpp.bounds import (
    UNIT_TOKENS,
    KvFallback,
    guarded,
    is_short_of_kv,
    kv_fallback_tokens,
)
from pipelineserve.policy.fastpp.latency_model import FastppStep
from pipelineserve.policy.fastpp.signals import Signals, Statistic, first_signals
from pipelineserve.policy.fastpp.views import FastppView
from pipelineserve.policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class FastppGreedyMemory:
    """What is kept between two micro-batches.

    Attributes:
        chunk_tokens: the chunk in force.
        signals: latencies as of the last decision.
        restore_tokens: the chunk in force when KV pressure first made it smaller.
    """

    chunk_tokens: int
    signals: Signals
    restore_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class FastppGreedy:
    """Decides once per cycle, if a first token came since.

    Attributes:
        ttft_target_s: target of TTFT.
        tpot_target_s: target of TPOT.
        min_tokens: the smallest chunk, and the first one.
        max_tokens: the largest chunk.
        step_tokens: how far one decision goes.
        least_kv_free_ratio: KV pressure below this share.
        tpot_violated_ratio: TPOT ÷ target above which the chunk shrinks; the paper says 1.
        ttft_low_ratio: TTFT ÷ target below which it shrinks.
        ttft_high_ratio: TTFT ÷ target above which it may grow.
        tpot_room_ratio: TPOT ÷ target below which it may grow.
        kv_fallback: the chunk under KV pressure.
        is_restoring: whether the chunk jumps back when pressure ends; the paper has no such rule.
        statistic: what is made of samples; the paper says P90.
        unit_tokens: the multiple that chunks are raised to; another one for hardware whose steps
            are as short with fewer tokens.
    """

    ttft_target_s: float
    tpot_target_s: float
    min_tokens: int = 128
    max_tokens: int = 2048
    step_tokens: int = 128
    least_kv_free_ratio: float = 0.10
    tpot_violated_ratio: float = 1.08
    ttft_low_ratio: float = 0.1
    ttft_high_ratio: float = 0.3
    tpot_room_ratio: float = 0.85
    kv_fallback: KvFallback = KvFallback.SMALLEST_SLOT
    is_restoring: bool = True
    statistic: Statistic = Statistic.MEAN
    unit_tokens: int = UNIT_TOKENS

    def as_in_the_paper(self) -> "FastppGreedy":
        """The same targets and sizes with the paper's rules where the released code differs."""
        return replace(
            self,
            tpot_violated_ratio=1.0,
            kv_fallback=KvFallback.ABOVE_RUNNING,
            is_restoring=False,
            statistic=Statistic.P90,
        )

    def start(self) -> FastppGreedyMemory:
        """The memory before the first decision."""
        signals = first_signals(self.ttft_target_s, self.tpot_target_s)
        return FastppGreedyMemory(self.min_tokens, signals)

    def observe(self, memory: FastppGreedyMemory, step: FastppStep) -> FastppGreedyMemory:
        """Nothing is learned from steps."""
        del step
        return memory

    def is_due(self, step_index: int, num_slots: int) -> bool:
        """Whether this micro-batch gets a decision; between decisions the chunk stays."""
        return step_index % num_slots == 0

    def decide(
        self, memory: FastppGreedyMemory, view: FastppView
    ) -> tuple[ChunkDecision, FastppGreedyMemory]:
        """Choose for the next micro-batch."""
        if not self.is_due(view.step_index, view.num_slots):
            return ChunkDecision(memory.chunk_tokens, Reason.NOT_YET_DUE), memory
        if not memory.signals.has_new_ttft(view):
            return ChunkDecision(memory.chunk_tokens, Reason.NO_MEASUREMENT), memory
        signals = memory.signals.drained(view, self.statistic)
        num_running = [slot.num_requests for slot in view.slots]
        is_pressed = is_short_of_kv(view, num_running, self.least_kv_free_ratio)
        if is_pressed:
            wanted = kv_fallback_tokens(self.kv_fallback, num_running, self.unit_tokens)
            reason = Reason.KV_PRESSURE
        elif memory.restore_tokens is not None:
            wanted, reason = memory.restore_tokens, Reason.KV_PRESSURE_OVER
        else:
            wanted, reason = self._by_latency(memory.chunk_tokens, signals)
        chunk_tokens = guarded(wanted, num_running, view, self.unit_tokens)
        if chunk_tokens > wanted:
            reason = Reason.ROOM_FOR_DECODES
        restore_tokens = self._to_restore(memory, chunk_tokens, is_pressed=is_pressed)
        return (
            ChunkDecision(chunk_tokens, reason),
            FastppGreedyMemory(chunk_tokens, signals, restore_tokens),
        )

    def _by_latency(self, chunk_tokens: int, signals: Signals) -> tuple[int, Reason]:
        ttft_ratio = signals.ttft_s / self.ttft_target_s
        tpot_ratio = signals.tpot_s / self.tpot_target_s
        smaller = max(chunk_tokens - self.step_tokens, self.min_tokens)
        if tpot_ratio > self.tpot_violated_ratio:
            return smaller, Reason.TPOT_VIOLATED
        if ttft_ratio < self.ttft_low_ratio:
            return smaller, Reason.TTFT_HAS_SLACK
        if ttft_ratio > self.ttft_high_ratio and tpot_ratio < self.tpot_room_ratio:
            return min(chunk_tokens + self.step_tokens, self.max_tokens), Reason.TTFT_AT_RISK
        return chunk_tokens, Reason.TARGETS_MET

    def _to_restore(
        self, memory: FastppGreedyMemory, chunk_tokens: int, *, is_pressed: bool
    ) -> int | None:
        """What to jump back to, kept until it is in force again."""
        if not self.is_restoring:
            return None
        if memory.restore_tokens is None:
            shrank = is_pressed and chunk_tokens < memory.chunk_tokens
            return memory.chunk_tokens if shrank else None
        is_back = (
            chunk_tokens >= memory.restore_tokens
            if is_pressed
            else chunk_tokens == memory.restore_tokens
        )
        return None if is_back else memory.restore_tokens
