"""A child process with a log that is read: start it, wait for it, end it in order."""

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

_KEPT_LOG_LINES = 40


class ChildProcess:
    """One child; ends with the block that it is used in.

    Args:
        command: what to run.
        stop_timeout_s: how long it may take to end when it is asked to.
        on_log: called with each line that it writes to stderr, from a thread.
    """

    def __init__(
        self, command: Sequence[str], stop_timeout_s: float, on_log: Callable[[str], None]
    ) -> None:
        self._command = command
        self._stop_timeout_s = stop_timeout_s
        self._on_log = on_log
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LOG_LINES)

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C in the terminal reaches only this command, which then ends
        # the child once, in order.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # The log also tells when a server serves, whatever level the user has set.
            env={**os.environ, "PIPELINESERVE_LOG_LEVEL": "INFO"},
            start_new_session=True,
        )
        self._log_thread = threading.Thread(target=self._read_log, daemon=True)
        self._log_thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ask the child to end; a second Ctrl-C, or silence, kills it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(self._stop_timeout_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log_thread.join(1.0)

    @property
    def pid(self) -> int:
        """Of the child; what it starts itself has others."""
        return self._process.pid

    @property
    def last_lines(self) -> list[str]:
        """What it wrote last."""
        return list(self._last_lines)

    def wait_ended(self, timeout_s: float) -> int | None:
        """Wait so long for its end; its status with the whole log read, None if it lives."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        self._log_thread.join(1.0)
        return code

    def _read_log(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - it is a pipe
        for line in self._process.stderr:
            self._last_lines.append(line.rstrip())
            self._on_log(line.rstrip())
