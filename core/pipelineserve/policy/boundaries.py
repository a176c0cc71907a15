"""Hardware boundaries: the token counts after which a step's time jumps, found in measurements.

Kernels work in tiles, so time over tokens is a staircase: tokens that fill the last tile cost
nothing, one token more costs a whole tile.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from pipelineserve.policy.step_time import StepTimeTable

# A riser is steeper than the measurements' mean slope by more than this.
_LEAST_STEEPNESS = 1.5
_NOISE_WIDTHS = 3.0


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One measurement: a step with `num_tokens` tokens took `time_s` seconds."""

    num_tokens: int
    time_s: float


def find_boundaries(steps: Iterable[TimedStep], noise_ratio: float = 0.01) -> tuple[int, ...]:
    """Token counts that are the last ones measured before a riser, ascending.

    A riser can be placed only as finely as token counts were measured: at least three per stair
    are needed to see it at all.

    Args:
        steps: measurements, several per token count welcome (their median counts).
        noise_ratio: relative spread of such a median; smaller rises are not told from noise.
    """
    points = _medians(steps)
    if len(points) < 3:
        return ()
    first, last = points[0], points[-1]
    slope_s = (last.time_s - first.time_s) / (last.num_tokens - first.num_tokens)
    return tuple(
        left.num_tokens
        for left, right in pairwise(points)
        if _is_riser(left, right, slope_s, noise_ratio)
    )


def table_of(steps: Iterable[TimedStep]) -> StepTimeTable:
    """The table that fits the measurements best without ever falling.

    Least squares over the medians (pool adjacent violators).

    Raises:
        ValueError: no measurement was given, or one is impossible.
    """
    points = _medians(steps)
    pools: list[list[float]] = []
    for point in points:
        pools.append([point.time_s])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    times_s = tuple(fmean(pool) for pool in pools for _ in pool)
    return StepTimeTable(tuple(point.num_tokens for point in points), times_s)


def _medians(steps: Iterable[TimedStep]) -> Sequence[TimedStep]:
    times_by_tokens: dict[int, list[float]] = {}
    for step in steps:
        times_by_tokens.setdefault(step.num_tokens, []).append(step.time_s)
    return [TimedStep(tokens, median(times)) for tokens, times in sorted(times_by_tokens.items())]


def _is_riser(left: TimedStep, right: TimedStep, slope_s: float, noise_ratio: float) -> bool:
    rise_s = right.time_s - left.time_s
    even_rise_s = slope_s * (right.num_tokens - left.num_tokens)
    return (
        rise_s > _LEAST_STEEPNESS * even_rise_s
        and rise_s > _NOISE_WIDTHS * noise_ratio * left.time_s
    )
