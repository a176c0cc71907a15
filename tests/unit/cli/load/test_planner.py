"""A plan is decided by settings, rows and seed alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load_builders import settings_of
from pipelineserve.errors import InvalidInputError
from pipelineserve.load.arrivals import Gamma, Poisson, Timestamps
from pipelineserve.load.lengths import Fixed, Uniform
from pipelineserve.load.prompts import SyntheticPrompt, TextPrompt
from pipelineserve.load.row_files import Row, RowFile
from pipelineserve_cli.load.plan import Bound, LoadPlan
from pipelineserve_cli.load.planner import make_plan

TRACE = RowFile("trace.csv", tuple(Row(i, i * 0.5, 100 + i, 10 + i) for i in range(20)))


def inputs(plan: LoadPlan) -> list[int | None]:
    return [request.prompt_tokens for request in plan.requests]


def times_s(plan: LoadPlan) -> list[float]:
    return [request.at_s for request in plan.requests]


@given(st.integers(), st.integers(1, 40), st.integers(0, 5))
def test_the_same_settings_give_the_same_plan(seed: int, count: int, num_warm_up: int) -> None:
    settings = settings_of(
        seed=seed, arrivals=Poisson(3.0), input_lengths=Uniform(1, 50), num_requests=count,
        num_warm_up=num_warm_up,
    )  # fmt: skip
    plan = make_plan(settings, None)
    assert plan == make_plan(settings, None)
    assert len(plan.measured) == count
    assert plan.num_warm_up == num_warm_up
    assert times_s(plan) == sorted(times_s(plan))
    assert [request.index for request in plan.requests] == list(range(count + num_warm_up))


def test_another_seed_gives_another_plan() -> None:
    settings = settings_of(arrivals=Poisson(3.0), input_lengths=Uniform(1, 500))
    one, other = make_plan(settings, None), make_plan(replace(settings, seed=2), None)
    assert times_s(one) != times_s(other)
    assert inputs(one) != inputs(other)


def test_other_lengths_leave_the_arrivals_as_they_are() -> None:
    settings = settings_of(arrivals=Gamma(3.0, 2.0))
    other = replace(settings, input_lengths=Uniform(1, 500), output_lengths=Uniform(1, 9))
    assert times_s(make_plan(settings, None)) == times_s(make_plan(other, None))


def test_warm_up_comes_first_and_does_not_take_from_the_measured() -> None:
    plan = make_plan(settings_of(num_requests=3, num_warm_up=2), None)
    assert [request.is_warm_up for request in plan.requests] == [True, True, False, False, False]


def test_the_duration_ends_a_plan() -> None:
    plan = make_plan(settings_of(num_requests=1000, duration_s=1.5), None)
    assert times_s(plan) == [0.0, 0.5, 1.0, 1.5]
    assert plan.bound is Bound.DURATION


def test_timestamps_are_followed_at_the_rate_asked_for_and_end_with_the_file() -> None:
    plan = make_plan(settings_of(arrivals=Timestamps(2.0), num_requests=100), TRACE)
    assert times_s(plan) == [i * 0.25 for i in range(20)]
    assert inputs(plan) == [100 + i for i in range(20)]
    assert [request.max_tokens for request in plan.requests] == [10 + i for i in range(20)]
    assert plan.bound is Bound.ROWS
    assert plan.rows == "20 of rows 0 to 19 of trace.csv"


def test_chosen_rows_begin_at_0_again() -> None:
    settings = settings_of(arrivals=Timestamps(), num_requests=100, first_row=4, end_row=7)
    plan = make_plan(settings, TRACE)
    assert times_s(plan) == [0.0, 0.5, 1.0]
    assert inputs(plan) == [104, 105, 106]
    assert plan.rows == "3 of rows 4 to 6 of trace.csv"


def test_rows_are_used_again_when_more_requests_are_wanted() -> None:
    plan = make_plan(settings_of(num_requests=30), TRACE)
    assert inputs(plan)[:20] == [100 + i for i in range(20)]
    assert inputs(plan)[20:] == inputs(plan)[:10]
    assert "used 1.50 times" in plan.rows


def test_shuffled_rows_are_the_same_rows() -> None:
    plan = make_plan(settings_of(num_requests=20, is_shuffled=True), TRACE)
    assert inputs(plan) != [100 + i for i in range(20)]
    assert sorted(map(str, inputs(plan))) == [f"{100 + i}" for i in range(20)]


def test_rows_that_are_too_long_are_left_out_and_counted() -> None:
    plan = make_plan(settings_of(num_requests=3, longest_tokens=114), TRACE)
    assert inputs(plan) == [100, 101, 102]
    assert "17 longer than 114 tokens left out" in plan.rows


def test_prompts_of_rows_can_be_scaled() -> None:
    plan = make_plan(settings_of(num_requests=3, input_scale=1.052), TRACE)
    assert inputs(plan) == [105, 106, 107]
    assert plan.lengths == "in: rows x 1.052; out: rows"


def test_a_row_without_output_still_asks_for_a_token() -> None:
    plan = make_plan(settings_of(num_requests=1), RowFile("x", (Row(0, 0.0, 5, 0),)))
    assert plan.requests[0].max_tokens == 1


def test_texts_without_an_output_length_get_one_from_the_settings() -> None:
    rows = (Row(0, prompt=TextPrompt("a"), output_tokens=4), Row(1, prompt=TextPrompt("b")))
    plan = make_plan(settings_of(num_requests=2, output_lengths=Fixed(9)), RowFile("x", rows))
    assert [request.max_tokens for request in plan.requests] == [4, 9]
    assert plan.requests[1].prompt == TextPrompt("b")
    assert plan.requests[1].prompt_tokens is None


@given(st.integers(1, 3000), st.lists(st.integers(0, 3), max_size=6), st.floats(0.1, 3))
def test_a_prompt_has_exactly_the_tokens_of_its_row_whatever_its_blocks(
    prompt_tokens: int, hash_ids: list[int], scale: float
) -> None:
    row = Row(0, 0.0, prompt_tokens, 1, tuple(hash_ids))
    plan = make_plan(settings_of(num_requests=1, input_scale=scale), RowFile("x", (row,)))
    assert plan.requests[0].prompt_tokens == max(1, round(prompt_tokens * scale))


def test_equal_hash_ids_are_equal_blocks_and_the_rest_is_a_requests_own() -> None:
    rows = (Row(0, 0.0, 1100, 1, (7, 8)), Row(1, 0.0, 1100, 1, (7, 9)))
    plan = make_plan(settings_of(num_requests=2), RowFile("x", rows))
    one, other = (
        request.prompt.blocks
        for request in plan.requests
        if isinstance(request.prompt, SyntheticPrompt)
    )
    assert [block.num_tokens for block in one] == [512, 512, 76]
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert one[2] != other[2]


@pytest.mark.parametrize("file", [None, RowFile("x", (Row(0, None, 5, 5),))])
def test_timestamps_need_a_file_that_has_them(file: RowFile | None) -> None:
    with pytest.raises(InvalidInputError, match="name one with --dataset"):
        make_plan(settings_of(arrivals=Timestamps()), file)


def test_a_plan_that_is_all_warm_up_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="all are warm-up; raise --requests"):
        make_plan(settings_of(arrivals=Timestamps(), num_warm_up=50), TRACE)


def test_a_choice_of_no_rows_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"none of the 20 rows of trace\.csv is left"):
        make_plan(settings_of(first_row=20), TRACE)
