"""Stage hosts as real processes, each at an address of its own."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from engine_server import PATIENCE_S, name_of, pids_of_session
from pipelineserve_engine.nursery.tending import STAGE_NAME


def save_group_key(path: Path) -> Path:
    """A fresh secret that only this user can read."""
    path.touch(mode=0o600)
    path.write_bytes(secrets.token_bytes(32))
    return path


class RunningStageHost:
    """One `python -m pipelineserve_engine.stage_host`; killed with its worker at the end.

    Args:
        leader: HOST:PORT.
        stage_index: of the stage.
        model_folder: of the model.
        address: its own.
        key_file: the group's secret.
        flags: more of them.
        prefix: a command that runs it, for example in another network namespace.

    Attributes:
        lines: what it and its worker have written to stderr.
    """

    def __init__(
        self,
        *,
        leader: str,
        stage_index: int,
        model_folder: Path,
        address: str,
        key_file: Path,
        flags: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        self._command = [
            *(*prefix, sys.executable, "-m", "pipelineserve_engine.stage_host"),
            *(f"--leader={leader}", f"--stage-index={stage_index}", f"--address={address}"),
            *(f"--model-folder={model_folder}", f"--group-key-file={key_file}", *flags),
        ]
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._has_ended_output = False

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
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
        for pid in pids_of_session(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    @property
    def pid(self) -> int:
        """Of the stage host."""
        return self._process.pid

    @property
    def log(self) -> str:
        """All that it has written."""
        return "\n".join(self.lines)

    def worker_pids(self) -> tuple[int, ...]:
        """Of its workers that run; those of an earlier one that is gone are not seen."""
        return tuple(pid for pid in pids_of_session(self.pid) if STAGE_NAME in name_of(pid))

    def wait(self) -> int:
        """Exit status, once all of its output is read."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join()
        return code

    def wait_for_line(self, part: str, count: int = 1) -> None:
        """Return when so many lines with this part were written."""
        deadline_s = time.monotonic() + PATIENCE_S
        with self._news:
            while sum(part in line for line in self.lines) < count:
                assert not self._has_ended_output, f"ended without {part!r}:\n{self.log}"
                assert self._news.wait(deadline_s - time.monotonic()), f"no {part!r}:\n{self.log}"

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
