"""Blank blocks as extents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.scheduler.extents import BlankExtents


def test_a_run_begins_in_the_middle_of_the_longest_extent() -> None:
    blank = BlankExtents(16)
    assert blank.take_run(2) == [7, 8]
    assert blank.take_run(2) == [2, 3]  # of 0 … 6, as long as 9 … 15 and before it


def test_a_run_longer_than_any_extent_takes_the_longest_whole() -> None:
    blank = BlankExtents(4)
    assert blank.take_run(9) == [0, 1, 2, 3]


def test_neighbours_become_one_extent_again() -> None:
    blank = BlankExtents(5)
    blank.take_run(5)
    for block_id in (0, 4, 2, 1, 3):
        blank.add(block_id)
    assert blank.take_run(5) == [0, 1, 2, 3, 4]


def test_nothing_is_taken_behind_a_block_whose_neighbour_is_taken() -> None:
    blank = BlankExtents(4)
    blank.take_run(4)
    blank.add(3)
    assert blank.take_behind(1, 2) == []
    assert blank.take_behind(2, 2) == [3]


def test_says_that_it_is_empty() -> None:
    blank = BlankExtents(1)
    blank.take_run(1)
    with pytest.raises(IndexError):
        blank.take_run(1)


def longest_of(model: set[int]) -> tuple[int, int]:
    """The longest extent's start and end; of several the first."""
    starts = [number for number in model if number - 1 not in model]
    ends = [number + 1 for number in model if number + 1 not in model]
    extents = zip(sorted(starts), sorted(ends), strict=True)
    return max(extents, key=lambda extent: (extent[1] - extent[0], -extent[0]))


@given(
    num_blocks=st.integers(1, 12),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "behind", "first", "run"]),
            st.integers(0, 12),
            st.integers(1, 4),
        ),
        max_size=200,
    ),
)
def test_holds_what_a_plain_set_holds(num_blocks: int, steps: list[tuple[str, int, int]]) -> None:
    blank = BlankExtents(num_blocks)
    model = set(range(num_blocks))
    for action, block_id, num_wanted in steps:
        match action:
            case "add" if block_id < num_blocks and block_id not in model:
                blank.add(block_id)
                model.add(block_id)
            case "behind" if block_id < num_blocks and block_id not in model:
                taken = blank.take_behind(block_id, num_wanted)
                assert taken == list(range(block_id + 1, block_id + 1 + len(taken)))
                is_short = len(taken) < num_wanted
                assert not is_short or block_id + 1 + len(taken) not in model
                assert set(taken) <= model
                model -= set(taken)
            case "first" if block_id < num_blocks:
                is_first = block_id in model and block_id - 1 not in model
                assert blank.take_if_first(block_id) == is_first
                model -= {block_id} if is_first else set()
            case "run" if model:
                taken = blank.take_run(num_wanted)
                start, end = longest_of(model)
                first = start + max(0, (end - start - num_wanted) // 2)
                assert taken == list(range(first, min(end, first + num_wanted)))
                model -= set(taken)
            case _:
                pass  # The step does not apply to this set.
        assert len(blank) == len(model)
        assert [number in blank for number in range(num_blocks)] == [
            number in model for number in range(num_blocks)
        ]
