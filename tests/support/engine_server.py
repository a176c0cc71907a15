"""The engine's server as a real process, on a free port and with a temporary folder of its own."""

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx
from prometheus_client.parser import text_string_to_metric_families

from pipelineserve.metrics import Metric
from pipelineserve_engine.nursery.tending import NURSERY_NAME, STAGE_NAME

NAME = "org/served"
# Generous: a bound for tests that would otherwise hang, never something that is measured.
PATIENCE_S = 120.0
_POLL_PERIOD_S = 0.02

ResultT = TypeVar("ResultT")


class EngineServer:
    """One `python -m pipelineserve_engine.server`; killed with its stages if the block leaves it.

    Attributes:
        lines: what it has written to stderr.
    """

    def __init__(self, model_folder: Path, *flags: str, port: int = 0) -> None:
        self._command = [
            *(sys.executable, "-m", "pipelineserve_engine.server"),
            *(f"--model-folder={model_folder}", f"--served-name={NAME}", f"--port={port}"),
            *("--threads-per-stage=1", *flags),
        ]
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._has_ended_output = False

    def __enter__(self) -> Self:
        # Of its own, so that what stays behind is this server's; short, since sockets live in it.
        self.temporary_folder = Path(tempfile.mkdtemp(prefix="e2e-"))
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary_folder)},
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
        """Kill what is left of it."""
        self._process.kill()
        self._process.wait()
        for pid in self.live_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reader.join()
        shutil.rmtree(self.temporary_folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Of the server; its stages have others."""
        return self._process.pid

    @property
    def port(self) -> int:
        """Where it listens, from its log."""
        return int(self._logged(rf"serving {NAME} on http://127\.0\.0\.1:(\d+)"))

    @property
    def stage_pids(self) -> tuple[int, ...]:
        """Of the stages that are ready, by stage index."""
        pattern = re.compile(r"stage (\d+) ready: pid (\d+)")
        found = [match for line in list(self.lines) if (match := pattern.search(line))]
        return tuple(int(match[2]) for match in sorted(found, key=lambda match: int(match[1])))

    def live_pids(self) -> tuple[int, ...]:
        """Of the server, its nursery and its stages, ready or not; those that have not ended."""
        return pids_of_session(self.pid)

    def running_stages(self) -> list[int]:
        """Of the stages that run now, ready or not, by stage index."""
        names = {name: pid for pid in self.live_pids() if STAGE_NAME in (name := name_of(pid))}
        return [pid for _, pid in sorted(names.items())]

    @property
    def nursery_pid(self) -> int:
        """Of the process that forks the stages; the only child of the server."""
        (pid,) = [pid for pid in self.live_pids() if name_of(pid) == NURSERY_NAME]
        return pid

    def leftovers(self) -> list[Path]:
        """What it has left in its folder for temporary files."""
        return list(self.temporary_folder.iterdir())

    @property
    def url(self) -> str:
        """Base of its API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """All that it has written to stderr."""
        return "\n".join(self.lines)

    def wait_serving(self) -> Self:
        """Return when it takes requests; fail if it ends instead."""
        self.wait_for_line("serving ")
        return self

    def wait_for_line(self, part: str) -> None:
        """Return when a line with this part was written."""
        deadline_s = time.monotonic() + PATIENCE_S
        with self._news:
            while not any(part in line for line in self.lines):
                assert not self._has_ended_output, f"ended without {part!r}:\n{self.log}"
                assert self._news.wait(deadline_s - time.monotonic()), f"no {part!r}:\n{self.log}"

    def signal(self, number: signal.Signals) -> None:
        """Send the server, not its stages, a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Exit status of the server, once it has ended and all of its output is read."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        return code

    def metrics(self) -> "Samples":
        """The metrics now."""
        return Samples(httpx.get(f"{self.url}/metrics", timeout=PATIENCE_S).text)

    def wait_metrics(self, is_reached: Callable[["Samples"], bool]) -> "Samples":
        """The first metrics that are as wanted; they follow the requests with a short delay."""
        return wait_until(self.metrics, is_reached)

    def _logged(self, pattern: str) -> str:
        match = re.search(pattern, self.log)
        assert match, f"no {pattern!r} in:\n{self.log}"
        return match[1]

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                with self._news:
                    self.lines.append(line.rstrip())
                    self._news.notify_all()
        with self._news:
            self._has_ended_output = True
            self._news.notify_all()


class Samples:
    """One reading of `/metrics`; what has never been counted reads 0."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._values = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def __repr__(self) -> str:
        return self._text

    def value(self, metric: Metric, **labels: str) -> float:
        """Of a counter or gauge."""
        return self._values.get((metric.name, *sorted(labels.items())), 0.0)

    def count(self, metric: Metric, **labels: str) -> float:
        """How many values a histogram holds."""
        return self._values.get((f"{metric.name}_count", *sorted(labels.items())), 0.0)

    def total(self, metric: Metric, **labels: str) -> float:
        """Sum of a histogram's values."""
        return self._values.get((f"{metric.name}_sum", *sorted(labels.items())), 0.0)


def pids_of_session(leader_pid: int) -> tuple[int, ...]:
    """Of the processes of this session that have not ended."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return tuple(pid for pid in pids if _session_of(pid) == leader_pid and not has_ended(pid))


def name_of(pid: int) -> str:
    """What `ps` calls this process; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _session_of(pid: int) -> int:
    try:
        # The name before the last bracket may hold anything; then state, parent, group, session.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:  # it has ended meanwhile
        return 0


def wait_until(
    read: Callable[[], ResultT],
    is_reached: Callable[[ResultT], bool],
    patience_s: float = PATIENCE_S,
) -> ResultT:
    """The first reading that is as wanted."""
    deadline_s = time.monotonic() + patience_s
    while not is_reached(reading := read()):
        assert time.monotonic() < deadline_s, f"never reached; last: {reading!r}"
        time.sleep(_POLL_PERIOD_S)
    return reading


def has_ended(pid: int, timeout_s: float = 0.0) -> bool:
    """Whether this process has ended, or does so in time; it may be anyone's child."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)


def all_have_ended(pids: Sequence[int]) -> bool:
    """Whether all of these processes end within the tests' patience."""
    return all(has_ended(pid, PATIENCE_S) for pid in pids)
