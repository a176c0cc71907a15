"""The engine's server as a child process: start it, wait until it serves, end it."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import httpx

from pipelineserve.errors import EngineUnavailableError

# Beyond the drain: ending the stages and what is left on disk.
_STOP_MARGIN_S = 20.0
_POLL_PERIOD_S = 0.25
_KEPT_LOG_LINES = 40
_SERVING = re.compile(r" pipelineserve_engine serving .+ on http://\S+:\d+$")
_OWN_WORDS = re.compile(r"^error: (.*)", re.MULTILINE | re.DOTALL)
# argparse's last line, after the usage of every flag.
_REFUSED_FLAG = re.compile(r"^python -m pipelineserve_engine\.server: error: (.*)", re.MULTILINE)


class EngineProcess:
    """One engine server; ends with the block that it is used in.

    Args:
        flags: of `python -m pipelineserve_engine.server`.
        port: that the flags name.
        drain_s: how long the server lets running requests go on when it is asked to end.
        on_log: called with each line that the server logs, from a thread.
    """

    def __init__(
        self, flags: Sequence[str], port: int, drain_s: float, on_log: Callable[[str], None]
    ) -> None:
        self._flags = [*flags, f"--parent-pid={os.getpid()}"]
        self.url = f"http://127.0.0.1:{port}"
        self._stop_timeout_s = drain_s + _STOP_MARGIN_S
        self._on_log = on_log
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LOG_LINES)

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C in the terminal reaches only this command, which then ends
        # the server once, in order.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipelineserve_engine.server", *self._flags],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # The log also tells when the server serves, whatever level the user has set.
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
        """Ask the server to end; a second Ctrl-C, or silence, kills it."""
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
        """Of the server; its stages have others."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Return when the server takes requests.

        Raises:
            EngineUnavailableError: it ended instead; the message is its own.
        """
        while not self._is_ready():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_PERIOD_S)
                raise self._ended()

    def wait(self) -> None:
        """Return when the server has ended in order.

        Raises:
            EngineUnavailableError: it ended with an error.
        """
        if self._process.wait() != 0:
            raise self._ended()

    def _is_ready(self) -> bool:
        # Only the child's own answer counts: it logs nothing else before it has the port.
        if not any(_SERVING.search(line) for line in list(self._last_lines)):
            return False
        try:
            return httpx.get(f"{self.url}/ready", timeout=2.0).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _ended(self) -> EngineUnavailableError:
        self._log_thread.join(1.0)
        tail = "\n".join(self._last_lines)
        if (refused := _REFUSED_FLAG.search(tail)) is not None:
            return EngineUnavailableError(f"spec.engine.args: {refused[1]}")
        if (own := _OWN_WORDS.search(tail)) is not None:
            return EngineUnavailableError(own[1])
        return EngineUnavailableError(f"the engine ended with {self._process.returncode}:\n{tail}")

    def _read_log(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - it is a pipe
        for line in self._process.stderr:
            self._last_lines.append(line.rstrip())
            self._on_log(line.rstrip())
