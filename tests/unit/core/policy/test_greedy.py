"""One step up or down after what was measured."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.greedy import Greedy, GreedyMemory, LatencyView
from pipelineserve.policy.reasons import Reason
from policy_views import make_latency_view

POLICY = Greedy(
    min_tokens=128, max_tokens=2048, step_tokens=128, ttft_target_s=2.0, tpot_target_s=0.2
)
AT_512 = GreedyMemory(512)


def decided(view: LatencyView, memory: GreedyMemory = AT_512) -> ChunkDecision:
    return POLICY.decide(memory, view)[0]


def test_starts_at_the_smallest_chunk() -> None:
    assert POLICY.start() == GreedyMemory(128)


def test_stays_while_both_targets_are_met() -> None:
    assert decided(make_latency_view()) == ChunkDecision(512, Reason.TARGETS_MET)


def test_shrinks_one_step_when_tpot_is_violated() -> None:
    assert decided(make_latency_view(tpot_s=0.201)) == ChunkDecision(384, Reason.TPOT_VIOLATED)


def test_shrinks_one_step_when_ttft_has_ample_slack() -> None:
    assert decided(make_latency_view(ttft_s=0.19)) == ChunkDecision(384, Reason.TTFT_HAS_SLACK)


def test_grows_one_step_when_ttft_is_at_risk_and_tpot_has_room() -> None:
    assert decided(make_latency_view(ttft_s=0.61)) == ChunkDecision(640, Reason.TTFT_AT_RISK)


def test_does_not_grow_when_tpot_has_no_room() -> None:
    assert decided(make_latency_view(ttft_s=1.9, tpot_s=0.18)) == ChunkDecision(
        512, Reason.TARGETS_MET
    )


def test_the_longest_wait_counts_before_the_first_token_is_late() -> None:
    decision = decided(make_latency_view(ttft_s=0.1, oldest_wait_s=0.7))
    assert decision == ChunkDecision(640, Reason.TTFT_AT_RISK)


def test_nothing_measured_is_not_read_as_slack() -> None:
    decision = decided(make_latency_view(ttft_s=None, tpot_s=None))
    assert decision == ChunkDecision(512, Reason.NO_MEASUREMENT)


def test_an_unmeasured_tpot_leaves_no_room_while_somebody_decodes() -> None:
    view = make_latency_view(ttft_s=1.0, tpot_s=None)
    assert decided(view).reason is Reason.TARGETS_MET
    assert decided(replace(view, most_decodes=0)).reason is Reason.TTFT_AT_RISK


def test_tpot_is_heard_though_no_first_token_came() -> None:
    assert decided(make_latency_view(ttft_s=None, tpot_s=0.3)).reason is Reason.TPOT_VIOLATED


def test_without_a_tpot_target_slow_decodes_are_no_cause() -> None:
    policy = replace(POLICY, tpot_target_s=None)
    decision, _ = policy.decide(AT_512, make_latency_view(ttft_s=1.0, tpot_s=9.0))
    assert decision.reason is Reason.TTFT_AT_RISK


def test_without_a_ttft_target_the_chunk_goes_down_to_its_least() -> None:
    policy = replace(POLICY, ttft_target_s=None)
    memory = AT_512
    for _ in range(9):
        _, memory = policy.decide(memory, make_latency_view(ttft_s=9.0))
    assert memory.chunk_tokens == 128


def test_kv_pressure_takes_the_smallest_chunk_and_remembers_the_old_one() -> None:
    decision, memory = POLICY.decide(AT_512, make_latency_view(kv_free_ratio=0.09))
    assert decision == ChunkDecision(128, Reason.KV_PRESSURE)
    assert memory == GreedyMemory(128, restore_tokens=512)


def test_kv_pressure_ends_later_than_it_begins() -> None:
    pressed = GreedyMemory(128, restore_tokens=512)
    assert decided(make_latency_view(kv_free_ratio=0.12)).reason is Reason.TARGETS_MET
    assert decided(make_latency_view(kv_free_ratio=0.12), pressed).reason is Reason.KV_PRESSURE


def test_after_kv_pressure_the_old_chunk_comes_back_at_once() -> None:
    pressed = GreedyMemory(128, restore_tokens=512)
    decision, memory = POLICY.decide(pressed, make_latency_view(kv_free_ratio=0.2, tpot_s=0.5))
    assert decision == ChunkDecision(512, Reason.KV_PRESSURE_OVER)
    assert memory == GreedyMemory(512)


def test_lasting_pressure_keeps_the_chunk_from_before_it() -> None:
    _, memory = POLICY.decide(AT_512, make_latency_view(kv_free_ratio=0.05))
    _, memory = POLICY.decide(memory, make_latency_view(kv_free_ratio=0.01))
    assert memory.restore_tokens == 512


def test_the_chunk_leaves_prompts_room_beside_the_decodes_of_the_fullest_slot() -> None:
    decision = decided(make_latency_view(most_decodes=512))
    assert decision == ChunkDecision(640, Reason.ROOM_FOR_DECODES)
    pressed = decided(make_latency_view(most_decodes=200, kv_free_ratio=0.0))
    assert pressed == ChunkDecision(256, Reason.KV_PRESSURE)


def test_room_for_decodes_ends_at_the_ceiling_of_buffers() -> None:
    decision = decided(make_latency_view(most_decodes=512, max_chunk_tokens=600))
    assert decision == ChunkDecision(600, Reason.CHUNK_CEILING)


@pytest.mark.parametrize(
    ("memory", "view", "chunk_tokens"),
    [
        (GreedyMemory(128), make_latency_view(tpot_s=0.9), 128),
        (GreedyMemory(2048), make_latency_view(ttft_s=1.0), 2048),
        (GreedyMemory(2000), make_latency_view(ttft_s=1.0), 2048),
    ],
)
def test_steps_end_at_the_bounds(
    memory: GreedyMemory, view: LatencyView, chunk_tokens: int
) -> None:
    assert decided(view, memory).chunk_tokens == chunk_tokens


views = st.builds(
    make_latency_view,
    ttft_s=st.none() | st.floats(0, 100),
    tpot_s=st.none() | st.floats(0, 10),
    oldest_wait_s=st.floats(0, 100),
    most_decodes=st.integers(0, 3000),
    kv_free_ratio=st.floats(0, 1),
    max_chunk_tokens=st.integers(1, 4096),
)


@given(st.lists(views, min_size=1, max_size=30))
def test_any_history_stays_within_its_bounds_and_goes_by_steps(views: list[LatencyView]) -> None:
    memory = POLICY.start()
    for view in views:
        before = memory.chunk_tokens
        decision, memory = POLICY.decide(memory, view)
        assert decision.chunk_tokens == memory.chunk_tokens <= view.max_chunk_tokens
        assert decision.chunk_tokens <= max(2048, view.most_decodes + 128)
        assert decision.chunk_tokens >= min(128, view.max_chunk_tokens)
        if view.most_decodes < view.max_chunk_tokens:
            assert decision.chunk_tokens > view.most_decodes
        one_step = {Reason.TPOT_VIOLATED, Reason.TTFT_AT_RISK, Reason.TTFT_HAS_SLACK}
        if decision.reason in one_step and 128 <= before <= 2048:
            assert abs(decision.chunk_tokens - before) <= 128
