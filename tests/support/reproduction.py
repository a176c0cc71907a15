"""Parts of the reproduction that are small enough for unit tests."""

from concurrent.futures import Future
from dataclasses import dataclass, field

from pipelineserve_simulator.reproduce.effort import QUICK, Effort
from pipelineserve_simulator.reproduce.figures import TargetPair, TrialFigures
from pipelineserve_simulator.reproduce.findings import RowResult, Unit, between
from pipelineserve_simulator.reproduce.rows.lines import of_capacity, of_runs
from pipelineserve_simulator.reproduce.study import CapacityQuestion, Study
from pipelineserve_simulator.reproduce.systems import static
from pipelineserve_simulator.reproduce.trials import Load, Trial, run_trial
from pipelineserve_simulator.workloads.registry import WorkloadName

TINY_LOAD = Load(WorkloadName.PREFILL_HEAVY, num_requests=16)
EFFORT: Effort = QUICK


@dataclass(slots=True)
class InlinePool:
    """Runs a trial where it is submitted; after `most` of them Ctrl-C is pressed."""

    most: int | None = None
    run: list[Trial] = field(default_factory=list)

    def submit(self, trial: Trial) -> "Future[TrialFigures]":
        """See `TrialPool`."""
        if self.most is not None and len(self.run) == self.most:
            raise KeyboardInterrupt
        self.run.append(trial)
        future: Future[TrialFigures] = Future()
        future.set_result(run_trial(trial, None))
        return future


@dataclass(slots=True)
class Updates:
    """What progress was told."""

    seen: list[tuple[int, int, int]] = field(default_factory=list)

    def update(self, num_done: int, num_known: int, num_concluded: int) -> None:
        """See `Progress`."""
        self.seen.append((num_done, num_known, num_concluded))


def tiny_row(study: Study) -> RowResult:
    """Sixteen requests: their TTFT at one rate, and a capacity between 1 and 64 per second."""
    runs = study.runs(static(512), TINY_LOAD.at(2.0))
    question = CapacityQuestion(
        static(512), TINY_LOAD, 1.0, 64.0, TargetPair(0.5, 0.2), tolerance=8.0
    )
    capacity = study.capacity(question)
    return RowResult(
        "tiny",
        "Sixteen requests",
        (
            of_runs(
                "P90 TTFT",
                "2.00 s",
                runs,
                lambda run: run.ttft_s.p90,
                Unit.S,
                accept=between(0.0, 2.0, "<= 2 s"),
            ),
            of_capacity("capacity@P90", "", capacity, 16),
        ),
    )
