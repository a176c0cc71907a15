"""What a step is predicted to take, from its tokens and from attention's work."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.step_time import (
    StepCoefficients,
    StepFeatures,
    StepTimeModel,
    StepTimeTable,
    attention_of,
    decode_features,
)
from policy_views import ATTENTION, make_load_view, make_model, prompts_of

NOTHING = StepFeatures()


def test_the_table_gives_what_was_measured_and_lies_between_in_between() -> None:
    table = StepTimeTable((100, 300), (1.0, 2.0))
    assert [table.at(count) for count in (100, 150, 300)] == [1.0, 1.25, 2.0]


def test_a_stair_of_two_neighbouring_points_stays_a_stair() -> None:
    table = StepTimeTable((1, 100, 101, 200), (1.0, 1.0, 2.0, 2.0))
    assert [table.at(count) for count in (60, 100, 101, 150)] == [1.0, 1.0, 2.0, 2.0]


def test_below_the_table_its_first_time_holds() -> None:
    assert StepTimeTable((64, 128), (1.0, 2.0)).at(1) == 1.0


def test_above_the_table_the_mean_slope_goes_on_though_the_last_stretch_is_flat() -> None:
    table = StepTimeTable((100, 200, 300), (1.0, 3.0, 3.0))
    assert table.at(400) == pytest.approx(4.0)


def test_a_line_goes_on_above_the_table() -> None:
    assert StepTimeTable((100, 200, 300), (1.0, 2.0, 3.0)).at(450) == pytest.approx(4.5)


def test_a_table_of_one_point_is_flat() -> None:
    assert StepTimeTable((100,), (1.0,)).at(5000) == 1.0


@pytest.mark.parametrize(
    ("tokens", "times_s", "expectation"),
    [
        ((), (), "at least one token count"),
        ((1, 2), (1.0,), "2 counts and 1 times"),
        ((2, 2), (1.0, 1.0), "ascending"),
        ((0, 2), (1.0, 1.0), "ascending"),
        ((1, 2), (0.0, 1.0), "above 0"),
        ((1, 2), (1.0, math.nan), "above 0"),
        ((1, 2), (1.0, math.inf), "above 0"),
        ((1, 2), (2.0, 1.0), "never fall"),
    ],
)
def test_an_impossible_table_is_refused(
    tokens: tuple[int, ...], times_s: tuple[float, ...], expectation: str
) -> None:
    with pytest.raises(ValueError, match=expectation):
        StepTimeTable(tokens, times_s)


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_an_impossible_coefficient_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="at least 0 each"):
        StepCoefficients(past_prefill_s=value)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_factor_of_the_table_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="table_ratio"):
        StepCoefficients(table_ratio=value)


def test_the_factor_of_the_table_leaves_attention_alone() -> None:
    model = make_model(coefficients=StepCoefficients(table_ratio=2.0, decode_context_s=1e-6))
    assert model.predict_s(256, decode_features(1, 1000)) == pytest.approx(2 * 0.0255 + 1e-3)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_feedback_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="feedback_ratio"):
        StepTimeModel(StepTimeTable((1,), (1.0,)), feedback_ratio=value)


@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_an_impossible_spread_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="spread_ratio"):
        StepTimeModel(StepTimeTable((1,), (1.0,)), spread_ratio=value)


def test_each_feature_costs_its_own_coefficient() -> None:
    coefficients = StepCoefficients(1.0, 2.0, 3.0, 5.0, 7.0)
    features = StepFeatures(1.0, 10.0, 100.0, 1000.0)
    assert coefficients.seconds(features) == 2.0 + 30.0 + 500.0 + 7000.0


def test_feedback_scales_the_whole_prediction() -> None:
    features = decode_features(8, 100_000)
    plain, slow = make_model(), make_model(feedback_ratio=1.1)
    assert slow.predict_s(128, features) == pytest.approx(1.1 * plain.predict_s(128, features))


@given(
    counts=st.tuples(st.integers(1, 5000), st.integers(1, 5000)),
    contexts=st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)),
    nums=st.tuples(st.integers(0, 500), st.integers(0, 500)),
)
def test_more_tokens_decodes_or_contexts_never_take_less_time(
    counts: tuple[int, int], contexts: tuple[float, float], nums: tuple[int, int]
) -> None:
    model = make_model()
    less = model.predict_s(min(counts), decode_features(min(nums), min(contexts)))
    assert less <= model.predict_s(max(counts), decode_features(max(nums), max(contexts)))


CONTEXT = StepCoefficients(decode_context_s=1.0)
SQUARES = StepCoefficients(squared_prefill_s=1.0)
PAST = StepCoefficients(past_prefill_s=1.0)


def test_a_cut_of_one_started_prompt_is_exact() -> None:
    view = make_load_view(decodes=3, context_tokens=900, started=prompts_of(500, past_tokens=2000))
    assert attention_of(view, CONTEXT)(200) == 900
    assert attention_of(view, SQUARES)(200) == 200 * 200
    assert attention_of(view, PAST)(200) == 200 * 2000


def test_prompts_that_all_fit_give_their_exact_sum_of_squares() -> None:
    view = make_load_view(waiting=prompts_of(100, 30, 7))
    assert attention_of(view, SQUARES)(137) == pytest.approx(100**2 + 30**2 + 7**2)


def test_several_started_prompts_that_are_finished_give_their_exact_sum_of_squares() -> None:
    view = make_load_view(started=prompts_of(50, 30), waiting=prompts_of(1000))
    assert attention_of(view, SQUARES)(100) == pytest.approx(50**2 + 30**2 + 20**2)


def test_started_prompts_are_cut_before_waiting_ones() -> None:
    view = make_load_view(started=prompts_of(50, past_tokens=10), waiting=prompts_of(1000))
    assert attention_of(view, PAST)(80) == 50 * 10
    assert attention_of(view, SQUARES)(80) == 50**2 + 30**2


def test_tokens_before_waiting_prompts_count_where_they_are_known() -> None:
    view = make_load_view(
        started=prompts_of(50, past_tokens=10), waiting=prompts_of(1000, past_tokens=7)
    )
    assert attention_of(view, PAST)(80) == 50 * 10 + 30 * 7


def test_without_features_only_the_table_counts() -> None:
    assert StepCoefficients(1.0, 1.0, 1.0, 1.0).seconds(StepFeatures()) == 0.0


def test_a_micro_batch_of_decodes_alone_prefills_nothing() -> None:
    view = make_load_view(decodes=2, context_tokens=70, waiting=prompts_of(10))
    assert attention_of(view, StepCoefficients(1.0, 1.0, 1.0, 1.0, 5.0))(0) == 70 + 5 * 2


@given(
    lengths=st.lists(st.integers(1, 4000), min_size=1, max_size=20),
    cuts=st.tuples(st.integers(0, 50_000), st.integers(0, 50_000)),
)
def test_attention_never_falls_with_the_tokens_prefilled(
    lengths: list[int], cuts: tuple[int, int]
) -> None:
    started = prompts_of(lengths[0], past_tokens=9)
    view = make_load_view(started=started, waiting=prompts_of(*lengths))
    seconds = attention_of(view, ATTENTION)
    assert seconds(min(cuts)) <= seconds(max(cuts)) * (1 + 1e-12)


def test_no_attention_costs_nothing() -> None:
    assert make_model().predict_s(256, NOTHING) == pytest.approx(0.0255)
