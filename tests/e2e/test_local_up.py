"""`pserve local up` as a user runs it: serves, measures, says what is wrong, leaves nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine_server import PATIENCE_S, all_have_ended, wait_until
from served_model import ServedModel

MANIFEST = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {{name: tiny}}
spec:
  model: {{uri: "file://{folder}"}}
  engine: {{type: Torch}}
  parallelism: {{stages: {stages}}}
  slo: {{ttft: {{milliseconds: 1000}}, tpot: {{milliseconds: 100}}}}
  chunking: {{policy: Static, staticTokens: 64}}
"""


# The server, its nursery, two stages, the controller and its supervisor.
NUM_PROCESSES = 6


@pytest.fixture
def port() -> int:
    return free_port()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number: int = listener.getsockname()[1]
        return number


@pytest.fixture
def manifest(served_model: ServedModel, tmp_path: Path) -> Path:
    return write_manifest(tmp_path, served_model.folder, stages=2)


def write_manifest(folder: Path, model_folder: Path, *, stages: int) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(MANIFEST.format(folder=model_folder, stages=stages))
    return path


class Run:
    """One `pserve local up`, with a folder of its own for temporary files."""

    def __init__(
        self, process: "subprocess.Popen[str]", temporary_folder: Path, page_port: int
    ) -> None:
        self.process = process
        self.temporary_folder = temporary_folder
        self.page_url = f"http://127.0.0.1:{page_port}/"
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_serving(self, port: int) -> None:
        """Return when the API answers."""
        wait_until(lambda: self.process.poll() is not None or is_ready(port), bool)
        assert self.process.poll() is None, self.log

    def wait_controlled(self) -> None:
        """Return when the live page is announced."""
        wait_until(lambda: self.process.poll() is not None or "Live page on" in self.log, bool)
        assert self.process.poll() is None, self.log

    def wait_said(self, words: str) -> None:
        """Return when it has said so."""
        wait_until(lambda: words in self.log, bool)

    def state(self) -> dict[str, Any]:
        """What the controller shows."""
        found: dict[str, Any] = httpx.get(f"{self.page_url}api/state").json()
        return found

    def wait(self) -> int:
        """Exit status, once all output is read."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        return code

    @property
    def log(self) -> str:
        """What it has written to stderr."""
        return "\n".join(self.lines)

    def descendants(self) -> list[int]:
        """Processes below it: the server, its nursery and the stages."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (parent := parent_of(int(entry.name))):
                children.setdefault(parent, []).append(int(entry.name))
        found, todo = [], [self.process.pid]
        while todo:
            todo += (below := children.get(todo.pop(), []))
            found += below
        return found

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.lines.append(line.rstrip())  # one by one: others read it meanwhile


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended meanwhile
        return 0


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready").is_success
    except httpx.TransportError:
        return False


@contextmanager
def local_up(manifest: Path, port: int, *flags: str) -> Iterator[Run]:
    page_port = free_port()
    with tempfile.TemporaryDirectory(prefix="up-") as temporary_folder:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pipelineserve_cli.main", "local", "up"),
                *("-f", str(manifest), f"--port={port}", f"--page-port={page_port}", *flags),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": temporary_folder},
            start_new_session=True,
        )
        run = Run(process, Path(temporary_folder), page_port)
        try:
            yield run
        finally:
            pids = run.descendants()
            for pid in [process.pid, *pids]:
                if parent_of(pid):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()  # type: ignore[union-attr] # it is a pipe


def test_the_demo_prints_figures_as_json_and_ends(manifest: Path, port: int) -> None:
    with local_up(manifest, port, "--demo", "--exit", "--json") as run:
        assert run.process.stdout is not None
        figures = json.loads(run.process.stdout.read())
        assert run.wait() == 0, run.log
        assert run.descendants() == []
        assert list(run.temporary_folder.iterdir()) == []
    assert figures["num_requests"] == 18
    assert len(figures["ttft_s"]) == 18
    assert len(figures["bubble_ratios"]) == 2
    assert all(0.0 <= ratio <= 1.0 for ratio in figures["bubble_ratios"])


def test_ctrl_c_while_serving_ends_everything_in_order(manifest: Path, port: int) -> None:
    with local_up(manifest, port) as run:
        run.wait_controlled()
        pids = run.descendants()
        assert len(pids) == NUM_PROCESSES
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 0, run.log
        assert all_have_ended(pids)
        assert list(run.temporary_folder.iterdir()) == []
    assert "Traceback" not in run.log


def test_ctrl_c_while_loading_ends_everything(manifest: Path, port: int) -> None:
    with local_up(manifest, port) as run:
        wait_until(run.descendants, lambda pids: len(pids) == 4)
        pids = run.descendants()
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 0, run.log
        assert all_have_ended(pids)
        assert list(run.temporary_folder.iterdir()) == []
    assert "Traceback" not in run.log


def test_the_engine_ends_by_itself_when_pserve_is_killed(manifest: Path, port: int) -> None:
    with local_up(manifest, port) as run:
        run.wait_controlled()
        pids = run.descendants()
        assert len(pids) == NUM_PROCESSES
        run.process.kill()
        run.process.wait()
        assert all_have_ended(pids)
        assert list(run.temporary_folder.iterdir()) == []


def test_a_taken_port_is_said_at_once(manifest: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with local_up(manifest, port) as run:
            assert run.wait() == 1
    assert f"cannot listen on 127.0.0.1:{port}" in run.log
    assert "choose another port" in run.log
    assert "Traceback" not in run.log


def test_more_stages_than_layers_are_refused_before_anything_loads(
    served_model: ServedModel, tmp_path: Path, port: int
) -> None:
    manifest = write_manifest(tmp_path, served_model.folder, stages=6)
    with local_up(manifest, port) as run:
        assert run.wait() == 1
    assert "stages: expected 1 to 5 (the model's layers), got 6" in run.log


def test_all_faults_of_a_manifest_come_in_one_message(tmp_path: Path, port: int) -> None:
    manifest = write_manifest(tmp_path, Path("/models/tiny"), stages=2)
    manifest.write_text(manifest.read_text().replace("stages: 2", 'stages: "two"') + "  extra: 1\n")
    with local_up(manifest, port) as run:
        assert run.wait() == 1
    assert 'spec.parallelism.stages: expected an integer, got the string "two"' in run.log
    assert "spec.extra: unknown field" in run.log


def test_a_flag_that_the_engine_refuses_is_named_by_its_field(manifest: Path, port: int) -> None:
    text = manifest.read_text().replace("type: Torch", "type: Torch, args: ['--block-tokens=x']")
    manifest.write_text(text)
    with local_up(manifest, port) as run:
        assert run.wait() == 1
    assert "error: spec.engine.args: argument --block-tokens: invalid int value: 'x'" in run.log


def test_a_manifest_that_is_not_utf_8_is_named(tmp_path: Path, port: int) -> None:
    manifest = tmp_path / "latin.yaml"
    manifest.write_bytes(b"kind: Pipeline\xe9")
    with local_up(manifest, port) as run:
        assert run.wait() == 1
    assert "expected UTF-8 text, got 0xe9 at byte 14" in run.log


def test_sigterm_ends_everything_in_order_too(manifest: Path, port: int) -> None:
    with local_up(manifest, port) as run:
        run.wait_controlled()
        pids = run.descendants()
        assert len(pids) == NUM_PROCESSES
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 128 + signal.SIGTERM
        assert all_have_ended(pids)
        assert list(run.temporary_folder.iterdir()) == []


def test_a_model_that_is_not_there_is_named(tmp_path: Path, port: int) -> None:
    manifest = write_manifest(tmp_path, Path("/models/no-such-model"), stages=2)
    with local_up(manifest, port) as run:
        assert run.wait() == 1
    assert "/models/no-such-model is not a folder" in run.log.replace("\n", " ")


def test_edits_reach_the_controller_while_everything_runs_on(manifest: Path, port: int) -> None:
    with local_up(manifest, port) as run:
        run.wait_controlled()
        wait_until(lambda: run.state()["connection"]["is_connected"], bool)
        pids = run.descendants()
        good = manifest.read_text()
        manifest.write_text(good.replace("milliseconds: 1000", "milliseconds: 900"))
        run.wait_said("edit in force: spec.slo.ttft.milliseconds 1000 → 900")
        wait_until(run.state, lambda state: state["ttft"]["target_s"] == 0.9)
        assert run.state()["control"]["generation"] == 2
        manifest.write_text(good.replace("milliseconds: 1000", "milliseconds: fast"))
        fault = "spec.slo.ttft.milliseconds: expected an integer"
        run.wait_said("edit refused, the earlier targets stay")
        wait_until(run.state, lambda state: fault in state["control"]["refused_edit"])
        assert fault in run.log
        assert run.state()["ttft"]["target_s"] == 0.9
        manifest.write_text(good.replace("stages: 2", "stages: 3"))
        run.wait_said("edit needs a restart of `pserve local up`: spec.parallelism.stages 2 → 3")
        wait_until(run.state, lambda state: state["ttft"]["target_s"] == 1.0)
        assert run.state()["control"]["refused_edit"] == ""
        assert run.descendants() == pids


def test_the_live_page_stands_at_the_address_that_is_printed(manifest: Path, port: int) -> None:
    with local_up(manifest, port) as run:
        run.wait_controlled()
        assert f"Live page on {run.page_url} " in run.log.replace("\n", " ")
        assert "<title>PipelineServe</title>" in httpx.get(run.page_url).text


def test_without_control_there_is_no_controller(manifest: Path, port: int) -> None:
    with local_up(manifest, port, "--no-control") as run:
        run.wait_serving(port)
        wait_until(lambda: "End: Ctrl-C" in run.log, bool)
        assert len(run.descendants()) == NUM_PROCESSES - 2
        with pytest.raises(httpx.ConnectError):
            run.state()
        text = manifest.read_text()
        manifest.write_text(text.replace("milliseconds: 1000", "milliseconds: 900"))
        run.wait_said("edit needs a restart of `pserve local up`: spec.slo.ttft.milliseconds")


def test_a_taken_port_of_the_page_is_said_and_ends_everything(manifest: Path, port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        with local_up(manifest, port, f"--page-port={taken}") as run:
            assert run.wait() == 1
            assert run.descendants() == []
    assert f"the live page cannot listen on 127.0.0.1:{taken}" in run.log
    assert "choose another with --page-port, or run without with --no-control" in run.log
    assert "Traceback" not in run.log
