"""Fitting the step-time model online: bounded, non-negative least squares, and feedback.

Recursive least squares with forgetting, as FastPP uses, lets the covariance of a feature that stays
0 grow without bound, and then one sample throws its coefficient anywhere, below 0 too. Here the
covariance is capped, kept symmetric and measured in units of the largest value that each feature
has had, and coefficients stop at 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt

from pipelineserve.policy.least_squares import Matrix, diagonal, least_squares_step
from pipelineserve.policy.step_time import (
    LEAST_STEP_S,
    StepCoefficients,
    StepFeatures,
    StepTimeModel,
)

_SIZE = 5
# Far beyond any machine; keeps every product below within what a float holds.
_MOST_FEATURE = 1e18
# The table was measured on this machine: it is not off by more than this, and never free.
_LEAST_TABLE_RATIO = 0.1
# In the covariance's own units, in which it is capped near 1: what is below is rounding.
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True)
class StepSample:
    """One micro-batch on the slowest stage: what it carried and the seconds that it took."""

    num_tokens: int
    features: StepFeatures
    step_time_s: float


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How fast the model follows what is measured.

    Attributes:
        forgetting: weight of a sample one sample later; 0.9975 is FastPP's.
        most_covariance: cap of a coefficient's variance, in units of the samples' own variance
            at the feature's largest value: one sample moves the prediction by at most
            cap ÷ (1 + cap) of its error.
        most_error_ratio: errors count as at most this share of the prediction, so that a stall
            of the machine is not learned.
        feedback_gain: share by which κ and the spread move towards each sample.
        least_ratio: measured ÷ predicted is clipped to this and above, for κ and the spread.
        most_ratio: and to this and below.
    """

    forgetting: float = 0.9975
    most_covariance: float = 4.0
    most_error_ratio: float = 0.4
    feedback_gain: float = 0.02
    least_ratio: float = 0.5
    most_ratio: float = 2.0


@dataclass(frozen=True, slots=True)
class FitState:
    """All that is remembered between samples.

    Attributes:
        model: the fit so far.
        scales: largest value that the table's time and each feature have had.
        covariance: rows of a symmetric matrix, features in units of their scales.
        num_samples: samples that were learned from.
        num_refused: samples that were not, being impossible.
    """

    model: StepTimeModel
    scales: tuple[float, ...]
    covariance: Matrix
    num_samples: int = 0
    num_refused: int = 0


DEFAULT_FIT = FitSettings()


def start_fit(model: StepTimeModel, settings: FitSettings = DEFAULT_FIT) -> FitState:
    """Start from a model that was measured or kept from before."""
    covariance = diagonal(_SIZE, settings.most_covariance)
    scales = (model.table.times_s[0], *(1.0 for _ in range(_SIZE - 1)))
    return FitState(model=model, scales=scales, covariance=covariance)


def update(state: FitState, sample: StepSample, settings: FitSettings = DEFAULT_FIT) -> FitState:
    """Learn from one step; an impossible sample changes nothing but the count of such.

    κ and the coefficients both learn from the prediction before feedback, so that they cannot chase
    each other: as the coefficients come to fit, κ goes to 1.
    """
    if not _is_possible(sample):
        return replace(state, num_refused=state.num_refused + 1)
    values = (
        state.model.table.at(sample.num_tokens),
        sample.features.decode_context_tokens,
        sample.features.squared_prefill_tokens,
        sample.features.past_prefill_product,
        sample.features.num_decodes,
    )
    return _learn(_rescaled(state, values, settings), values, sample.step_time_s, settings)


def _is_possible(sample: StepSample) -> bool:
    features = sample.features
    return (
        sample.num_tokens >= 1
        and isfinite(sample.step_time_s)
        and sample.step_time_s >= LEAST_STEP_S
        and 0 <= features.decode_context_tokens <= _MOST_FEATURE
        and 0 <= features.squared_prefill_tokens <= _MOST_FEATURE
        and 0 <= features.past_prefill_product <= _MOST_FEATURE
        and 0 <= features.num_decodes <= _MOST_FEATURE
    )


def _learn(
    state: FitState, values: Sequence[float], measured_s: float, settings: FitSettings
) -> FitState:
    old = _coefficients(state.model)
    raw_s = sum(coefficient * value for coefficient, value in zip(old, values, strict=True))
    scaled = [value / scale for value, scale in zip(values, state.scales, strict=True)]
    gains, covariance = least_squares_step(state.covariance, scaled, settings.forgetting)
    limit_s = settings.most_error_ratio * raw_s
    error_s = min(limit_s, max(-limit_s, measured_s - raw_s))
    covariance = _capped(covariance, settings.most_covariance)
    free = [
        coefficient * scale + gain * error_s
        for coefficient, gain, scale in zip(old, gains, state.scales, strict=True)
    ]
    least = [_LEAST_TABLE_RATIO * state.scales[0], *(0.0 for _ in state.scales[1:])]
    fitted = [
        coefficient / scale
        for coefficient, scale in zip(_bounded(free, least, covariance), state.scales, strict=True)
    ]
    return replace(
        state,
        model=_with_feedback(state.model, fitted, measured_s / raw_s, settings),
        covariance=covariance,
        num_samples=state.num_samples + 1,
    )


def _bounded(free: Sequence[float], least: Sequence[float], covariance: Matrix) -> list[float]:
    """The most likely coefficients within the bounds, given the unbounded estimate.

    A coefficient that is moved to its bound takes the others with it by their covariance. Merely
    cutting it off would leave the others with what they were to make up for, and where features go
    together, as they do under a control loop, the fit then runs away.
    """
    values = list(free)
    remaining = [list(row) for row in covariance]
    for _ in values:
        index = min(range(len(values)), key=lambda i: values[i] - least[i])
        shift, variance = least[index] - values[index], remaining[index][index]
        if shift <= 0.0:
            break
        if variance < _LEAST_VARIANCE:
            values[index] = least[index]  # it says nothing about the others
            continue
        shares = [row[index] / variance for row in remaining]
        values = [value + share * shift for value, share in zip(values, shares, strict=True)]
        values[index] = least[index]
        pivot = remaining[index]
        remaining = [
            [old - share * moved for old, moved in zip(row, pivot, strict=True)]
            for row, share in zip(remaining, shares, strict=True)
        ]
    return [max(pair) for pair in zip(values, least, strict=True)]


def _with_feedback(
    model: StepTimeModel, fitted: Sequence[float], measured_ratio: float, settings: FitSettings
) -> StepTimeModel:
    gain = settings.feedback_gain
    ratio = _clipped(measured_ratio, settings)
    residual = _clipped(measured_ratio / model.feedback_ratio, settings) - 1.0
    variance = model.spread_ratio**2 + gain * (residual**2 - model.spread_ratio**2)
    return replace(
        model,
        coefficients=StepCoefficients(*fitted),
        feedback_ratio=model.feedback_ratio + gain * (ratio - model.feedback_ratio),
        spread_ratio=sqrt(variance),
    )


def _clipped(ratio: float, settings: FitSettings) -> float:
    return min(settings.most_ratio, max(settings.least_ratio, ratio))


def _rescaled(state: FitState, values: Sequence[float], settings: FitSettings) -> FitState:
    """Let the scales grow to hold these values; coefficients are per unit and stay."""
    scales = tuple(max(pair) for pair in zip(state.scales, values, strict=True))
    if scales == state.scales:
        return state
    factors = [new / old for new, old in zip(scales, state.scales, strict=True)]
    covariance = [
        [state.covariance[row][column] * factors[row] * factors[column] for column in range(_SIZE)]
        for row in range(_SIZE)
    ]
    return replace(state, scales=scales, covariance=_capped(covariance, settings.most_covariance))


def _capped(matrix: Sequence[Sequence[float]], cap: float) -> Matrix:
    """Symmetric, and no variance above the cap.

    Rows and columns shrink together (D · P · D), which keeps the matrix positive semi-definite.
    """
    shrink = [
        sqrt(cap / matrix[index][index]) if matrix[index][index] > cap else 1.0
        for index in range(_SIZE)
    ]
    return tuple(
        tuple(
            0.5 * (matrix[row][column] + matrix[column][row]) * (shrink[row] * shrink[column])
            for column in range(_SIZE)
        )
        for row in range(_SIZE)
    )


def _coefficients(model: StepTimeModel) -> tuple[float, ...]:
    fitted = model.coefficients
    return (
        fitted.table_ratio,
        fitted.decode_context_s,
        fitted.squared_prefill_s,
        fitted.past_prefill_s,
        fitted.decode_s,
    )
