"""The operator as a process of its own, with its log and its figures."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from engine_server import wait_until

_END_TIMEOUT_S = 10.0


class OperatorProcess:
    """A running operator."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log
        started = self.wait_for_line("operator started")
        self._probes = f"http://127.0.0.1:{started['probe_port']}"
        self._metrics = f"http://127.0.0.1:{started['metrics_port']}"

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def lines(self) -> list[dict[str, Any]]:
        """Its log; a line that is half written is left out."""
        found = []
        for line in self._log.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"message": line})
        return found

    def wait_for_line(self, message: str) -> dict[str, Any]:
        """The first log line with this message."""

        def look() -> list[dict[str, Any]]:
            if not self.is_running:
                raise AssertionError(f"the operator has ended:\n{self._log.read_text()}")
            return [line for line in self.lines() if line.get("message") == message]

        return wait_until(look, bool)[0]

    def status_of(self, path: str) -> int:
        """Of a probe's answer."""
        return httpx.get(f"{self._probes}{path}", trust_env=False).status_code

    def figure(self, name: str, labels: str = "") -> float:
        """The value of one of its series."""
        text = httpx.get(f"{self._metrics}/metrics", trust_env=False).text
        wanted = f"{name}{labels} "
        return float(next(line for line in text.splitlines() if line.startswith(wanted)).split()[1])

    def end(self) -> int:
        """SIGTERM; its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(_END_TIMEOUT_S)

    def kill(self) -> None:
        """At once, as when its node fails."""
        self._process.kill()
        self._process.wait(_END_TIMEOUT_S)


@contextmanager
def operator_running(
    kubeconfig: Path, namespace: str, folder: Path, *flags: str
) -> Iterator[OperatorProcess]:
    """An operator for one namespace, for the length of the block."""
    number = len(list(folder.glob("operator-*.log")))
    log = folder / f"operator-{number}.log"
    command = [
        *(sys.executable, "-m", "pipelineserve_operator"),
        *("--kubeconfig", str(kubeconfig), "--namespace", namespace),
        *(
            "--engine-image",
            "example.com/engine:1",
            "--controller-image",
            "example.com/controller:1",
        ),
        *("--probe-host", "127.0.0.1", "--probe-port", "0", "--metrics-port", "0"),
        *flags,
    ]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=dict(os.environ))
    try:
        yield OperatorProcess(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(_END_TIMEOUT_S)
