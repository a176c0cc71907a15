"""What FastPP's control laws see: the last micro-batch of every slot, and the queue.

Beside sums there are the lengths of the prompts at the head of the queue, since the published law
simulates how they would be packed.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChunkedPrompt:
    """A prompt that a slot's last micro-batch has cut: tokens before the cut and after it."""

    past_tokens: int
    remaining_tokens: int


@dataclass(frozen=True, slots=True)
class SlotView:
    """The last micro-batch of a slot, in flight or back; all 0 if there was none.

    Attributes:
        num_requests: requests in it, prefilled and decoded.
        num_decodes: those of them that were decoded.
        decode_context_tokens: sum of the contexts of these.
        chunked: the prompt whose latest piece it carried, if pieces remain.
    """

    num_requests: int
    num_decodes: int
    decode_context_tokens: int
    chunked: ChunkedPrompt | None = None

    @property
    def num_running(self) -> int:
        """Requests without the one that is being cut."""
        return self.num_requests - (self.chunked is not None)


@dataclass(frozen=True, slots=True)
class LatencyTotals:
    """Latencies since the start; a policy remembers what it has seen and takes the difference.

    Attributes:
        num_ttft: first tokens.
        ttft_sum_s: their TTFT, summed.
        num_tpot: decodes' micro-batches that came back: one sample per micro-batch, not per
            request, as in the released code.
        tpot_sum_s: time since the same decodes' micro-batch before, summed over these.
    """

    num_ttft: int = 0
    ttft_sum_s: float = 0.0
    num_tpot: int = 0
    tpot_sum_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FastppView:
    """The scheduler before one micro-batch is composed.

    Attributes:
        slot_index: the slot that it will fill.
        step_index: micro-batches launched so far.
        max_chunk_tokens: ceiling that buffers were sized for.
        slots: every slot's last micro-batch, in the order of slots.
        waiting_prompts: tokens of the prompts at the head of the queue, in its order, as many as
            `max_chunk_tokens` in every slot could take; the rest does not matter.
        kv_free_tokens: tokens for which there is KV, evictable prefixes included.
        kv_pool_tokens: tokens for which there could be.
        totals: latencies since the start.
        ttft_p90_s: 90th percentile of the TTFTs since the policy's last decision; only the paper's
            variant asks for it, else None.
        tpot_p90_s: the same of TPOT samples.
        arrived_tokens: prompt tokens that arrived within the last 10 s.
        arrival_window_s: 10 s, or the time since the start if that is less; above 0.
        num_stale: requests in the queue, and prompts being cut, that have waited a quarter of the
            TTFT target or longer.
        stale_tokens: their tokens still to be prefilled.
        stale_wait_s: their waits, summed.
    """

    slot_index: int
    step_index: int
    max_chunk_tokens: int
    slots: tuple[SlotView, ...]
    waiting_prompts: tuple[int, ...]
    kv_free_tokens: int
    kv_pool_tokens: int
    totals: LatencyTotals
    ttft_p90_s: float | None
    tpot_p90_s: float | None
    arrived_tokens: int
    arrival_window_s: float
    num_stale: int
    stale_tokens: int
    stale_wait_s: float

    @property
    def num_slots(self) -> int:
        """Micro-batches that can be in flight at once."""
        return len(self.slots)
