"""The whole sidecar as a real process: it serves, it steers, and it ends in order."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelineserve_controller.journal import journal_files
from pipelineserve_controller.replay import replay
from pipelineserve_controller.sidecar import main
from scripted_scheduler import ScriptedScheduler, wait_until

RESOURCE = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {name: demo}
spec:
  model: {uri: "file:///model"}
  parallelism: {stages: 2}
  slo: {ttft: {milliseconds: 1500}}
  chunking: {policy: Static, staticTokens: 300}
  control: {leaseSeconds: 2}
"""


class SidecarProcess:
    """One `python -m pipelineserve_controller`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._log = folder / "log"
        (folder / "resource.yaml").write_text(RESOURCE)
        command = [
            *(sys.executable, "-m", "pipelineserve_controller", "--port=0"),
            f"--engine-address=unix:{folder}/control.sock",
            f"--objectives-file={folder}/resource.yaml",
            *flags,
        ]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)

    @property
    def log(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text()

    def state(self) -> dict[str, Any]:
        """Its state, once it serves."""
        wait_until(lambda: "live state on" in self.log, "the address")
        address = re.search(r"live state on (\S+)", self.log)
        assert address is not None
        state: dict[str, Any] = httpx.get(f"{address[1]}/api/state").json()
        return state


@contextmanager
def sidecar(folder: Path, *flags: str) -> Iterator[SidecarProcess]:
    running = SidecarProcess(folder, *flags)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def address_in(folder: Path) -> str:
    return f"unix:{folder}/control.sock"


def test_steers_an_engine_shows_it_and_ends_in_order(tmp_path: Path) -> None:
    with (
        ScriptedScheduler(address_in(tmp_path)) as scheduler,
        sidecar(tmp_path, f"--journal-folder={tmp_path}/journal") as running,
    ):
        wait_until(lambda: bool(scheduler.applied), "a policy")
        state = running.state()
        assert state["chunk"]["static_tokens"] == 300
        assert state["control"]["resource_name"] == "demo"
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(timeout=20) == 0
        assert "Traceback" not in running.log
    assert journal_files(tmp_path / "journal")
    result = replay(tmp_path / "journal")
    assert result.num_turns > 0
    assert result.differences == ()


def test_goes_on_steering_after_sigterm_until_the_engine_has_ended(tmp_path: Path) -> None:
    with sidecar(tmp_path, "--drain-seconds=60") as running:
        with ScriptedScheduler(address_in(tmp_path)) as scheduler:
            wait_until(lambda: bool(scheduler.applied), "a policy")
            running.process.send_signal(signal.SIGTERM)
            num_applied = len(scheduler.applied)
            wait_until(lambda: len(scheduler.applied) >= num_applied + 2, "renewals after SIGTERM")
            assert running.process.poll() is None
        assert running.process.wait(timeout=20) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, number: signal.Signals) -> None:
    with (
        ScriptedScheduler(address_in(tmp_path)) as scheduler,
        sidecar(tmp_path, "--drain-seconds=600") as running,
    ):
        wait_until(lambda: bool(scheduler.applied), "a policy")
        running.process.send_signal(signal.SIGTERM)
        num_applied = len(scheduler.applied)
        wait_until(lambda: len(scheduler.applied) > num_applied, "a renewal after SIGTERM")
        running.process.send_signal(number)
        assert running.process.wait(timeout=20) == 0


def test_ends_when_its_parent_is_another(tmp_path: Path) -> None:
    with sidecar(tmp_path, "--parent-pid=1") as running:
        assert running.process.wait(timeout=60) == 0


def test_settings_that_cannot_be_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--engine-address", "somewhere"]) == 2
    assert "engine_address: expected unix:/path or HOST:PORT" in capsys.readouterr().err


def test_an_address_that_cannot_be_had_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--engine-address", "unix:/x", "--host", "203.0.113.1"]) == 1
    assert "cannot listen on 203.0.113.1:8090" in capsys.readouterr().err
