"""gLLM's token throttling, branch by branch."""

import pytest

from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.peers.gllm import GllmThrottling
from pipelineserve.policy.reasons import Reason
from policy_views import make_load_view, prompts_of

POLICY = GllmThrottling(kv_pool_tokens=100_000)


def test_several_prompts_are_spread_over_eight_micro_batches() -> None:
    view = make_load_view(decodes=10, waiting=prompts_of(3000, 5000))
    assert POLICY.decide(view) == ChunkDecision(1010, Reason.BACKLOG_SHARE)


def test_a_started_prompt_counts_among_them() -> None:
    view = make_load_view(started=prompts_of(3000), waiting=prompts_of(5000))
    assert POLICY.decide(view) == ChunkDecision(1000, Reason.BACKLOG_SHARE)


def test_a_small_backlog_still_gets_32_tokens() -> None:
    view = make_load_view(waiting=prompts_of(100, 100))
    assert POLICY.decide(view) == ChunkDecision(32, Reason.BACKLOG_SHARE)


def test_a_single_prompt_is_bounded_by_kv_alone() -> None:
    view = make_load_view(waiting=prompts_of(5000))
    assert POLICY.decide(view) == ChunkDecision(2048, Reason.KV_SHARE)


@pytest.mark.parametrize(
    ("kv_free_ratio", "expected"),
    [(1.0, 2048), (0.525, 1024), (0.05, 1), (0.01, 1)],
)
def test_the_fuller_the_pool_the_less_prefill_down_to_a_reserve(
    kv_free_ratio: float, expected: int
) -> None:
    view = make_load_view(waiting=prompts_of(40_000, 40_000), kv_free_ratio=kv_free_ratio)
    assert POLICY.decide(view).chunk_tokens == expected


def test_no_more_than_there_is_kv_for() -> None:
    small_pool = GllmThrottling(kv_pool_tokens=600)
    view = make_load_view(waiting=prompts_of(40_000, 40_000), kv_free_ratio=1.0)
    assert small_pool.decide(view) == ChunkDecision(600, Reason.KV_SHARE)


def test_without_prompts_decodes_are_all() -> None:
    assert POLICY.decide(make_load_view(decodes=7)) == ChunkDecision(7, Reason.NO_PROMPT_WAITS)


def test_the_ceiling_bounds_it() -> None:
    view = make_load_view(decodes=60, waiting=prompts_of(5000), max_chunk_tokens=64)
    assert POLICY.decide(view) == ChunkDecision(64, Reason.CHUNK_CEILING)
