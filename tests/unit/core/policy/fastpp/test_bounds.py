"""The chunk under KV pressure, and the guard above the requests of every slot."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.fastpp.bounds import (
    KvFallback,
    above,
    guarded,
    is_short_of_kv,
    kv_fallback_tokens,
)
from policy_views import make_fastpp_view, make_slot


def test_the_released_fallback_goes_by_the_emptiest_slot() -> None:
    assert kv_fallback_tokens(KvFallback.SMALLEST_SLOT, [63, 300], 128) == 128
    assert kv_fallback_tokens(KvFallback.SMALLEST_SLOT, [64, 300], 128) == 256


def test_the_papers_fallback_goes_by_the_fullest_slot() -> None:
    assert kv_fallback_tokens(KvFallback.ABOVE_RUNNING, [10, 127], 128) == 128
    assert kv_fallback_tokens(KvFallback.ABOVE_RUNNING, [10, 128], 128) == 256


def test_kv_is_short_below_the_watermark_and_not_at_it() -> None:
    view = make_fastpp_view(kv_free_ratio=0.5, kv_pool_tokens=100)
    assert not is_short_of_kv(view, [10, 30], 0.1)
    assert is_short_of_kv(view, [10, 31], 0.1)


def test_the_guard_leaves_a_chunk_above_all_requests_alone() -> None:
    view = make_fastpp_view(slots=[make_slot(100), make_slot(127)])
    assert guarded(128, [100, 127], view, 128) == 128


def test_the_guard_counts_a_chunk_of_just_the_requests_as_too_small() -> None:
    view = make_fastpp_view(slots=[make_slot(100), make_slot(128)])
    assert guarded(128, [100, 128], view, 128) == 256


def test_the_guard_ignores_slots_without_a_micro_batch() -> None:
    view = make_fastpp_view(slots=[make_slot(0), make_slot(0)])
    assert guarded(0, [0, 0], view, 128) == 0


@given(st.integers(0, 10_000), st.integers(1, 512))
def test_above_is_the_next_multiple_of_the_unit(num_requests: int, unit_tokens: int) -> None:
    assert num_requests < above(num_requests, unit_tokens) <= num_requests + unit_tokens
    assert above(num_requests, unit_tokens) % unit_tokens == 0
