"""The line that moves while a load runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipelineserve_cli.load.run import LiveCounts

_REFRESH_PER_S = 2  # the load itself needs this machine more


@contextmanager
def live_counts(console: Console, read: Callable[[], LiveCounts]) -> Iterator[None]:
    """Show the counts on a terminal until the block ends; elsewhere show nothing."""
    if not console.is_terminal:
        yield
        return

    def line() -> Text:
        return Text(describe(read()))

    with Live(
        console=console, get_renderable=line, refresh_per_second=_REFRESH_PER_S, transient=True
    ):
        yield


def describe(counts: LiveCounts) -> str:
    """Where the run stands, in one line."""
    parts = [
        f"{counts.num_sent}/{counts.num_planned} sent",
        f"{counts.num_running} running",
        f"{counts.num_done} done",
        f"{counts.num_failed} failed",
    ]
    parts += _recent("TTFT", [record.ttft_s for record in counts.recent])
    parts += _recent("TPOT", [record.tpot_s for record in counts.recent])
    return "  ".join(parts)


def _recent(name: str, values_s: list[float | None]) -> list[str]:
    known_s = [value_s for value_s in values_s if value_s is not None]
    return [f"recent {name} {median(known_s) * 1000:.0f} ms"] if known_s else []
