"""A server of somebody else's engine as a process: what it writes, when it serves, its end."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import httpx

from engine_server import PATIENCE_S, Samples, pids_of_session, wait_until

# Imports in several processes on two cores that others use too.
START_PATIENCE_S = 900.0
# Of a test that starts one, in which it may wait for others that do.
TEST_TIMEOUT_S = 1500.0


class ForeignServer:
    """Its whole session is killed if the block leaves it.

    Args:
        command: that serves OpenAI's API.
        environ: of all its processes.
        port: where it serves.
        ready_path: answers 200 once requests are taken.

    Attributes:
        lines: what it has written.
    """

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], port: int, ready_path: str
    ) -> None:
        self.port = port
        self._command = command
        self._environ = environ
        self._ready_path = ready_path
        self.lines: list[str] = []
        self._news = threading.Condition()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self._environ,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill all of its processes."""
        for pid in (self._process.pid, *pids_of_session(self._process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    @property
    def url(self) -> str:
        """Base of its API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """All that it has written."""
        return "\n".join(self.lines)

    def wait_serving(self) -> Self:
        """Return when it takes requests; fail if it ends instead."""
        deadline_s = time.monotonic() + START_PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, f"it has ended:\n{self.log}"
            assert time.monotonic() < deadline_s, f"it does not serve:\n{self.log}"
            with self._news:
                self._news.wait(0.2)
        return self

    def wait_for_line(self, pattern: str) -> None:
        """Return when a line that matches was written."""
        found = wait_until(lambda: list(self.lines), lambda lines: any(
            re.search(pattern, line) for line in lines))  # fmt: skip
        assert found

    def metrics(self) -> Samples:
        """The metrics now."""
        return Samples(httpx.get(f"{self.url}/metrics", timeout=PATIENCE_S).text)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}{self._ready_path}", timeout=30.0).is_success
        except httpx.TransportError:
            return False

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with self._news:
                    self.lines.append(line.rstrip())
                    self._news.notify_all()
