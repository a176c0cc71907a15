"""What moves on standard error while experiments run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_RATE_WINDOW_S = 120.0


@dataclass(slots=True)
class BarProgress:
    """A bar over simulations; its end is a forecast, and moves."""

    bar: Progress
    task: TaskID
    num_expected: int
    num_rows: int

    def update(self, num_done: int, num_known: int, num_concluded: int) -> None:
        """See `Progress` of the runner."""
        total = max(self.num_expected, num_known)
        if num_concluded == self.num_rows:
            total = num_done
        elapsed_s = self.bar.tasks[0].elapsed or 0.0
        rate = f"{num_done / elapsed_s:.2f}/s" if num_done and elapsed_s else ""
        rows = f"{num_concluded}/{self.num_rows} rows"
        self.bar.update(self.task, completed=num_done, total=total, rate=rate, rows=rows)


@contextmanager
def shown_progress(console: Console, num_expected: int, num_rows: int) -> Iterator[BarProgress]:
    """A bar on a terminal until the block ends; elsewhere nothing moves."""
    bar = Progress(
        TextColumn("simulations"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TextColumn("{task.fields[rows]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=_RATE_WINDOW_S,
    )
    with bar:
        task = bar.add_task("", total=num_expected, rate="", rows="")
        yield BarProgress(bar, task, num_expected, num_rows)
