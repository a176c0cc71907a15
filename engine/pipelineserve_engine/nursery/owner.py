"""Having a nursery: forked, spawned, and another where it has ended."""

import os
import signal
import sys
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from pipelineserve_engine.nursery.messages import open_channel
from pipelineserve_engine.nursery.process import ForkedStage, NurseryProcess
from pipelineserve_engine.nursery.tending import CHANNEL_DESCRIPTOR, IGNORED_SIGNALS, preload, tend
from pipelineserve_engine.worker_settings import WorkerSettings

_NURSERY_MODULE = "pipelineserve_engine.nursery"


def fork_nursery() -> NurseryProcess:
    """One that shares the memory of what this process has imported; the rest is imported first.

    Only for a process with one thread that has computed nothing yet: see `tending`.

    Raises:
        OSError: the system gives no process.
    """
    preload()
    ours, theirs = open_channel()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # or both would write what is there
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            tend(theirs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()
    return NurseryProcess(pid, ours)


def spawn_nursery() -> NurseryProcess:
    """One that imports everything itself, for a process that cannot be forked.

    Raises:
        OSError: the system gives no process.
    """
    ours, theirs = open_channel()
    with theirs, ExitStack() as on_failure:
        on_failure.callback(ours.close)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _NURSERY_MODULE],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), CHANNEL_DESCRIPTOR)],
            setpgroup=0,
            setsigmask=IGNORED_SIGNALS,
        )
        on_failure.pop_all()
    return NurseryProcess(pid, ours)


class Nursery:
    """The nursery of a process: the one it was given, and another where that has ended.

    Args:
        process: None to spawn one when it is needed.
    """

    def __init__(self, process: NurseryProcess | None = None) -> None:
        self._process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it, and stages of it that still run."""
        if self._process is not None:
            self._process.end()

    def warm(self) -> None:
        """Have one that imports by now; raises as `start`."""
        self._living()

    def start(self, worker_module: str, settings: WorkerSettings) -> ForkedStage:
        """Have a stage forked; returns at once.

        Raises:
            OSError: the system gives no process.
        """
        return self._living().order(worker_module, settings)

    def _living(self) -> NurseryProcess:
        if self._process is None or self._process.poll() is not None:
            self._process = spawn_nursery()
        return self._process


def own_nursery() -> Nursery:
    """One for a process that has only begun: forked, unless there are threads already."""
    alone = threading.active_count() == 1
    return Nursery(fork_nursery() if alone else None)
