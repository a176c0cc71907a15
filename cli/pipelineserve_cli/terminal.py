"""What a person sees while something takes long."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class ModelProgress:
    """Bars for what `pipelineserve_engine.models` reports; plain lines without a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._task = TaskID(0)

    def start(self, label: str, total_bytes: int | None) -> None:
        """Show a bar for a new task."""
        if not self._console.is_terminal:
            self._console.print(label)
            return
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._bars.start()
        self._task = self._bars.add_task(label, total=total_bytes)

    def advance(self, num_bytes: int) -> None:
        """Move the bar."""
        if self._bars is not None:
            self._bars.advance(self._task, num_bytes)

    def finish(self) -> None:
        """Leave the bar as it stands."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
