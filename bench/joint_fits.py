"""From two columns of numbers to the few that describe them: knots, and a table of joint ranks."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import correlation, fmean, pstdev

from pipelineserve.load.summaries import percentile
from pipelineserve_simulator.workloads.curves import JointCurves, QuantileCurve

NUM_KNOTS = 20
NUM_BINS = 8
ALWAYS = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
POINTS_PER_BIN = 400

Table = list[list[float]]


@dataclass(frozen=True)
class Scores:
    """Standardised means of both quantities in each bin, so that a table's correlation is a sum."""

    first: tuple[float, ...]
    second: tuple[float, ...]

    def correlation(self, table: Table) -> float:
        """Of a table whose entries add up to 1."""
        return sum(
            weight * one * other
            for one, line in zip(self.first, table, strict=True)
            for other, weight in zip(self.second, line, strict=True)
        )


def curve_of(values: Sequence[float], num_digits: int, num_steps: int) -> QuantileCurve:
    """Knots by greed: into the stretch with the largest area between line and values.

    Ranks are multiples of 1 / num_steps.
    """
    ordered = sorted(values)
    actual = [percentile(ordered, 100 * at / num_steps) for at in range(num_steps + 1)]
    knots = [round(rank * num_steps) for rank in ALWAYS]
    while len(knots) < NUM_KNOTS:
        _, at = max(_furthest(actual, low, high) for low, high in pairwise(knots))
        knots = sorted({*knots, at})
    return QuantileCurve(
        tuple(knot / num_steps for knot in knots),
        tuple(round(actual[knot], num_digits) for knot in knots),
    )


def with_mean(curve: QuantileCurve, mean: float, num_digits: int) -> QuantileCurve:
    """The same curve in proportion, with this mean."""
    factor = mean / curve.mean
    return QuantileCurve(
        curve.ranks, tuple(round(value * factor, num_digits) for value in curve.values)
    )


def _furthest(actual: Sequence[float], low: int, high: int) -> tuple[float, int]:
    """The area between the line from `low` to `high` and the values, and where they differ most."""
    slope = (actual[high] - actual[low]) / (high - low)
    apart = [abs(actual[at] - actual[low] - slope * (at - low)) for at in range(low, high + 1)]
    return sum(apart), low + apart.index(max(apart))


def joint_table(firsts: Sequence[int], seconds: Sequence[int]) -> Table:
    """Shares of the pairs of ranks; equal values are ranked by lot."""
    table = [[0.0] * NUM_BINS for _ in range(NUM_BINS)]
    for row, column in zip(_bins(firsts, 1), _bins(seconds, 2), strict=True):
        table[row][column] += 1 / len(firsts)
    return table


def _bins(values: Sequence[int], seed: int) -> list[int]:
    lots = random.Random(seed)
    order = sorted(range(len(values)), key=lambda at: (values[at], lots.random()))
    bins = [0] * len(values)
    for rank, at in enumerate(order):
        bins[at] = rank * NUM_BINS // len(values)
    return bins


def correlations_of(firsts: Sequence[int], seconds: Sequence[int]) -> list[float]:
    """Of the values, and of their logarithms."""
    logs = ([_log(value) for value in side] for side in (firsts, seconds))
    return [correlation(firsts, seconds), correlation(*logs)]


def exact_correlations(curves: JointCurves) -> list[float]:
    """What `correlations_of` comes to for endlessly many draws."""
    total = sum(map(sum, curves.weights))
    table = [[weight / total for weight in line] for line in curves.weights]
    return [_scores(curves.first, curves.second, of).correlation(table) for of in (float, _log)]


def tilted(
    table: Table, first: QuantileCurve, second: QuantileCurve, wanted: Sequence[float]
) -> Table:
    """The table nearest to this one (in relative entropy) with both correlations as wanted.

    What goes together inside a bin is not in a table, so its correlations are a little off; the
    factor exp(a · x · y + b · log x · log y) puts them right. Newton's method in a and b.
    """
    scores = [_scores(first, second, float), _scores(first, second, _log)]
    powers = [0.0, 0.0]
    for _ in range(30):
        here = _misses(table, scores, powers, wanted)
        slopes = []
        for index in range(2):
            beside = [power + 1e-4 * (index == at) for at, power in enumerate(powers)]
            there = _misses(table, scores, beside, wanted)
            slopes.append([(b - a) / 1e-4 for a, b in zip(here, there, strict=True)])
        (a, c), (b, d) = slopes
        size = a * d - b * c
        powers[0] -= (d * here[0] - b * here[1]) / size
        powers[1] -= (a * here[1] - c * here[0]) / size
    return _with_powers(table, scores, powers)


def _misses(
    table: Table, scores: Sequence[Scores], powers: Sequence[float], wanted: Sequence[float]
) -> list[float]:
    moved = _with_powers(table, scores, powers)
    return [score.correlation(moved) - goal for score, goal in zip(scores, wanted, strict=True)]


def _with_powers(table: Table, scores: Sequence[Scores], powers: Sequence[float]) -> Table:
    moved = [
        [
            table[row][column]
            * math.exp(
                sum(
                    power * score.first[row] * score.second[column]
                    for power, score in zip(powers, scores, strict=True)
                )
            )
            for column in range(NUM_BINS)
        ]
        for row in range(NUM_BINS)
    ]
    return _with_even_margins(moved)


def _with_even_margins(table: Table) -> Table:
    """Rows and columns scaled in turn until each adds up to the same."""
    for _ in range(60):
        table = [[weight / sum(line) / NUM_BINS for weight in line] for line in table]
        sums = [sum(column) * NUM_BINS for column in zip(*table, strict=True)]
        table = [[w / s for w, s in zip(line, sums, strict=True)] for line in table]
    return table


def _scores(first: QuantileCurve, second: QuantileCurve, of: Callable[[float], float]) -> Scores:
    return Scores(_standard_means(first, of), _standard_means(second, of))


def _standard_means(curve: QuantileCurve, of: Callable[[float], float]) -> tuple[float, ...]:
    num_points = NUM_BINS * POINTS_PER_BIN
    values = [of(curve.at((at + 0.5) / num_points)) for at in range(num_points)]
    mean, spread = fmean(values), pstdev(values)
    return tuple(
        (fmean(values[at : at + POINTS_PER_BIN]) - mean) / spread
        for at in range(0, num_points, POINTS_PER_BIN)
    )


def _log(value: float) -> float:
    return math.log(max(1, value))
