"""A controller as tests need one: a session that keeps all that it is told, and policies."""

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import grpc

from engine_server import PATIENCE_S
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.scheduling import LeasedPolicy, SchedulingPolicy
from pipelineserve.wire.policies import encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1.scheduler_pb2_grpc import SchedulerControlStub

LEASE_S = 60.0


def a_fixed_policy(chunk_tokens: int = 32, lease_s: float = LEASE_S) -> pb.Policy:
    """The same chunk for each micro-batch."""
    return encode_policy(LeasedPolicy(SchedulingPolicy(Static(chunk_tokens)), lease_s))


class ControlClient:
    """Calls one control server; its sessions end with the block."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        if credentials is None:
            self.channel = grpc.insecure_channel(address)
        else:
            self.channel = grpc.secure_channel(address, credentials)
        self.stub = SchedulerControlStub(self.channel)
        self._sessions: list[ControlSessionClient] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all sessions."""
        for session in self._sessions:
            session.end()
        self.channel.close()

    def watch(self, name: str = "test") -> "ControlSessionClient":
        """Open a session and return once its Hello is there."""
        return self._begun(pb.WatchRequest(controller_name=name))

    def observe(self) -> "ControlSessionClient":
        """Look on without a session, so that no controller is disturbed."""
        return self._begun(pb.WatchRequest(controller_name="test", observe_only=True))

    def apply(self, epoch: int, sequence: int, policy: pb.Policy) -> int:
        """Put a policy in force; return the first micro-batch under it."""
        request = pb.ApplyRequest(epoch=epoch, sequence=sequence, policy=policy)
        return self.stub.Apply(request, timeout=PATIENCE_S).first_micro_batch

    def _begun(self, request: pb.WatchRequest) -> "ControlSessionClient":
        session = ControlSessionClient(self.stub, request)
        self._sessions.append(session)
        session.wait(lambda s: s.hello is not None)
        return session


class ControlSessionClient:
    """One Watch, read in a thread of its own.

    Attributes:
        hello: the first event.
        batches: all others.
        error: how it ended, if it did.
    """

    def __init__(self, stub: SchedulerControlStub, request: pb.WatchRequest) -> None:
        self._stub = stub
        self.hello: pb.Hello | None = None
        self.batches: list[pb.Records] = []
        self.error: grpc.RpcError | None = None
        self._news = threading.Condition()
        self._call = stub.Watch(request)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def epoch(self) -> int:
        """Of this session."""
        assert self.hello is not None
        return self.hello.epoch

    @property
    def steps(self) -> Sequence[pb.StepRecord]:
        """All step records so far."""
        return [step for batch in list(self.batches) for step in batch.steps]

    @property
    def requests(self) -> Sequence[pb.RequestRecord]:
        """All request records so far."""
        return [request for batch in list(self.batches) for request in batch.requests]

    def apply(self, sequence: int, policy: pb.Policy) -> int:
        """Put a policy of this session in force; return the first micro-batch under it."""
        request = pb.ApplyRequest(epoch=self.epoch, sequence=sequence, policy=policy)
        return self._stub.Apply(request, timeout=PATIENCE_S).first_micro_batch

    def wait(self, is_reached: Callable[[Self], bool]) -> Self:
        """Return once what came is as wanted; fail if the call ends instead."""
        with self._news:
            done = self._news.wait_for(lambda: is_reached(self) or self.error, PATIENCE_S)
            assert done, f"never reached; {len(self.batches)} batches"
            if self.error is not None and not is_reached(self):
                raise self.error
        return self

    def wait_snapshot(self, is_reached: Callable[[pb.Snapshot], bool]) -> pb.Snapshot:
        """The first snapshot from now on that is as wanted."""
        num_before = len(self.batches)

        def found() -> list[pb.Snapshot]:
            later = [batch.snapshot for batch in self.batches[num_before:]]
            return [snapshot for snapshot in later if is_reached(snapshot)]

        self.wait(lambda _: bool(found()))
        return found()[0]

    def wait_steps(self, is_one: Callable[[pb.StepRecord], bool], number: int = 1) -> pb.StepRecord:
        """The last of so many step records from now on that are as wanted."""
        num_before = len(self.batches)

        def found() -> list[pb.StepRecord]:
            return [s for batch in self.batches[num_before:] for s in batch.steps if is_one(s)]

        self.wait(lambda _: len(found()) >= number)
        return found()[number - 1]

    def wait_computed(self, num_tokens: int, first: int = 0) -> list[pb.StepRecord]:
        """The steps from sequence `first` on, once they have computed so many tokens.

        A request's record may come before those of its last steps, which wait for what the
        other stages report.
        """

        def found() -> list[pb.StepRecord]:
            return [step for step in self.steps if step.sequence >= first]

        self.wait(lambda _: sum(step.num_tokens for step in found()) >= num_tokens)
        return found()

    def wait_ended(self) -> grpc.RpcError:
        """How the call ends."""
        with self._news:
            assert self._news.wait_for(lambda: self.error is not None, PATIENCE_S)
        assert self.error is not None
        return self.error

    def end(self) -> None:
        """Hang up."""
        self._call.cancel()
        self._thread.join()

    def _read(self) -> None:
        try:
            for event in self._call:
                with self._news:
                    if event.HasField("hello"):
                        self.hello = event.hello
                    else:
                        self.batches.append(event.records)
                    self._news.notify_all()
        except grpc.RpcError as error:
            with self._news:
                self.error = error
                self._news.notify_all()
