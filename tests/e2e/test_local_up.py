"""`pserve local up` as a user runs it: serves, measures, says what is wrong, leaves nothing."""

import json
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from engine_server import all_have_ended, wait_until
from free_ports import a_free_port
from local_up import local_up, write_manifest
from served_model import ServedModel

# The server, its nursery, two stages, the controller, its supervisor, and the keeper of the run.
NUM_PROCESSES = 7


@pytest.fixture
def port() -> int:
    return a_free_port()


@pytest.fixture
def manifest(served_model: ServedModel, tmp_path: Path) -> Path:
    return write_manifest(tmp_path, served_model.folder, stages=2)


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
        wait_until(run.descendants, lambda pids: len(pids) == NUM_PROCESSES)
        pids = run.descendants()
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 0, run.log
        assert all_have_ended(pids)
        assert list(run.temporary_folder.iterdir()) == []
    assert "Traceback" not in run.log


@pytest.mark.timeout(900)
def test_ctrl_c_at_any_moment_of_the_start_ends_everything(manifest: Path, port: int) -> None:
    began_s = time.monotonic()
    with local_up(manifest, port) as run:
        run.wait_controlled()
        whole_s = time.monotonic() - began_s
    chance = random.Random(20)
    for moment_s in sorted(chance.uniform(0.0, whole_s) for _ in range(10)):
        with local_up(manifest, port) as run:
            with pytest.raises(subprocess.TimeoutExpired):
                run.process.wait(moment_s)
            pids = run.descendants()
            run.process.send_signal(signal.SIGINT)
            status = run.wait()
            assert all_have_ended(pids), moment_s
            assert list(run.temporary_folder.iterdir()) == [], moment_s
        # While commands are imported the signal itself ends it; then it is told as a failure, until
        # there is something to end in order.
        assert status in {-signal.SIGINT, 130, 0}, (moment_s, run.log)
        if status != -signal.SIGINT:
            assert "Traceback" not in run.log, (moment_s, run.log)


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
    assert "error: /models/no-such-model: expected a folder with config.json" in run.log


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
        run.wait_said("edit refused, the earlier targets stay")
        assert "spec.slo.ttft.milliseconds: expected an integer" in run.log
        assert run.state()["ttft"]["target_s"] == 0.9
        manifest.write_text(good.replace("stages: 2", "stages: 3"))
        run.wait_said("edit needs a restart of `pserve local up`: spec.parallelism.stages 2 → 3")
        wait_until(run.state, lambda state: state["ttft"]["target_s"] == 1.0)
        assert run.state()["control"]["generation"] == 3
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
