"""One process of a container, with what it writes."""

import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable

from pipelineserve_cli.pods.keeper import kill_marked
from pipelineserve_cli.pods.launches import Launch

_KEPT_LINES = 40
_LOG_END_S = 1.0


class ContainerProcess:
    """Runs from its making on.

    Args:
        launch: what to start.
        mark: of every process of the container.
        on_line: called with each line that it writes, from a thread.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, launch: Launch, mark: str, on_line: Callable[[str], None]) -> None:
        self._mark = mark
        self._on_line = on_line
        self._last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.started_at_s = time.monotonic()
        # A session of its own: Ctrl-C in the terminal reaches only `pserve`, which then ends the
        # pods once, in order.
        self._process = subprocess.Popen(
            launch.command,
            env=launch.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # results for scripts; what people read goes to stderr
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def last_lines(self) -> tuple[str, ...]:
        """What it wrote last."""
        return tuple(self._last_lines)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Its status once it and all that it has started are gone, as in a container."""
        code = self._process.wait()
        kill_marked(self._mark)
        self._reader.join(_LOG_END_S)
        return code

    def ask_to_end(self) -> None:
        """SIGTERM; what becomes of it is the process's to decide."""
        self._process.terminate()

    def end(self, grace_s: float) -> None:
        """Ask it, and kill it after so long."""
        self._process.terminate()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            kill_marked(self._mark)

    def kill(self) -> None:
        """End it and all that it has started at once."""
        kill_marked(self._mark)

    def _read(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - it is a pipe
        with self._process.stderr as stream:
            for line in stream:
                self._last_lines.append(line.rstrip())
                self._on_line(line.rstrip())
