"""The closed list of experiments, in the order of the table."""

from collections.abc import Callable
from dataclasses import dataclass

from pipelineserve_simulator.reproduce.findings import RowResult
from pipelineserve_simulator.reproduce.rows import (
    aims,
    azure,
    comparisons,
    decode_heavy,
    predictor,
    replay,
    scales,
    static_chunks,
    steps,
    sweep,
)
from pipelineserve_simulator.reproduce.study import Study


@dataclass(frozen=True, slots=True)
class Experiment:
    """One row of the table.

    Attributes:
        row: its name, as `--only` takes it.
        conclude: its lines from figures; see `Study` for what it raises until it has them.
    """

    row: str
    conclude: Callable[[Study], RowResult]


EXPERIMENTS = (
    Experiment("1", steps.whole_model_difference),
    Experiment("2", steps.staircase),
    Experiment("3", static_chunks.best_static),
    Experiment("4", azure.capacities),
    Experiment("5", sweep.step_p90),
    Experiment("6", sweep.largest_cuts),
    Experiment("7", replay.attainment),
    Experiment("8", replay.strict_tpot),
    Experiment("9", scales.target_scales),
    Experiment("10", decode_heavy.cnn_reversed_capacity),
    Experiment("11", decode_heavy.delay_steps),
    Experiment("12", predictor.prediction_errors),
    Experiment("13", decode_heavy.decode_heavy),
    Experiment("14", sweep.step_p99),
    Experiment("delay-transient", decode_heavy.delay_transient),
    Experiment("aim-steady", aims.steady),
    Experiment("aim-tail", aims.tail_capacity),
    Experiment("aim-bursts", aims.bursts),
    Experiment("aim-replay", aims.strict_replay),
    Experiment("aim-decode", aims.unknown_lengths),
    Experiment("aim-overload", comparisons.overload),
    Experiment("aim-everywhere", comparisons.everywhere),
)
