"""A stage host does what its leader says, and what it does where no leader answers."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import zmq

from pipelineserve.errors import EngineUnavailableError
from pipelineserve_engine import stage_host
from pipelineserve_engine.remote.addresses import tcp_address
from pipelineserve_engine.remote.gate import KeyGate
from pipelineserve_engine.remote.keys import GroupKey, secure_server
from pipelineserve_engine.remote.messages import (
    KeepWord,
    LeaderWord,
    MemberStatus,
    RefusedWord,
    RunWord,
)
from pipelineserve_engine.stage_host import StageHost, StageHostSettings
from pipelineserve_engine.stage_process import ProcessEnd
from pipelineserve_engine.worker_settings import WorkerSettings
from remote_stages import an_order

KEY = GroupKey(b"k" * 32)
HOST = "127.0.0.1"
PATIENCE_S = 60.0
TURN_S = 0.02


@dataclass
class NotedWorker:
    """Writes down what is done to it."""

    events: list[str] = field(default_factory=list)
    pid: int | None = None
    clock_offset_s: float = 0.0

    def start(self, settings: WorkerSettings) -> None:
        """See `StageProcess`."""
        self.pid = 7
        self.events.append(f"start {settings.endpoints.generation}")

    def poll(self) -> ProcessEnd | None:
        """See `StageProcess`."""
        return None

    def kill(self) -> None:
        """See `StageProcess`."""
        self.events.append("kill")

    def reap(self) -> None:
        """See `StageProcess`."""

    def wait(self, timeout_s: float) -> None:
        """See `StageProcess`."""

    def dump_stacks(self) -> None:
        """See `StageProcess`."""


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_host, "_CHECK_PERIOD_S", 0.01)


class Scene:
    """A stage host with a clock that the test sets, and a leader that says what the test says."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], leader_name: str) -> None:
        self._context = context
        with socket.create_server((HOST, 0)) as listener:
            self.port: int = listener.getsockname()[1]
        self.now_s = 100.0
        self.worker = NotedWorker()
        settings = StageHostSettings(
            f"{leader_name}:{self.port}", 1, Path("model"), "b", Path("group.key"), 0
        )
        self.host = StageHost(settings, KEY, context, self.worker, lambda: self.now_s)

    def open_leader(self) -> None:
        """Let there be somebody who can answer."""
        self.leader = self._context.socket(zmq.ROUTER)
        secure_server(self.leader, KEY)
        self.leader.bind(tcp_address(HOST, self.port))

    def next_status(self) -> MemberStatus:
        """Let time go on until the leader is told how things stand."""
        self.turn_until(lambda: bool(self.leader.poll(0)))
        self._connection, message = self.leader.recv_multipart()
        return msgspec.msgpack.decode(message, type=MemberStatus)

    def say(self, message: bytes) -> None:
        """Answer the status that came last."""
        self.leader.send_multipart([self._connection, message])

    def obeys(self, word: LeaderWord) -> None:
        """Answer the status that came last, and have it heard."""
        before = self.host._word_at_s
        self.say(msgspec.msgpack.encode(word))
        self.turn_until(lambda: self.host._word_at_s != before)

    def turn_until(self, is_reached: Callable[[], bool]) -> None:
        """Let time go on until then."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_reached():
            assert time.monotonic() < deadline_s
            self.now_s += TURN_S
            self.host.turn()

    def run_first(self) -> None:
        """The worker of generation g1 runs, and the leader knows."""
        self.open_leader()
        self.next_status()
        self.obeys(RunWord(0.0, an_order("g1")))
        assert self.worker.events == ["kill", "start g1"]
        while self.next_status().generation != "g1":
            pass
        self.obeys(KeepWord(0.0))


@contextmanager
def a_scene(leader_name: str = HOST) -> Iterator[Scene]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    gate = KeyGate(context, KEY)
    try:
        yield Scene(context, leader_name)
    finally:
        gate.close()
        context.destroy(linger=0)


def test_a_stage_host_that_stood_still_asks_before_it_ends_its_worker() -> None:
    with a_scene() as scene:
        scene.run_first()
        scene.now_s += 3600.0
        assert scene.next_status().generation == "g1"
        scene.obeys(KeepWord(0.0))
        scene.host.turn()
        assert scene.next_status().generation == "g1"
        assert scene.worker.events == ["kill", "start g1"]


def test_the_worker_of_a_leader_that_does_not_answer_is_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with a_scene() as scene:
        scene.run_first()
        scene.now_s += 10.1
        scene.host.turn()
        assert scene.worker.events == ["kill", "start g1"]
        scene.now_s += 3.1
        scene.host.turn()
        assert scene.worker.events == ["kill", "start g1", "kill"]
    assert "the leader was silent for 13." in caplog.text


def test_a_word_of_another_version_ends_the_stage_host_with_advice() -> None:
    with a_scene() as scene:
        scene.open_leader()
        scene.next_status()
        scene.say(msgspec.msgpack.encode(["WordOfTheFuture", 0.0]))
        with pytest.raises(EngineUnavailableError, match="they differ in version; install the"):
            scene.turn_until(lambda: False)


def test_a_final_refusal_ends_the_stage_host() -> None:
    with a_scene() as scene:
        scene.open_leader()
        scene.next_status()
        with pytest.raises(EngineUnavailableError, match="refused by the leader: too old"):
            scene.obeys(RefusedWord(0.0, "too old", is_final=True))


def test_a_stage_host_that_nobody_answers_says_once_what_to_check(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with a_scene() as scene:
        scene.now_s += 9.9
        scene.host.turn()
        assert not caplog.messages
        for _ in range(3):
            scene.now_s += 10.0
            scene.host.turn()
    (message,) = caplog.messages
    assert f"no answer from the leader at {HOST}:{scene.port}" in message
    assert "group.key" in message


def test_a_leaders_name_may_become_known_late(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise EngineUnavailableError(name)

    with a_scene() as scene:
        scene.open_leader()
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(stage_host, "resolve", unknown)
            scene.host.turn()
        assert scene.next_status().stage_index == 1


@pytest.mark.parametrize(("found", "is_ipv6"), [("::1", 1), (HOST, 0)])
def test_the_leaders_address_says_whether_it_is_reached_by_ipv6(
    monkeypatch: pytest.MonkeyPatch, found: str, is_ipv6: int
) -> None:
    monkeypatch.setattr(stage_host, "resolve", lambda _: found)
    with a_scene("localhost") as scene:
        scene.host.turn()
        assert scene.host._socket.get(zmq.IPV6) == is_ipv6
