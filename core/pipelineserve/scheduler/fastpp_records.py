"""What FastPP's laws see of a scheduler, kept as micro-batches go out and come back."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from pipelineserve.policy.fastpp.latency_model import FastppBatch, FastppStep
from pipelineserve.policy.fastpp.views import ChunkedPrompt, FastppView, LatencyTotals, SlotView
from pipelineserve.policy.views import LoadView
from pipelineserve.scheduler.emissions import Emissions
from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import Request

_EMPTY_SLOT = SlotView(num_requests=0, num_decodes=0, decode_context_tokens=0)
_STALE_SHARE = 0.25
_MOST_SAMPLES = 10_000


class FastppRecords:
    """Latencies, the last micro-batch of each slot, and which slot has cut which prompt.

    Args:
        num_slots: micro-batches that can be in flight at once.
        ttft_target_s: a request that has waited a quarter of it is stale.
    """

    def __init__(self, num_slots: int, ttft_target_s: float) -> None:
        self._stale_wait_s = _STALE_SHARE * ttft_target_s
        self._slots = [_EMPTY_SLOT] * num_slots
        self._slot_of_cut: dict[str, int] = {}
        self._totals = LatencyTotals()
        # Since the law last took them in.
        self._ttfts_s: deque[float] = deque(maxlen=_MOST_SAMPLES)
        self._tpots_s: deque[float] = deque(maxlen=_MOST_SAMPLES)
        self._last_result_s: list[float | None] = [None] * num_slots
        self._open_step: FastppStep | None = None
        self._opened_at_s = 0.0
        self.num_steps = 0

    def note_launch(
        self, launched: MicroBatch, in_flight: Iterable[MicroBatch], now_s: float
    ) -> None:
        """A micro-batch went out; it is among those in flight."""
        slot_index = launched.slot_index
        self._slots[slot_index] = _slot_view(launched)
        for piece in launched.prefills:
            if piece.samples:
                self._slot_of_cut.pop(piece.request_id, None)
            else:
                self._slot_of_cut[piece.request_id] = slot_index
        self._open_step = FastppStep(0.0, _batch(launched), tuple(map(_batch, in_flight)))
        self._opened_at_s = now_s
        self.num_steps += 1

    def note_result(self, slot_index: int, emissions: Emissions, now_s: float) -> FastppStep | None:
        """A micro-batch came back; the step that this ends, if one was under way."""
        for ttft_s in emissions.ttfts_s.values():
            self._add_ttft(ttft_s)
        if self._slots[slot_index].num_decodes:
            last_s = self._last_result_s[slot_index]
            if last_s is not None:
                self._add_tpot(now_s - last_s)
            self._last_result_s[slot_index] = now_s
        else:
            self._last_result_s[slot_index] = None
        step, self._open_step = self._open_step, None
        return None if step is None else replace(step, step_time_s=now_s - self._opened_at_s)

    def forget_in_flight(self) -> None:
        """What is in flight never comes back, and all prompts begin anew."""
        self._slots = [_EMPTY_SLOT] * len(self._slots)
        self._last_result_s = [None] * len(self._slots)
        self._slot_of_cut.clear()
        self._open_step = None

    def view(
        self,
        load: LoadView,
        waiting: Iterable[Request],
        started: Iterable[Request],
        kv_tokens: tuple[int, int],
    ) -> FastppView:
        """What a law sees that decides now.

        Args:
            load: the micro-batch being composed.
            waiting: requests in the queue, in any order; the law takes them by arrival.
            started: those with pieces issued and pieces to issue.
            kv_tokens: tokens for which there is KV, and for which there could be.
        """
        queue = sorted(waiting, key=lambda request: (request.arrival_s, request.submit_index))
        cut = self._cut(started)
        latest_stale_s = load.now_s - self._stale_wait_s
        stale = [request for request in (*queue, *cut) if request.arrival_s <= latest_stale_s]
        return FastppView(
            slot_index=load.slot_index,
            step_index=self.num_steps,
            max_chunk_tokens=load.max_chunk_tokens,
            slots=self.slots(cut),
            waiting_prompts=_head(queue, load.max_chunk_tokens * load.num_slots),
            kv_free_tokens=kv_tokens[0],
            kv_pool_tokens=kv_tokens[1],
            totals=self._totals,
            ttft_p90_s=_p90(self._ttfts_s),
            tpot_p90_s=_p90(self._tpots_s),
            arrived_tokens=load.arrived_tokens,
            arrival_window_s=load.arrival_window_s,
            num_stale=len(stale),
            stale_tokens=sum(request.num_remaining for request in stale),
            stale_wait_s=sum(load.now_s - request.arrival_s for request in stale),
        )

    def note_drained(self) -> None:
        """The law has taken in all latencies so far."""
        self._ttfts_s.clear()
        self._tpots_s.clear()

    def slots(self, started: Iterable[Request]) -> tuple[SlotView, ...]:
        """Every slot's last micro-batch, with the started prompt that it has cut."""
        slots = list(self._slots)
        for request in self._cut(started):
            index = self._slot_of_cut[request.request_id]
            chunked = ChunkedPrompt(request.num_issued, request.num_remaining)
            slots[index] = replace(slots[index], chunked=chunked)
        return tuple(slots)

    def _cut(self, started: Iterable[Request]) -> list[Request]:
        return [request for request in started if request.request_id in self._slot_of_cut]

    def _add_ttft(self, ttft_s: float) -> None:
        self._ttfts_s.append(ttft_s)
        now = self._totals
        self._totals = replace(now, num_ttft=now.num_ttft + 1, ttft_sum_s=now.ttft_sum_s + ttft_s)

    def _add_tpot(self, tpot_s: float) -> None:
        self._tpots_s.append(tpot_s)
        now = self._totals
        self._totals = replace(now, num_tpot=now.num_tpot + 1, tpot_sum_s=now.tpot_sum_s + tpot_s)


def _slot_view(micro_batch: MicroBatch) -> SlotView:
    decodes = micro_batch.decodes
    num_requests = len(decodes) + len(micro_batch.prefills)
    return SlotView(num_requests, len(decodes), decodes.context_tokens)


def _batch(micro_batch: MicroBatch) -> FastppBatch:
    features = micro_batch.features
    has_prefill = features.squared_prefill_tokens > 0
    return FastppBatch(micro_batch.num_tokens, features, has_prefill)


def _head(queue: Iterable[Request], most_tokens: int) -> tuple[int, ...]:
    """Tokens of the prompts that could go with the next micro-batches."""
    head: list[int] = []
    for request in queue:
        if most_tokens <= 0:
            break
        head.append(request.num_remaining)
        most_tokens -= request.num_remaining
    return tuple(head)


def _p90(samples_s: Iterable[float]) -> float | None:
    ordered = sorted(samples_s)
    return ordered[int(0.9 * (len(ordered) - 1))] if ordered else None
