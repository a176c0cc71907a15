"""A container: started, started again whenever it has ended, and ended for good."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pipelineserve_cli.pods.launches import Launch
from pipelineserve_cli.pods.processes import ContainerProcess
from pipelineserve_cli.pods.restarts import Restarts


@dataclass(frozen=True, slots=True)
class ContainerId:
    """Which container of a run."""

    pod: str
    name: str

    def __str__(self) -> str:
        return f"{self.pod}/{self.name}"


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """A container's process has ended although nobody had asked for the pod's end.

    Attributes:
        code: its status; negative for the signal that ended it.
        reason: why it was ended from here; empty if it was not.
        last_lines: what it wrote last.
        pause_s: until it is started again.
    """

    container: ContainerId
    code: int
    reason: str
    last_lines: tuple[str, ...]
    pause_s: float

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        again = f"started again in {self.pause_s:g} s" if self.pause_s else "started again"
        return f"{self.container} ended with {self.code}{reason}; {again}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears of a run's containers, from threads.

    Attributes:
        on_line: of each line that a container writes.
        on_end: of each end that nobody had asked for.
    """

    on_line: Callable[[ContainerId, str], None]
    on_end: Callable[[ContainerEnd], None]


class Container:
    """One container of a pod.

    Args:
        container: which one.
        launch: what to start, asked at each start.
        mark: of every process of it.
        grace_s: between the signal to end and the end by force.
        listeners: who hears of it.
    """

    def __init__(
        self,
        container: ContainerId,
        launch: Callable[[], Launch],
        mark: str,
        grace_s: float,
        listeners: Listeners,
    ) -> None:
        self.container = container
        self._launch = launch
        self._mark = mark
        self._grace_s = grace_s
        self._listeners = listeners
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._process: ContainerProcess | None = None
        self._reason = ""

    @property
    def process(self) -> ContainerProcess | None:
        """The one that runs; None between two, before the first and after the last."""
        process = self._process
        return process if process is not None and process.is_running else None

    @property
    def last_lines(self) -> tuple[str, ...]:
        """What its latest process wrote last."""
        return () if self._process is None else self._process.last_lines

    def run_until_done(self) -> bool:
        """As an init container: until it has ended well, or is to end; tells whether it is done."""
        return self._run(is_done=lambda code: code == 0)

    def run(self) -> None:
        """Until it is to end."""
        self._run(is_done=lambda _: False)

    def restart(self, reason: str) -> None:
        """End its process in order; `run` starts the next one."""
        self._reason = reason
        if (process := self.process) is not None:
            process.end(self._grace_s)

    def ask_to_end(self) -> None:
        """Start nothing any more, and ask what runs to end."""
        with self._lock:
            self._ending.set()
            if (process := self.process) is not None:
                process.ask_to_end()

    def kill(self) -> None:
        """End what runs at once; only after `ask_to_end`."""
        if self._process is not None:
            self._process.kill()

    def _run(self, is_done: Callable[[int], bool]) -> bool:
        restarts = Restarts()
        while (process := self._start()) is not None:
            code = process.wait()
            if self._ending.is_set():
                break
            if is_done(code):
                return True
            restarts = restarts.ended(time.monotonic() - process.started_at_s)
            self._report(code, process, restarts.pause_s)
            self._ending.wait(restarts.pause_s)
        return False

    def _start(self) -> ContainerProcess | None:
        # Whoever asks for the end finds either no process that will come, or one that hears it.
        with self._lock:
            if self._ending.is_set():
                return None
            self._process = ContainerProcess(
                self._launch(),
                self._mark,
                lambda line: self._listeners.on_line(self.container, line),
            )
            return self._process

    def _report(self, code: int, process: ContainerProcess, pause_s: float) -> None:
        reason, self._reason = self._reason, ""
        self._listeners.on_end(
            ContainerEnd(self.container, code, reason, process.last_lines, pause_s)
        )
