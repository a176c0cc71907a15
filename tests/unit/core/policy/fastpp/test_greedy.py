"""FastPP's greedy controller, branch by branch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.fastpp.bounds import KvFallback
from pipelineserve.policy.fastpp.greedy import FastppGreedy, FastppGreedyMemory
from pipelineserve.policy.fastpp.signals import Signals, Statistic
from pipelineserve.policy.fastpp.views import FastppView, LatencyTotals, SlotView
from pipelineserve.policy.reasons import Reason
from policy_views import NO_LATENCIES, make_fastpp_view, make_slot

POLICY = FastppGreedy(ttft_target_s=2.0, tpot_target_s=0.2)
PAPER = POLICY.as_in_the_paper()


def memory_at(chunk_tokens: int, restore_tokens: int | None = None) -> FastppGreedyMemory:
    return FastppGreedyMemory(chunk_tokens, Signals(1.0, 0.1, NO_LATENCIES), restore_tokens)


def measured(ttft_s: float, tpot_s: float) -> LatencyTotals:
    """Two samples of each, around these means."""
    return LatencyTotals(2, 2 * ttft_s, 2, 2 * tpot_s)


def decided(
    ttft_s: float = 0.4, tpot_s: float = 0.1, chunk_tokens: int = 512, policy: FastppGreedy = POLICY
) -> ChunkDecision:
    view = make_fastpp_view(totals=measured(ttft_s, tpot_s), ttft_p90_s=ttft_s, tpot_p90_s=tpot_s)
    return policy.decide(memory_at(chunk_tokens), view)[0]


def test_starts_at_the_minimum_with_half_the_targets_as_signals() -> None:
    assert POLICY.start() == FastppGreedyMemory(128, Signals(1.0, 0.1, NO_LATENCIES))


@pytest.mark.parametrize("step_index", [1, 2, 3, 5])
def test_between_two_cycles_nothing_is_decided(step_index: int) -> None:
    memory = memory_at(512)
    view = make_fastpp_view(step_index=step_index, totals=measured(0.1, 0.9))
    assert POLICY.decide(memory, view) == (ChunkDecision(512, Reason.NOT_YET_DUE), memory)


def test_without_a_first_token_since_the_last_decision_nothing_is_updated() -> None:
    memory = memory_at(512)
    view = make_fastpp_view(totals=LatencyTotals(0, 0.0, 5, 9.0), kv_free_ratio=0.0)
    assert POLICY.decide(memory, view) == (ChunkDecision(512, Reason.NO_MEASUREMENT), memory)


def test_samples_that_waited_for_a_first_token_count_at_the_next_decision() -> None:
    memory = memory_at(512)
    _, memory = POLICY.decide(memory, make_fastpp_view(totals=LatencyTotals(0, 0.0, 3, 3.0)))
    _, memory = POLICY.decide(memory, make_fastpp_view(totals=LatencyTotals(1, 0.4, 4, 3.2)))
    assert memory.signals.tpot_s == pytest.approx(0.8)


def test_signals_are_means_of_what_came_since_the_last_decision() -> None:
    _, memory = POLICY.decide(memory_at(512), make_fastpp_view(totals=measured(0.4, 0.1)))
    _, memory = POLICY.decide(memory, make_fastpp_view(totals=LatencyTotals(3, 0.8 + 0.6, 2, 0.2)))
    assert memory.signals.ttft_s == pytest.approx(0.6)
    assert memory.signals.tpot_s == pytest.approx(0.1)  # none came: it keeps its value
    _, memory = POLICY.decide(
        memory, make_fastpp_view(step_index=4, totals=LatencyTotals(4, 1.5, 4, 0.2 + 0.3))
    )
    assert memory.signals.tpot_s == pytest.approx(0.15)


def test_shrinks_when_tpot_is_more_than_eight_percent_over() -> None:
    assert decided(tpot_s=0.2161) == ChunkDecision(384, Reason.TPOT_VIOLATED)
    assert decided(tpot_s=0.2159) == ChunkDecision(512, Reason.TARGETS_MET)


def test_shrinks_when_ttft_is_below_a_tenth() -> None:
    assert decided(ttft_s=0.199) == ChunkDecision(384, Reason.TTFT_HAS_SLACK)
    assert decided(ttft_s=0.201).reason is Reason.TARGETS_MET


def test_grows_when_ttft_is_above_three_tenths_and_tpot_below_85_percent() -> None:
    assert decided(ttft_s=0.601, tpot_s=0.169) == ChunkDecision(640, Reason.TTFT_AT_RISK)
    assert decided(ttft_s=0.599, tpot_s=0.169).reason is Reason.TARGETS_MET
    assert decided(ttft_s=0.601, tpot_s=0.171).reason is Reason.TARGETS_MET


def test_steps_end_at_the_smallest_and_largest_chunk() -> None:
    assert decided(tpot_s=0.9, chunk_tokens=128).chunk_tokens == 128
    assert decided(ttft_s=1.0, chunk_tokens=2048).chunk_tokens == 2048


def under_pressure(*requests: int, kv_free_ratio: float = 0.09) -> FastppView:
    slots = [make_slot(num) for num in requests]
    return make_fastpp_view(slots=slots, totals=measured(0.4, 0.1), kv_free_ratio=kv_free_ratio)


def test_kv_pressure_goes_by_the_emptiest_slot_plus_64() -> None:
    decision, memory = POLICY.decide(memory_at(1024), under_pressure(70, 90, 100, 110))
    assert decision == ChunkDecision(256, Reason.KV_PRESSURE)
    assert memory.restore_tokens == 1024


def test_kv_pressure_is_what_is_left_after_one_more_token_each() -> None:
    slots = [make_slot(50)] * 4
    view = make_fastpp_view(
        slots=slots, totals=measured(0.4, 0.1), kv_pool_tokens=10_000, kv_free_ratio=0.119
    )
    assert POLICY.decide(memory_at(512), view)[0].reason is Reason.KV_PRESSURE
    view = replace(view, kv_free_tokens=1200)
    assert POLICY.decide(memory_at(512), view)[0].reason is Reason.TARGETS_MET


def test_kv_pressure_that_does_not_shrink_the_chunk_has_nothing_to_restore() -> None:
    _, memory = POLICY.decide(memory_at(128), under_pressure(10, 10, 10, 10))
    assert memory.restore_tokens is None


def test_the_chunk_jumps_back_in_one_step_when_pressure_ends_whatever_tpot_says() -> None:
    view = make_fastpp_view(totals=measured(0.4, 0.9))
    decision, memory = POLICY.decide(memory_at(128, restore_tokens=1024), view)
    assert decision == ChunkDecision(1024, Reason.KV_PRESSURE_OVER)
    assert memory.restore_tokens is None


def test_lasting_pressure_keeps_what_was_in_force_before_it() -> None:
    _, memory = POLICY.decide(memory_at(128, restore_tokens=1024), under_pressure(10, 10, 10, 10))
    assert memory.restore_tokens == 1024


def test_pressure_with_a_chunk_as_large_as_before_forgets_what_to_restore() -> None:
    view = under_pressure(300, 300, 300, 300)
    _, memory = POLICY.decide(memory_at(128, restore_tokens=256), view)
    assert (memory.chunk_tokens, memory.restore_tokens) == (384, None)


def test_the_guard_keeps_the_chunk_above_the_requests_of_every_slot() -> None:
    slots = [make_slot(10), make_slot(512), make_slot(10), make_slot(10)]
    view = make_fastpp_view(slots=slots, totals=measured(0.4, 0.1))
    decision, _ = POLICY.decide(memory_at(512), view)
    assert decision == ChunkDecision(640, Reason.ROOM_FOR_DECODES)


def test_the_guard_may_exceed_the_largest_chunk_but_not_the_buffers() -> None:
    view = make_fastpp_view(slots=[make_slot(2100)] * 4, totals=measured(0.4, 0.1))
    assert POLICY.decide(memory_at(2048), view)[0].chunk_tokens == 2176
    capped = replace(view, max_chunk_tokens=2048)
    assert POLICY.decide(memory_at(2048), capped)[0].chunk_tokens == 2048


def test_the_papers_variant_has_no_grace_for_tpot() -> None:
    assert decided(tpot_s=0.201, policy=PAPER).reason is Reason.TPOT_VIOLATED


def test_the_papers_variant_goes_by_the_fullest_slot_and_restores_nothing() -> None:
    decision, memory = PAPER.decide(memory_at(1024), under_pressure(10, 10, 10, 130))
    assert (decision.chunk_tokens, memory.restore_tokens) == (256, None)


def test_the_papers_variant_goes_by_p90() -> None:
    view = make_fastpp_view(totals=measured(0.4, 0.1), ttft_p90_s=1.5, tpot_p90_s=0.12)
    decision, memory = PAPER.decide(memory_at(512), view)
    assert decision.reason is Reason.TTFT_AT_RISK
    assert (memory.signals.ttft_s, memory.signals.tpot_s) == (1.5, 0.12)


def test_defaults_are_the_released_constants() -> None:
    assert (POLICY.min_tokens, POLICY.max_tokens, POLICY.step_tokens) == (128, 2048, 128)
    assert POLICY.kv_fallback is KvFallback.SMALLEST_SLOT
    assert (POLICY.is_restoring, POLICY.statistic) == (True, Statistic.MEAN)


@given(
    st.lists(
        st.tuples(st.floats(0, 9), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2500)),
        max_size=40,
    )
)
def test_any_history_stays_within_buffers_and_above_the_requests(
    history: list[tuple[float, float, float, int]],
) -> None:
    memory, totals = POLICY.start(), NO_LATENCIES
    for ttft_s, tpot_s, kv_free_ratio, num_requests in history:
        totals = LatencyTotals(
            totals.num_ttft + 1,
            totals.ttft_sum_s + ttft_s,
            totals.num_tpot + 1,
            totals.tpot_sum_s + tpot_s,
        )
        slots = [make_slot(num_requests), SlotView(0, 0, 0)] * 2
        view = make_fastpp_view(slots=slots, totals=totals, kv_free_ratio=kv_free_ratio)
        decision, memory = POLICY.decide(memory, view)
        assert num_requests < decision.chunk_tokens <= 4096
        assert decision.chunk_tokens % 128 == 0
        assert memory.signals.ttft_s == pytest.approx(ttft_s, abs=1e-6)
