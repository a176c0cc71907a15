"""The greedy chunk policy: one step up or down after what was measured.

FastPP's Algorithm 1 with four changes: percentiles of requests instead of means of batches; the
longest wait in the queue counts as a TTFT to come, so that a burst is seen before its first tokens
are late; what was not measured is never read as zero; KV pressure ends later than it begins.
"""

from dataclasses import dataclass

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.reasons import Reason


@dataclass(frozen=True, slots=True)
class LatencyView:
    """What was measured lately, at the percentiles that the targets are set for.

    Attributes:
        ttft_s: TTFT of requests whose first token came within the window; None if none came.
        tpot_s: TPOT of requests that got a token within the window, those still running and those
            held included with the time since their first token; None if there are none.
        oldest_wait_s: the longest that a request has waited for its first token; 0 without one.
        most_decodes: decodes of the slot that has the most.
        kv_free_ratio: share of KV blocks that could be taken now.
        max_chunk_tokens: ceiling that buffers were sized for.
    """

    ttft_s: float | None
    tpot_s: float | None
    oldest_wait_s: float
    most_decodes: int
    kv_free_ratio: float
    max_chunk_tokens: int


@dataclass(frozen=True, slots=True)
class GreedyMemory:
    """What is kept between two decisions.

    Attributes:
        chunk_tokens: the chunk in force.
        restore_tokens: the chunk from before KV pressure, while there is pressure.
    """

    chunk_tokens: int
    restore_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Greedy:
    """Goes by one step at a time; to be asked about once per cycle or control tick.

    Attributes:
        min_tokens: the smallest chunk, and the one to start with.
        max_tokens: the largest chunk.
        step_tokens: how far one decision goes.
        ttft_target_s: None means that the backlog never asks for a larger chunk.
        tpot_target_s: None means that nothing asks for a smaller one.
        ttft_slack_ratio: below this share of its target TTFT pays for TPOT: shrink.
        ttft_risk_ratio: above this share TTFT is at risk: grow if TPOT has room.
        tpot_room_ratio: TPOT has room below this share of its target.
        least_kv_free_ratio: KV pressure begins below this share of free KV.
        relaxed_kv_free_ratio: and ends at this one.
    """

    min_tokens: int
    max_tokens: int
    step_tokens: int
    ttft_target_s: float | None
    tpot_target_s: float | None
    ttft_slack_ratio: float = 0.1
    ttft_risk_ratio: float = 0.3
    tpot_room_ratio: float = 0.85
    least_kv_free_ratio: float = 0.10
    relaxed_kv_free_ratio: float = 0.15

    def start(self) -> GreedyMemory:
        """The memory before the first decision."""
        return GreedyMemory(self.min_tokens)

    def decide(self, memory: GreedyMemory, view: LatencyView) -> tuple[ChunkDecision, GreedyMemory]:
        """Choose the next chunk and remember it."""
        chunk_tokens, reason = self._wanted(memory, view)
        restore_tokens = memory.restore_tokens
        if reason is Reason.KV_PRESSURE:
            restore_tokens = restore_tokens or memory.chunk_tokens
        elif reason is Reason.KV_PRESSURE_OVER:
            restore_tokens = None
        bounded = max(self.min_tokens, min(chunk_tokens, self.max_tokens))
        roomy = max(bounded, self._above(view.most_decodes))
        if roomy > bounded and reason is not Reason.KV_PRESSURE:
            reason = Reason.ROOM_FOR_DECODES
        if roomy > view.max_chunk_tokens:
            roomy, reason = view.max_chunk_tokens, Reason.CHUNK_CEILING
        return ChunkDecision(roomy, reason), GreedyMemory(roomy, restore_tokens)

    def _wanted(self, memory: GreedyMemory, view: LatencyView) -> tuple[int, Reason]:
        """Before bounds; the first cause that applies decides."""
        is_pressed = memory.restore_tokens is not None
        least_free = self.relaxed_kv_free_ratio if is_pressed else self.least_kv_free_ratio
        if view.kv_free_ratio < least_free:
            return self.min_tokens, Reason.KV_PRESSURE
        if memory.restore_tokens is not None:
            return memory.restore_tokens, Reason.KV_PRESSURE_OVER
        num_steps, reason = self._by_latency(view)
        return memory.chunk_tokens + num_steps * self.step_tokens, reason

    def _by_latency(self, view: LatencyView) -> tuple[int, Reason]:
        """How many steps to go up."""
        tpot_ratio, ttft_ratio = self._tpot_ratio(view), self._ttft_ratio(view)
        if tpot_ratio > 1.0:
            return -1, Reason.TPOT_VIOLATED
        if ttft_ratio is None:
            return 0, Reason.NO_MEASUREMENT
        if ttft_ratio < self.ttft_slack_ratio:
            return -1, Reason.TTFT_HAS_SLACK
        if ttft_ratio > self.ttft_risk_ratio and tpot_ratio < self.tpot_room_ratio:
            return 1, Reason.TTFT_AT_RISK
        return 0, Reason.TARGETS_MET

    def _tpot_ratio(self, view: LatencyView) -> float:
        """TPOT ÷ target; without a measurement 0 only if nobody decodes, else neither high nor low.

        1.0 neither violates the target nor leaves room below it.
        """
        if self.tpot_target_s is None:
            return 0.0
        if view.tpot_s is None:
            return 1.0 if view.most_decodes else 0.0
        return view.tpot_s / self.tpot_target_s

    def _ttft_ratio(self, view: LatencyView) -> float | None:
        """The worse of TTFT and the longest wait ÷ target; None if nothing tells."""
        if self.ttft_target_s is None:
            return 0.0
        if view.ttft_s is None and view.oldest_wait_s <= 0.0:
            return None
        return max(view.ttft_s or 0.0, view.oldest_wait_s) / self.ttft_target_s

    def _above(self, decodes: int) -> int:
        """The smallest multiple of the step that leaves prompts a token beside these decodes."""
        return (decodes // self.step_tokens + 1) * self.step_tokens
