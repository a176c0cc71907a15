"""Builders of policy views and step-time models, valid by default."""

from collections.abc import Sequence

from pipelineserve.policy.fastpp.views import ChunkedPrompt, FastppView, LatencyTotals, SlotView
from pipelineserve.policy.greedy import LatencyView
from pipelineserve.policy.holding import HoldView
from pipelineserve.policy.step_time import StepCoefficients, StepTimeModel, StepTimeTable
from pipelineserve.policy.views import DecodeLoad, LoadView, PromptLoad

NO_PROMPTS = PromptLoad(num=0, tokens=0, squared_tokens=0, past_product=0)
NO_LATENCIES = LatencyTotals()

# One stage of the published system (32B, four stages): a table in stairs of 128 tokens.
STAIR_TOKENS = (1, 128, 129, 256, 257, 384, 385, 512, 513, 640)
STAIR_TIMES_S = (0.0147, 0.0185, 0.0255, 0.0255, 0.037, 0.037, 0.0485, 0.0485, 0.0582, 0.0582)
ATTENTION = StepCoefficients(
    decode_context_s=59.6e-9, squared_prefill_s=1.365e-9, past_prefill_s=2.73e-9
)


def make_model(
    *,
    tokens: Sequence[int] = STAIR_TOKENS,
    times_s: Sequence[float] = STAIR_TIMES_S,
    coefficients: StepCoefficients = ATTENTION,
    feedback_ratio: float = 1.0,
    spread_ratio: float = 0.0,
) -> StepTimeModel:
    table = StepTimeTable(tuple(tokens), tuple(times_s))
    return StepTimeModel(table, coefficients, feedback_ratio, spread_ratio)


def line_model(seconds_per_token: float = 1e-4, base_s: float = 0.01) -> StepTimeModel:
    """A step that costs a base and so much per token, without attention."""
    times_s = (base_s + seconds_per_token, base_s + 4096 * seconds_per_token)
    return make_model(tokens=(1, 4096), times_s=times_s, coefficients=StepCoefficients())


def prompts_of(*lengths: int, past_tokens: int = 0) -> PromptLoad:
    """Sums over prompts that have so many tokens left, each with the same tokens before them."""
    return PromptLoad(
        num=len(lengths),
        tokens=sum(lengths),
        squared_tokens=sum(length * length for length in lengths),
        past_product=past_tokens * sum(lengths),
    )


def make_load_view(
    *,
    now_s: float = 100.0,
    slot_index: int = 0,
    num_slots: int = 4,
    max_chunk_tokens: int = 2048,
    decodes: int = 0,
    context_tokens: int | None = None,
    started: PromptLoad = NO_PROMPTS,
    waiting: PromptLoad = NO_PROMPTS,
    kv_free_ratio: float = 1.0,
    arrived_tokens: int = 0,
    arrival_window_s: float = 10.0,
) -> LoadView:
    """The view of a micro-batch with `decodes` decodes, and as many in every other slot."""
    return LoadView(
        now_s=now_s,
        slot_index=slot_index,
        num_slots=num_slots,
        max_chunk_tokens=max_chunk_tokens,
        num_waiting=waiting.num,
        waiting_tokens=waiting.tokens,
        num_prefilling=started.num,
        num_decoding=decodes * num_slots,
        num_ready_decodes=decodes,
        kv_free_ratio=kv_free_ratio,
        assigned=DecodeLoad(decodes, 1000 * decodes if context_tokens is None else context_tokens),
        started=started,
        waiting=waiting,
        arrived_tokens=arrived_tokens,
        arrival_window_s=arrival_window_s,
    )


def make_slot(
    num_decodes: int = 0, *, chunked: ChunkedPrompt | None = None, context_tokens: int | None = None
) -> SlotView:
    """A slot whose last micro-batch had these decodes and a piece of the prompt being cut."""
    context = 1000 * num_decodes if context_tokens is None else context_tokens
    return SlotView(num_decodes + (chunked is not None), num_decodes, context, chunked)


def make_fastpp_view(
    *,
    slots: Sequence[SlotView] = (SlotView(0, 0, 0),) * 4,
    slot_index: int = 0,
    step_index: int = 0,
    max_chunk_tokens: int = 4096,
    waiting_prompts: Sequence[int] = (),
    kv_free_ratio: float = 1.0,
    kv_pool_tokens: int = 1_000_000,
    totals: LatencyTotals = NO_LATENCIES,
    ttft_p90_s: float | None = None,
    tpot_p90_s: float | None = None,
    arrived_tokens: int = 0,
    num_stale: int = 0,
    stale_tokens: int = 0,
    stale_wait_s: float = 0.0,
) -> FastppView:
    """A view at which a decision is due."""
    return FastppView(
        slot_index=slot_index,
        step_index=step_index,
        max_chunk_tokens=max_chunk_tokens,
        slots=tuple(slots),
        waiting_prompts=tuple(waiting_prompts),
        kv_free_tokens=round(kv_free_ratio * kv_pool_tokens),
        kv_pool_tokens=kv_pool_tokens,
        totals=totals,
        ttft_p90_s=ttft_p90_s,
        tpot_p90_s=tpot_p90_s,
        arrived_tokens=arrived_tokens,
        arrival_window_s=10.0,
        num_stale=num_stale,
        stale_tokens=stale_tokens,
        stale_wait_s=stale_wait_s,
    )


def make_hold_view(
    due: int = 100,
    *,
    live: int | None = None,
    held: int = 0,
    num_holdable: int | None = None,
    num_overdue: int = 0,
    context_tokens: int = 1000,
    due_context_tokens: int | None = None,
    prefill_tokens: int = 0,
    kv_free_ratio: float = 1.0,
) -> HoldView:
    """Four slots with as many decodes as the one to be filled, all of the same context."""
    num_live = 4 * due if live is None else live
    of_due = context_tokens if due_context_tokens is None else due_context_tokens
    return HoldView(
        num_slots=4,
        due=DecodeLoad(due, due * of_due),
        live=DecodeLoad(num_live, num_live * context_tokens),
        held=DecodeLoad(held, held * context_tokens),
        num_holdable=due if num_holdable is None else num_holdable,
        num_overdue=num_overdue,
        prefill_tokens=prefill_tokens,
        kv_free_ratio=kv_free_ratio,
    )


def make_latency_view(
    *,
    ttft_s: float | None = 0.4,
    tpot_s: float | None = 0.1,
    oldest_wait_s: float = 0.0,
    most_decodes: int = 20,
    kv_free_ratio: float = 1.0,
    max_chunk_tokens: int = 4096,
) -> LatencyView:
    """Both targets are met and neither asks for a change."""
    return LatencyView(ttft_s, tpot_s, oldest_wait_s, most_decodes, kv_free_ratio, max_chunk_tokens)
