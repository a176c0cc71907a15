"""FastPP's latency predictor: a table per chunk size and unbounded recursive least squares.

Coefficients may become negative and the covariance has no cap: both are what was released.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipelineserve.policy.fastpp.bounds import UNIT_TOKENS
from pipelineserve.policy.least_squares import Matrix, diagonal, least_squares_step
from pipelineserve.policy.step_time import StepFeatures

_CONTEXT_SCALE = 100_000.0
_SQUARES_SCALE = 1024.0 * 1024.0
_PRODUCTS_SCALE = 1024.0 * 2048.0
_LEAST_TIME_S = 1e-9
_WARM_UP_UPDATES = 16


@dataclass(frozen=True, slots=True)
class FastppBatch:
    """A micro-batch as a sample: its tokens, its features, and whether it prefills."""

    num_tokens: int
    features: StepFeatures
    has_prefill: bool


@dataclass(frozen=True, slots=True)
class FastppStep:
    """One step of the pipeline, from launching a micro-batch to the result of the oldest.

    Attributes:
        step_time_s: that time.
        launched: the micro-batch launched by it.
        in_flight: all micro-batches in flight during it, `launched` included.
    """

    step_time_s: float
    launched: FastppBatch
    in_flight: tuple[FastppBatch, ...]


@dataclass(frozen=True, slots=True)
class LatencyModelSettings:
    """Constants of the fit.

    Attributes:
        forgetting: weight of a sample one sample later.
        first_variance: of each coefficient before the first sample.
        most_error_ratio: errors count as at most this share of the prediction.
        constant_feature: the fourth feature; the paper has a noise term instead, which is 0 here.
        unit_tokens: micro-batches are alike if their tokens, rounded up to this, are.
    """

    forgetting: float = 0.9975
    first_variance: float = 1.25
    most_error_ratio: float = 0.4
    constant_feature: float = 0.1
    unit_tokens: int = UNIT_TOKENS


RELEASED_FIT = LatencyModelSettings()


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """The table and what was fitted on top.

    Attributes:
        chunk_sizes: candidates, ascending.
        times_s: measured time of a step with a prompt of exactly that length.
        coefficients: seconds per scaled feature.
        covariance: of the coefficients.
        num_updates: samples that were learned from.
    """

    chunk_sizes: tuple[int, ...]
    times_s: tuple[float, ...]
    coefficients: tuple[float, ...]
    covariance: Matrix
    num_updates: int = 0

    def predict_s(
        self, chunk_tokens: int, features: StepFeatures, settings: LatencyModelSettings
    ) -> float:
        """Seconds of a step whose chunk is this candidate."""
        table_s = self.times_s[self.chunk_sizes.index(chunk_tokens)]
        return max(_LEAST_TIME_S, table_s + self._added_s(features, settings))

    def observe(self, step: FastppStep, settings: LatencyModelSettings) -> "LatencyModel":
        """Learn from a step, if any micro-batch in flight prefilled and the right one was largest.

        The micro-batch in the largest bucket is taken to have set the time. The sample is dropped
        when the launched one is in another bucket.
        """
        if step.step_time_s <= 0 or not any(batch.has_prefill for batch in step.in_flight):
            return self
        slowest = self._slowest(step.in_flight, settings)
        unit = settings.unit_tokens
        if _rounded(slowest.num_tokens, unit) != _rounded(step.launched.num_tokens, unit):
            return self
        values = _scaled(slowest.features, settings)
        table_s = self.times_s[self._bucket(slowest.num_tokens)]
        predicted_s = table_s + self._added_s(slowest.features, settings)
        limit_s = settings.most_error_ratio * max(abs(predicted_s), _LEAST_TIME_S)
        error_s = min(limit_s, max(-limit_s, step.step_time_s - predicted_s))
        gains, covariance = least_squares_step(self.covariance, values, settings.forgetting)
        return replace(
            self,
            coefficients=tuple(
                old + gain * error_s for old, gain in zip(self.coefficients, gains, strict=True)
            ),
            covariance=covariance,
            num_updates=self.num_updates + 1,
        )

    def _added_s(self, features: StepFeatures, settings: LatencyModelSettings) -> float:
        values = _scaled(features, settings)
        return sum(c * x for c, x in zip(self.coefficients, values, strict=True))

    def _slowest(
        self, batches: Sequence[FastppBatch], settings: LatencyModelSettings
    ) -> FastppBatch:
        """Of the largest bucket, by the sum of features, later by what they are learned to cost."""
        largest = max(self._bucket(batch.num_tokens) for batch in batches)
        candidates = [batch for batch in batches if self._bucket(batch.num_tokens) == largest]
        if self.num_updates >= _WARM_UP_UPDATES:
            return max(candidates, key=lambda batch: self._added_s(batch.features, settings))
        return max(candidates, key=lambda batch: _sum_of(batch.features))

    def _bucket(self, num_tokens: int) -> int:
        """Index of the smallest candidate that holds so many tokens, else of the largest."""
        return min(bisect_left(self.chunk_sizes, num_tokens), len(self.chunk_sizes) - 1)


def first_latency_model(
    chunk_sizes: tuple[int, ...], times_s: tuple[float, ...], settings: LatencyModelSettings
) -> LatencyModel:
    """The model before the first sample.

    Raises:
        ValueError: there is not one time per chunk size.
    """
    if not chunk_sizes or len(chunk_sizes) != len(times_s):
        raise ValueError(
            f"latency table: expected one time per chunk size, got {len(chunk_sizes)} sizes "
            f"and {len(times_s)} times"
        )
    covariance = diagonal(4, settings.first_variance)
    return LatencyModel(chunk_sizes, times_s, (0.0,) * 4, covariance)


def on_a_line(chunk_sizes: Sequence[int], times_s: Sequence[float]) -> tuple[float, ...]:
    """The table as the paper has it: the times on the line that fits them best."""
    num = len(chunk_sizes)
    mean_size, mean_s = sum(chunk_sizes) / num, sum(times_s) / num
    spread = sum((size - mean_size) ** 2 for size in chunk_sizes)
    joint = sum(
        (size - mean_size) * (time_s - mean_s)
        for size, time_s in zip(chunk_sizes, times_s, strict=True)
    )
    slope_s = joint / spread if spread > 0 else 0.0
    return tuple(mean_s + slope_s * (size - mean_size) for size in chunk_sizes)


def _scaled(features: StepFeatures, settings: LatencyModelSettings) -> tuple[float, ...]:
    return (
        features.decode_context_tokens / _CONTEXT_SCALE,
        features.squared_prefill_tokens / _SQUARES_SCALE,
        features.past_prefill_product / _PRODUCTS_SCALE,
        settings.constant_feature,
    )


def _sum_of(features: StepFeatures) -> float:
    return (
        features.decode_context_tokens
        + features.squared_prefill_tokens
        + features.past_prefill_product
    )


def _rounded(num_tokens: int, unit_tokens: int) -> int:
    return -(-num_tokens // unit_tokens)
