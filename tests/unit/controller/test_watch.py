"""The link to the engine: one session at a time, found again whatever happens to the engine."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from certificates import HOST, Authority, KeyPair
from pipelineserve.errors import EngineUnavailableError
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_controller import watch
from pipelineserve_controller.settings import SidecarSettings
from pipelineserve_controller.watch import EngineLink
from scripted_scheduler import ScriptedScheduler
from sidecar_parts import link_of, make_link, running, until

LEASED = LeasedPolicy(SchedulingPolicy(Static(128)), 5.0)


def address_in(folder: Path) -> str:
    return f"unix:{folder}/control.sock"


def test_connects_and_hears(tmp_path: Path) -> None:
    async def scenario() -> None:
        link = make_link(address_in(tmp_path))
        async with running(link.run()):
            await until(lambda: link.is_connected, "a session")
            scheduler.tell(pb.Records(num_lost=3))
            await until(lambda: link.take(0.0).num_lost == 3, "what was told")
            assert link.engine is not None
            assert (link.engine.name, link.problem) == ("scripted", "")

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())


def test_says_why_there_is_no_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        link = make_link(address_in(tmp_path))
        async with running(link.run()):
            await until(lambda: "UNAVAILABLE" in link.problem, "the problem")
            assert not link.is_connected

    asyncio.run(scenario())


def test_without_a_session_nothing_can_be_applied(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="no session"):
        asyncio.run(make_link(address_in(tmp_path)).apply(LEASED))


class UnansweringScheduler(ScriptedScheduler):
    """Answers no policy before it is told to."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()

    def Apply(  # noqa: N802 # the contract's name
        self, request: pb.ApplyRequest, context: grpc.ServicerContext
    ) -> pb.ApplyReply:
        """Wait first."""
        self.is_asked.set()
        self.may_answer.wait(20.0)
        return super().Apply(request, context)


@asynccontextmanager
async def a_policy_under_way(
    scheduler: UnansweringScheduler, address: str
) -> AsyncIterator[tuple[EngineLink, asyncio.Task[int]]]:
    """A link, and its policy that the engine has and does not answer."""
    link = make_link(address)
    async with running(link.run()):
        await until(lambda: link.is_connected, "a session")
        applying = asyncio.create_task(link.apply(LEASED))
        await until(scheduler.is_asked.is_set, "the policy at the engine")
        yield link, applying


def test_a_session_that_ends_under_a_policy_is_an_engine_that_did_not_answer(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with a_policy_under_way(scheduler, address_in(tmp_path)) as (link, applying):
            link.reopen()
            with pytest.raises(EngineUnavailableError, match="ended before the engine answered"):
                await applying

    with UnansweringScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())
        scheduler.may_answer.set()


def test_applying_can_be_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_policy_under_way(scheduler, address_in(tmp_path)) as (_, applying):
            applying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await applying

    with UnansweringScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())
        scheduler.may_answer.set()


def test_policies_rise_in_sequence_within_a_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        link = make_link(address_in(tmp_path))
        async with running(link.run()):
            await until(lambda: link.is_connected, "a session")
            for _ in range(3):
                assert await link.apply(LEASED) == 1
            assert link.last_sequence == 3

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())
        assert scheduler.applied == [LEASED] * 3


def test_an_engine_that_starts_anew_gets_a_new_session_with_sequences_from_one(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        link = make_link(address_in(tmp_path))
        async with running(link.run()):
            with ScriptedScheduler(address_in(tmp_path)):
                await until(lambda: link.is_connected, "a session")
                await link.apply(LEASED)
            await until(lambda: not link.is_connected, "the loss of it")
            with ScriptedScheduler(address_in(tmp_path), first_epoch=10) as scheduler:
                await until(lambda: link.is_connected, "another session")
                await link.apply(LEASED)
                assert (link.num_sessions, link.last_sequence) == (2, 1)
                assert scheduler.applied == [LEASED]

    asyncio.run(scenario())


def test_a_session_that_has_gone_silent_is_opened_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        link = make_link(address_in(tmp_path), silence_s=0.5)
        async with running(link.run()):
            await until(lambda: link.is_connected, "a session")
            scheduler.is_silent = True
            await until(lambda: scheduler.num_sessions >= 2, "another session")

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        asyncio.run(scenario())


def test_a_later_session_supersedes_this_one_until_it_is_reopened(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = make_link(address_in(tmp_path)), make_link(address_in(tmp_path))
        async with running(first.run()):
            await until(lambda: first.is_connected, "a session")
            async with running(second.run()):
                await until(lambda: second.is_connected, "the later session")
            with pytest.raises(EngineUnavailableError, match="FAILED_PRECONDITION"):
                await first.apply(LEASED)
            assert first.is_superseded
            first.reopen()
            await until(lambda: first.num_sessions == 2, "a new session")
            await first.apply(LEASED)
            assert not first.is_superseded

    with ScriptedScheduler(address_in(tmp_path)):
        asyncio.run(scenario())


def test_a_hello_that_makes_no_engine_is_no_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        link = make_link(address_in(tmp_path))
        async with running(link.run()):
            await until(lambda: "num_slots" in link.problem, "the problem by its name")
            assert not link.is_connected

    with ScriptedScheduler(address_in(tmp_path)) as scheduler:
        scheduler.hello.num_slots = 0
        asyncio.run(scenario())


def mutual_tls(authority: Authority, pair: KeyPair) -> grpc.ServerCredentials:
    """Of an engine that lets in whom this authority has certified."""
    return grpc.ssl_server_credentials(
        [(pair.key.read_bytes(), pair.certificate.read_bytes())],
        root_certificates=authority.pair.certificate.read_bytes(),
        require_client_auth=True,
    )


def tls_settings(port: int, authority: Authority, client: KeyPair) -> SidecarSettings:
    return SidecarSettings(
        engine_address=f"{HOST}:{port}",
        engine_ca_file=str(authority.pair.certificate),
        engine_certificate_file=str(client.certificate),
        engine_key_file=str(client.key),
    )


def test_an_engine_elsewhere_is_watched_over_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    credentials = mutual_tls(authority, authority.issue("engine"))

    async def scenario() -> None:
        link = link_of(tls_settings(scheduler.port, authority, authority.issue("controller")))
        async with running(link.run()):
            await until(lambda: link.is_connected, "a session")
            assert await link.apply(LEASED) == 1

    with ScriptedScheduler(f"{HOST}:0", credentials=credentials) as scheduler:
        asyncio.run(scenario())


def test_an_engine_of_another_authority_is_not_watched(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "authority"), Authority(tmp_path, "other")
    credentials = mutual_tls(authority, authority.issue("engine"))

    async def scenario() -> None:
        link = link_of(tls_settings(scheduler.port, other, authority.issue("controller")))
        async with running(link.run()):
            await until(lambda: "UNAVAILABLE" in link.problem, "the refusal")
            assert not link.is_connected

    with ScriptedScheduler(f"{HOST}:0", credentials=credentials) as scheduler:
        asyncio.run(scenario())
        assert scheduler.num_sessions == 0


def test_certificates_that_are_not_there_yet_are_waited_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    credentials = mutual_tls(authority, authority.issue("engine"))
    late = KeyPair(tmp_path / "controller.crt", tmp_path / "controller.key")

    async def scenario() -> None:
        link = link_of(tls_settings(scheduler.port, authority, late))
        async with running(link.run()):
            await until(lambda: "controller.key" in link.problem, "the missing file by its name")
            authority.issue("controller")
            await until(lambda: link.is_connected, "a session")

    with ScriptedScheduler(f"{HOST}:0", credentials=credentials) as scheduler:
        asyncio.run(scenario())


class _Call:
    """A watch whose one event comes when the test says so."""

    def __init__(self) -> None:
        self.event: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def read(self) -> object:
        """The event, once; then nothing."""
        event = await self.event
        self.event = asyncio.get_running_loop().create_future()
        return event


@pytest.mark.parametrize("num_steps_between", range(5))
def test_a_cancellation_that_comes_with_an_event_ends_the_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_steps_between: int
) -> None:
    async def scenario() -> None:
        call = _Call()
        stub = type("Stub", (), {"Watch": lambda *_: call})
        monkeypatch.setattr(watch, "SchedulerControlStub", lambda _: stub())
        task = asyncio.create_task(make_link(address_in(tmp_path)).run())
        await asyncio.sleep(0.05)  # until it reads; were it not, the test would see nothing
        call.event.set_result(pb.WatchEvent(records=pb.Records()))
        for _ in range(num_steps_between):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5.0)
        assert done == {task}
        assert task.cancelled()

    asyncio.run(scenario())
