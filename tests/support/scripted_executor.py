"""An executor whose reports come when the test says so."""

import queue
import threading
from collections.abc import Sequence

from pipelineserve_engine.stage_messages import SampleExtras, StageReport, StepCommand, StepReport

# A bound for tests that would otherwise hang, never something that is measured.
PATIENCE_S = 30.0


def report_of(
    command: StepCommand,
    token_ids: Sequence[int] | None,
    *,
    stage_index: int = 0,
    start_s: float = 0.0,
    end_s: float = 0.0,
    extras: SampleExtras | None = None,
) -> StepReport:
    """A stage's report of a command; with tokens it is the last stage's."""
    return StepReport(
        stage_index=stage_index,
        sequence=command.sequence,
        slot_index=command.slot_index,
        start_s=start_s,
        end_s=end_s,
        token_ids=None if token_ids is None else tuple(token_ids),
        extras=extras,
    )


def num_samples(command: StepCommand) -> int:
    """How many tokens the last stage must bring back."""
    return sum(piece.samples for piece in command.pieces)


class ScriptedExecutor:
    """Keeps what is sent; `receive` waits for `answer`, `fail` or `wake`, as the real one does."""

    def __init__(self) -> None:
        self.sent: queue.Queue[StepCommand] = queue.Queue()
        self._news = threading.Condition()
        self._reports: list[StageReport] = []
        self._failure: Exception | None = None
        self._is_awake = False
        self._is_held = False
        self._is_receiving = False
        self.num_restarts = 0

    # The test's side

    def next_command(self) -> StepCommand:
        """Wait for the next micro-batch."""
        return self.sent.get(timeout=PATIENCE_S)

    def answer(self, command: StepCommand, first_token_id: int = 1) -> None:
        """Let the last stage report, with consecutive tokens."""
        tokens = range(first_token_id, first_token_id + num_samples(command))
        self.report(report_of(command, tokens))

    def report(self, *reports: StageReport) -> None:
        """Let these reports come in together."""
        with self._news:
            self._reports += reports
            self._news.notify_all()

    def fail(self, error: Exception) -> None:
        """Let `receive` raise from now on."""
        with self._news:
            self._failure = error
            self._news.notify_all()

    def wait_restarted(self, num_restarts: int) -> None:
        """Wait until the stages were started anew so many times."""
        with self._news:
            assert self._news.wait_for(lambda: self.num_restarts == num_restarts, PATIENCE_S)

    def hold(self) -> None:
        """Let `receive` not return, whatever happens; wait until the engine is in it."""
        with self._news:
            self._is_held = True
            assert self._news.wait_for(lambda: self._is_receiving, PATIENCE_S)
            self._is_awake = False

    def wait_woken(self) -> None:
        """Wait until the engine, which is held, was woken."""
        with self._news:
            assert self._news.wait_for(lambda: self._is_awake, PATIENCE_S)

    def release(self) -> None:
        """End `hold`."""
        with self._news:
            self._is_held = False
            self._news.notify_all()

    # The engine's side

    def send(self, command: StepCommand) -> None:
        """See `Executor`."""
        self.sent.put(command)

    def receive(self, timeout_s: float) -> list[StageReport]:
        """See `Executor`; waits for the script instead of the time unless that is 0."""
        with self._news:
            self._is_receiving = True
            self._news.notify_all()
            self._news.wait_for(self._may_return, PATIENCE_S if timeout_s else 0.0)
            self._is_receiving = False
            self._is_awake = False
            if self._failure is not None:
                raise self._failure
            reports, self._reports = self._reports, []
            return reports

    def restart(self) -> None:
        """See `Executor`; the stages are ready when the test reports so."""
        with self._news:
            self.num_restarts += 1
            self._failure = None
            self._reports.clear()
            self._news.notify_all()

    def wait(self, timeout_s: float) -> None:
        """See `Executor`; waits for nothing but a wake."""
        with self._news:
            self._news.wait_for(lambda: self._is_awake, timeout_s)
            self._is_awake = False

    def wake(self) -> None:
        """See `Executor`."""
        with self._news:
            self._is_awake = True
            self._news.notify_all()

    def _may_return(self) -> bool:
        if self._is_held:
            return False
        return bool(self._reports) or self._is_awake or self._failure is not None
