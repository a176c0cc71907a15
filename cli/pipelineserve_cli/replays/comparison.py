"""A recorded run beside simulated ones: the same figures of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelineserve.load.summaries import Summary
from pipelineserve.load.targets import Targets
from pipelineserve_simulator.measures.figures import RunFigures, measure, whole_window
from pipelineserve_simulator.measures.runs import RunOutcome


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of every run, in their order; None where a run has none.

    Attributes:
        name: what it is.
        unit: of the values.
        values: by run.
    """

    name: str
    unit: str
    values: tuple[float | None, ...]

    @property
    def differences(self) -> tuple[float | None, ...]:
        """Of each run from the first one, relative to it."""
        first = self.values[0]
        return tuple(
            None if value is None or not first else value / first - 1.0 for value in self.values
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of several runs of the same requests, over all of each run."""

    runs: tuple[str, ...]
    rows: tuple[Row, ...]


def compare(outcomes: Mapping[str, RunOutcome]) -> Comparison:
    """Measure every run alike; a recorded run measures TTFT from the arrival at its scheduler."""
    figures = [measure(outcome, Targets(), whole_window(outcome)) for outcome in outcomes.values()]
    return Comparison(tuple(outcomes), tuple(_rows(figures)))


def _rows(figures: Sequence[RunFigures]) -> list[Row]:
    summaries: list[tuple[str, list[Summary | None]]] = [
        ("TTFT", [each.ttft_s for each in figures]),
        ("TPOT", [each.tpot_s for each in figures]),
        ("step, slowest stage", [e.steps.longest_stage_s if e.steps else None for e in figures]),
    ]
    rows = [
        Row(f"{name} {label}", "ms", tuple(_ms(summary, label) for summary in of_runs))
        for name, of_runs in summaries
        for label in ("P50", "P90")
    ]
    tokens = [each.steps.num_tokens.mean if each.steps else None for each in figures]
    counts = [float(each.steps.num_steps) if each.steps else None for each in figures]
    return [
        *rows,
        Row("tokens of a micro-batch", "", tuple(tokens)),
        Row("micro-batches", "", tuple(counts)),
        Row("output", "tokens/s", tuple(each.output_tokens_per_s for each in figures)),
        Row("requests finished", "", tuple(float(each.num_finished) for each in figures)),
    ]


def _ms(summary: Summary | None, label: str) -> float | None:
    if summary is None:
        return None
    return 1000.0 * (summary.p50 if label == "P50" else summary.p90)
