"""The model follows what is measured, within bounds, whatever is missing or impossible."""

import math
from dataclasses import replace
from itertools import cycle, islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.fitting import (
    DEFAULT_FIT,
    FitSettings,
    FitState,
    StepSample,
    _bounded,
    start_fit,
    update,
)
from pipelineserve.policy.step_time import StepCoefficients, StepFeatures, StepTimeModel
from policy_views import ATTENTION, make_model

TRUTH = make_model()


def unfitted() -> StepTimeModel:
    return make_model(coefficients=StepCoefficients())


def random_features(stream: Random) -> StepFeatures:
    piece, past = stream.randrange(0, 512), stream.randrange(0, 4096)
    return StepFeatures(stream.randrange(0, 200_000), piece * piece, piece * past)


def learn(
    state: FitState, samples: list[StepSample], settings: FitSettings = DEFAULT_FIT
) -> FitState:
    for sample in samples:
        state = update(state, sample, settings)
    return state


def samples_of(truth: StepTimeModel, num: int, noise: float = 0.0) -> list[StepSample]:
    stream = Random(7)
    samples = []
    for _ in range(num):
        tokens, features = stream.randrange(1, 640), random_features(stream)
        time_s = truth.predict_s(tokens, features) * (1.0 + noise * stream.gauss(0.0, 1.0))
        samples.append(StepSample(tokens, features, max(1e-4, time_s)))
    return samples


def error_ratio(model: StepTimeModel, truth: StepTimeModel) -> float:
    """Mean absolute error over samples that the fit has not seen."""
    stream = Random(99)
    errors = []
    for _ in range(200):
        tokens, features = stream.randrange(1, 640), random_features(stream)
        true_s = truth.predict_s(tokens, features)
        errors.append(abs(model.predict_s(tokens, features) / true_s - 1.0))
    return sum(errors) / len(errors)


def test_a_known_model_is_recovered() -> None:
    model = learn(start_fit(unfitted()), samples_of(TRUTH, 2000)).model
    fitted = model.coefficients
    assert fitted.decode_context_s == pytest.approx(ATTENTION.decode_context_s, rel=0.01)
    assert fitted.squared_prefill_s == pytest.approx(ATTENTION.squared_prefill_s, rel=0.05)
    assert fitted.past_prefill_s == pytest.approx(ATTENTION.past_prefill_s, rel=0.01)
    assert error_ratio(model, TRUTH) < 0.002
    assert model.feedback_ratio == pytest.approx(1.0, abs=0.01)


def test_noise_of_three_percent_leaves_an_error_well_below_it() -> None:
    state = learn(start_fit(unfitted()), samples_of(TRUTH, 2000, noise=0.03))
    assert error_ratio(state.model, TRUTH) < 0.015
    assert state.model.spread_ratio == pytest.approx(0.03, abs=0.012)


@pytest.mark.parametrize("bias", [0.9, 1.1])
def test_a_bias_of_ten_percent_is_cancelled(bias: float) -> None:
    biased = make_model(times_s=tuple(time_s * bias for time_s in TRUTH.table.times_s))
    assert error_ratio(biased, TRUTH) > 0.06
    after = learn(start_fit(biased), samples_of(TRUTH, 600)).model
    assert error_ratio(after, TRUTH) < 0.005
    assert after.coefficients.table_ratio == pytest.approx(1 / bias, rel=0.01)
    assert after.feedback_ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("bias", [0.9, 1.1])
def test_a_bias_of_the_whole_prediction_is_cancelled_under_noise(bias: float) -> None:
    truth = make_model(feedback_ratio=1 / bias)
    after = learn(start_fit(TRUTH), samples_of(truth, 600, noise=0.03)).model
    assert error_ratio(after, truth) < 0.02


def samples_that_go_together(num: int, bias: float, seed: int) -> list[StepSample]:
    """What a control loop gives: chunks of few sizes, contexts that drift, a past like a saw."""
    stream = Random(seed)
    decodes, past, samples = 20.0, 0, []
    for index in range(num):
        decodes = min(60.0, max(10.0, decodes + stream.gauss(0.0, 0.5)))
        chunk = (128, 256, 384)[index // 400 % 3]
        piece = chunk - int(decodes)
        past = 0 if past > 4000 else past + piece
        features = StepFeatures(1100 * decodes, piece * piece, piece * past)
        time_s = TRUTH.predict_s(chunk, features) / bias
        samples.append(StepSample(chunk, features, time_s * (1 + stream.gauss(0.0, 0.03))))
    return samples


@pytest.mark.parametrize("bias", [0.7, 0.9, 1.1, 1.3])
def test_a_fit_under_a_control_loop_never_runs_away(bias: float) -> None:
    """Features that go together tempt the fit to bounds, where it must not lose its way."""
    state = start_fit(unfitted())
    for sample in samples_that_go_together(5000, bias, seed=1):
        error = sample.step_time_s / state.model.predict_s(sample.num_tokens, sample.features) - 1
        assert state.num_samples < 300 or abs(error) < 0.25
        state = update(state, sample)
    assert state.model.coefficients.table_ratio == pytest.approx(1 / bias, rel=0.1)
    assert state.model.feedback_ratio == pytest.approx(1.0, abs=0.03)
    assert state.model.spread_ratio == pytest.approx(0.03, abs=0.015)


def test_a_coefficient_at_its_bound_takes_the_others_along() -> None:
    covariance = ((1.0, 0.5, 0.0, 0.0), (0.5, 1.0, 0.0, 0.0), (0.0,) * 4, (0.0,) * 4)
    bounded = _bounded([1.0, -0.4, 0.2, -0.1], [0.0] * 4, covariance)
    assert bounded == pytest.approx([1.2, 0.0, 0.2, 0.0])


def test_a_coefficient_at_its_bound_stays_there_when_another_comes_to_its_own() -> None:
    covariance = (
        (1.0, 0.5, 0.5, 0.0),
        (0.5, 1.0, 0.25, 0.0),
        (0.5, 0.25, 1.0, 0.0),
        (0.0, 0.0, 0.0, 1.0),
    )
    bounded = _bounded([1.0, -0.4, -0.3, 2.0], [0.0] * 4, covariance)
    assert bounded == pytest.approx([1.28, 0.0, 0.0, 2.0])


def test_feedback_moves_by_two_percent_of_the_distance() -> None:
    sample = StepSample(128, StepFeatures(), 2 * 0.0185)
    assert update(start_fit(unfitted()), sample).model.feedback_ratio == pytest.approx(1.02)


@pytest.mark.parametrize(("factor", "clipped"), [(50.0, 2.0), (0.01, 0.5)])
def test_feedback_counts_an_outlier_as_no_more_than_its_clip(factor: float, clipped: float) -> None:
    sample = StepSample(128, StepFeatures(), factor * 0.0185)
    ratio = update(start_fit(unfitted()), sample).model.feedback_ratio
    assert ratio == pytest.approx(1.0 + 0.02 * (clipped - 1.0))


def test_an_error_counts_as_at_most_forty_percent_of_the_prediction() -> None:
    def learned(time_s: float) -> StepCoefficients:
        return update(
            start_fit(unfitted()), StepSample(128, StepFeatures(), time_s)
        ).model.coefficients

    assert learned(1.5 * 0.0185) == learned(1.4001 * 0.0185)
    assert learned(1.39 * 0.0185).table_ratio < learned(1.4 * 0.0185).table_ratio
    assert learned(0.5 * 0.0185) == learned(0.5999 * 0.0185)


def test_a_stall_is_not_learned_as_the_price_of_its_features() -> None:
    state = learn(start_fit(unfitted()), samples_of(TRUTH, 1000))
    stalled = update(state, StepSample(128, StepFeatures(50_000, 0.0, 0.0), 10.0))
    features = StepFeatures(100_000, 0.0, 0.0)
    before, after = (s.model.raw_s(128, features) for s in (state, stalled))
    assert after < 1.05 * before


@pytest.mark.parametrize("missing", range(3))
def test_twenty_thousand_updates_with_a_feature_missing_stay_finite(missing: int) -> None:
    samples = []
    for sample in samples_of(TRUTH, 500, noise=0.03):
        values = [
            sample.features.decode_context_tokens,
            sample.features.squared_prefill_tokens,
            sample.features.past_prefill_product,
        ]
        values[missing] = 0.0
        features = StepFeatures(*values)
        time_s = sample.step_time_s - TRUTH.raw_s(sample.num_tokens, sample.features)
        time_s += TRUTH.raw_s(sample.num_tokens, features)
        samples.append(StepSample(sample.num_tokens, features, max(1e-4, time_s)))
    state = start_fit(unfitted())
    for sample in islice(cycle(samples), 20_000):
        state = update(state, sample)
    assert state.num_samples == 20_000
    check_bounds(state)
    # What comes back after the long spell is learned, not blown up by the first sample.
    first = update(state, samples_of(TRUTH, 1)[0])
    assert error_ratio(first.model, TRUTH) < 0.35
    assert error_ratio(learn(first, samples_of(TRUTH, 1000)).model, TRUTH) < 0.01


def check_bounds(state: FitState) -> None:
    """No coefficient below 0, no variance above the cap or below 0, the matrix symmetric."""
    fitted = state.model.coefficients
    assert min(fitted.decode_context_s, fitted.squared_prefill_s, fitted.past_prefill_s) >= 0.0
    cap = DEFAULT_FIT.most_covariance
    for row in range(4):
        assert 0.0 <= state.covariance[row][row] <= cap * (1 + 1e-12)
        for column in range(4):
            assert math.isfinite(state.covariance[row][column])
            assert state.covariance[row][column] == state.covariance[column][row]
            assert abs(state.covariance[row][column]) <= cap * (1 + 1e-9)


sane_samples = st.builds(
    StepSample,
    num_tokens=st.integers(1, 10**6),
    features=st.builds(
        StepFeatures, *[st.just(0.0) | st.floats(0.0, 1e18, allow_subnormal=False)] * 3
    ),
    step_time_s=st.floats(1e-7, 1e6),
)


@given(st.lists(sane_samples, max_size=60))
def test_no_possible_samples_leave_the_bounds(samples: list[StepSample]) -> None:
    state = learn(start_fit(unfitted()), samples)
    assert (state.num_samples, state.num_refused) == (len(samples), 0)
    check_bounds(state)
    assert 0.5 <= state.model.feedback_ratio <= 2.0


def impossible_samples() -> list[StepSample]:
    odd = (math.nan, math.inf, -math.inf, -1.0)
    return [
        *(StepSample(9, StepFeatures(), time_s) for time_s in (*odd, 0.0, -0.0)),
        *(StepSample(num_tokens, StepFeatures(), 0.1) for num_tokens in (0, -3)),
        *(StepSample(9, StepFeatures(value, 0.0, 0.0), 0.1) for value in odd),
        *(StepSample(9, StepFeatures(0.0, value, 0.0), 0.1) for value in odd),
        *(StepSample(9, StepFeatures(0.0, 0.0, value), 0.1) for value in odd),
    ]


@pytest.mark.parametrize("sample", impossible_samples())
def test_an_impossible_sample_changes_nothing_but_its_count(sample: StepSample) -> None:
    state = learn(start_fit(unfitted()), samples_of(TRUTH, 20))
    assert update(state, sample) == replace(state, num_refused=1)


def test_a_factor_that_feedback_knows_is_no_spread() -> None:
    model = make_model(coefficients=StepCoefficients(), feedback_ratio=1.25, spread_ratio=0.1)
    sample = StepSample(128, StepFeatures(), 1.25 * 0.0185)
    after = update(start_fit(model), sample).model
    assert after.spread_ratio == pytest.approx(0.1 * math.sqrt(0.98))


def test_an_idle_feature_grows_no_uncertainty_beyond_the_cap() -> None:
    decode_only = StepSample(64, StepFeatures(10_000, 0.0, 0.0), 0.02)
    state = learn(start_fit(unfitted()), [decode_only] * 3000)
    assert state.covariance[1][1] == pytest.approx(DEFAULT_FIT.most_covariance)


def test_the_unit_of_a_feature_does_not_matter_to_how_fast_it_is_learned() -> None:
    def learned_share(factor: float) -> float:
        truth = make_model(coefficients=StepCoefficients(decode_context_s=1e-7 / factor))
        samples = [
            StepSample(64, StepFeatures(context * factor, 0.0, 0.0), 0.0)
            for context in (1000, 50_000, 20_000, 80_000) * 5
        ]
        timed = [
            StepSample(s.num_tokens, s.features, truth.predict_s(64, s.features)) for s in samples
        ]
        model = learn(start_fit(unfitted()), timed).model
        return model.coefficients.decode_context_s * factor / 1e-7

    assert learned_share(0.01) == pytest.approx(learned_share(1.0), rel=1e-6)


@pytest.mark.parametrize("variance", [0.0, 5e-324, 1e-200, 1e-13])
def test_a_coefficient_without_variance_stops_at_its_bound_alone(variance: float) -> None:
    covariance = ((1.0, 1.0, 0.0, 0.0), (1.0, variance, 0.0, 0.0), (0.0,) * 4, (0.0,) * 4)
    assert _bounded([1.0, -0.5, 0.25, -0.125], [0.1, 0.0, 0.0, 0.0], covariance) == [
        1.0, 0.0, 0.25, 0.0,
    ]  # fmt: skip
