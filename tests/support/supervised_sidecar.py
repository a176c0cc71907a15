"""The controller under its supervisor as real processes, with a resource that a test edits."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from engine_server import PATIENCE_S, all_have_ended, wait_until

RESOURCE = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {{name: steered}}
spec:
  model: {{uri: "file:///model"}}
  parallelism: {{stages: 2}}
  engine: {{maxChunkTokens: 256}}
  slo: {{ttft: {{milliseconds: 600000}}, tpot: {{milliseconds: {tpot_ms}}}}}
  chunking: {{policy: {policy}, minTokens: 16, staticTokens: {static_tokens}}}
  control: {{leaseSeconds: {lease_s}}}
"""


def a_resource(
    *, policy: str = "Static", static_tokens: int = 32, tpot_ms: int = 600_000, lease_s: int = 3
) -> str:
    """Loose targets, and a lease that ends soon."""
    return RESOURCE.format(
        policy=policy, static_tokens=static_tokens, tpot_ms=tpot_ms, lease_s=lease_s
    )


class SupervisedSidecar:
    """One `python -m pipelineserve_controller.supervisor`; whatever is left ends with the block.

    Args:
        folder: its own: resource, log and journal.
        engine_address: the engine's, which need not be there.
        resource: what it follows.
    """

    def __init__(self, folder: Path, engine_address: str, resource: str | None = None) -> None:
        folder.mkdir()
        self._log = folder / "log"
        self._resource = folder / "resource.yaml"
        self.edit(resource or a_resource())
        self._command = [
            *(sys.executable, "-m", "pipelineserve_controller.supervisor"),
            *("--port=0", "--turns-per-second=10"),
            f"--engine-address={engine_address}",
            f"--objectives-file={self._resource}",
            f"--journal-folder={folder}/journal",
        ]

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=log)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill what is left of it."""
        self.kill()

    @property
    def log(self) -> str:
        """What both processes wrote to stderr."""
        return self._log.read_text()

    def edit(self, resource: str) -> None:
        """Replace the resource as an editor does: at once."""
        written = self._resource.with_suffix(".new")
        written.write_text(resource)
        written.replace(self._resource)

    def child_pid(self) -> int:
        """Of the controller, once there is one."""
        children = wait_until(lambda: _children_of(self._process.pid), bool)
        return children[0]

    def state(self) -> dict[str, Any] | None:
        """What `/api/state` says; None while nobody answers."""
        addresses = re.findall(r"live state on (\S+)", self.log)
        try:
            answer = httpx.get(f"{addresses[-1]}/api/state", timeout=PATIENCE_S)
        except (IndexError, httpx.TransportError):
            return None
        state: dict[str, Any] = answer.json()
        return state

    def wait_state(self, is_reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first state that is as wanted."""
        found = wait_until(self.state, lambda state: state is not None and is_reached(state))
        assert found is not None
        return found

    def kill(self) -> None:
        """SIGKILL for both processes, the supervisor first so that it starts no other."""
        children = _children_of(self._process.pid)
        self._process.kill()
        self._process.wait()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert all_have_ended(children)


def _children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended since the folder was listed
            # The name before the last bracket may hold anything; then state and parent.
            parent = path.read_text().rpartition(")")[2].split()[1]
            if int(parent) == pid:
                found.append(int(path.parent.name))
    return found
