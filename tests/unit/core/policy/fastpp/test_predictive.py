"""FastPP's predictive controller, branch by branch."""

from dataclasses import replace
from math import inf

import pytest

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.fastpp.latency_model import FastppBatch, FastppStep
from pipelineserve.policy.fastpp.predictive import FastppPredictive, FastppPredictiveMemory
from pipelineserve.policy.fastpp.signals import Signals
from pipelineserve.policy.fastpp.views import ChunkedPrompt, FastppView, LatencyTotals
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepFeatures
from policy_views import NO_LATENCIES, make_fastpp_view, make_slot

# 4 slots · 52.5 ms reach 1.05 of the target: 384 is safe and 512 is not.
POLICY = FastppPredictive(
    ttft_target_s=2.0,
    tpot_target_s=0.2,
    chunk_sizes=(128, 256, 384, 512),
    times_s=(0.02, 0.03, 0.04, 0.06),
    first_tokens=512,
)
PAPER = POLICY.as_in_the_paper()
MEMORY = POLICY.start()


def decided(view: FastppView, policy: FastppPredictive = POLICY) -> ChunkDecision:
    return policy.decide(policy.start(), view)[0]


def test_starts_with_the_engines_chunk_and_half_the_targets() -> None:
    assert MEMORY.chunk_tokens == 512
    assert MEMORY.signals == Signals(1.0, 0.1, NO_LATENCIES)


@pytest.mark.parametrize("step_index", [1, 4, 7, 12])
def test_between_two_periods_nothing_is_decided(step_index: int) -> None:
    view = make_fastpp_view(step_index=step_index, waiting_prompts=[100])
    assert POLICY.decide(MEMORY, view) == (ChunkDecision(512, Reason.NOT_YET_DUE), MEMORY)


def test_decides_every_second_cycle() -> None:
    assert decided(make_fastpp_view(step_index=8, waiting_prompts=[100])).chunk_tokens == 128


def test_the_papers_variant_decides_for_every_micro_batch() -> None:
    view = make_fastpp_view(step_index=3, waiting_prompts=[100])
    assert decided(view, PAPER).reason is Reason.DEMAND_MET


def test_in_decode_only_phases_the_chunk_and_the_signals_stay() -> None:
    view = make_fastpp_view(slots=[make_slot(20)] * 4, totals=LatencyTotals(1, 1.0, 1, 1.0))
    assert POLICY.decide(MEMORY, view) == (ChunkDecision(512, Reason.NO_PROMPT_WAITS), MEMORY)


def test_a_prompt_being_cut_is_enough_to_decide() -> None:
    slots = [make_slot(chunked=ChunkedPrompt(10, 90)), *[make_slot()] * 3]
    assert decided(make_fastpp_view(slots=slots)).reason is Reason.DEMAND_MET


def test_signals_are_drained_for_delay_scheduling() -> None:
    view = make_fastpp_view(waiting_prompts=[1], totals=LatencyTotals(2, 1.0, 4, 0.6))
    _, memory = POLICY.decide(MEMORY, view)
    assert memory.signals == Signals(0.5, 0.15, LatencyTotals(2, 1.0, 4, 0.6))


def test_takes_the_smallest_chunk_that_serves_the_demand() -> None:
    # 128 in 20 ms are 6,400 per second, 256 in 30 ms 8,533, 384 in 40 ms 9,600.
    views = [
        make_fastpp_view(waiting_prompts=[100], arrived_tokens=10 * rate)
        for rate in (6400, 6401, 9000)
    ]
    assert [decided(view).chunk_tokens for view in views] == [128, 256, 384]
    assert decided(views[0]).reason is Reason.DEMAND_MET


def test_running_requests_do_not_count_as_throughput() -> None:
    slots = [make_slot(num) for num in (0, 40, 80, 120)]
    view = make_fastpp_view(slots=slots, waiting_prompts=[1], arrived_tokens=34_000 + 1000)
    assert decided(view) == ChunkDecision(256, Reason.DEMAND_MET)


def test_a_demand_beyond_every_safe_chunk_gets_the_largest_safe_one() -> None:
    view = make_fastpp_view(waiting_prompts=[100], arrived_tokens=10**6)
    assert decided(view) == ChunkDecision(384, Reason.LARGEST_SAFE_CHUNK)


def test_with_no_safe_chunk_it_is_the_smallest() -> None:
    strict = replace(POLICY, tpot_target_s=0.05)
    view = make_fastpp_view(waiting_prompts=[100])
    assert decided(view, strict) == ChunkDecision(128, Reason.NO_CHUNK_IS_SAFE)


def test_the_scan_stops_at_the_first_violation() -> None:
    odd = replace(POLICY, times_s=(0.02, 0.06, 0.04, 0.045))
    view = make_fastpp_view(waiting_prompts=[100], arrived_tokens=10**6)
    assert decided(view, odd).chunk_tokens == 128


def test_the_bound_on_tpot_has_a_grace_of_five_percent_that_the_paper_lacks() -> None:
    edge = replace(POLICY, times_s=(0.02, 0.03, 0.04, 0.0524))
    view = make_fastpp_view(waiting_prompts=[100], arrived_tokens=10**6)
    assert decided(view, edge).chunk_tokens == 512
    assert decided(view, replace(edge, tpot_ratio=PAPER.tpot_ratio)).chunk_tokens == 384


def test_stale_tokens_add_to_the_demand_over_what_is_left_of_the_target() -> None:
    view = make_fastpp_view(arrived_tokens=10_000, num_stale=2, stale_tokens=3000, stale_wait_s=1.0)
    assert POLICY.required_tokens_per_s(view) == 1000 + 3000 / 1.5


def test_the_demand_jumps_to_infinity_when_the_mean_wait_leaves_less_than_tpot() -> None:
    view = make_fastpp_view(num_stale=1, stale_tokens=10, stale_wait_s=1.8)
    assert POLICY.required_tokens_per_s(view) == inf
    assert POLICY.required_tokens_per_s(replace(view, stale_wait_s=1.79)) < 100
    assert decided(replace(view, waiting_prompts=(10,))).chunk_tokens == 384


def test_kv_pressure_goes_by_the_emptiest_slot_without_the_prompt_being_cut() -> None:
    cut = ChunkedPrompt(10, 90)
    slots = [make_slot(63, chunked=cut), *[make_slot(100)] * 3]
    view = make_fastpp_view(slots=slots, waiting_prompts=[9], kv_free_ratio=0.0)
    decision, memory = POLICY.decide(MEMORY, view)
    assert decision == ChunkDecision(128, Reason.KV_PRESSURE)
    assert memory.chunk_tokens == 128


def test_after_kv_pressure_nothing_is_restored() -> None:
    view = make_fastpp_view(waiting_prompts=[9], kv_free_ratio=0.0)
    _, memory = POLICY.decide(MEMORY, view)
    assert POLICY.decide(memory, replace(view, kv_free_tokens=10**6))[0].chunk_tokens == 128


def test_the_papers_variant_goes_by_the_fullest_slot_under_pressure() -> None:
    slots = [make_slot(130), *[make_slot(0)] * 3]
    view = make_fastpp_view(slots=slots, waiting_prompts=[9], kv_free_ratio=0.0)
    assert decided(view, PAPER).chunk_tokens == 256


def test_the_guard_keeps_the_chunk_above_the_requests_of_every_slot() -> None:
    view = make_fastpp_view(slots=[make_slot(200)] * 4, waiting_prompts=[9])
    narrow = replace(POLICY, tpot_target_s=0.05)
    assert decided(view, narrow) == ChunkDecision(256, Reason.ROOM_FOR_DECODES)


def test_what_is_learned_is_used() -> None:
    batch = FastppBatch(100, StepFeatures(100_000.0), has_prefill=True)
    memory: FastppPredictiveMemory = MEMORY
    for _ in range(200):
        memory = POLICY.observe(memory, FastppStep(0.04, batch, (batch,)))
    slots = [make_slot(10, context_tokens=100_000)] * 4
    view = make_fastpp_view(slots=slots, waiting_prompts=[1], arrived_tokens=10**6)
    assert POLICY.decide(memory, view)[0].chunk_tokens == 256  # 30 ms and 20 ms for attention
    assert POLICY.decide(MEMORY, view)[0].chunk_tokens == 384


def test_the_papers_variant_fits_the_table_to_a_line_and_has_no_constant() -> None:
    assert PAPER.times_s == pytest.approx((0.018, 0.031, 0.044, 0.057))
    assert PAPER.fit.constant_feature == 0.0
