"""The budget of one micro-batch."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.chunking import ChunkDecision, Static
from pipelineserve.policy.reasons import Reason
from scheduling import make_view


def test_static_gives_its_budget_whatever_happens() -> None:
    idle, busy = make_view(), make_view(num_waiting=90, num_decoding=9, kv_free_ratio=0.0)
    assert Static(32).decide(idle) == Static(32).decide(busy)
    assert Static(32).decide(busy) == ChunkDecision(32, Reason.STATIC_CHUNK)


def test_static_says_so_when_the_ceiling_is_lower() -> None:
    decision = Static(512).decide(make_view(max_chunk_tokens=64))
    assert decision == ChunkDecision(64, Reason.CHUNK_CEILING)


@given(chunk_tokens=st.integers(1, 10_000), ceiling=st.integers(1, 10_000))
def test_static_never_exceeds_the_ceiling(chunk_tokens: int, ceiling: int) -> None:
    decision = Static(chunk_tokens).decide(make_view(max_chunk_tokens=ceiling))
    assert 1 <= decision.chunk_tokens <= ceiling
