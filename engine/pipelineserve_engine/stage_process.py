"""One stage's process, wherever it runs: start, look, end."""

import contextlib
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Protocol

import msgspec

from pipelineserve_engine.worker_settings import WorkerSettings

WORKER_MODULE = "pipelineserve_engine.worker"


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a stage's process ended.

    Attributes:
        text: what a person is told, after "stage N ".
        is_cause: it did not end by itself, so other stages may have failed because of it.
        code: exit status, negative for a signal's number; 1 where it is not known.
    """

    text: str
    is_cause: bool
    code: int = 1


def end_of(code: int) -> ProcessEnd:
    """The end with this exit status, negative for a signal's number."""
    if code >= 0:
        return ProcessEnd(f"ended with exit status {code}", is_cause=False, code=code)
    hint = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
    text = f"ended with signal {-code} ({_signal_name(-code)}{hint})"
    return ProcessEnd(text, is_cause=True, code=code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have none, and a stage host may report any number
        return "no name"


class StageProcess(Protocol):
    """The process of one stage; started again and again while the server runs."""

    @property
    def pid(self) -> int | None:
        """On its own host; None before the start, or where it is not known yet."""
        ...

    @property
    def clock_offset_s(self) -> float:
        """What to add to a time of its host's monotonic clock to get the server's."""
        ...

    def start(self, settings: WorkerSettings) -> None:
        """Start it, or have it started; returns at once. An earlier one was killed before.

        Takes over the ends of links in the settings.

        Raises:
            OSError: the system gives no process.
        """
        ...

    def poll(self) -> ProcessEnd | None:
        """How it ended; None before that."""
        ...

    def kill(self) -> None:
        """End it at once; fit for a signal handler."""
        ...

    def reap(self) -> None:
        """Wait for the end of what was killed, where something of it could be in the way."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, up to `timeout_s`."""
        ...

    def dump_stacks(self) -> None:
        """Let it write the stacks of its threads to stderr, as far as it still can."""
        ...


class LocalProcess:
    """A child of this process.

    Args:
        worker_module: run with `python -m`.
    """

    def __init__(self, worker_module: str = WORKER_MODULE) -> None:
        self._worker_module = worker_module
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """See `StageProcess.pid`."""
        return None if self._child is None else self._child.pid

    @property
    def clock_offset_s(self) -> float:
        """The same host, the same clock."""
        return 0.0

    def start(self, settings: WorkerSettings) -> None:
        """See `StageProcess.start`."""
        links = settings.endpoints.links
        self._child = None  # where the next one cannot be started, there is none
        command = [sys.executable, "-m", self._worker_module]
        try:
            # In a group of its own, where a terminal's Ctrl-C does not reach it: the server decides
            # when its stages end.
            self._child = subprocess.Popen(
                [*command, msgspec.json.encode(settings).decode()],
                process_group=0,
                pass_fds=[number for end in links.ends for number in end.descriptors],
            )
        finally:
            links.close_ends()

    def poll(self) -> ProcessEnd | None:
        """See `StageProcess.poll`."""
        code = None if self._child is None else self._child.poll()
        return None if code is None else end_of(code)

    def kill(self) -> None:
        """See `StageProcess.kill`."""
        if self._child is not None:
            self._child.kill()

    def reap(self) -> None:
        """Wait for its end: it holds memory, and is a zombie until then."""
        if self._child is not None:
            self._child.wait()

    def wait(self, timeout_s: float) -> None:
        """See `StageProcess.wait`."""
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # the caller looks
                self._child.wait(timeout_s)

    def dump_stacks(self) -> None:
        """See `StageProcess.dump_stacks`."""
        if self._child is not None:
            self._child.send_signal(signal.SIGUSR1)
