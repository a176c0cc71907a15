"""Stages on other hosts start when their stage hosts come, and until then the leader says so."""

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from pipelineserve.errors import StagesFailedError
from pipelineserve_engine.nursery.owner import Nursery
from pipelineserve_engine.plan import OtherHosts, PipelinePlan
from pipelineserve_engine.remote.addresses import tcp_address
from pipelineserve_engine.remote.hosts import RemoteHosts
from pipelineserve_engine.remote.keys import read_group_key, secure_client
from pipelineserve_engine.remote.messages import LeaderWord, RunWord
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.transport.link_settings import TransportKind
from pipelineserve_engine.watchdog import Patience
from real_pipeline import a_plan
from remote_stages import a_status
from stage_hosts import save_group_key
from zmq_sockets import KeptSockets

HOST = "127.0.0.1"


@pytest.fixture
def plan(tmp_path: Path) -> PipelinePlan:
    """Two stages at addresses a and b, which must be heard at once when they run."""
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
    hosts = OtherHosts(("a", "b"), HOST, port, save_group_key(tmp_path / "group.key"), 4)
    here = a_plan(Path("model"), (1, 1), TransportKind.GLOO, patience=Patience(start_s=0.0))
    return dataclasses.replace(here, other_hosts=hosts)


@pytest.fixture
def member(plan: PipelinePlan) -> Iterator[zmq.Socket[bytes]]:
    assert plan.other_hosts is not None
    with KeptSockets.opened() as sockets:
        connected = sockets.socket(zmq.DEALER)
        secure_client(connected, read_group_key(plan.other_hosts.group_key_file))
        connected.connect(tcp_address(HOST, plan.other_hosts.leader_port))
        yield connected


def ask(member: zmq.Socket[bytes], **status: object) -> LeaderWord:
    member.send(msgspec.msgpack.encode(a_status(group_epoch=4, **status)))
    assert member.poll(60_000), "no answer"
    word: LeaderWord = msgspec.msgpack.decode(member.recv(), type=LeaderWord)
    return word


def receive_for_ever(group: StageGroup) -> None:
    while True:
        group.receive(0.1)


def test_only_a_stage_whose_host_has_started_it_must_be_heard(
    plan: PipelinePlan, member: zmq.Socket[bytes]
) -> None:
    with StageGroup(plan, Nursery()) as group:
        group._spawn_all()
        assert group.receive(0.0) == []
        word = ask(member)
        assert isinstance(word, RunWord)
        ask(member, generation=word.settings.endpoints.generation, pid=7)
        with pytest.raises(StagesFailedError, match="stage 1 gave no sign of life"):
            receive_for_ever(group)


def test_stage_hosts_that_are_awaited_are_named_with_what_to_check(
    plan: PipelinePlan, caplog: pytest.LogCaptureFixture
) -> None:
    assert plan.other_hosts is not None
    hosts = RemoteHosts(plan.other_hosts, plan)
    times_s: list[float] = []
    for now_s in range(100, 200):
        hosts.note_absent([1], float(now_s))
        times_s += [float(now_s)] * sum("stage 1 waits" in line for line in caplog.messages)
        if "stage 1 waits" in caplog.text:
            assert "at b; check that one runs there with --stage-index=1" in caplog.text
            assert f"--leader={HOST}:{plan.other_hosts.leader_port}, --group-epoch=4" in caplog.text
        caplog.clear()
    hosts.close()
    assert times_s == [102.0, 132.0, 162.0, 192.0]


def test_no_stacks_are_announced_of_a_stage_without_a_process(
    plan: PipelinePlan, caplog: pytest.LogCaptureFixture
) -> None:
    with StageGroup(plan, Nursery()) as group:
        group._spawn_all()
        group._dump_stacks()
    assert "stacks of" not in caplog.text
