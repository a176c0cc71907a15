"""What a person is told while files are fetched."""

import io
from pathlib import Path

import pytest

from pipelineserve_engine.models.progress import LineProgress, SilentProgress, growth_task, task


class _Recorded(SilentProgress):
    def __init__(self) -> None:
        self.done_bytes = 0
        self.num_finished = 0

    def advance(self, num_bytes: int) -> None:
        self.done_bytes += num_bytes

    def finish(self) -> None:
        self.num_finished += 1


def test_counts_everything_that_was_put_into_the_folder(tmp_path: Path) -> None:
    progress = _Recorded()
    with growth_task(tmp_path, progress, "fetching", None):
        (tmp_path / "a").write_bytes(b"1234")
        (tmp_path / "below").mkdir()
        (tmp_path / "below" / "b").write_bytes(b"56")
    assert progress.done_bytes == 6


def test_never_counts_more_than_the_total(tmp_path: Path) -> None:
    progress = _Recorded()
    with growth_task(tmp_path, progress, "fetching", 3):
        (tmp_path / "a").write_bytes(b"1234")
    assert progress.done_bytes == 3


def test_a_task_that_fails_is_finished_once() -> None:
    progress = _Recorded()
    with pytest.raises(RuntimeError), task(progress, "failing", None):
        raise RuntimeError
    assert progress.num_finished == 1


def test_lines_show_tenths_of_a_known_size() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start("Converting", 100)
    for _ in range(20):
        progress.advance(5)
    progress.finish()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "Converting (0 MiB)"
    assert lines[1:] == [f"Converting: {percent} %" for percent in range(10, 101, 10)]


def test_lines_show_the_amount_when_the_size_is_not_known() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.start("Downloading", None)
    progress.advance(70 * 1024 * 1024)
    assert stream.getvalue() == "Downloading\nDownloading: 70 MiB\n"
