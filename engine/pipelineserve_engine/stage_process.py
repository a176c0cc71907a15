"""One stage's process, wherever it runs: start, look, end."""

import signal
from dataclasses import dataclass
from typing import Protocol

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
