"""The engine's thread: commands from the API in, tokens to the API out, slots kept full."""

import asyncio
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pipelineserve.errors import (
    EngineUnavailableError,
    Fault,
    InvalidInputError,
    PipelineServeError,
    QueueFullError,
    StagesFailedError,
)
from pipelineserve.scheduler.messages import Accepted, Rejected, RejectReason
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.control.desk import ControlDesk
from pipelineserve_engine.core import EngineCore, Output
from pipelineserve_engine.executor import Executor
from pipelineserve_engine.generation import EngineStatus, GenerationRequest, TokenEvent
from pipelineserve_engine.recovery import Phase, Recovery
from pipelineserve_engine.stage_messages import ReadyReport, StageReport

_IDLE_WAIT_S = 0.25
_MIN_RETRY_AFTER_S = 1.0
_MAX_RETRY_AFTER_S = 60.0
_RATE_WINDOW = 64

_LEVELS_PERIOD_S = 0.1

# The loop never waits for a step, and a turn takes milliseconds; starting the stages anew, with the
# old ones' memory to be given back, takes seconds. A loop that stands still for longer is stuck.
_STILL_S = 30.0

# Clients are told no more: an exception's own message may quote somebody else's prompt.
_INTERNAL_ERROR = "internal error in the engine; the server's log has more"

logger = logging.getLogger(__name__)

_Answer = TokenEvent | PipelineServeError
_ReplyT = TypeVar("_ReplyT")


@dataclass(frozen=True, slots=True)
class _Stream:
    """Where one request's events go; belongs to the API's event loop."""

    loop: asyncio.AbstractEventLoop
    answers: asyncio.Queue[_Answer]

    def put(self, answer: _Answer) -> None:
        """Hand one answer over, from any thread."""
        _call_in(self.loop, lambda: self.answers.put_nowait(answer))


@dataclass(frozen=True, slots=True)
class _Submit:
    request: GenerationRequest
    stream: _Stream


@dataclass(frozen=True, slots=True)
class _Cancel:
    request_id: str


@dataclass(frozen=True, slots=True)
class _Finish:
    request_id: str


@dataclass(frozen=True, slots=True)
class _Fail:
    request_id: str


@dataclass(frozen=True, slots=True)
class _Ask:
    """A question to what this thread owns; one of the two is called, once."""

    answer: Callable[[float], None]
    refuse: Callable[[EngineUnavailableError], None]


_Command = _Submit | _Cancel | _Finish | _Fail | _Ask


class EngineLoop:
    """Runs an `EngineCore` in a thread of its own; the API's `EngineClient`.

    Args:
        core: used by this thread alone from `start` on.
        executor: the one that the core sends to.
        recovery: decides whether failed stages are started anew; as serving.
        on_failure: called once, from the thread, when the stages are gone for good.
        vocabulary_size: of the model; a token beyond it would end the stages, and with them every
            request, and tokenizers sometimes know more than their model.
        desk: has its turn before micro-batches are composed; None if no controller is served.
        clock: seconds, of the clock that the stages report in.
    """

    def __init__(
        self,
        core: EngineCore,
        executor: Executor,
        recovery: Recovery,
        on_failure: Callable[[str], None],
        *,
        vocabulary_size: int,
        desk: ControlDesk | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._desk = desk
        self._executor = executor
        self._recovery = recovery
        self._on_failure = on_failure
        self._vocabulary_size = vocabulary_size
        self._clock = clock
        self._commands: deque[_Command] = deque()
        self._streams: dict[str, _Stream] = {}
        self._end_times_s: deque[float] = deque(maxlen=_RATE_WINDOW)
        self._next_levels_s = 0.0
        self._turned_at_s = 0.0
        self._is_stopping = False
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="engine-loop", daemon=True)

    def start(self) -> None:
        """Start the thread; the stages must be ready."""
        self._turned_at_s = self._clock()
        self._thread.start()

    def stop(self) -> None:
        """Fail what is live, end the thread and wait for it."""
        self._is_stopping = True
        self._executor.wake()
        self._thread.join()

    # The API's side: called in its event loop

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[TokenEvent, None]:
        """See `EngineClient.generate`."""
        self._require_vocabulary(request)
        stream = _Stream(asyncio.get_running_loop(), asyncio.Queue())
        self._post(_Submit(request, stream))
        # Asked after posting: a loop that fails from here on answers what was posted.
        if self._failure is not None:
            raise EngineUnavailableError(self._failure)
        has_ended = False
        try:
            while not has_ended:
                answer = await stream.answers.get()
                has_ended = isinstance(answer, PipelineServeError) or answer.finish is not None
                if isinstance(answer, PipelineServeError):
                    raise answer
                yield answer
        finally:
            if not has_ended:
                self._post(_Cancel(request.request_id))

    def finish(self, request_id: str) -> None:
        """See `EngineClient.finish`."""
        self._post(_Finish(request_id))

    def fail(self, request_id: str) -> None:
        """See `EngineClient.fail`."""
        self._post(_Fail(request_id))

    def status(self) -> EngineStatus:
        """See `EngineClient.status`."""
        if self._failure is not None:
            return EngineStatus(is_live=False, is_ready=False, detail=self._failure)
        if not self._thread.is_alive():
            return EngineStatus(is_live=False, is_ready=False, detail="the engine has ended")
        still_s = self._clock() - self._turned_at_s
        if still_s > _STILL_S:
            detail = f"the engine's loop has stood still for {still_s:.0f} s"
            return EngineStatus(is_live=False, is_ready=False, detail=detail)
        if self._is_stopping:
            return EngineStatus(is_live=True, is_ready=False, detail="stopping")
        if self._recovery.phase is not Phase.SERVING:
            detail = f"starting the stages anew: {self._recovery.cause}"
            return EngineStatus(is_live=True, is_ready=False, detail=detail)
        return EngineStatus(is_live=True, is_ready=True, detail="serving")

    # A controller's side: called in any thread

    def ask(self, question: Callable[[float], _ReplyT]) -> Future[_ReplyT]:
        """Have a question answered in the engine's thread, between two micro-batches.

        Args:
            question: called with the time, whatever state the stages are in; what it raises, the
                future does.

        Raises:
            EngineUnavailableError: the engine has ended; the future raises it if it ends meanwhile.
        """
        reply: Future[_ReplyT] = Future()

        def answer(now_s: float) -> None:
            if not reply.set_running_or_notify_cancel():
                return  # nobody waits for it any more
            try:
                reply.set_result(question(now_s))
            except Exception as error:  # noqa: BLE001 - it is the asker's to handle
                reply.set_exception(error)

        def refuse(error: EngineUnavailableError) -> None:
            if reply.set_running_or_notify_cancel():
                reply.set_exception(error)

        self._post(_Ask(answer, refuse))
        # Asked after posting: a loop that fails from here on answers what was posted.
        if self._failure is not None:
            raise EngineUnavailableError(self._failure)
        return reply

    def _require_vocabulary(self, request: GenerationRequest) -> None:
        biased = tuple(token_id for token_id, _ in request.sampling.logit_bias)
        for field, token_ids in (("prompt", request.prompt_token_ids), ("logit_bias", biased)):
            largest = max(token_ids, default=0)
            if largest >= self._vocabulary_size:
                bound = f"expected token ids below {self._vocabulary_size}, the model's"
                raise InvalidInputError("the request", [Fault(field, f"{bound}, got {largest}")])

    # The thread's side

    def _post(self, command: _Command) -> None:
        if self._failure is not None:
            return  # nobody reads commands any more, and every request has had its answer
        self._commands.append(command)
        self._executor.wake()

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
        except EngineUnavailableError as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001 - it must not end without telling its clients
            _log_fault("engine loop failed", error)
            failure = _INTERNAL_ERROR
        else:
            self._fail("the engine is stopping; try again later")
            return
        self._fail(failure)
        self._on_failure(failure)

    def _turn(self) -> None:
        """Take in commands and reports, fill slots, wait for the next of either."""
        now_s = self._turned_at_s = self._clock()
        while self._commands:
            self._obey(self._commands.popleft(), now_s)
        wait_s = _IDLE_WAIT_S
        if self._desk is not None:
            wait_s = min(wait_s, self._desk.turn(now_s))
        try:
            self._exchange(now_s, wait_s)
        except StagesFailedError as error:
            self._recover(str(error))
        if not self._core.scheduler.has_work:
            self._end_times_s.clear()  # idle time says nothing about how fast places become free
        if now_s >= self._next_levels_s:
            self._core.observe_levels()
            self._deliver(self._core.audit(len(self._streams), now_s), now_s)
            self._next_levels_s = now_s + _LEVELS_PERIOD_S

    def _exchange(self, now_s: float, wait_s: float) -> None:
        """Give the stages work, if they are there, and take in what they report."""
        pause_s = self._recovery.seconds_to_restart(now_s)
        if pause_s is not None and pause_s > 0.0:
            self._executor.wait(min(wait_s, pause_s))
            return
        if pause_s is not None:
            self._recovery.restart()
            self._executor.restart()
        if self._recovery.phase is Phase.SERVING:
            self._core.fill_slots(now_s)
        for report in self._executor.receive(wait_s):
            self._note_ready(report)
            now_s = self._clock()
            self._deliver(self._core.absorb(report, now_s), now_s)

    def _note_ready(self, report: StageReport) -> None:
        if isinstance(report, ReadyReport):
            self._recovery.stage_ready()
            if self._recovery.phase is Phase.SERVING:
                logger.warning("stages are ready again")

    def _recover(self, cause: str) -> None:
        """Keep the requests, start the stages anew after a pause, or give up.

        Raises:
            EngineUnavailableError: the budget is spent.
        """
        decision = self._recovery.fail(cause, self._clock())
        if decision.restart_at_s is None:
            raise EngineUnavailableError(f"{cause}; gave up: {decision.reason.value}")
        num_recalled = self._core.recall_all()
        logger.warning("%s; starting the stages anew for %d requests", cause, num_recalled)

    def _obey(self, command: _Command, now_s: float) -> None:
        match command:
            case _Submit(request, stream):
                self._submit(request, stream, now_s)
            case _Cancel(request_id):
                self._streams.pop(request_id, None)
                self._core.cancel(request_id, now_s)
            case _Finish(request_id):
                self._core.finish(request_id, now_s)
                if (stream_or_none := self._streams.pop(request_id, None)) is not None:
                    stream_or_none.put(TokenEvent(None, FinishReason.STOP))
            case _Fail(request_id):
                self._streams.pop(request_id, None)
                self._core.fail(request_id, now_s)
            case _Ask(answer, _):
                answer(now_s)

    def _submit(self, request: GenerationRequest, stream: _Stream, now_s: float) -> None:
        try:
            outcome = self._core.submit(request, now_s)
        except Exception:
            # It is in no table yet, so the end of the loop would not reach it.
            stream.put(EngineUnavailableError(_INTERNAL_ERROR))
            raise
        match outcome:
            case Accepted():
                self._streams[request.request_id] = stream
            case Rejected() as rejected:
                stream.put(self._rejection_error(rejected, now_s))

    def _deliver(self, outputs: list[Output], now_s: float) -> None:
        """Hand tokens over, with one call into the event loop for all of a micro-batch."""
        batches: dict[asyncio.AbstractEventLoop, list[tuple[_Stream, _Answer]]] = {}
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if output.finish is not None:
                self._end_times_s.append(now_s)
                self._streams.pop(output.request_id, None)
            if stream is not None:
                batches.setdefault(stream.loop, []).append((stream, output.event))
        for loop, batch in batches.items():
            _call_in(loop, partial(_put_all, batch))

    def _fail(self, message: str) -> None:
        """End every live request visibly; clients first, since the core may be what is broken."""
        self._failure = message
        for stream in self._streams.values():
            stream.put(EngineUnavailableError(message))
        self._streams.clear()
        while self._commands:
            match self._commands.popleft():
                case _Submit(_, stream):
                    stream.put(EngineUnavailableError(message))
                case _Ask(_, refuse):
                    refuse(EngineUnavailableError(message))
                case _Cancel() | _Finish() | _Fail():
                    pass  # every request has ended
        try:
            self._core.fail_all(self._clock())
            self._core.observe_levels()
        except Exception as error:  # noqa: BLE001 - the clients have had their answers
            _log_fault("could not account for the requests that failed", error)

    def _rejection_error(self, rejected: Rejected, now_s: float) -> PipelineServeError:
        match rejected.reason:
            case RejectReason.QUEUE_FULL:
                return QueueFullError(
                    f"the waiting queue is full ({rejected.limit} requests); try again later",
                    self._retry_after_s(now_s),
                )
            case RejectReason.PROMPT_TOO_LONG:
                text = f"expected at most {rejected.limit} tokens; shorten it"
                return InvalidInputError("the request", [Fault("prompt", text)])
            case RejectReason.EMPTY_PROMPT:
                text = "expected at least one token, got none"
                return InvalidInputError("the request", [Fault("prompt", text)])
            case RejectReason.NO_OUTPUT_ASKED:
                text = "expected at least 1"
                return InvalidInputError("the request", [Fault("max_tokens", text)])
            case RejectReason.DUPLICATE_ID:
                text = f"{rejected.request_id} is in use by a live request"
                return InvalidInputError("the request", [Fault("request_id", text)])

    def _retry_after_s(self, now_s: float) -> float:
        """When a place is likely to be free: the mean time between ends since it last idled."""
        if len(self._end_times_s) < 2:
            return _MIN_RETRY_AFTER_S
        between_s = (now_s - self._end_times_s[0]) / len(self._end_times_s)
        return min(_MAX_RETRY_AFTER_S, max(_MIN_RETRY_AFTER_S, between_s))


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        # The API's event loop has ended, and every client of it with it.
        logger.debug("event loop is closed, answers dropped")


def _log_fault(what: str, error: Exception) -> None:
    """Log class and place only: an exception's own message may quote a prompt."""
    place = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s: %s\n%s", what, type(error).__name__, place)


def _put_all(batch: list[tuple[_Stream, _Answer]]) -> None:
    for stream, answer in batch:
        stream.answers.put_nowait(answer)
