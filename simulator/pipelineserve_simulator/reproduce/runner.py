"""Runs what experiments lack until all of them conclude, over processes.

Whatever has ended is kept at once, so that an interrupted run goes on where it was.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from pipelineserve_simulator.reproduce.experiments import Experiment
from pipelineserve_simulator.reproduce.figures import TrialFigures
from pipelineserve_simulator.reproduce.findings import RowResult
from pipelineserve_simulator.reproduce.store import FigureStore
from pipelineserve_simulator.reproduce.study import MissingTrialsError, Study
from pipelineserve_simulator.reproduce.traces import TraceFile
from pipelineserve_simulator.reproduce.trials import Trial, run_trial


class Progress(Protocol):
    """Told as the work goes on."""

    def update(self, num_done: int, num_known: int, num_concluded: int) -> None:
        """So many trials of this run are done, of those known so far; experiments concluded."""
        ...


class TrialPool(Protocol):
    """Where trials are run."""

    def submit(self, trial: Trial) -> "Future[TrialFigures]":
        """Run one, now or later."""
        ...


@dataclass(slots=True)
class ProcessPool:
    """In several processes."""

    executor: ProcessPoolExecutor
    trace: TraceFile | None = None

    def submit(self, trial: Trial) -> "Future[TrialFigures]":
        """See `TrialPool`."""
        return self.executor.submit(run_trial, trial, self.trace)


@contextmanager
def open_pool(num_processes: int, trace: TraceFile | None) -> Iterator[TrialPool]:
    """A pool that leaves no process behind, however the block ends."""
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(num_processes, context, initializer=_begin_worker)
    is_done = False
    try:
        yield ProcessPool(executor, trace)
        is_done = True
    finally:
        if not is_done:
            # What is running would go on for seconds, and nobody waits for its figures.
            for child in multiprocessing.active_children():
                child.terminate()
        executor.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    """Ctrl-C is the parent's; and whoever loses the parent, however it ended, ends as well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@dataclass(slots=True)
class Run:
    """One run over a list of experiments.

    Attributes:
        num_run: trials that were simulated, not found.
    """

    study: Study
    store: FigureStore
    pool: TrialPool
    progress: Progress
    num_run: int = 0
    _pending: dict[Trial, "Future[TrialFigures]"] = field(default_factory=dict)

    def conclude(self, experiments: Sequence[Experiment]) -> tuple[RowResult, ...]:
        """The rows, in the order of the experiments."""
        results: dict[str, RowResult] = {}
        open_experiments = list(experiments)
        while open_experiments:
            still_open: list[Experiment] = []
            for experiment in open_experiments:
                result = self._try(experiment)
                if result is None:
                    still_open.append(experiment)
                else:
                    results[experiment.row] = result
            open_experiments = still_open
            num_known = self.num_run + len(self._pending)
            self.progress.update(self.num_run, num_known, len(results))
            if open_experiments:
                self._take_ended()
        return tuple(results[experiment.row] for experiment in experiments)

    def _try(self, experiment: Experiment) -> RowResult | None:
        try:
            return experiment.conclude(self.study)
        except MissingTrialsError as error:
            for trial in error.trials:
                if trial not in self._pending:
                    self._pending[trial] = self.pool.submit(trial)
            return None

    def _take_ended(self) -> None:
        """Wait for one trial at least, and keep all that have ended."""
        wait(self._pending.values(), return_when=FIRST_COMPLETED)
        for trial, future in list(self._pending.items()):
            if future.done():
                del self._pending[trial]
                self.store.keep(trial, future.result())
                self.num_run += 1
