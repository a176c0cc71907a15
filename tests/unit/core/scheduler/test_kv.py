"""Blocks of one request: growing, sharing a prefix, giving back."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.scheduler.kv import KvLedger
from pipelineserve.scheduler.requests import Request
from scheduling import make_live_request, make_prompt


def computed(ledger: KvLedger, request: Request, num_tokens: int | None = None) -> Request:
    """The request after its first tokens were issued and published."""
    request.num_issued = len(request.token_ids) if num_tokens is None else num_tokens
    assert ledger.grow(request, request.num_issued)
    ledger.publish(request)
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
    assert request.block_ids == []
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
