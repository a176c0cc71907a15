"""A stage's process on this host, forked by a nursery."""

import signal

from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.nursery.process import ForkedStage
from pipelineserve_engine.stage_process import ProcessEnd
from pipelineserve_engine.worker_settings import WorkerSettings


class LocalProcess:
    """One stage after the other, of one nursery.

    Args:
        nursery: of this process.
        worker_module: whose `main` a stage runs.
    """

    def __init__(self, nursery: Nursery, worker_module: str) -> None:
        self._nursery = nursery
        self._worker_module = worker_module
        self._stage: ForkedStage | None = None

    @property
    def pid(self) -> int | None:
        """See `StageProcess.pid`."""
        if self._stage is None:
            return None
        self._stage.poll()
        return self._stage.pid

    @property
    def clock_offset_s(self) -> float:
        """The same host, the same clock."""
        return 0.0

    def start(self, settings: WorkerSettings) -> None:
        """See `StageProcess.start`."""
        self._stage = None  # where the next one cannot be started, there is none
        try:
            self._stage = self._nursery.start(self._worker_module, settings)
        finally:
            settings.endpoints.links.close_ends()

    def poll(self) -> ProcessEnd | None:
        """See `StageProcess.poll`."""
        return None if self._stage is None else self._stage.poll()

    def kill(self) -> None:
        """See `StageProcess.kill`."""
        if self._stage is not None:
            self._stage.kill()

    def reap(self) -> None:
        """Wait for its end: it holds memory until then."""
        if self._stage is not None:
            self._stage.reap()

    def wait(self, timeout_s: float) -> None:
        """See `StageProcess.wait`."""
        if self._stage is not None:
            self._stage.wait(timeout_s)

    def dump_stacks(self) -> None:
        """See `StageProcess.dump_stacks`."""
        if self._stage is not None:
            self._stage.signal(signal.SIGUSR1)
