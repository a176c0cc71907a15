"""The chosen rows are those asked for, and the description says which."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.errors import InvalidInputError
from pipelineserve.load.row_files import Row, RowFile
from pipelineserve.load.selection import RowChoice, choose_rows

FILE = RowFile("trace.csv", tuple(Row(i, i * 0.5, 100 + i, 10) for i in range(20)))


def chance() -> random.Random:
    return random.Random(1)


@given(st.integers(0, 19), st.integers(1, 20), st.booleans(), st.integers(100, 140))
def test_every_row_of_the_range_is_used_once_or_counted_as_too_long(
    first: int, count: int, is_shuffled: bool, longest_tokens: int
) -> None:
    choice = RowChoice(first, first + count, is_shuffled, longest_tokens=longest_tokens)
    in_range = FILE.rows[first : first + count]
    fitting = [row for row in in_range if (row.prompt_tokens or 0) + 10 <= longest_tokens]
    if not fitting:
        with pytest.raises(InvalidInputError, match="none of the 20 rows"):
            choose_rows(FILE, choice, chance())
        return
    chosen = choose_rows(FILE, choice, chance())
    assert sorted(chosen.rows, key=lambda row: row.index or 0) == fitting
    assert chosen.num_too_long == len(in_range) - len(fitting)


def test_times_begin_at_0_and_pass_as_fast_as_asked_for() -> None:
    chosen = choose_rows(FILE, RowChoice(4, 7), chance())
    assert chosen.times_s(2.0) == (0.0, 0.25, 0.5)


def test_the_limit_is_on_scaled_prompts() -> None:
    choice = RowChoice(input_scale=2.0, longest_tokens=214)
    assert len(choose_rows(FILE, choice, chance()).rows) == 3


def test_descriptions_name_range_order_and_what_was_left_out() -> None:
    choice = RowChoice(2, 12, is_shuffled=True, longest_tokens=114)
    chosen = choose_rows(FILE, choice, chance())
    assert chosen.describe(6) == (
        "3 of rows 2 to 11 of trace.csv, shuffled, 7 longer than 114 tokens left out, "
        "used 2.00 times"
    )
