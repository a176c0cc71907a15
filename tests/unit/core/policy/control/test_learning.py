"""The step-time model is learned from normal service."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_turns import VARIED_SIZES, make_step, step_time_s
from pipelineserve.policy.control.heard import StepSeen
from pipelineserve.policy.control.learning import KEPT_PER_SIZE, Learning, learn, range_above
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepFeatures


def learned(steps: list[StepSeen], learning: Learning | None = None) -> Learning:
    return learn(learning or Learning(), steps, 0.0)


def varied(times: int = 6, factor: float = 1.0) -> list[StepSeen]:
    return [
        make_step(k, num_tokens=size, time_s=factor * step_time_s(size))
        for k in range(times)
        for size in VARIED_SIZES
    ]


@given(st.integers(1, 200_000))
def test_a_count_lies_in_its_range_and_ranges_are_narrow(num_tokens: int) -> None:
    upper = range_above(num_tokens)
    assert num_tokens <= upper <= 1.15 * num_tokens
    assert range_above(upper) == upper


@given(st.integers(1, 100_000))
def test_ranges_are_in_order(num_tokens: int) -> None:
    assert range_above(num_tokens) <= range_above(num_tokens + 1)


@pytest.mark.parametrize("boundary", [64, 128, 256, 384, 512, 1024])
def test_a_range_ends_where_stairs_of_kernels_do(boundary: int) -> None:
    assert range_above(boundary) == boundary < range_above(boundary + 1)


def test_a_few_steps_are_too_few() -> None:
    learning = learned(varied(times=1))
    assert (learning.is_ready, learning.readiness) == (False, Reason.MODEL_LEARNING)


def test_many_steps_of_one_size_tell_nothing_of_others() -> None:
    learning = learned([make_step(k, num_tokens=256) for k in range(60)])
    assert (learning.is_ready, learning.readiness) == (False, Reason.MODEL_SIZES_TOO_FEW)


def test_sizes_that_are_close_to_each_other_are_too_few() -> None:
    steps = [make_step(k, num_tokens=200 + 30 * (k % 3)) for k in range(60)]
    assert learned(steps).readiness is Reason.MODEL_SIZES_TOO_FEW


def test_steps_whose_time_is_chance_make_no_model() -> None:
    steps = [
        make_step(k, num_tokens=size, time_s=0.001 if k % 2 else 0.1)
        for k in range(12)
        for size in VARIED_SIZES
    ]
    assert learned(steps).readiness is Reason.MODEL_UNRELIABLE


def test_varied_steps_make_a_model_that_predicts_them() -> None:
    learning = learned(varied())
    assert learning.readiness is Reason.MODEL_READY
    assert learning.model is not None
    for size in VARIED_SIZES:
        predicted_s = learning.model.predict_s(size, StepFeatures())
        assert predicted_s == pytest.approx(step_time_s(size), rel=0.02)


@given(st.floats(1e-9, 1e-6), st.floats(1e-5, 1e-4))
def test_attention_and_tokens_are_told_apart(context_s: float, token_s: float) -> None:
    def time_s(tokens: int, context: float) -> float:
        return 0.01 + token_s * tokens + context_s * context

    steps = [
        make_step(
            k,
            num_tokens=size,
            time_s=time_s(size, 1000.0 * (1 + k % 6)),
            features=StepFeatures(decode_context_tokens=1000.0 * (1 + k % 6)),
        )
        for k in range(18)
        for size in VARIED_SIZES
    ]
    model = learned(steps, learned(steps)).model
    assert model is not None
    assert model.coefficients.decode_context_s == pytest.approx(context_s, rel=0.2)
    predicted_s = model.predict_s(128, StepFeatures(decode_context_tokens=12_000.0))
    assert predicted_s == pytest.approx(time_s(128, 12_000.0), rel=0.1)


def test_the_time_of_decodes_is_not_put_down_to_their_contexts() -> None:
    decode_s = 0.002

    def step(k: int, size: int) -> StepSeen:
        decodes = k % 5
        contexts = (40.0 + 10.0 * (k % 4)) * decodes
        features = StepFeatures(decode_context_tokens=contexts, num_decodes=decodes)
        time_s = step_time_s(size) + decode_s * decodes
        return make_step(k, num_tokens=size, time_s=time_s, features=features)

    steps = [step(k, size) for k in range(60) for size in VARIED_SIZES]
    model = learned(steps, learned(steps)).model
    assert model is not None
    # The same decodes with contexts ten times as long, as after a burst of long prompts.
    grown = StepFeatures(decode_context_tokens=4 * 600.0, num_decodes=4.0)
    truth_s = step_time_s(128) + 4 * decode_s
    assert model.predict_s(128, grown) == pytest.approx(truth_s, rel=0.1)


def test_a_stall_of_the_machine_is_not_learned() -> None:
    steps = varied()
    steps += [make_step(99, num_tokens=128, time_s=5.0)]
    learning = learned(steps)
    assert learning.is_ready
    assert learning.model is not None
    assert learning.model.predict_s(128, StepFeatures()) < 1.2 * step_time_s(128)


def test_a_machine_that_became_slower_is_followed() -> None:
    learning = learned(varied())
    for k in range(40):
        # Before the table is made anew.
        learning = learn(learning, varied(times=1, factor=1.5), 0.1 * k)
    assert learning.is_ready
    assert learning.model is not None
    predicted_s = learning.model.predict_s(128, StepFeatures())
    assert predicted_s == pytest.approx(1.5 * step_time_s(128), rel=0.1)


def test_impossible_steps_are_counted_and_not_learned() -> None:
    learning = learned([make_step(1, time_s=0.0)])
    assert (learning.num_samples, learning.num_refused) == (0, 1)


def test_what_is_kept_is_bounded() -> None:
    learning = learned([make_step(k, num_tokens=1 + k % 3000) for k in range(6000)])
    assert len(learning.sizes) < 100
    assert all(len(size.samples) <= KEPT_PER_SIZE for size in learning.sizes)


def test_overhead_is_what_neither_stages_nor_other_micro_batches_account_for() -> None:
    steps = [make_step(k, num_stages=2, overhead_s=0.004) for k in range(20)]
    assert learned(steps).cycle_overhead_s == pytest.approx(0.004)


@given(
    stage_s=st.tuples(st.floats(0.001, 0.1), st.floats(0.001, 0.1)),
    ratios=st.lists(st.floats(0.2, 3.0), min_size=30, max_size=60),
    num_slots=st.integers(1, 3),
)
def test_waiting_in_a_pipeline_without_overhead_is_none(
    stage_s: tuple[float, float], ratios: list[float], num_slots: int
) -> None:
    """A slower stage, other sizes in the other slots, a slot more than stages: all of it waits."""
    steps = in_pipeline([(stage_s[0] * ratio, stage_s[1] * ratio) for ratio in ratios], num_slots)
    learning = learn(Learning(), steps, 0.0, num_slots=num_slots)
    longest_s = max(stage_s) * max(ratios)
    assert learning.cycle_overhead_s <= 0.5 * longest_s
    even = in_pipeline([stage_s] * len(ratios), num_slots)
    learning = learn(Learning(), even, 0.0, num_slots=num_slots)
    assert learning.cycle_overhead_s == pytest.approx(0.0, abs=1e-9)


def in_pipeline(times_s: list[tuple[float, float]], num_slots: int) -> list[StepSeen]:
    """Micro-batches that pass two stages, each composed when its slot's last one is back."""
    steps, back_s, free_s = [], [0.0] * num_slots, [0.0, 0.0]
    for k, (first_s, second_s) in enumerate(times_s):
        sent_s = back_s[k % num_slots]
        free_s[0] = max(sent_s, free_s[0]) + first_s
        free_s[1] = max(free_s[0], free_s[1]) + second_s
        back_s[k % num_slots] = free_s[1]
        span_s = free_s[1] - sent_s
        steps.append(replace(make_step(k), span_s=span_s, step_time_s=(first_s, second_s)))
    return steps


def test_stairs_are_found_where_time_jumps() -> None:
    sizes = (32, 64, 96, 112, 128, 144, 160, 192, 224, 256)
    steps = [
        make_step(k, num_tokens=size, time_s=0.02 if size <= 128 else 0.04)
        for k in range(4)
        for size in sizes
    ]
    once = learned(steps)
    assert once.boundaries == ()
    assert learn(once, steps, 40.0).boundaries == (128,)
