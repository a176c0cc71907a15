"""The operator as a process of its own, and its figures."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from bench.environments import ToolError
from bench.server_processes import free_port
from prometheus_client.parser import text_string_to_metric_families

from pipelineserve import metrics

ENGINE_IMAGE = "example.com/engine:1"
CONTROLLER_IMAGE = "example.com/controller:1"
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 20.0
_POLL_S = 0.25


@dataclass(frozen=True)
class Figures:
    """What an operator's /metrics says at one moment; counts since it began."""

    num_looks: float
    num_writes: float
    num_requests: float
    num_due: float
    memory_bytes: float


class Operator:
    """A running operator.

    Attributes:
        attend_port: where it listens to sidecars.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, metrics_url: str, attend_port: int
    ) -> None:
        self._process = process
        self._metrics_url = metrics_url
        self.attend_port = attend_port

    async def figures(self) -> Figures:
        """As they are now."""
        async with httpx.AsyncClient(trust_env=False, timeout=_START_TIMEOUT_S) as client:
            text = (await client.get(self._metrics_url)).text
        totals: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
        return Figures(
            num_looks=totals[metrics.OPERATOR_RECONCILES.name],
            num_writes=totals[metrics.OPERATOR_WRITES.name],
            num_requests=totals[metrics.OPERATOR_REQUESTS.name],
            num_due=totals[metrics.OPERATOR_QUEUE.name],
            memory_bytes=totals[metrics.OPERATOR_MEMORY.name],
        )

    async def quiet(self, num_looks: int, quiet_s: float, timeout_s: float) -> Figures:
        """Wait until it has looked so often and nothing is due for so long; its figures then.

        Raises:
            ToolError: it did not come to rest in time.
        """
        began_s, since_s, figures = time.monotonic(), time.monotonic(), await self.figures()
        while time.monotonic() - began_s < timeout_s:
            await asyncio.sleep(_POLL_S)
            now = await self.figures()
            if now.num_due > 0 or now.num_looks != figures.num_looks or now.num_looks < num_looks:
                since_s, figures = time.monotonic(), now
            elif time.monotonic() - since_s >= quiet_s:
                return figures
        raise ToolError(f"expected the operator to come to rest within {timeout_s:g} s: {figures}")


@asynccontextmanager
async def operating(
    kubeconfig: Path, namespace: str, log: Path, flags: Sequence[str] = ()
) -> AsyncIterator[Operator]:
    """An operator for one namespace that listens to sidecars, for the length of the block."""
    ports = [free_port() for _ in range(2)]
    command = [
        *(sys.executable, "-m", "pipelineserve_operator"),
        *(f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"),
        *(f"--engine-image={ENGINE_IMAGE}", f"--controller-image={CONTROLLER_IMAGE}"),
        *(f"--operator-address=127.0.0.1:{ports[0]}", f"--attend-port={ports[0]}"),
        *("--probe-host=127.0.0.1", "--probe-port=0", f"--metrics-port={ports[1]}"),
        *flags,
    ]
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=sink, stderr=sink, env=dict(os.environ)
        )
    try:
        await _started(process, log)
        yield Operator(process, f"http://127.0.0.1:{ports[1]}/metrics", ports[0])
    finally:
        await _ended(process)


async def _started(process: asyncio.subprocess.Process, log: Path) -> None:
    began_s = time.monotonic()
    while '"lease acquired"' not in (said := await asyncio.to_thread(log.read_text)):
        if process.returncode is not None or time.monotonic() - began_s > _START_TIMEOUT_S:
            raise ToolError(f"the operator did not start:\n{said}")
        await asyncio.sleep(_POLL_S)


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def warnings_in(log: Path) -> list[str]:
    """Lines of an operator's log that are worse than information."""
    lines = []
    for text in log.read_text().splitlines():
        try:
            level = json.loads(text).get("level", "")
        except ValueError:
            level = "unknown"
        # That the lease is given up at the end is as it should be.
        if level.lower() not in {"info", "debug"} and '"lease lost"' not in text:
            lines.append(text)
    return lines
