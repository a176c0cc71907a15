"""Host blocks have one owner or none."""

import pytest

from pipelineserve.scheduler.host_blocks import HostPool


def test_what_was_taken_is_not_given_out_again_before_it_is_back() -> None:
    pool = HostPool(5)
    first = pool.take(3)
    second = pool.take(2)
    assert sorted(first + second) == [0, 1, 2, 3, 4]
    assert (pool.num_free, pool.num_taken) == (0, 5)
    pool.give_back(first)
    assert (pool.num_free, pool.num_taken) == (3, 2)
    assert sorted(pool.take(3)) == sorted(first)


def test_more_than_is_free_is_refused_and_takes_nothing() -> None:
    pool = HostPool(2)
    with pytest.raises(IndexError, match="expected at most 2 host blocks, asked 3"):
        pool.take(3)
    assert pool.num_free == 2


def test_a_block_cannot_be_given_back_twice() -> None:
    pool = HostPool(2)
    taken = pool.take(1)
    pool.give_back(taken)
    with pytest.raises(ValueError, match="host block 0 is given back more often than taken"):
        pool.give_back(taken)
