"""What an owner makes of what its nursery says, and of its silence."""

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine_server import has_ended, wait_until
from pipelineserve_engine.nursery.messages import (
    EndedAnswer,
    NurseryAnswer,
    RefusedAnswer,
    StartedAnswer,
    StartOrder,
    hear,
    open_channel,
    say,
)
from pipelineserve_engine.nursery.owner import own_nursery
from pipelineserve_engine.nursery.process import ForkedStage, NurseryProcess
from pipelineserve_engine.transport.link_settings import LinkEnd, LinkSettings, TransportKind
from remote_stages import an_order

SLEEP = shutil.which("sleep") or ""
PATIENCE_S = 60.0


def a_sleeper() -> int:
    """A child that does nothing."""
    return os.posix_spawn(SLEEP, [SLEEP, "inf"], {})


@dataclass
class Scene:
    """An owner's nursery, and the test in the place of the nursery's own side."""

    nursery: NurseryProcess
    channel: socket.socket
    stack: ExitStack

    def order(self) -> tuple[ForkedStage, int]:
        """Have a stage, and the ticket that the nursery's side got."""
        stage = self.nursery.order("module", an_order())
        heard = hear(self.channel, msgspec.msgpack.Decoder(StartOrder))
        assert heard is not None
        order, descriptors = heard
        assert (order.worker_module, order.settings, descriptors) == ("module", an_order(), ())
        return stage, order.ticket

    def start(self, ticket: int) -> int:
        """Tell that a real process runs; its pid."""
        pid = a_sleeper()
        self.stack.callback(end, pid)
        descriptor = os.pidfd_open(pid)
        say(self.channel, StartedAnswer(ticket, pid), [descriptor])
        os.close(descriptor)
        return pid

    def answer(self, answer: NurseryAnswer) -> None:
        """Tell the owner."""
        say(self.channel, answer)


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        pid = a_sleeper()  # first: it would hold the other end for a moment
        channel, other_end = open_channel()
        nursery = NurseryProcess(pid, channel)
        stack.callback(nursery.end)
        yield Scene(nursery, stack.enter_context(other_end), stack)


def test_a_stage_has_no_pid_and_no_end_before_its_nursery_tells(scene: Scene) -> None:
    stage, ticket = scene.order()
    assert (stage.poll(), stage.pid) == (None, None)
    pid = scene.start(ticket)
    assert (stage.poll(), stage.pid) == (None, pid)
    scene.answer(EndedAnswer(ticket, -11))
    told = stage.poll()
    assert told is not None
    assert told.text == "ended with signal 11 (SIGSEGV)"


def test_an_end_that_is_told_while_its_stage_is_looked_at_is_not_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, ticket = scene.order()
    scene.start(ticket)
    assert stage.poll() is None
    scene.answer(EndedAnswer(ticket, 3))
    too_early = iter([True])

    def hear_late(*given: Any) -> Any:
        if next(too_early, False):
            raise BlockingIOError
        return hear(*given)

    monkeypatch.setattr("pipelineserve_engine.nursery.process.hear", hear_late)
    assert stage.poll() is None
    told = stage.poll()
    assert told is not None
    assert told.code == 3


def test_answers_go_to_the_stage_of_their_ticket(scene: Scene) -> None:
    stages, tickets = zip(*(scene.order() for _ in range(3)), strict=True)
    pids = [scene.start(ticket) for ticket in reversed(tickets)]
    scene.answer(EndedAnswer(tickets[1], 3))
    codes = [None if (told := stage.poll()) is None else told.code for stage in stages]
    assert codes == [None, 3, None]
    assert [stage.pid for stage in stages] == pids[::-1]


def test_a_stage_for_which_there_is_no_process_has_failed_with_the_reason(scene: Scene) -> None:
    stage, ticket = scene.order()
    scene.answer(RefusedAnswer(ticket, "no more processes"))
    told = stage.poll()
    assert told is not None
    assert told.is_cause
    assert told.text == "has no process: no more processes; free memory or raise limits"
    stage.reap()
    assert scene.nursery.poll() is None


def test_a_stage_killed_before_it_runs_is_killed_as_soon_as_it_does(scene: Scene) -> None:
    stage, ticket = scene.order()
    stage.kill()
    pid = scene.start(ticket)
    assert stage.poll() is None
    assert has_ended(pid, PATIENCE_S)


def test_reaping_what_was_killed_waits_for_its_end_and_holds_no_descriptor(scene: Scene) -> None:
    num_before = len(list(Path("/proc/self/fd").iterdir()))
    stage, ticket = scene.order()
    pid = scene.start(ticket)
    assert stage.poll() is None
    stage.kill()
    scene.answer(EndedAnswer(ticket, -signal.SIGKILL))
    stage.reap()
    assert has_ended(pid)
    assert len(list(Path("/proc/self/fd").iterdir())) == num_before
    told = stage.poll()
    assert told is not None
    assert told.code == -signal.SIGKILL
    stage.kill()  # nobody is hit by it
    assert scene.nursery.poll() is None


def test_a_nursery_that_does_not_tell_of_what_was_killed_starts_nothing_else(scene: Scene) -> None:
    """It stands still; the next stage would wait for it in vain."""
    stage, ticket = scene.order()
    scene.start(ticket)
    assert stage.poll() is None
    stage.kill()
    stage.reap()
    assert scene.nursery.poll() is not None


def test_reaping_what_never_ran_ends_the_nursery_instead_of_waiting(scene: Scene) -> None:
    stage, _ = scene.order()
    stage.kill()
    stage.reap()
    assert scene.nursery.poll() is not None


def test_every_stage_is_lost_with_its_nursery_and_says_how_that_ended(scene: Scene) -> None:
    running, ticket = scene.order()
    ordered, _ = scene.order()
    ended, ticket_of_ended = scene.order()
    scene.start(ticket)
    scene.answer(EndedAnswer(ticket_of_ended, 0))
    os.kill(scene.nursery.pid, signal.SIGSEGV)
    assert has_ended(scene.nursery.pid, PATIENCE_S)
    scene.channel.close()
    for stage in (running, ordered):
        told = stage.poll()
        assert told is not None
        assert told.is_cause
        assert told.text == "lost its nursery, which ended with signal 11 (SIGSEGV)"
    told = ended.poll()
    assert told is not None
    assert told.text == "ended with exit status 0"


def test_a_nursery_that_starts_nothing_is_given_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, _ = scene.order()
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 59.0)
    assert stage.poll() is None
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 61.0)
    told = stage.poll()
    assert told is not None
    assert told.is_cause
    assert told.text == "was not started by its nursery within 60 s"
    assert scene.nursery.poll() is not None


def test_a_nursery_that_does_not_tell_of_an_end_is_given_up(scene: Scene) -> None:
    """It stands still; its owner sees the end itself, and not how it came."""
    stage, ticket = scene.order()
    pid = scene.start(ticket)
    assert stage.poll() is None
    os.kill(pid, signal.SIGKILL)
    told = wait_until(stage.poll, lambda told: told is not None)
    assert told is not None
    assert told.is_cause
    assert told.text == "ended, and its nursery does not say how"
    assert scene.nursery.poll() is not None


def test_a_stage_that_could_not_be_ended_is_lost_with_its_nursery(scene: Scene) -> None:
    """This process had no room for the descriptor."""
    stage, ticket = scene.order()
    scene.answer(StartedAnswer(ticket, 7))
    told = stage.poll()
    assert told is not None
    assert told.text.startswith("lost its nursery, which ended with signal 9")


def test_an_order_to_a_nursery_that_is_gone_fails(scene: Scene) -> None:
    scene.channel.close()
    with pytest.raises(OSError, match="Broken pipe"):
        scene.nursery.order("module", an_order())


def test_the_orders_of_the_longest_pipeline_find_room_while_the_nursery_imports(
    scene: Scene,
) -> None:
    order = msgspec.structs.replace(an_order(), model_folder="m" * 4096)
    for _ in range(64):
        scene.nursery.order("module", order)
    assert scene.nursery.poll() is None


def test_a_process_with_threads_is_not_forked() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait, daemon=True)
    thread.start()
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text()
    with own_nursery():
        assert children.read_text() == before
    is_over.set()
    thread.join()


def test_links_keep_their_places_under_other_numbers() -> None:
    middle = LinkSettings(TransportKind.SHARED_MEMORY, before=LinkEnd(3, 4), behind=LinkEnd(5, 6))
    assert middle.descriptors == (3, 4, 5, 6)
    assert middle.with_descriptors((9, 8, 7, 6)) == LinkSettings(
        TransportKind.SHARED_MEMORY, before=LinkEnd(9, 8), behind=LinkEnd(7, 6)
    )
    last = LinkSettings(TransportKind.SHARED_MEMORY, before=LinkEnd(3, 4))
    assert last.with_descriptors((8, 9)).behind is None
    assert last.with_descriptors((8, 9)).before == LinkEnd(8, 9)
    between_hosts = LinkSettings(TransportKind.GLOO)
    assert between_hosts.with_descriptors(()) == between_hosts
