"""The leader's control socket answers who has the group's secret, and nobody else."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine.plan import OtherHosts
from pipelineserve_engine.remote.addresses import tcp_address
from pipelineserve_engine.remote.control import Control
from pipelineserve_engine.remote.hosts import RemoteProcess
from pipelineserve_engine.remote.keys import LEADER, GroupKey, secure_client
from pipelineserve_engine.remote.messages import (
    MAX_CONTROL_BYTES,
    IdleWord,
    LeaderWord,
    MemberStatus,
    RefusedWord,
)
from pipelineserve_engine.remote.roster import Roster
from remote_stages import an_order
from zmq_sockets import KeptSockets

HOST = "127.0.0.1"
# A bound for what would otherwise hang, never something that is measured.
PATIENCE_S = 60.0
KEY = GroupKey(b"k" * 32)
Socket = zmq.Socket[bytes]


@contextmanager
def a_control() -> Iterator[tuple[Control, int]]:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
    control = Control(OtherHosts(("a", "b"), HOST, port, Path("key")), KEY)
    try:
        yield control, port
    finally:
        control.close()


@pytest.fixture
def context() -> Iterator[KeptSockets]:
    with KeptSockets.opened() as sockets:
        yield sockets


def connect(context: KeptSockets, port: int, key: GroupKey | None = KEY) -> Socket:
    member = context.socket(zmq.DEALER)
    if key is not None:
        secure_client(member, key)
    member.connect(tcp_address(HOST, port))
    return member


def a_status(stage_index: int, instance_id: str = "i") -> bytes:
    address = ("a", "b")[stage_index]
    status = MemberStatus(stage_index, 0, instance_id, address, "", None, None, 0.0, None, 0.0)
    return msgspec.msgpack.encode(status)


def ask(member: Socket, message: bytes) -> LeaderWord:
    member.send(message)
    assert member.poll(60_000), "no answer"
    word: LeaderWord = msgspec.msgpack.decode(member.recv(), type=LeaderWord)
    return word


def test_a_member_is_answered(context: KeptSockets) -> None:
    with a_control() as (_, port):
        assert isinstance(ask(connect(context, port), a_status(0)), IdleWord)


def with_a_key_of_its_own(context: KeptSockets, port: int) -> Socket:
    """It has come to know the leader's public key, but has not the group's secret."""
    stranger = context.socket(zmq.DEALER)
    stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
    stranger.curve_serverkey = KEY.pair(LEADER).public
    stranger.connect(tcp_address(HOST, port))
    return stranger


@pytest.mark.parametrize("kind", ["another secret", "no key", "a key of its own"])
def test_a_stranger_gets_nothing_and_takes_no_seat(context: KeptSockets, kind: str) -> None:
    with a_control() as (_, port):
        match kind:
            case "another secret":
                stranger = connect(context, port, GroupKey(b"x" * 32))
            case "no key":
                stranger = connect(context, port, None)
            case _:
                stranger = with_a_key_of_its_own(context, port)
        failed = stranger.get_monitor_socket(
            zmq.Event.DISCONNECTED
            | zmq.Event.HANDSHAKE_SUCCEEDED
            | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
            | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
            | zmq.Event.HANDSHAKE_FAILED_AUTH
        )
        stranger.send(a_status(0, "stranger"))
        assert failed.poll(60_000)
        event = int.from_bytes(failed.recv_multipart()[0][:2], "little")
        assert event != zmq.Event.HANDSHAKE_SUCCEEDED
        member = connect(context, port)
        for _ in range(5):
            # Were the seat taken, this would be refused.
            assert isinstance(ask(member, a_status(0)), IdleWord)
        assert not stranger.poll(0)


def test_noise_at_the_port_disturbs_nothing(context: KeptSockets) -> None:
    with a_control() as (_, port):
        member = connect(context, port)
        for length in (0, 1, 10, 64, 4096):
            with socket.create_connection((HOST, port)) as stranger:
                stranger.sendall(os.urandom(length))
                assert isinstance(ask(member, a_status(1)), IdleWord)


def test_a_member_that_sends_what_is_no_status_is_not_answered_and_others_are(
    context: KeptSockets, caplog: pytest.LogCaptureFixture
) -> None:
    with a_control() as (_, port):
        odd, member = connect(context, port), connect(context, port)
        for message in (b"", b"\xc1", msgspec.msgpack.encode([1, 2]), a_status(0) + b"x"):
            odd.send(message)
        assert isinstance(ask(odd, a_status(0)), IdleWord)
        assert isinstance(ask(member, a_status(1)), IdleWord)
    assert sum("no status" in line for line in caplog.messages) == 4


def test_a_message_beyond_the_bound_ends_its_connection_only(context: KeptSockets) -> None:
    with a_control() as (_, port):
        large, member = connect(context, port), connect(context, port)
        assert isinstance(ask(large, a_status(0)), IdleWord)
        lost = large.get_monitor_socket(zmq.Event.DISCONNECTED)
        large.send(bytes(MAX_CONTROL_BYTES + 1))
        assert lost.poll(60_000)
        assert isinstance(ask(member, a_status(1)), IdleWord)


def test_a_second_member_is_told_why_it_is_refused(context: KeptSockets) -> None:
    with a_control() as (_, port):
        assert isinstance(ask(connect(context, port), a_status(0, "first")), IdleWord)
        word = ask(connect(context, port), a_status(0, "second"))
        assert isinstance(word, RefusedWord)
        assert "stage 0 has a stage host already" in word.reason


def test_a_port_that_is_taken_is_named_with_advice() -> None:
    with a_control() as (_, port):
        hosts = OtherHosts(("a",), HOST, port, Path("key"))
        with pytest.raises(EngineUnavailableError, match="choose another leader_address or"):
            Control(hosts, KEY)


def test_a_leader_address_that_does_not_exist_is_named() -> None:
    hosts = OtherHosts(("a",), "no-such-host.invalid", 7600, Path("key"))
    with pytest.raises(EngineUnavailableError, match=r"no-such-host\.invalid cannot be resolved"):
        Control(hosts, KEY)


def test_a_fault_of_its_thread_is_told_to_who_asks_and_who_waits(
    context: KeptSockets, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(Roster, "hear", fail)
    with a_control() as (control, port):
        connect(context, port).send(a_status(0))
        process = RemoteProcess(control, 0)
        with pytest.raises(EngineUnavailableError, match="served no longer: ValueError: broken"):
            process.wait(PATIENCE_S)
        with pytest.raises(EngineUnavailableError, match="served no longer"):
            control.state(1)
    assert "the thread that serves the stage hosts has failed" in caplog.messages


def test_nobody_waits_for_a_worker_that_was_killed() -> None:
    with a_control() as (control, _):
        process = RemoteProcess(control, 0)
        process.start(an_order())
        waiting = threading.Thread(target=process.wait, args=(10 * PATIENCE_S,), daemon=True)
        waiting.start()
        process.kill()
        waiting.join(PATIENCE_S)
        assert not waiting.is_alive()
