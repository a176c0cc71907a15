"""What a group makes of its stages' reports, without any process of a stage."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
import zmq

from pipelineserve.errors import StagesFailedError
from pipelineserve_engine.nursery.messages import open_channel
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.nursery.process import NurseryProcess
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import ReadyReport, StageReport
from real_pipeline import a_plan
from zmq_sockets import KeptSockets

PATIENCE_S = 60.0
SLEEP = shutil.which("sleep") or ""


@pytest.fixture
def sockets() -> Iterator[KeptSockets]:
    with KeptSockets.opened() as opened:
        yield opened


@contextmanager
def a_group(num_stages: int = 2) -> Iterator[StageGroup]:
    """Over a nursery that takes orders and does nothing."""
    channel, other_end = open_channel()
    pid = os.posix_spawn(SLEEP, [SLEEP, "inf"], {})
    with (
        other_end,
        Nursery(NurseryProcess(pid, channel)) as nursery,
        StageGroup(a_plan(Path("model"), (1,) * num_stages), nursery) as group,
    ):
        yield group


def a_stage(group: StageGroup, sockets: KeptSockets) -> zmq.Socket[bytes]:
    """Where a stage's reports go in."""
    reports = sockets.socket(zmq.PUSH)
    reports.connect(group._site.reports.get_string(zmq.LAST_ENDPOINT))
    return reports


def say(stage: zmq.Socket[bytes], report: StageReport) -> None:
    stage.send(msgspec.msgpack.encode(report))


def test_a_stage_that_is_ready_for_a_second_time_is_a_failure(sockets: KeptSockets) -> None:
    ready = ReadyReport(1, 0, 0, 0)
    with a_group() as group:
        stage = a_stage(group, sockets)
        say(stage, ready)
        assert group.receive(PATIENCE_S) == [ready]
        say(stage, ready)
        with pytest.raises(StagesFailedError, match="stage 1 was started a second time"):
            group.receive(PATIENCE_S)


def fail(*_: object, **__: object) -> NoReturn:
    raise BlockingIOError("no more processes")


def fail_at(call_index: int, call: Callable[..., object]) -> Callable[..., object]:
    """The same call, but for one time."""
    calls = iter(range(call_index))

    def made(*given: object, **named: object) -> object:
        return fail() if next(calls, None) is None else call(*given, **named)

    return made


def num_open_descriptors() -> int:
    """Of this process, with the one that looks."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("call_index", [0, 1])
def test_a_restart_for_which_there_is_no_process_fails_like_any_other_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, call_index: int
) -> None:
    with a_group(num_stages=3) as group:
        num_before = num_open_descriptors()
        with monkeypatch.context() as meanwhile:
            order = fail_at(call_index, NurseryProcess.order)
            meanwhile.setattr(NurseryProcess, "order", order)
            with pytest.raises(StagesFailedError, match=f"stage {call_index} has no process: no"):
                group.restart()
        assert num_open_descriptors() == num_before


@pytest.mark.parametrize("call_index", [0, 1])
def test_a_restart_without_memory_for_the_links_fails_like_any_other_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, call_index: int
) -> None:
    with a_group(num_stages=3) as group:
        num_before = num_open_descriptors()
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(socket, "socketpair", fail_at(call_index, socket.socketpair))
            with pytest.raises(StagesFailedError, match="cannot share memory between the stages"):
                group.restart()
        assert num_open_descriptors() == num_before


def test_a_restart_without_a_folder_for_sockets_fails_like_any_other_and_the_next_may_succeed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_group() as group:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr("tempfile.mkdtemp", fail)
            with pytest.raises(StagesFailedError, match="the stages cannot be started"):
                group.restart()
        group.restart()
