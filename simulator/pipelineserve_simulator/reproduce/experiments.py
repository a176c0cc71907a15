"""The closed list of experiments, in the order of the table."""

from collections.abc import Callable
from dataclasses import dataclass

from pipelineserve_simulator.reproduce.findings import RowResult
from pipelineserve_simulator.reproduce.rows import azure, steps
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
    Experiment("4", azure.capacities),
    Experiment("5", azure.step_times),
)
