"""FastPP's latency predictor as released: unbounded least squares over a table."""

from random import Random

import pytest

from pipelineserve.policy.fastpp.latency_model import (
    RELEASED_FIT,
    FastppBatch,
    FastppStep,
    LatencyModel,
    first_latency_model,
    on_a_line,
)
from pipelineserve.policy.step_time import StepFeatures

SIZES = (128, 256, 384)
TIMES_S = (0.02, 0.03, 0.04)
FRESH = first_latency_model(SIZES, TIMES_S, RELEASED_FIT)


def batch(
    num_tokens: int = 100, context: float = 0.0, squares: float = 0.0, *, has_prefill: bool = True
) -> FastppBatch:
    return FastppBatch(num_tokens, StepFeatures(context, squares, 0.0), has_prefill)


def step(time_s: float, launched: FastppBatch, *others: FastppBatch) -> FastppStep:
    return FastppStep(time_s, launched, (launched, *others))


def test_a_fresh_model_predicts_its_table() -> None:
    assert FRESH.predict_s(256, StepFeatures(5.0, 6.0, 7.0), RELEASED_FIT) == 0.03


@pytest.mark.parametrize(
    ("index", "features", "added_s"),
    [
        (0, StepFeatures(50_000.0, 0.0, 0.0), 0.5),
        (1, StepFeatures(0.0, 2.0**20, 0.0), 1.0),
        (2, StepFeatures(0.0, 0.0, 2.0**21), 1.0),
        (3, StepFeatures(), 0.1),
    ],
)
def test_features_are_scaled_as_released(
    index: int, features: StepFeatures, added_s: float
) -> None:
    coefficients = tuple(float(index == other) for other in range(4))
    model = LatencyModel(SIZES, TIMES_S, coefficients, FRESH.covariance)
    assert model.predict_s(128, features, RELEASED_FIT) == pytest.approx(0.02 + added_s)


def test_the_prediction_has_a_floor() -> None:
    below = LatencyModel(SIZES, TIMES_S, (-1.0, 0.0, 0.0, 0.0), FRESH.covariance)
    assert below.predict_s(128, StepFeatures(100_000.0), RELEASED_FIT) == 1e-9


def test_a_known_cost_of_context_is_learned() -> None:
    stream, model = Random(1), FRESH
    for _ in range(3000):
        context = stream.uniform(0, 200_000)
        model = model.observe(step(0.02 + 6e-8 * context, batch(100, context)), RELEASED_FIT)
    assert model.num_updates == 3000
    assert model.coefficients[0] == pytest.approx(6e-3, rel=0.02)


def test_one_error_counts_as_at_most_forty_percent_of_the_prediction() -> None:
    stalled = FRESH.observe(step(9.0, batch(100, 100_000.0)), RELEASED_FIT)
    clipped = FRESH.observe(step(0.02 * 1.4, batch(100, 100_000.0)), RELEASED_FIT)
    assert stalled.coefficients == pytest.approx(clipped.coefficients)
    assert stalled.coefficients[0] > 0


def test_coefficients_may_become_negative() -> None:
    model = FRESH
    for _ in range(50):
        model = model.observe(step(0.015, batch(100, 100_000.0)), RELEASED_FIT)
    assert model.coefficients[0] < 0


def test_the_variance_of_an_idle_feature_grows_without_bound() -> None:
    model = FRESH
    for _ in range(5000):
        model = model.observe(step(0.02, batch(100, 50_000.0)), RELEASED_FIT)
    assert model.covariance[1][1] > 100_000


def test_steps_without_prefill_in_flight_teach_nothing() -> None:
    decode = batch(100, has_prefill=False)
    assert FRESH.observe(step(0.05, decode, decode), RELEASED_FIT) is FRESH
    assert FRESH.observe(step(0.05, decode, batch(100)), RELEASED_FIT).num_updates == 1


def test_a_step_without_time_teaches_nothing() -> None:
    assert FRESH.observe(step(0.0, batch()), RELEASED_FIT) is FRESH


def test_the_sample_is_dropped_when_the_launched_bucket_is_not_the_largest() -> None:
    assert FRESH.observe(step(0.05, batch(100), batch(200)), RELEASED_FIT) is FRESH
    assert FRESH.observe(step(0.05, batch(200), batch(100)), RELEASED_FIT).num_updates == 1


def test_buckets_of_tokens_end_at_multiples_of_128() -> None:
    assert FRESH.observe(step(0.05, batch(128), batch(129)), RELEASED_FIT) is FRESH
    assert FRESH.observe(step(0.05, batch(129), batch(256)), RELEASED_FIT).num_updates == 1


def test_all_features_count_when_ties_are_broken_by_their_sum() -> None:
    plain = batch(100, context=50_000.0)
    past = FastppBatch(100, StepFeatures(1.0, 1.0, 60_000.0), has_prefill=True)
    model = FRESH.observe(step(0.03, plain, past), RELEASED_FIT)
    assert model.coefficients[2] > model.coefficients[0]


def test_features_come_from_the_micro_batch_of_the_largest_bucket() -> None:
    model = FRESH.observe(step(0.04, batch(200, 100_000.0), batch(100, 900_000.0)), RELEASED_FIT)
    alone = FRESH.observe(step(0.04, batch(200, 100_000.0)), RELEASED_FIT)
    assert model == alone


def test_ties_are_broken_by_the_sum_of_features_at_first() -> None:
    large, small = batch(100, squares=50_000.0), batch(100, context=40_000.0)
    model = FRESH.observe(step(0.03, small, large), RELEASED_FIT)
    assert model.coefficients[1] > model.coefficients[0]


def test_ties_are_broken_by_learned_cost_after_sixteen_updates() -> None:
    coefficients = (1.0, 0.0, 0.0, 0.0)
    large, dear = batch(100, squares=50_000.0), batch(100, context=40_000.0)
    for num_updates, is_by_cost in ((15, False), (16, True)):
        model = LatencyModel(SIZES, TIMES_S, coefficients, FRESH.covariance, num_updates)
        after = model.observe(step(0.03, dear, large), RELEASED_FIT)
        assert (after.coefficients[1] == 0.0) is is_by_cost


def test_more_tokens_than_the_largest_candidate_count_as_its_bucket() -> None:
    assert FRESH.observe(step(0.05, batch(999)), RELEASED_FIT).num_updates == 1


def test_the_papers_table_is_a_line() -> None:
    assert on_a_line((1, 2, 3), (1.0, 4.0, 4.0)) == pytest.approx((1.5, 3.0, 4.5))
    assert on_a_line((7,), (2.0,)) == (2.0,)


@pytest.mark.parametrize(("sizes", "times_s"), [((), ()), ((1, 2), (0.1,))])
def test_a_table_without_a_time_for_each_size_is_refused(
    sizes: tuple[int, ...], times_s: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match="one time per chunk size"):
        first_latency_model(sizes, times_s, RELEASED_FIT)
