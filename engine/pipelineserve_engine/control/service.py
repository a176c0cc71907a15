"""The gRPC service `SchedulerControl`: each message is answered by the engine's thread."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

import grpc

from pipelineserve.errors import EngineUnavailableError, Fault, InvalidInputError
from pipelineserve.policy.scheduling import LeasedPolicy
from pipelineserve.scheduler.session import Refusal, Refused
from pipelineserve.wire.policies import decode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1.scheduler_pb2_grpc import SchedulerControlServicer
from pipelineserve_engine.control.desk import MAX_WATCHERS, ControlDesk, Opened, Outcome
from pipelineserve_engine.control.watchers import Watcher

MAX_NAME_LENGTH = 253
# A turn of the engine's loop takes milliseconds; starting the stages anew, seconds.
_ANSWER_TIMEOUT_S = 30.0
# A status travels in a header, of which gRPC takes 8 KiB: each fault is cut, so that all are named.
_MAX_FAULT_LENGTH = 200

logger = logging.getLogger(__name__)

_ReplyT = TypeVar("_ReplyT")


class Asker(Protocol):
    """Has questions answered in the engine's thread."""

    def ask(self, question: Callable[[float], _ReplyT]) -> Future[_ReplyT]:
        """See `EngineLoop.ask`."""
        ...


@dataclass(frozen=True, slots=True)
class ControlledEngine:
    """What controllers talk to.

    Attributes:
        asker: leads into the engine's thread.
        desk: lives in it, but for `count`.
        hello: what a session begins with, but for its epoch.
    """

    asker: Asker
    desk: ControlDesk
    hello: pb.Hello


@dataclass(frozen=True, slots=True)
class InactiveEngine:
    """An engine that serves, but cannot be controlled.

    Attributes:
        hello: what a session begins with, without a capability and with the reason in it; its
            epoch is the same for each.
    """

    hello: pb.Hello


class SchedulerControl(SchedulerControlServicer):
    """Answers with UNAVAILABLE before `open` and after `close`."""

    def __init__(self) -> None:
        self._engine: ControlledEngine | InactiveEngine | None = None
        self._unavailable = "the engine is loading its model; try again soon"
        self._watchers: list[Watcher] = []

    def open(self, engine: ControlledEngine | InactiveEngine) -> None:
        """Serve this engine from now on; who watches what was there before must call again."""
        self._engine = engine
        for watcher in list(self._watchers):
            watcher.close()

    def close(self) -> None:
        """End all watches; whoever calls now is told that the engine is stopping."""
        self._unavailable = "the engine is stopping"
        self._engine = None
        for watcher in list(self._watchers):
            watcher.close()

    def Watch(  # noqa: N802 - the contract's name
        self, request: pb.WatchRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchEvent]:
        """See scheduler.proto."""
        engine = self._require_engine(context)
        name = request.controller_name
        if len(name) > MAX_NAME_LENGTH:
            text = f"expected at most {MAX_NAME_LENGTH} characters, got {len(name)}"
            error = InvalidInputError("the request", [Fault("controller_name", text)])
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, _text_of(error))
        if isinstance(engine, InactiveEngine):
            return self._silence(engine, context)
        admit = engine.desk.observe if request.observe_only else engine.desk.open
        opened = _answer(context, engine, lambda now_s: admit(name, now_s))
        if opened is None:
            text = f"{MAX_WATCHERS} may watch, one of them a controller; end one that does"
            _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._watchers.append(opened.watcher)
        if self._engine is None:
            opened.watcher.close()  # the end came between the answer and the list
        # However the call ends, and if it never sends anything.
        if not context.add_callback(lambda: self._end(engine, opened)):
            self._end(engine, opened)
        return self._events(engine.hello, opened, context)

    def Apply(  # noqa: N802 - the contract's name
        self, request: pb.ApplyRequest, context: grpc.ServicerContext
    ) -> pb.ApplyReply:
        """See scheduler.proto."""
        engine = self._require_engine(context)
        if isinstance(engine, InactiveEngine):
            text = f"the engine cannot be controlled: {engine.hello.inactive_reason}"
            _abort(context, grpc.StatusCode.FAILED_PRECONDITION, text)
        try:
            leased = _decoded(request, engine.hello.max_chunk_tokens)
        except InvalidInputError as error:
            engine.desk.count(Outcome.INVALID)
            _abort(context, grpc.StatusCode.INVALID_ARGUMENT, _text_of(error))
        epoch, sequence = request.epoch, request.sequence
        outcome = _answer(
            context, engine, lambda now_s: engine.desk.apply(epoch, sequence, leased, now_s)
        )
        if isinstance(outcome, Refused):
            text = _refusal_text(outcome, request)
            _abort(context, grpc.StatusCode.FAILED_PRECONDITION, text)
        return pb.ApplyReply(first_micro_batch=outcome.first_micro_batch)

    def _events(
        self, hello: pb.Hello, opened: Opened, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchEvent]:
        """The session's events, for as long as the watcher is there."""
        first = pb.WatchEvent(hello=hello)
        first.hello.epoch = opened.epoch
        yield first
        while (event := opened.watcher.next_event()) is not None:
            yield event
        self._require_engine(context)

    def _silence(
        self, engine: InactiveEngine, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchEvent]:
        """Why nothing will be told, and nothing after it for as long as the call lasts."""
        watcher = Watcher("", max_records=1)
        self._watchers.append(watcher)
        if self._engine is None or not context.add_callback(watcher.close):
            watcher.close()
        yield pb.WatchEvent(hello=engine.hello)
        watcher.next_event()
        self._watchers.remove(watcher)

    def _end(self, engine: ControlledEngine, opened: Opened) -> None:
        """The call is over; its watcher is told nothing more."""
        self._watchers.remove(opened.watcher)
        opened.watcher.close()
        with suppress(EngineUnavailableError):  # it has ended, and tells nobody any more
            engine.asker.ask(lambda _: engine.desk.close(opened.watcher))
        if opened.epoch:
            logger.info("session %d: its controller is gone", opened.epoch)

    def _require_engine(self, context: grpc.ServicerContext) -> ControlledEngine | InactiveEngine:
        engine = self._engine
        if engine is None:
            _abort(context, grpc.StatusCode.UNAVAILABLE, self._unavailable)
        return engine


def _decoded(request: pb.ApplyRequest, max_chunk_tokens: int) -> LeasedPolicy:
    """The request's policy.

    Raises:
        InvalidInputError: names every field that is wrong.
    """
    faults: list[Fault] = []
    if request.sequence < 1:
        faults.append(Fault("sequence", "expected 1 or more, got 0"))
    try:
        leased = decode_policy(request.policy, max_chunk_tokens=max_chunk_tokens)
    except InvalidInputError as error:
        faults += [Fault(f"policy.{fault.field}", fault.message) for fault in error.faults]
    if faults:
        raise InvalidInputError("the request", faults)
    return leased


def _answer(
    context: grpc.ServicerContext,
    engine: ControlledEngine,
    question: Callable[[float], _ReplyT],
) -> _ReplyT:
    """The engine's answer; a question that it does not get to in time is never answered."""
    try:
        reply = engine.asker.ask(question)
        wait([reply], _ANSWER_TIMEOUT_S)
        if not reply.cancel():
            return reply.result()
    except EngineUnavailableError as error:
        _abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
    else:
        text = f"the engine did not answer within {_ANSWER_TIMEOUT_S:g} s; it may be stuck"
        _abort(context, grpc.StatusCode.UNAVAILABLE, text)


def _refusal_text(refused: Refused, request: pb.ApplyRequest) -> str:
    match refused.refusal:
        case Refusal.NO_SESSION:
            return "no session is open; call Watch first and take the epoch from its Hello"
        case Refusal.OLD_SESSION:
            return (
                f"epoch: got {request.epoch}, but the latest session's is {refused.latest}; "
                "another controller has taken over, or call Watch for a session of your own"
            )
        case Refusal.OLD_SEQUENCE:
            return (
                f"sequence: expected above {refused.latest}, the latest of this session, "
                f"got {request.sequence}"
            )


def _text_of(error: InvalidInputError) -> str:
    lines = [f"{error.subject} is not valid"]
    for fault in error.faults:
        text = str(fault)
        is_long = len(text) > _MAX_FAULT_LENGTH
        lines.append(f"{text[:_MAX_FAULT_LENGTH]}..." if is_long else text)
    return "; ".join(lines)


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, text: str) -> NoReturn:
    context.abort(code, text)
    raise AssertionError("abort raises")
