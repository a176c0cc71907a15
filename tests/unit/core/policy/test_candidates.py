"""The sizes that a chunk policy chooses from."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.candidates import candidate_sizes


def test_the_largest_is_a_candidate_though_no_step_leads_to_it() -> None:
    assert candidate_sizes(128, 500, 128) == (128, 256, 384, 500)


def test_one_size_is_enough() -> None:
    assert candidate_sizes(64, 64, 8) == (64,)


@given(st.integers(1, 500), st.integers(0, 3000), st.integers(1, 300))
def test_candidates_ascend_within_their_bounds(least: int, span: int, step: int) -> None:
    sizes = candidate_sizes(least, least + span, step)
    assert (sizes[0], sizes[-1]) == (least, least + span)
    assert list(sizes) == sorted(set(sizes))
    assert all(b - a <= step for a, b in pairwise(sizes))


@pytest.mark.parametrize(("least", "most", "step"), [(0, 10, 1), (9, 8, 1), (1, 8, 0)])
def test_impossible_bounds_are_refused(least: int, most: int, step: int) -> None:
    with pytest.raises(ValueError, match="candidate sizes: expected"):
        candidate_sizes(least, most, step)
