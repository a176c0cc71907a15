"""Telling a person how far a download or a conversion is."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TextIO

_POLL_S = 0.2
_MIB = 1024 * 1024


class Progress(Protocol):
    """One task after the other: `start`, any number of `advance`, `finish` (also after a failure).

    `advance` may be called from another thread than `start` and `finish`, never after `finish`.
    """

    def start(self, label: str, total_bytes: int | None) -> None:
        """A task begins; `total_bytes` is None when nobody knows how much there is."""
        ...

    def advance(self, num_bytes: int) -> None:
        """So many bytes more are done."""
        ...

    def finish(self) -> None:
        """The task ended, well or not; an error is raised beside it."""
        ...


class SilentProgress:
    """Shows nothing."""

    def start(self, label: str, total_bytes: int | None) -> None:
        """Nothing to show."""

    def advance(self, num_bytes: int) -> None:
        """Nothing to show."""

    def finish(self) -> None:
        """Nothing to show."""


class LineProgress:
    """Plain lines for logs and init containers: one per task, then one per tenth or per 64 MiB."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._label = ""
        self._total_bytes: int | None = None
        self._done_bytes = 0
        self._shown_step = 0

    def start(self, label: str, total_bytes: int | None) -> None:
        """Write the label, and the size where it is known."""
        self._label, self._total_bytes = label, total_bytes
        self._done_bytes = self._shown_step = 0
        self._write(label if total_bytes is None else f"{label} ({total_bytes / _MIB:.0f} MiB)")

    def advance(self, num_bytes: int) -> None:
        """Write a line when a step is passed."""
        self._done_bytes += num_bytes
        step_bytes = 64 * _MIB if self._total_bytes is None else max(1, self._total_bytes // 10)
        if (step := self._done_bytes // step_bytes) > self._shown_step:
            self._shown_step = step
            self._write(f"{self._label}: {self._done_text()}")

    def finish(self) -> None:
        """The next task or error has its own line."""

    def _done_text(self) -> str:
        if not self._total_bytes:
            return f"{self._done_bytes / _MIB:.0f} MiB"
        return f"{100 * self._done_bytes // self._total_bytes} %"

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


@contextmanager
def task(progress: Progress, label: str, total_bytes: int | None) -> Iterator[None]:
    """A task that finishes however its block ends."""
    progress.start(label, total_bytes)
    try:
        yield
    finally:
        progress.finish()


@contextmanager
def growth_task(
    folder: Path, progress: Progress, label: str, total_bytes: int | None
) -> Iterator[None]:
    """A task whose progress is the growth of a folder that other code fills.

    What an earlier, interrupted try left in the folder counts as done.
    """
    stop = threading.Event()

    def poll() -> None:
        seen_bytes = 0
        is_last = False
        while not is_last:
            is_last = stop.wait(_POLL_S)
            now_bytes = folder_bytes(folder)
            if total_bytes is not None:
                now_bytes = min(now_bytes, total_bytes)
            if now_bytes > seen_bytes:
                progress.advance(now_bytes - seen_bytes)
                seen_bytes = now_bytes

    poller = threading.Thread(target=poll, name="download-progress", daemon=True)
    with task(progress, label, total_bytes):
        poller.start()
        try:
            yield
        finally:
            stop.set()
            poller.join()


def folder_bytes(folder: Path) -> int:
    """Sum of the sizes of all files below `folder`, at about this moment."""
    total_bytes = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total_bytes += (Path(root) / name).lstat().st_size
            except FileNotFoundError:
                continue  # a downloader renames its parts while we look; the next poll sees them
    return total_bytes
