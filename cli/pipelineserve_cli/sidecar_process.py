"""The controller, under its supervisor, as a child process beside the engine."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from pipelineserve.errors import ControllerUnavailableError
from pipelineserve_cli.child_process import ChildProcess

_STOP_TIMEOUT_S = 10.0
_POLL_PERIOD_S = 0.25
_NO_PORT = re.compile(r"^cannot listen on .*", re.MULTILINE)
_ENDED = re.compile(r"controller ended with (?!0;)")


@dataclass(frozen=True, slots=True)
class SidecarPlan:
    """What a controller is started with.

    Attributes:
        control_address: where the engine serves controllers.
        metrics_url: the engine's metrics, to cross-check.
        manifest: the file whose targets it follows.
        port: of its page on loopback.
    """

    control_address: str
    metrics_url: str
    manifest: Path
    port: int

    def flags(self) -> list[str]:
        """Flags of `python -m pipelineserve_controller.supervisor`."""
        return [
            f"--engine-address={self.control_address}",
            f"--engine-metrics-url={self.metrics_url}",
            f"--objectives-file={self.manifest}",
            f"--port={self.port}",
        ]


class SidecarProcess(ChildProcess):
    """One controller that is started again whenever it dies; ends with its block.

    Args:
        plan: what it is started with.
        on_log: called with each line that it logs, from a thread.
    """

    def __init__(self, plan: SidecarPlan, on_log: Callable[[str], None]) -> None:
        command = [sys.executable, "-m", "pipelineserve_controller.supervisor", *plan.flags()]
        command.append(f"--parent-pid={os.getpid()}")
        super().__init__(command, _STOP_TIMEOUT_S, on_log)
        self.url = f"http://127.0.0.1:{plan.port}/"

    def wait_ready(self) -> None:
        """Return when its page is served.

        Raises:
            ControllerUnavailableError: it cannot run.
        """
        while not self._is_ready():
            code = self.wait_ended(_POLL_PERIOD_S)
            tail = "\n".join(self.last_lines)
            if (taken := _NO_PORT.search(tail)) is not None:
                advice = "choose another with --page-port, or run without with --no-control"
                raise ControllerUnavailableError(f"the live page {taken[0]}; {advice}")
            if code is not None or _ENDED.search(tail):
                raise ControllerUnavailableError(f"the controller does not start:\n{tail}")

    def _is_ready(self) -> bool:
        # The address may be someone else's: only after the child's own word an answer counts.
        if not any(" live state on http" in line for line in self.last_lines):
            return False
        try:
            return httpx.get(f"{self.url}readyz", timeout=2.0).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False
