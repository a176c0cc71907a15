"""A scheduler's control service that says what a test tells it to, on a real socket."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import grpc

from pipelineserve.errors import InvalidInputError
from pipelineserve.policy.scheduling import LeasedPolicy
from pipelineserve.scheduler.session import ControlSession, Granted, Refused, Repeated
from pipelineserve.wire.policies import decode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1.scheduler_pb2_grpc import (
    SchedulerControlServicer,
    add_SchedulerControlServicer_to_server,
)

ALL_CAPABILITIES = (
    pb.CAPABILITY_CHUNK,
    pb.CAPABILITY_PREDICTIVE,
    pb.CAPABILITY_ORDER,
    pb.CAPABILITY_HOLD,
)
HEARTBEAT_S = 0.05


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 20.0) -> None:
    """Wait for a condition; fails naming what was waited for."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError(f"expected {what} within {deadline_s:g} s")
        time.sleep(0.01)


class ScriptedScheduler(SchedulerControlServicer):
    """Grants policies by the real rules of sessions, and tells snapshots of an idle engine.

    Attributes:
        applied: every policy that was granted, in order.
        refused: every request that was not.
        snapshot: what the next heartbeats say.
        is_silent: no heartbeat while true.
        port: where it listens, if that is no socket file.
    """

    def __init__(
        self,
        address: str,
        first_epoch: int = 1,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._session = ControlSession(first_epoch)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._told: list[queue.Queue[pb.WatchEvent]] = []
        self._server: grpc.Server | None = None
        self.applied: list[LeasedPolicy] = []
        self.refused: list[pb.ApplyRequest] = []
        self.snapshot = pb.Snapshot(kv_free_ratio=1.0)
        self.is_silent = False
        self.num_sessions = 0
        self.port = 0
        self.hello = pb.Hello(
            engine_name="scripted",
            engine_version="1",
            num_stages=2,
            num_slots=2,
            max_chunk_tokens=2048,
            static_chunk_tokens=256,
            block_tokens=16,
            kv_tokens=100_000,
            capabilities=ALL_CAPABILITIES,
        )

    def __enter__(self) -> Self:
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8))
        add_SchedulerControlServicer_to_server(self, self._server)
        if self._credentials is None:
            self.port = self._server.add_insecure_port(self._address)
        else:
            self.port = self._server.add_secure_port(self._address, self._credentials)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._server is not None:
            self._server.stop(grace=0).wait()

    def be_inactive(self, reason: str) -> None:
        """Cannot be controlled, as the next session's hello says, and tells nothing."""
        self.hello.ClearField("capabilities")
        self.hello.inactive_reason = reason
        self.is_silent = True

    def tell(self, records: pb.Records) -> None:
        """Send these records, and how things stand with them, to whoever watches."""
        if not records.HasField("snapshot"):
            records.MergeFrom(self._heartbeat())
        for told in self._told:
            told.put(pb.WatchEvent(records=records))

    def Watch(  # noqa: N802 # the contract's name
        self,
        request: pb.WatchRequest,  # noqa: ARG002 # the contract's
        context: grpc.ServicerContext,
    ) -> Iterator[pb.WatchEvent]:
        """A hello, then what is told, and heartbeats in between."""
        told: queue.Queue[pb.WatchEvent] = queue.Queue()
        with self._lock:
            self.hello.epoch = self._session.open()
            self.num_sessions += 1
            self._told.append(told)
            hello = pb.Hello()
            hello.CopyFrom(self.hello)
        yield pb.WatchEvent(hello=hello)
        while not self._ending.is_set() and context.is_active():
            try:
                yield told.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                if not self.is_silent:
                    yield pb.WatchEvent(records=self._heartbeat())

    def Apply(  # noqa: N802 # the contract's name
        self, request: pb.ApplyRequest, context: grpc.ServicerContext
    ) -> pb.ApplyReply:
        """Grant or refuse as the engine does."""
        try:
            leased = decode_policy(request.policy, max_chunk_tokens=self.hello.max_chunk_tokens)
        except InvalidInputError as error:
            self.refused.append(request)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        with self._lock:
            match self._session.check(request.epoch, request.sequence):
                case Granted():
                    self._session.grant(request.sequence, 1, leased.lease_s, time.monotonic())
                    self.applied.append(leased)
                case Repeated():
                    pass
                case Refused(refusal=refusal):
                    self.refused.append(request)
                    context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal.value)
        return pb.ApplyReply(first_micro_batch=1)

    def _heartbeat(self) -> pb.Records:
        now_s = time.monotonic()
        with self._lock:
            self._session.lapse(now_s)
            snapshot = pb.Snapshot()
            snapshot.CopyFrom(self.snapshot)
            snapshot.policy_epoch, snapshot.policy_sequence = self._session.in_force
            snapshot.lease_left_s = self._session.lease_left_s(now_s)
        return pb.Records(now_s=now_s, snapshot=snapshot)
