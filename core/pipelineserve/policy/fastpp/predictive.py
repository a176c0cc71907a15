"""FastPP's predictive controller: the smallest chunk between a TPOT bound and a demand."""

from dataclasses import dataclass, replace
from math import inf

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.fastpp.bounds import (
    UNIT_TOKENS,
    KvFallback,
    guarded,
    is_short_of_kv,
    kv_fallback_tokens,
)
from pipelineserve.policy.fastpp.latency_model import (
    RELEASED_FIT,
    FastppStep,
    LatencyModel,
    LatencyModelSettings,
    first_latency_model,
    on_a_line,
)
from pipelineserve.policy.fastpp.packing import mean_features
from pipelineserve.policy.fastpp.signals import Signals, Statistic, first_signals
from pipelineserve.policy.fastpp.views import FastppView
from pipelineserve.policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class FastppPredictiveMemory:
    """What is kept between two micro-batches: the chunk in force, latencies, the fitted model."""

    chunk_tokens: int
    signals: Signals
    model: LatencyModel


@dataclass(frozen=True, slots=True)
class FastppPredictive:
    """Decides every second cycle, and not while nothing is to be prefilled.

    Attributes:
        ttft_target_s: target of TTFT.
        tpot_target_s: target of TPOT.
        chunk_sizes: candidates, ascending.
        times_s: a step's time measured for each.
        first_tokens: the chunk before the first decision.
        cycles_per_decision: cycles between two decisions; 0 decides for every micro-batch, as the
            paper says.
        tpot_ratio: slots · T may be this share of the target.
        throughput_ratio: the chunk must serve this share of the demand.
        least_kv_free_ratio: KV pressure below this share.
        kv_fallback: the chunk under KV pressure.
        fit: constants of the latency model, its unit among them.
        unit_tokens: the multiple that chunks are raised to.
    """

    ttft_target_s: float
    tpot_target_s: float
    chunk_sizes: tuple[int, ...]
    times_s: tuple[float, ...]
    first_tokens: int
    cycles_per_decision: int = 2
    tpot_ratio: float = 1.05
    throughput_ratio: float = 1.0
    least_kv_free_ratio: float = 0.10
    kv_fallback: KvFallback = KvFallback.SMALLEST_SLOT
    fit: LatencyModelSettings = RELEASED_FIT
    unit_tokens: int = UNIT_TOKENS

    def as_in_the_paper(self) -> "FastppPredictive":
        """The same targets and sizes with the paper's rules where the released code differs."""
        return replace(
            self,
            times_s=on_a_line(self.chunk_sizes, self.times_s),
            cycles_per_decision=0,
            tpot_ratio=1.0,
            kv_fallback=KvFallback.ABOVE_RUNNING,
            fit=replace(self.fit, constant_feature=0.0),
        )

    def start(self) -> FastppPredictiveMemory:
        """The memory before the first decision."""
        return FastppPredictiveMemory(
            self.first_tokens,
            first_signals(self.ttft_target_s, self.tpot_target_s),
            first_latency_model(self.chunk_sizes, self.times_s, self.fit),
        )

    def observe(self, memory: FastppPredictiveMemory, step: FastppStep) -> FastppPredictiveMemory:
        """Learn from a step."""
        return replace(memory, model=memory.model.observe(step, self.fit))

    def is_due(self, step_index: int, num_slots: int) -> bool:
        """Whether this micro-batch gets a decision; between decisions the chunk stays."""
        return step_index % max(1, self.cycles_per_decision * num_slots) == 0

    def decide(
        self, memory: FastppPredictiveMemory, view: FastppView
    ) -> tuple[ChunkDecision, FastppPredictiveMemory]:
        """Choose for the next micro-batch."""
        if not self.is_due(view.step_index, view.num_slots):
            return ChunkDecision(memory.chunk_tokens, Reason.NOT_YET_DUE), memory
        is_cutting = any(slot.chunked is not None for slot in view.slots)
        if not view.waiting_prompts and not is_cutting:
            return ChunkDecision(memory.chunk_tokens, Reason.NO_PROMPT_WAITS), memory
        # TTFT and TPOT play no part in the choice, but delay scheduling reads them from here.
        signals = memory.signals.drained(view, Statistic.MEAN)
        num_running = [slot.num_running for slot in view.slots]
        if is_short_of_kv(view, num_running, self.least_kv_free_ratio):
            wanted = kv_fallback_tokens(self.kv_fallback, num_running, self.unit_tokens)
            reason = Reason.KV_PRESSURE
        else:
            wanted, reason = self._by_prediction(memory.model, view)
        chunk_tokens = guarded(wanted, num_running, view, self.unit_tokens)
        if chunk_tokens > wanted:
            reason = Reason.ROOM_FOR_DECODES
        return (
            ChunkDecision(chunk_tokens, reason),
            replace(memory, chunk_tokens=chunk_tokens, signals=signals),
        )

    def required_tokens_per_s(self, view: FastppView) -> float:
        """Arrival rate plus stale tokens over what is left of the TTFT target; infinite if none."""
        arriving = view.arrived_tokens / view.arrival_window_s
        if view.stale_tokens == 0:
            return arriving
        budget_s = self.ttft_target_s - view.stale_wait_s / view.num_stale
        return inf if budget_s <= self.tpot_target_s else arriving + view.stale_tokens / budget_s

    def _by_prediction(self, model: LatencyModel, view: FastppView) -> tuple[int, Reason]:
        """Ascending, up to the first candidate that violates the bound."""
        required = self.throughput_ratio * self.required_tokens_per_s(view)
        mean_running = sum(slot.num_running for slot in view.slots) / view.num_slots
        largest_safe: int | None = None
        for chunk_tokens in self.chunk_sizes:
            features = mean_features(view, chunk_tokens)
            time_s = model.predict_s(chunk_tokens, features, self.fit)
            if view.num_slots * time_s > self.tpot_ratio * self.tpot_target_s:
                break
            largest_safe = chunk_tokens
            if max(0.0, chunk_tokens - mean_running) / time_s >= required:
                return chunk_tokens, Reason.DEMAND_MET
        if largest_safe is None:
            return self.chunk_sizes[0], Reason.NO_CHUNK_IS_SAFE
        return largest_safe, Reason.LARGEST_SAFE_CHUNK
