"""A whole run: the plan sent to a server, Ctrl-C obeyed, and everything judged."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console

from pipelineserve.load.targets import Targets
from pipelineserve_cli.load.bodies import BodySettings
from pipelineserve_cli.load.client import ClientSettings, LoadClient
from pipelineserve_cli.load.plan import LoadPlan
from pipelineserve_cli.load.progress import live_counts
from pipelineserve_cli.load.report import LoadReport, make_report
from pipelineserve_cli.load.run import LoadRun, RunResult
from pipelineserve_cli.load.stage_times import bubble_ratios, read_stage_times


@dataclass(frozen=True, slots=True)
class LoadSession:
    """What is needed to run one plan."""

    plan: LoadPlan
    bodies: BodySettings
    client: ClientSettings
    targets: Targets
    drain_s: float

    def execute(self, console: Console) -> tuple[LoadReport, RunResult]:
        """Run it; progress goes to the console."""
        before = read_stage_times(self.client.url)
        result = asyncio.run(self._run(console))
        after = read_stage_times(self.client.url)
        report = make_report(
            self.plan,
            result,
            targets=self.targets,
            bodies=self.bodies,
            client=self.client,
            drain_s=self.drain_s,
            bubble_ratios=bubble_ratios(before, after),
        )
        return report, result

    async def _run(self, console: Console) -> RunResult:
        clock = time.monotonic
        client = LoadClient(self.client, clock)
        run = LoadRun(self.plan, self.bodies, client, drain_s=self.drain_s, clock=clock)
        with _interrupts(run, console), live_counts(console, lambda: run.counts):
            return await run.run()


@contextmanager
def _interrupts(run: LoadRun, console: Console) -> Iterator[None]:
    """Ctrl-C ends the load in order, a second one at once."""

    def on_interrupt() -> None:
        console.print("Sending no more; waiting for running requests. Ctrl-C again gives them up.")
        run.interrupt()

    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
