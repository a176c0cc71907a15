"""Learning the step-time model from the micro-batches of normal service; no calibration run.

The latest few steps of each token count, or of a narrow range of them, are kept. Within such a
range time differs by attention's work alone, so its cost per feature is fitted to differences
within ranges, and what is left is the table. Between two such fits `fitting` follows each step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, median, median_high
from typing import TypeAlias

from pipelineserve.policy.boundaries import TimedStep, find_boundaries, table_of
from pipelineserve.policy.control.heard import StepSeen
from pipelineserve.policy.fitting import FitState, StepSample, start_fit, update
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import LEAST_STEP_S, StepCoefficients, StepTimeModel

KEPT_PER_SIZE = 6
LEAST_PER_SIZE = 3
LEAST_SAMPLES = 24
LEAST_SIZES = 3
# The smallest and the largest count that were measured must differ by this factor.
LEAST_SPREAD_OF_SIZES = 3.0
MOST_SPREAD_RATIO = 0.5
# What was good enough stays so until it is worse than this.
UNRELIABLE_SPREAD_RATIO = 0.8
_REFIT_PERIOD_S = 30.0
_KEPT_OVERHEADS = 64
_LEAST_TABLE_SHARE = 0.1
_DESCENTS = 40
# A step that took this many times the median of its size is a stall of the machine.
_STALL_RATIO = 3.0


@dataclass(frozen=True, slots=True)
class SizeSamples:
    """The latest steps with more tokens than the range before and at most `upper_tokens`."""

    upper_tokens: int
    samples: tuple[StepSample, ...]


@dataclass(frozen=True, slots=True)
class Learning:
    """All that was learned.

    Attributes:
        sizes: by token count, ascending.
        fit: None before the first.
        is_ready: the model is good enough to decide by.
        boundaries: token counts after which the time jumps, found twice in a row.
        found_boundaries: what was found the last time; noise is seldom found again.
        num_solid: sizes with enough samples when the table was last made.
        refitted_at_s: when that was.
        latest_s: time of the slowest stage for each of the latest micro-batches, one per slot.
        overheads_s: of the latest micro-batches: their time that neither their own stages nor the
            micro-batches before them account for.
        num_samples: steps learned from.
        num_refused: impossible ones.
    """

    sizes: tuple[SizeSamples, ...] = ()
    fit: FitState | None = None
    is_ready: bool = False
    boundaries: tuple[int, ...] = ()
    found_boundaries: tuple[int, ...] = ()
    num_solid: int = 0
    refitted_at_s: float = 0.0
    latest_s: tuple[float, ...] = ()
    overheads_s: tuple[float, ...] = ()
    num_samples: int = 0
    num_refused: int = 0

    @property
    def model(self) -> StepTimeModel | None:
        """The fit so far."""
        return self.fit.model if self.fit else None

    @property
    def readiness(self) -> Reason:
        """MODEL_READY, or what is lacking."""
        if self.is_ready:
            return Reason.MODEL_READY
        if self.num_samples < LEAST_SAMPLES or self.fit is None:
            return Reason.MODEL_LEARNING
        return Reason.MODEL_UNRELIABLE if _has_variety(self) else Reason.MODEL_SIZES_TOO_FEW

    @property
    def largest_tokens(self) -> int:
        """The largest count that was measured often enough; 0 without one."""
        return max((size.upper_tokens for size in self.sizes if _is_solid(size)), default=0)

    @property
    def cycle_overhead_s(self) -> float:
        """What a cycle takes beyond its slots' steps on the slowest stage."""
        return median(self.overheads_s) if self.overheads_s else 0.0


def learn(
    learning: Learning, steps: Iterable[StepSeen], now_s: float, *, num_slots: int = 1
) -> Learning:
    """Take in these steps, and make the table anew when there is reason to.

    With one slot a micro-batch waits for no other; with more, for those that were sent before it.
    """
    for step in steps:
        learning = _with_step(learning, step, num_slots)
    num_solid = sum(_is_solid(size) for size in learning.sizes)
    is_due = now_s - learning.refitted_at_s >= _REFIT_PERIOD_S or num_solid > learning.num_solid
    if learning.num_samples >= LEAST_SAMPLES and (learning.fit is None or is_due):
        learning = _refitted(learning, num_solid, now_s)
    return replace(learning, is_ready=_is_ready(learning))


def range_above(num_tokens: int) -> int:
    """The upper end of the range that a token count is in: eight ranges to each doubling.

    Ranges end at multiples of powers of two, as the stairs of kernels do.
    """
    width = max(1, 1 << max(0, (num_tokens - 1).bit_length() - 4))
    return -(-num_tokens // width) * width


def _with_step(learning: Learning, step: StepSeen, num_slots: int) -> Learning:
    slowest_s = max(step.step_time_s, default=0.0)
    if step.num_tokens < 1 or slowest_s < LEAST_STEP_S:
        return replace(learning, num_refused=learning.num_refused + 1)
    sample = StepSample(step.num_tokens, step.features, slowest_s)
    # A pipeline's cycle is all slots' turns on the slowest stage. What a stage waits for a slower
    # one, or a small micro-batch for a large one, is in there and must not be counted again.
    latest_s = (*learning.latest_s, slowest_s)[-num_slots:]
    accounted_s = max(sum(step.step_time_s), sum(latest_s))
    overhead_s = max(0.0, step.span_s - accounted_s)
    return replace(
        learning,
        sizes=_with_sample(learning.sizes, sample),
        fit=update(learning.fit, sample) if learning.fit else None,
        latest_s=latest_s,
        overheads_s=(*learning.overheads_s, overhead_s)[-_KEPT_OVERHEADS:],
        num_samples=learning.num_samples + 1,
    )


def _with_sample(sizes: tuple[SizeSamples, ...], sample: StepSample) -> tuple[SizeSamples, ...]:
    upper = range_above(sample.num_tokens)
    by_size = {size.upper_tokens: size.samples for size in sizes}
    by_size[upper] = (*by_size.get(upper, ()), sample)[-KEPT_PER_SIZE:]
    return tuple(SizeSamples(tokens, kept) for tokens, kept in sorted(by_size.items()))


def _is_solid(size: SizeSamples) -> bool:
    return len(size.samples) >= LEAST_PER_SIZE


def _has_variety(learning: Learning) -> bool:
    solid = [size.upper_tokens for size in learning.sizes if _is_solid(size)]
    return len(solid) >= LEAST_SIZES and solid[-1] >= LEAST_SPREAD_OF_SIZES * solid[0]


def _is_ready(learning: Learning) -> bool:
    if learning.fit is None or not _has_variety(learning):
        return False
    most = UNRELIABLE_SPREAD_RATIO if learning.is_ready else MOST_SPREAD_RATIO
    return learning.fit.model.spread_ratio <= most


def _refitted(learning: Learning, num_solid: int, now_s: float) -> Learning:
    sizes = [_without_stalls(size.samples) for size in learning.sizes]
    coefficients = _attention_costs(sizes)
    timed = [_timed(samples, coefficients) for samples in sizes]
    latest = [
        TimedStep(max(sample.num_tokens for sample in samples), step.time_s)
        for samples, step in zip(sizes, timed, strict=True)
        if len(samples) >= LEAST_PER_SIZE
    ]
    model = StepTimeModel(table_of(timed), coefficients)
    errors = [
        sample.step_time_s / model.predict_s(sample.num_tokens, sample.features) - 1.0
        for samples in sizes
        for sample in samples
    ]
    spread = min(1.0, sqrt(fmean(error * error for error in errors)))
    found = find_boundaries(latest, noise_ratio=max(0.01, spread / sqrt(LEAST_PER_SIZE)))
    return replace(
        learning,
        fit=start_fit(replace(model, spread_ratio=spread)),
        boundaries=tuple(size for size in found if size in learning.found_boundaries),
        found_boundaries=found,
        num_solid=num_solid,
        refitted_at_s=now_s,
    )


def _without_stalls(samples: Sequence[StepSample]) -> Sequence[StepSample]:
    usual_s = median(sample.step_time_s for sample in samples)
    return [sample for sample in samples if sample.step_time_s <= _STALL_RATIO * usual_s]


def _timed(samples: Sequence[StepSample], coefficients: StepCoefficients) -> TimedStep:
    """A range's median count and time, attention deducted."""
    time_s = median(
        max(
            _LEAST_TABLE_SHARE * sample.step_time_s,
            sample.step_time_s - coefficients.seconds(sample.features),
        )
        for sample in samples
    )
    return TimedStep(median_high(sample.num_tokens for sample in samples), time_s)


def _attention_costs(sizes: Sequence[Sequence[StepSample]]) -> StepCoefficients:
    """Seconds per unit of each feature, from differences within each range of token counts.

    Non-negative least squares by coordinate descent, in proportion to the range's usual time, since
    noise is; the token count itself takes part, so that its differences within a range are not put
    down to attention. For each feature there is one imaginary step more, with the feature at its
    largest and no time for it: what a few noisy steps say alone is not believed.
    """
    ranges = [_relative(samples) for samples in sizes if len(samples) >= 2]
    if not ranges:
        return StepCoefficients()
    times, *features = zip(*(row for rows in ranges for row in _centred(rows)), strict=True)
    _, *values = zip(*(row for rows in ranges for row in rows), strict=True)
    imaginary = [max(column) ** 2 for column in values]
    weights = [
        sum(value * value for value in column) + more
        for column, more in zip(features, imaginary, strict=True)
    ]
    costs = [0.0] * len(features)
    left = list(times)
    for _ in range(_DESCENTS):
        for index, column in enumerate(features):
            if weights[index] == 0.0:
                continue
            along = sum(a * b for a, b in zip(column, left, strict=True))
            along -= imaginary[index] * costs[index]
            cost = max(0.0, costs[index] + along / weights[index])
            change, costs[index] = cost - costs[index], cost
            left = [rest - change * value for rest, value in zip(left, column, strict=True)]
    return StepCoefficients(1.0, *costs[1:])


_Row: TypeAlias = tuple[float, ...]


def _relative(samples: Sequence[StepSample]) -> list[_Row]:
    """Time, tokens and features of each sample, all by the median time of these samples."""
    usual_s = median(sample.step_time_s for sample in samples)
    return [
        (
            sample.step_time_s / usual_s,
            sample.num_tokens / usual_s,
            sample.features.decode_context_tokens / usual_s,
            sample.features.squared_prefill_tokens / usual_s,
            sample.features.past_prefill_product / usual_s,
            sample.features.num_decodes / usual_s,
        )
        for sample in samples
    ]


def _centred(rows: Sequence[_Row]) -> list[_Row]:
    """Each column less its mean."""
    means = [fmean(column) for column in zip(*rows, strict=True)]
    return [tuple(value - mean for value, mean in zip(row, means, strict=True)) for row in rows]
