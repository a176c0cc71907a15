"""The control server's socket is private and never stolen; calls are answered in every state."""

import random
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from certificates import Authority, KeyPair, client_credentials, replace_pair
from control_client import ControlClient, a_fixed_policy
from control_parts import STATIC_CHUNK_TOKENS, a_desk
from engine_server import wait_until
from pipelineserve.errors import EngineUnavailableError
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve_engine.control.address import TlsFiles
from pipelineserve_engine.control.assembly import make_hello
from pipelineserve_engine.control.desk import MAX_WATCHERS
from pipelineserve_engine.control.server import (
    MAX_REQUEST_BYTES,
    SERVICE_NAME,
    ControlServer,
    control_server,
)
from pipelineserve_engine.control.service import (
    MAX_NAME_LENGTH,
    ControlledEngine,
    InactiveEngine,
)
from scripted_engine import a_scripted_engine

NO_TLS = TlsFiles()
ReplyT = TypeVar("ReplyT")


class LockedAsker:
    """Answers at once, one question at a time, as long as it runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_ended = False

    def ask(self, question: Callable[[float], ReplyT]) -> Future[ReplyT]:
        """See `Asker.ask`."""
        if self.is_ended:
            raise EngineUnavailableError("the engine has ended")
        reply: Future[ReplyT] = Future()
        with self._lock:
            reply.set_result(question(0.0))
        return reply


class Served:
    """A control server on a socket file, with a scripted engine behind it once `open` is called."""

    def __init__(
        self, server: ControlServer, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        self.server = server
        self.asker = LockedAsker()
        self.client = ControlClient(server.address, credentials)

    def open(self) -> None:
        """Give it an engine."""
        engine = a_scripted_engine()
        settings = engine.core.scheduler.settings
        hello = make_hello(
            settings, num_stages=1, static_chunk_tokens=STATIC_CHUNK_TOKENS, version="1.2.3"
        )
        self.server.open(ControlledEngine(self.asker, a_desk(engine), hello))

    def health(self, service: str = SERVICE_NAME) -> str:
        """What the health service says."""
        stub = health_pb2_grpc.HealthStub(self.client.channel)
        status = stub.Check(health_pb2.HealthCheckRequest(service=service)).status
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@pytest.fixture
def served(path: Path) -> Iterator[Served]:
    with control_server(f"unix:{path}", NO_TLS) as server:
        assert server is not None
        parts = Served(server)
        with parts.client:
            yield parts


def status_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    error = refused.value
    assert isinstance(error, grpc.Call)
    return error.code(), error.details() or ""


# The socket


def test_only_its_user_can_open_the_socket_file_which_ends_with_the_server(path: Path) -> None:
    with control_server(f"unix:{path}", NO_TLS):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_ISSOCK(path.stat().st_mode)
    assert not path.exists()


def test_without_an_address_nothing_is_served() -> None:
    with control_server("", NO_TLS) as server:
        assert server is None


def test_a_socket_that_somebody_serves_is_left_alone(served: Served, path: Path) -> None:
    served.open()
    inode = path.stat().st_ino
    with (
        pytest.raises(EngineUnavailableError, match="another process serves there; end it, or"),
        control_server(f"unix:{path}", NO_TLS),
    ):
        pass
    assert path.stat().st_ino == inode
    assert served.client.watch().epoch


def test_a_socket_whose_process_takes_no_connections_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stuck, socket.socket(socket.AF_UNIX) as waiting:
        stuck.bind(str(path))
        stuck.listen(0)
        waiting.connect(str(path))
        with (
            pytest.raises(EngineUnavailableError, match="another process serves there"),
            control_server(f"unix:{path}", NO_TLS),
        ):
            pass


def test_a_socket_file_that_was_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with control_server(f"unix:{path}", NO_TLS) as server:
        assert server is not None
        parts = Served(server)
        parts.open()
        with parts.client as client:
            assert client.watch().epoch


def test_a_file_that_is_no_socket_is_left_alone(path: Path) -> None:
    path.write_text("precious")
    with (
        pytest.raises(EngineUnavailableError, match="a file that is no socket is there"),
        control_server(f"unix:{path}", NO_TLS),
    ):
        pass
    assert path.read_text() == "precious"


def test_a_folder_that_is_missing_is_named(path: Path) -> None:
    address = f"unix:{path.parent}/missing/control.sock"
    with (
        pytest.raises(EngineUnavailableError, match=r"missing/control\.sock: No such file or"),
        control_server(address, NO_TLS),
    ):
        pass


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    pair = authority.issue("server")
    files = TlsFiles(str(pair.certificate), str(pair.key), str(authority.pair.certificate))
    with control_server("127.0.0.1:0", files) as first:
        assert first is not None
        with (
            pytest.raises(EngineUnavailableError, match="cannot serve controllers on 127"),
            control_server(first.address, files),
        ):
            pass


# Mutual TLS


class Tls:
    """An engine's control port with certificates of its own, and their authority."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder, "authority")
        self.pair = self.authority.issue("server")
        ca = str(self.authority.pair.certificate)
        self.files = TlsFiles(str(self.pair.certificate), str(self.pair.key), ca)

    def client(self, server: ControlServer, trusted: Authority, pair: KeyPair | None) -> Served:
        """A client that trusts this authority and shows this certificate."""
        return Served(server, client_credentials(trusted, pair))


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(tmp_path)


def test_only_a_controller_with_a_certificate_of_the_client_ca_gets_in(tls: Tls) -> None:
    other = Authority(tls.folder, "other")
    with control_server("127.0.0.1:0", tls.files) as server:
        assert server is not None
        good = tls.client(server, tls.authority, tls.authority.issue("controller"))
        good.open()
        with good.client as client:
            assert client.watch().epoch
        for pair in (None, other.issue("stranger")):
            stranger = tls.client(server, tls.authority, pair)
            with stranger.client as client:
                code, _ = status_of(lambda: client.apply(1, 1, a_fixed_policy()))
                assert code is grpc.StatusCode.UNAVAILABLE
        plain = Served(server)
        with plain.client as client:
            code, _ = status_of(lambda: client.apply(1, 1, a_fixed_policy()))
            assert code is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_is_replaced_while_controllers_are_connected(tls: Tls) -> None:
    newer = Authority(tls.folder, "newer")
    pair = tls.authority.issue("controller")
    with control_server("127.0.0.1:0", tls.files) as server:
        assert server is not None
        old = tls.client(server, tls.authority, pair)
        old.open()
        with old.client:
            session = old.client.watch()
            replace_pair(tls.pair, newer.issue("server-2"))
            new = tls.client(server, newer, pair)
            with new.client:
                assert new.client.watch().epoch > session.epoch
            assert session.error is None
            # The old one's authority is no longer the server's.
            late = tls.client(server, tls.authority, pair)
            with late.client as client:
                code, _ = status_of(lambda: client.apply(1, 1, a_fixed_policy()))
                assert code is grpc.StatusCode.UNAVAILABLE


# States


def test_says_that_the_model_loads_until_there_is_an_engine(served: Served) -> None:
    def watch() -> object:
        return next(served.client.stub.Watch(pb.WatchRequest()))

    assert status_of(watch) == (
        grpc.StatusCode.UNAVAILABLE,
        "the engine is loading its model; try again soon",
    )
    assert status_of(lambda: served.client.apply(1, 1, a_fixed_policy()))[0] == (
        grpc.StatusCode.UNAVAILABLE
    )
    assert (served.health(), served.health("")) == ("NOT_SERVING", "NOT_SERVING")
    served.open()
    assert served.client.watch().hello is not None
    assert (served.health(), served.health("")) == ("SERVING", "SERVING")


def test_the_end_of_the_engine_ends_watches_and_calls_with_unavailable(served: Served) -> None:
    served.open()
    session = served.client.watch()
    served.server.turn_away()
    error = session.wait_ended()
    assert isinstance(error, grpc.Call)
    assert (error.code(), error.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "the engine is stopping",
    )
    code, _ = status_of(lambda: session.apply(1, a_fixed_policy()))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert served.health() == "NOT_SERVING"


def test_an_engine_that_has_ended_by_itself_is_unavailable(served: Served) -> None:
    served.open()
    session = served.client.watch()
    served.asker.is_ended = True
    assert status_of(lambda: session.apply(1, a_fixed_policy())) == (
        grpc.StatusCode.UNAVAILABLE,
        "the engine has ended",
    )


# Bounds


def test_hello_says_what_is_controlled(served: Served) -> None:
    served.open()
    hello = served.client.watch().hello
    assert hello is not None
    assert (hello.engine_name, hello.engine_version) == ("pipelineserve-torch", "1.2.3")
    assert (hello.num_stages, hello.num_slots) == (1, 2)
    assert (hello.max_chunk_tokens, hello.static_chunk_tokens) == (64, STATIC_CHUNK_TOKENS)
    assert (hello.block_tokens, hello.kv_tokens) == (4, 128)


def test_one_watcher_too_many_is_told_so_until_another_one_hangs_up(served: Served) -> None:
    served.open()
    sessions = [served.client.watch() for _ in range(MAX_WATCHERS)]

    def watch() -> object:
        return next(served.client.stub.Watch(pb.WatchRequest()))

    code, text = status_of(watch)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert text == f"{MAX_WATCHERS} may watch, one of them a controller; end one that does"
    sessions[0].end()
    wait_until(lambda: len(served.server._service._watchers), lambda num: num < MAX_WATCHERS)
    assert served.client.watch().epoch > sessions[-1].epoch


def test_an_observer_takes_control_from_nobody_and_has_none(served: Served) -> None:
    served.open()
    session = served.client.watch()
    events = served.client.stub.Watch(pb.WatchRequest(observe_only=True))
    assert next(events).hello.epoch == 0
    session.apply(1, a_fixed_policy())
    code, _ = status_of(lambda: served.client.apply(0, 1, a_fixed_policy()))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    events.cancel()


def test_observers_leave_a_place_for_a_controller(served: Served) -> None:
    served.open()
    watch = served.client.stub.Watch
    observers = [watch(pb.WatchRequest(observe_only=True)) for _ in range(MAX_WATCHERS - 1)]
    assert [next(observer).hello.epoch for observer in observers] == [0] * len(observers)
    code, _ = status_of(lambda: next(watch(pb.WatchRequest(observe_only=True))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.client.watch().epoch > 0
    for observer in observers:
        observer.cancel()


def test_a_request_that_is_too_large_is_refused_unread(served: Served) -> None:
    served.open()
    policy = a_fixed_policy()
    policy.fixed.reason = "x" * (MAX_REQUEST_BYTES + 1)
    code, _ = status_of(lambda: served.client.apply(1, 1, policy))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_bytes_that_are_no_message_are_refused_and_the_next_call_is_served(
    served: Served,
) -> None:
    served.open()
    session = served.client.watch()
    send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = served.client.channel.unary_unary(
        f"/{SERVICE_NAME}/Apply"
    )
    chance = random.Random(3)
    for _ in range(100):
        content = chance.randbytes(chance.randrange(1, 200))
        code, _ = status_of(lambda: send(content, timeout=30.0))  # noqa: B023
        assert code in {grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT}
    assert session.apply(1, a_fixed_policy()) == 0


def test_every_fault_is_named_however_long_they_are(served: Served) -> None:
    served.open()
    session = served.client.watch()
    policy = pb.Policy(lease_s=float("nan"))
    policy.fixed.reason = "\N{SNOWMAN}" * 10_000
    policy.model.tokens.extend(range(1, 513))
    policy.model.times_s.extend([0.12345678901234567] * 511 + [float("nan")])
    code, text = status_of(lambda: session.apply(0, policy))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    for name in ("sequence", "policy.lease_s", "policy.model", "policy.fixed.reason", "order.kind"):
        assert f"{name}: " in text
    assert len(text) < 2000


def test_a_name_that_is_too_long_is_refused(served: Served) -> None:
    served.open()
    assert served.client.watch("n" * MAX_NAME_LENGTH).epoch
    request = pb.WatchRequest(controller_name="n" * (MAX_NAME_LENGTH + 1))
    code, text = status_of(lambda: next(served.client.stub.Watch(request)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "controller_name: expected at most 253 characters, got 254" in text


@pytest.mark.parametrize(
    ("epoch_offset", "sequence", "expected"),
    [
        (1, 5, "epoch: got "),
        (0, 2, "sequence: expected above 3, the latest of this session, got 2"),
    ],
)
def test_a_refusal_says_what_stands_against_it(
    served: Served, epoch_offset: int, sequence: int, expected: str
) -> None:
    served.open()
    session = served.client.watch()
    assert session.apply(3, a_fixed_policy()) == session.apply(3, a_fixed_policy()) == 0
    epoch = session.epoch + epoch_offset
    code, text = status_of(lambda: served.client.apply(epoch, sequence, a_fixed_policy()))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert expected in text


# An engine that cannot be controlled


def go_inactive(served: Served) -> None:
    hello = pb.Hello(engine_name="other", epoch=3, inactive_reason="a hook is missing")
    served.server.open(InactiveEngine(hello))


def test_an_inactive_engine_says_why_and_takes_no_policy(served: Served) -> None:
    go_inactive(served)
    session = served.client.watch()
    assert session.hello is not None
    assert (session.epoch, session.hello.inactive_reason) == (3, "a hook is missing")
    assert served.client.observe().hello == session.hello
    code, text = status_of(lambda: session.apply(1, a_fixed_policy()))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "cannot be controlled: a hook is missing" in text
    assert session.batches == []


def test_watches_of_an_inactive_engine_end_with_the_server(served: Served) -> None:
    go_inactive(served)
    session = served.client.watch()
    served.server.turn_away()
    wait_until(session._thread.is_alive, lambda is_alive: not is_alive)


def test_who_watches_an_engine_that_becomes_inactive_must_call_again(served: Served) -> None:
    served.open()
    before = served.client.watch()
    go_inactive(served)
    wait_until(before._thread.is_alive, lambda is_alive: not is_alive)
    assert before.error is None
    again = served.client.watch()
    assert again.hello is not None
    assert again.hello.inactive_reason == "a hook is missing"
