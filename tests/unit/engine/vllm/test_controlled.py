"""vLLM's scheduler with control laid over it does what it did, and control hears of all of it."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control_client import ControlClient, a_fixed_policy
from engine_server import wait_until
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.addon.settings import variable
from pipelineserve_engine.vllm import control, plugin
from pipelineserve_engine.vllm.controlled import Controlled
from vllm_fakes import FakeOutput, FakeRequest, FakeScheduler, a_config


class ControlledScheduler(Controlled, FakeScheduler):
    """As `pipelineserve_engine.vllm.scheduler` makes it."""


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where it is controlled; this vLLM is as expected."""
    monkeypatch.setenv(variable("static_chunk_tokens"), "48")
    monkeypatch.setenv(variable("control_address"), f"unix:{tmp_path / 'c.sock'}")
    monkeypatch.setattr(control, "mismatches", lambda _: [])
    monkeypatch.setattr(control, "installed_version", lambda: "0.32.0")
    monkeypatch.setattr(plugin._State, "is_loaded", True)
    return f"unix:{tmp_path / 'c.sock'}"


@pytest.fixture
def scheduler(address: str) -> Iterator[Any]:
    del address
    made = ControlledScheduler()
    yield made
    made.shutdown()


def test_a_controller_is_served_while_vllm_is_idle_and_obeyed_when_it_works(
    scheduler: Any, address: str
) -> None:
    with ControlClient(address) as client:
        session = client.watch()
        assert session.hello is not None
        assert (session.hello.engine_name, session.hello.engine_version) == ("vllm", "0.32.0")
        assert (session.hello.block_tokens, session.hello.kv_tokens) == (16, 8192)
        assert pb.CAPABILITY_HOLD in session.hello.capabilities
        assert session.apply(1, a_fixed_policy(20)) == 0
        scheduler.add_request(FakeRequest("a", num_prompt_tokens=50))
        pieces = [scheduler.schedule() for _ in range(3)]
        assert [piece.total_num_scheduled_tokens for piece in pieces] == [20, 20, 10]
        for piece in pieces:
            assert scheduler.update_from_output(piece, piece) == ["a"]
        session.wait_snapshot(lambda now: now.num_decoding == 1)
        (request,) = scheduler.requests.values()
        scheduler._preempt_request(request, 0.0)
        session.wait_snapshot(lambda now: now.num_waiting == 1)
        assert scheduler.finish_requests(["a"], "ABORT") == [request]
        session.wait(lambda s: len(s.requests) == 1)


def test_control_ends_with_vllm(scheduler: Any, address: str) -> None:
    with ControlClient(address) as client:
        session = client.watch()
        scheduler.shutdown()
        assert session.wait_ended()
    assert scheduler.is_shut_down


def serves_as_without(scheduler: Any) -> None:
    """All of it goes on to vLLM's own, with vLLM's own budget."""
    scheduler.add_request(FakeRequest("a", num_prompt_tokens=300))
    output = scheduler.schedule()
    assert output == FakeOutput({"a": 256})
    assert scheduler.update_from_output(output, output) == ["a"]
    scheduler._preempt_request(scheduler.requests["a"], 0.0)
    assert [request.request_id for request in scheduler.finish_requests(["a"], "ABORT")] == ["a"]


def test_a_vllm_that_is_not_as_expected_serves_and_says_so(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "mismatches", lambda _: ["vLLM 0.33.0: expected 0.32.0"])
    scheduler = ControlledScheduler()
    try:
        with ControlClient(address) as client:
            session = client.watch()
            assert session.hello is not None
            assert list(session.hello.capabilities) == []
            assert session.hello.inactive_reason == "vLLM 0.33.0: expected 0.32.0"
        serves_as_without(scheduler)
    finally:
        scheduler.shutdown()


def test_a_vllm_that_cannot_be_controlled_as_it_was_started_says_why(address: str) -> None:
    scheduler = ControlledScheduler(vllm_config=a_config(num_stages=1))
    try:
        with ControlClient(address) as client:
            session = client.watch()
            assert session.hello is not None
            assert session.hello.inactive_reason == "it has one stage, expected at least 2"
    finally:
        scheduler.shutdown()


def test_without_settings_there_is_no_control(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        scheduler = ControlledScheduler()
    assert "PIPELINESERVE_ADDON_CONTROL_ADDRESS is not set" in caplog.text
    serves_as_without(scheduler)
    scheduler.shutdown()


def test_an_address_that_is_taken_ends_control_and_not_vllm(
    scheduler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    del scheduler  # has it
    other = ControlledScheduler()
    assert "the add-on could not begin" in caplog.text
    serves_as_without(other)
    other.shutdown()


class NotedLock:
    """A lock that tells how often somebody has asked for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.num_asked = 0

    def __enter__(self) -> None:
        self.num_asked += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_nobody_is_answered_in_the_midst_of_a_turn(scheduler: Any) -> None:
    running = scheduler._control
    running.lock = lock = NotedLock()
    with lock:
        wait_until(lambda: lock.num_asked, lambda num: num > 1)  # the ticker waits for us
        asked = running._leader._parts.questions.ask(lambda now_s: now_s)
        assert not asked.done()
    wait_until(asked.done, bool)


def test_what_has_begun_ends_if_the_rest_cannot_begin(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(control, "Leader", None)
        scheduler = ControlledScheduler()
        assert "the add-on could not begin" in caplog.text
    # Nobody listens there any more, so another one can.
    other = ControlledScheduler()
    with ControlClient(address) as client:
        assert client.watch().hello is not None
    other.shutdown()
    scheduler.shutdown()
