"""Blocks of one request: growing, sharing a prefix, giving back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.scheduler.kv import KvLedger
from pipelineserve.scheduler.messages import CopyDirection
from pipelineserve.scheduler.requests import Request
from scheduling import make_live_request, make_prompt

OUT, IN = CopyDirection.OUT, CopyDirection.IN


def computed(ledger: KvLedger, request: Request, num_tokens: int | None = None) -> Request:
    """The request after its first tokens were issued and published."""
    request.num_issued = len(request.token_ids) if num_tokens is None else num_tokens
    assert ledger.grow(request, request.num_issued)
    ledger.publish([request])
    return request


def test_grows_by_the_blocks_that_are_missing() -> None:
    ledger = KvLedger(num_blocks=8, block_tokens=4)
    request = make_live_request(prompt=20)
    assert ledger.grow(request, 5)
    assert len(request.block_ids) == 2
    assert ledger.grow(request, 8)
    assert len(request.block_ids) == 2
    assert ledger.grow(request, 9)
    assert len(request.block_ids) == 3


def test_takes_no_block_when_not_all_can_be_had() -> None:
    ledger = KvLedger(num_blocks=2, block_tokens=4)
    request = make_live_request(prompt=12)
    assert not ledger.grow(request, 12)
    assert request.block_ids == ()
    assert ledger.pool.num_free == 2


def test_a_prefix_is_found_block_by_block() -> None:
    ledger = KvLedger(num_blocks=8, block_tokens=4)
    first = computed(ledger, make_live_request("a", make_prompt(12)))
    second = make_live_request("b", (*make_prompt(8), 99, 98, 97, 96, 95))
    assert ledger.take_prefix(second) == 8
    assert second.block_ids == first.block_ids[:2]


def test_a_block_with_another_beginning_is_not_a_hit() -> None:
    ledger = KvLedger(num_blocks=8, block_tokens=2)
    computed(ledger, make_live_request("a", (1, 2, 7, 7)))
    assert ledger.take_prefix(make_live_request("b", (3, 4, 7, 7, 5))) == 0


def test_a_block_that_is_not_full_is_not_offered() -> None:
    ledger = KvLedger(num_blocks=8, block_tokens=4)
    computed(ledger, make_live_request("a", make_prompt(12)), num_tokens=7)
    assert ledger.take_prefix(make_live_request("b", make_prompt(12))) == 4


def test_one_token_is_left_to_compute_when_all_are_cached() -> None:
    ledger = KvLedger(num_blocks=8, block_tokens=4)
    computed(ledger, make_live_request("a", make_prompt(8)))
    assert ledger.take_prefix(make_live_request("b", make_prompt(8))) == 4
    assert ledger.take_prefix(make_live_request("c", make_prompt(9))) == 8


def test_a_hit_on_a_held_block_wants_no_free_one() -> None:
    ledger = KvLedger(num_blocks=8, block_tokens=4)
    first = computed(ledger, make_live_request("a", make_prompt(8)))
    second = make_live_request("b", make_prompt(12))
    assert ledger.num_wanted_to_start(second) == 1
    ledger.release(first)
    assert ledger.num_wanted_to_start(second) == 3


def test_eviction_eats_a_prefix_from_its_end() -> None:
    ledger = KvLedger(num_blocks=3, block_tokens=2)
    ledger.release(computed(ledger, make_live_request("a", make_prompt(6))))
    other = make_live_request("b", (77, 78))
    ledger.grow(other, 2)
    assert ledger.take_prefix(make_live_request("c", make_prompt(7))) == 4


def test_output_tokens_are_shared_like_prompt_tokens() -> None:
    ledger = KvLedger(num_blocks=8, block_tokens=4)
    request = computed(ledger, make_live_request("a", make_prompt(3)))
    request.token_ids.append(3)
    computed(ledger, request)
    assert ledger.take_prefix(make_live_request("b", make_prompt(5))) == 4


def test_release_gives_back_what_was_taken_and_a_second_one_nothing() -> None:
    ledger = KvLedger(num_blocks=8, block_tokens=4)
    request = computed(ledger, make_live_request("a", make_prompt(10)))
    ledger.release(request)
    ledger.release(request)
    assert ledger.pool.num_free == 8
    assert request.num_published == 0


def swapped(ledger: KvLedger, request: Request, num_tokens: int) -> Request:
    """The request after its first tokens were issued and then moved to the host."""
    ledger.swap_out(computed(ledger, request, num_tokens))
    return request


def evict_all(ledger: KvLedger) -> None:
    """Let somebody else use every free block, so that the prefix cache forgets them."""
    other = make_live_request("other", ledger.pool.num_free * ledger.block_tokens)
    assert ledger.grow(other, len(other.token_ids))
    ledger.release(other)


def directions(ledger: KvLedger) -> list[CopyDirection]:
    return [copy.direction for copy in ledger.take_copies()]


def test_copies_are_handed_over_once_in_the_order_in_which_they_were_decided() -> None:
    ledger = KvLedger(num_blocks=3, block_tokens=2, num_host_blocks=8)
    request = swapped(ledger, make_live_request(prompt=6), 5)
    evict_all(ledger)
    assert ledger.start(request) == 5
    ledger.swap_out(request)
    assert directions(ledger) == [OUT] * 3 + [IN] * 3 + [OUT] * 3
    assert directions(ledger) == []


def test_blocks_copied_in_take_the_content_of_their_own_positions() -> None:
    ledger = KvLedger(num_blocks=3, block_tokens=2, num_host_blocks=8)
    request = make_live_request(prompt=6)
    swapped(ledger, request, 5)
    kept = list(request.host_block_ids)
    evict_all(ledger)
    ledger.take_copies()
    ledger.start(request)
    copies = [(c.device_block_id, c.host_block_id) for c in ledger.take_copies()]
    assert copies == list(zip(request.block_ids, kept, strict=True))
    assert request.host_block_ids == []
    assert ledger.host.num_taken == 0


def test_what_another_has_computed_meanwhile_is_taken_beyond_what_was_kept() -> None:
    ledger = KvLedger(num_blocks=9, block_tokens=4, num_host_blocks=8)
    request = swapped(ledger, make_live_request("a", make_prompt(14)), 6)
    computed(ledger, make_live_request("b", make_prompt(14)))
    ledger.take_copies()
    assert ledger.start(request) == 12
    assert directions(ledger) == []
    assert ledger.host.num_taken == 0


def test_only_what_the_prefix_cache_lacks_is_copied_in() -> None:
    ledger = KvLedger(num_blocks=9, block_tokens=4, num_host_blocks=8)
    request = swapped(ledger, make_live_request("a", make_prompt(14)), 11)
    last_kept = request.host_block_ids[-1]
    ledger.take_copies()
    assert ledger.start(request) == 11
    [copy] = ledger.take_copies()
    assert (copy.direction, copy.device_block_id) == (IN, request.block_ids[-1])
    assert copy.host_block_id == last_kept


def test_too_few_free_blocks_to_copy_in_are_named() -> None:
    ledger = KvLedger(num_blocks=3, block_tokens=2, num_host_blocks=8)
    request = swapped(ledger, make_live_request(prompt=6), 5)
    assert ledger.grow(make_live_request("other", 6), 6)
    with pytest.raises(IndexError, match="too few KV blocks are free to copy r in"):
        ledger.start(request)


@given(
    first=st.lists(st.integers(0, 1), min_size=1, max_size=20),
    second=st.lists(st.integers(0, 1), min_size=1, max_size=20),
    block_tokens=st.integers(1, 5),
)
def test_a_hit_is_exactly_the_common_full_blocks_short_of_the_last_token(
    first: list[int], second: list[int], block_tokens: int
) -> None:
    ledger = KvLedger(num_blocks=64, block_tokens=block_tokens)
    computed(ledger, make_live_request("a", first))
    num_shared = 0
    while first[: num_shared + 1] == second[: num_shared + 1] and num_shared < len(first):
        num_shared += 1
    bound = min(num_shared, len(second) - 1)
    expected = bound // block_tokens * block_tokens
    assert ledger.take_prefix(make_live_request("b", second)) == expected
