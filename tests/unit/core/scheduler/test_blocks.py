"""The pool of KV blocks: references, cache, eviction."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.scheduler.blocks import BlockPool


def filled(pool: BlockPool, digest: bytes) -> int:
    """A block with known content that nobody references any more."""
    (block_id,) = pool.allocate()
    pool.publish(block_id, digest)
    pool.release(block_id)
    return block_id


def test_gives_each_block_once() -> None:
    pool = BlockPool(3)
    assert sorted(pool.allocate() + pool.allocate(2)) == [0, 1, 2]
    assert pool.num_free == 0


def test_says_that_no_block_is_free() -> None:
    pool = BlockPool(1)
    pool.allocate()
    with pytest.raises(IndexError, match="at most 0 KV blocks, asked for 2"):
        pool.allocate(2)


def test_refuses_to_release_a_block_that_nobody_holds() -> None:
    pool = BlockPool(1)
    (block_id,) = pool.allocate()
    pool.release(block_id)
    with pytest.raises(ValueError, match="block 0 is released more often than referenced"):
        pool.release(block_id)


def test_a_shared_block_is_free_when_the_last_holder_lets_go() -> None:
    pool = BlockPool(1)
    (block_id,) = pool.allocate()
    pool.publish(block_id, b"a")
    pool.reference(block_id)
    pool.release(block_id)
    assert pool.num_free == 0
    pool.release(block_id)
    assert pool.num_free == 1


def test_finds_content_that_nobody_references() -> None:
    pool = BlockPool(2)
    block_id = filled(pool, b"a")
    assert pool.find(b"a") == block_id
    pool.reference(block_id)
    assert pool.num_references(block_id) == 1
    assert pool.num_free == 1


def test_a_block_without_known_content_goes_before_a_cached_one() -> None:
    pool = BlockPool(2)
    cached = filled(pool, b"a")
    assert pool.allocate() != [cached]
    assert pool.find(b"a") == cached


def test_evicts_the_content_released_longest_ago() -> None:
    pool = BlockPool(2)
    old, young = pool.allocate(2)
    pool.publish(old, b"old")
    pool.publish(young, b"young")
    pool.release(old)
    pool.release(young)
    assert pool.allocate() == [old]
    assert pool.find(b"old") is None
    assert pool.find(b"young") == young


def test_use_makes_content_young_again() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.publish(first, b"first")
    pool.publish(second, b"second")
    pool.release(first)
    pool.release(second)
    pool.reference(first)
    pool.release(first)
    assert pool.allocate() == [second]


def test_evicted_content_can_be_published_again() -> None:
    pool = BlockPool(1)
    block_id = filled(pool, b"a")
    pool.allocate()
    pool.publish(block_id, b"b")
    assert pool.find(b"a") is None
    assert pool.find(b"b") == block_id


def test_the_first_block_of_a_content_stays_the_one_that_is_found() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.publish(first, b"a")
    pool.publish(second, b"a")
    assert pool.find(b"a") == first


def test_a_context_goes_on_in_the_same_run_where_the_next_blocks_are_blank() -> None:
    pool = BlockPool(16)
    run = pool.allocate(3)
    assert run == list(range(run[0], run[0] + 3))
    assert pool.allocate(2, after=run[-1]) == [run[-1] + 1, run[-1] + 2]


def test_requests_that_grow_in_turn_keep_to_their_own_runs() -> None:
    pool = BlockPool(64)
    contexts = [pool.allocate(2) for _ in range(4)]
    for _ in range(6):
        for context in contexts:
            context.append(pool.allocate_one(after=context[-1]))
    assert all(context == list(range(context[0], context[0] + 8)) for context in contexts)
    assert all(pool.num_references(block_id) == 1 for context in contexts for block_id in context)


def test_what_is_given_back_together_is_one_run_again_where_it_was_one() -> None:
    pool = BlockPool(8)
    blocks = pool.allocate(8)
    pool.release(*(blocks[index] for index in (7, 2, 1, 5, 4, 3)))
    assert pool.num_free == 6
    assert pool.allocate(5) == blocks[1:6]
    assert pool.allocate() == [blocks[7]]


def test_cached_content_is_not_evicted_for_a_run() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(4)
    pool.publish(blocks[1], b"a")
    pool.release(blocks[1])
    pool.release(blocks[3])
    assert pool.allocate(1, after=blocks[0]) == [blocks[3]]
    assert pool.find(b"a") == blocks[1]


def test_content_is_evicted_for_a_whole_run_where_the_pool_is_large() -> None:
    pool = BlockPool(1024)
    blocks = pool.allocate(1024)
    for block_id in reversed(blocks):
        pool.publish(block_id, block_id.to_bytes(2, "big"))
        pool.release(block_id)
    context = pool.allocate()
    for _ in range(3):
        context += pool.allocate(1, after=context[-1])
    assert context == list(range(context[0], context[0] + 4))
    assert pool.find((1015).to_bytes(2, "big")) == 1015


def test_the_block_after_the_last_one_is_no_block() -> None:
    pool = BlockPool(2)
    assert pool.allocate(after=1)[0] in {0, 1}


@given(
    num_blocks=st.integers(1, 6),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["allocate", "grow", "release", "publish", "find"]), st.integers(0, 5)
        ),
        max_size=80,
    ),
)
def test_counts_and_contents_agree_with_a_simple_model(
    num_blocks: int, steps: list[tuple[str, int]]
) -> None:
    pool = BlockPool(num_blocks)
    held: list[int] = []
    content: dict[int, bytes] = {}
    for action, number in steps:
        digest = bytes([number])
        match action:
            case "allocate" if pool.num_free:
                num_wanted = 1 + number % pool.num_free
                taken = pool.allocate(num_wanted, after=number)
                assert len(set(taken)) == num_wanted
                assert not set(taken) & set(held)
                for block_id in taken:
                    content.pop(block_id, None)
                held += taken
            case "grow" if pool.num_free:
                block_id = pool.allocate_one(after=number)
                assert block_id not in held
                content.pop(block_id, None)
                held.append(block_id)
            case "release" if held:
                num_released = 1 + number % len(held)
                pool.release(*[held.pop() for _ in range(num_released)])
            case "publish" if held:
                block_id = held[number % len(held)]
                pool.publish(block_id, digest)
                if digest not in content.values():
                    content.setdefault(block_id, digest)
            case "find":
                found = pool.find(digest)
                assert found == {known: block for block, known in content.items()}.get(digest)
                if found is not None:
                    pool.reference(found)
                    held.append(found)
            case _:
                pass  # The step does not apply to an empty or a full pool.
        counts = Counter(held)
        assert [pool.num_references(block_id) for block_id in range(num_blocks)] == [
            counts[block_id] for block_id in range(num_blocks)
        ]
        assert pool.num_free == num_blocks - len(counts)
