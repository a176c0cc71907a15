"""The engine's server as a child process: start it, wait until it serves, end it."""

import os
import re
import sys
from collections.abc import Callable, Sequence

import httpx

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_cli.child_process import ChildProcess

# Beyond the drain: ending the stages and what is left on disk.
_STOP_MARGIN_S = 20.0
_POLL_PERIOD_S = 0.25
_SERVING = re.compile(r" pipelineserve_engine serving .+ on http://\S+:\d+$")
_OWN_WORDS = re.compile(r"^error: (.*)", re.MULTILINE | re.DOTALL)
# argparse's last line, after the usage of every flag.
_REFUSED_FLAG = re.compile(r"^python -m pipelineserve_engine\.server: error: (.*)", re.MULTILINE)


class EngineProcess(ChildProcess):
    """One engine server; ends with the block that it is used in.

    Args:
        flags: of `python -m pipelineserve_engine.server`.
        port: that the flags name.
        drain_s: how long the server lets running requests go on when it is asked to end.
        on_log: called with each line that the server logs, from a thread.
    """

    def __init__(
        self, flags: Sequence[str], port: int, drain_s: float, on_log: Callable[[str], None]
    ) -> None:
        command = [sys.executable, "-m", "pipelineserve_engine.server", *flags]
        command.append(f"--parent-pid={os.getpid()}")
        super().__init__(command, drain_s + _STOP_MARGIN_S, on_log)
        self.url = f"http://127.0.0.1:{port}"

    def wait_ready(self) -> None:
        """Return when the server takes requests.

        Raises:
            EngineUnavailableError: it ended instead; the message is its own.
        """
        while not self._is_ready():
            if (code := self.wait_ended(_POLL_PERIOD_S)) is not None:
                raise self._error(code)

    def is_serving(self, wait_s: float) -> bool:
        """Whether it lives on after so many seconds; false once it has ended in order.

        Raises:
            EngineUnavailableError: it ended with an error.
        """
        code = self.wait_ended(wait_s)
        if code:
            raise self._error(code)
        return code is None

    def _is_ready(self) -> bool:
        # Only the child's own answer counts: it logs nothing else before it has the port.
        if not any(_SERVING.search(line) for line in self.last_lines):
            return False
        try:
            return httpx.get(f"{self.url}/ready", timeout=2.0).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _error(self, code: int) -> EngineUnavailableError:
        tail = "\n".join(self.last_lines)
        if (refused := _REFUSED_FLAG.search(tail)) is not None:
            return EngineUnavailableError(f"spec.engine.args: {refused[1]}")
        if (own := _OWN_WORDS.search(tail)) is not None:
            return EngineUnavailableError(own[1])
        return EngineUnavailableError(f"the engine ended with {code}:\n{tail}")
