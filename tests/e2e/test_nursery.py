"""A nursery's stages: their own threads, descriptors and group, and an end with whom they need."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from engine_server import PATIENCE_S, has_ended, name_of, wait_until
from held_worker import announce_support
from pipelineserve_engine.nursery.owner import Nursery, spawn_nursery
from pipelineserve_engine.nursery.process import ForkedStage, NurseryProcess
from pipelineserve_engine.stage_process import WORKER_MODULE, ProcessEnd
from pipelineserve_engine.transport.link_settings import LinkSettings, TransportKind
from pipelineserve_engine.transport.shared_memory import make_link
from pipelineserve_engine.worker_settings import WorkerSettings
from real_pipeline import a_plan
from remote_stages import an_order
from telling_worker import MODULE, STAY, Found, sum_of_product


@pytest.fixture(scope="module")
def process() -> Iterator[NurseryProcess]:
    """One for those tests that let it live."""
    with pytest.MonkeyPatch.context() as meanwhile:
        announce_support(meanwhile)
        spawned = spawn_nursery()
    yield spawned
    spawned.end()


def settings_in(folder: Path, num_threads: int = 1) -> WorkerSettings:
    return msgspec.structs.replace(an_order(), model_folder=str(folder), num_threads=num_threads)


def end_of(stage: ForkedStage) -> ProcessEnd:
    end = wait_until(stage.poll, lambda end: end is not None)
    assert end is not None
    return end


def pid_of(stage: ForkedStage) -> int:
    wait_until(stage.poll, lambda _: stage.pid is not None)
    assert stage.pid is not None
    return stage.pid


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_stage_of_a_spawned_nursery_computes_right_with_its_number_of_threads(
    process: NurseryProcess, tmp_path: Path, num_threads: int
) -> None:
    end = end_of(process.order(MODULE, settings_in(tmp_path, num_threads)))
    assert_found(tmp_path, num_threads)
    assert end.code == Found.exit_code


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_stage_of_a_nursery_forked_from_the_server_does_so_too(
    tmp_path: Path, num_threads: int
) -> None:
    support = str(Path(__file__).parents[1] / "support")
    ended = subprocess.run(
        [sys.executable, "-m", "early_owner", str(tmp_path), str(num_threads)],
        env={
            **os.environ,
            "PYTHONPATH": f"{support}:{os.environ.get('PYTHONPATH', '')}",
            "PYTHONUNBUFFERED": "",  # what is in a buffer at the fork must not be written twice
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert_found(tmp_path, num_threads)
    assert ended.stdout == "pipelineserve_engine.server forks\nended with exit status 7"
    assert ended.stderr == ""


def assert_found(folder: Path, num_threads: int) -> None:
    found = Found.read(folder)
    assert found.sum_of_product == sum_of_product()
    # Torch has a pool of its own beside OpenMP's.
    assert (found.num_threads > 1) is (num_threads > 1)
    assert found.descriptors == []
    assert not found.has_cuda


def test_a_stage_gets_its_links_and_no_other_descriptor(
    process: NurseryProcess, tmp_path: Path
) -> None:
    ring = a_plan(tmp_path, (1, 1)).links.ring
    (_, before), (behind, _) = links = make_link(ring), make_link(ring)
    kept = LinkSettings(TransportKind.SHARED_MEMORY, before=before, behind=behind)
    endpoints = msgspec.structs.replace(an_order().endpoints, links=kept)
    stage = process.order(
        MODULE, msgspec.structs.replace(settings_in(tmp_path), endpoints=endpoints)
    )
    end_of(stage)
    for end in (end for link in links for end in link):
        end.close()
    found = Found.read(tmp_path)
    assert len(found.links) == 4
    assert sorted(found.links) == sorted(found.descriptors)


def test_a_spawned_nursery_and_its_stages_hold_no_listener_of_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one that every child would inherit."""
    announce_support(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        os.set_inheritable(listener.fileno(), True)
        own = spawn_nursery()
    end_of(own.order(MODULE, settings_in(tmp_path)))
    own.end()
    assert Found.read(tmp_path).descriptors == []


def test_signals_to_all_end_neither_the_nursery_nor_its_stages(
    process: NurseryProcess, tmp_path: Path
) -> None:
    (tmp_path / STAY).touch()
    stage = process.order(MODULE, settings_in(tmp_path))
    pid = pid_of(stage)
    wait_until((tmp_path / "found.json").exists, bool)
    assert os.getpgid(pid) == pid
    assert os.getpgid(process.pid) == process.pid
    assert (name_of(process.pid), name_of(pid)) == ("pserve-nursery", "pserve-stage-1")
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
        os.kill(process.pid, number)
    (tmp_path / STAY).unlink()
    assert end_of(stage).code == Found.exit_code
    assert process.poll() is None


def test_a_stage_that_is_killed_is_told_with_its_signal_and_leaves_no_zombie(
    process: NurseryProcess, tmp_path: Path
) -> None:
    (tmp_path / STAY).touch()
    stage = process.order(MODULE, settings_in(tmp_path))
    pid = pid_of(stage)
    stage.signal(signal.SIGSEGV)
    assert end_of(stage).text == "ended with signal 11 (SIGSEGV)"
    stage.reap()
    assert not Path(f"/proc/{pid}").exists()


def test_a_worker_that_raises_ends_with_1_and_its_trace(
    process: NurseryProcess, tmp_path: Path
) -> None:
    end = end_of(process.order("no_such_worker", settings_in(tmp_path)))
    assert (end.text, end.is_cause) == ("ended with exit status 1", False)


def test_stages_end_with_a_killed_nursery_which_is_named_and_another_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce_support(monkeypatch)
    (tmp_path / STAY).touch()
    with Nursery() as nursery:
        stage = nursery.start(MODULE, settings_in(tmp_path))
        pid = pid_of(stage)
        (nursery_pid,) = parents_of(pid)
        os.kill(nursery_pid, signal.SIGKILL)
        assert end_of(stage).text.startswith("lost its nursery, which ended with signal 9 (SIGKILL")
        assert has_ended(pid, PATIENCE_S)
        stage.reap()
        (tmp_path / STAY).unlink()
        assert end_of(nursery.start(MODULE, settings_in(tmp_path))).code == Found.exit_code


def parents_of(pid: int) -> list[int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("PPid:")]


def test_an_order_of_an_owner_that_is_gone_leaves_neither_a_process_nor_its_folder(
    tmp_path: Path,
) -> None:
    """The nursery was still importing when the order came, and its owner was killed."""
    folder = tmp_path / "shared"
    folder.mkdir()
    endpoints = msgspec.structs.replace(
        an_order().endpoints,
        command_address=f"ipc://{folder}/commands",
        report_address=f"ipc://{folder}/reports",
        shared_folder=str(folder),
    )
    own = spawn_nursery()
    own.order(WORKER_MODULE, msgspec.structs.replace(settings_in(tmp_path), endpoints=endpoints))
    own._channel.close()
    _, status = os.waitpid(own.pid, 0)
    assert status == 0
    wait_until(folder.exists, lambda exists: not exists)
