"""The link to one engine's scheduler: watches it, and applies policies within the open session."""

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from pipelineserve.errors import EngineUnavailableError, InvalidInputError
from pipelineserve.policy.control.heard import EngineFacts, Heard
from pipelineserve.policy.scheduling import LeasedPolicy
from pipelineserve.scheduler.telling.inbox import Inbox
from pipelineserve.wire.events import decode_hello, decode_records
from pipelineserve.wire.policies import encode_policy
from pipelineserve.wire.v1 import scheduler_pb2 as pb
from pipelineserve.wire.v1.scheduler_pb2_grpc import SchedulerControlStub
from pipelineserve_controller.backoff import Backoff
from pipelineserve_controller.settings import SidecarSettings

if TYPE_CHECKING:
    from pipelineserve.wire.v1.scheduler_pb2_grpc import SchedulerControlAsyncStub

logger = logging.getLogger(__name__)

APPLY_TIMEOUT_S = 2.0
# A session in which nothing is told for this long is opened anew; the engine tells every second.
SILENCE_S = 10.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_CONTROLLER_NAME = "pipelineserve-controller"


class EngineLink:
    """Keeps one session open, for as long as `run` runs.

    Args:
        settings: where the engine is, and by which files it is known.
        unix_s: the wall clock, for the screen only.
        chance: spreads attempts to connect.
        silence_s: how long a session may be silent, unless the engine cannot be controlled.

    Attributes:
        engine: of the open session; None without one.
        is_superseded: a policy was refused since a later session has been opened.
        since_unix_s: when the session was opened, or the last one lost.
        num_sessions: opened so far.
        problem: why there is none, in words.
    """

    def __init__(
        self,
        settings: SidecarSettings,
        unix_s: Callable[[], float],
        chance: random.Random,
        silence_s: float = SILENCE_S,
    ) -> None:
        self._settings = settings
        self._unix_s = unix_s
        self._chance = chance
        self._silence_s = silence_s
        self._inbox = Inbox()
        self._stub: SchedulerControlAsyncStub | None = None
        self._sequence = 0
        self._must_reopen = False
        self.is_superseded = False
        self.engine: EngineFacts | None = None
        self.since_unix_s = unix_s()
        self.num_sessions = 0
        self.problem = "not connected yet"

    @property
    def is_connected(self) -> bool:
        """Whether a session is open."""
        return self.engine is not None

    @property
    def last_sequence(self) -> int:
        """Of the latest policy that was sent in this session; 0 before the first."""
        return self._sequence

    def take(self, now_s: float) -> Heard:
        """What was heard since the last call."""
        return self._inbox.take(now_s, self.engine)

    def reopen(self) -> None:
        """Open a new session at the next event, since a later one has taken this one's place.

        Only for when nobody's policy has been in force for a while, or two controllers would take
        turns.
        """
        self._must_reopen = True

    async def run(self) -> None:
        """Connect, watch, and connect again after a pause, until cancelled."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            sessions_before = self.num_sessions
            try:
                await self._watch_once()
                problem = "the engine ended the session"
            except (grpc.RpcError, OSError, InvalidInputError, TimeoutError) as error:
                problem = _described(error)
            self._lose(problem)
            self._must_reopen = False
            backoff = (
                backoff.succeeded() if self.num_sessions > sessions_before else backoff.failed()
            )
            await asyncio.sleep(backoff.pause_s(self._chance))

    async def apply(self, leased: LeasedPolicy) -> int:
        """Put a policy in force; returns the first micro-batch composed under it.

        Raises:
            EngineUnavailableError: there is no session, or the engine refused or did not answer.
        """
        if self._stub is None or self.engine is None:
            raise EngineUnavailableError(
                "no session with the engine is open; it will be tried again"
            )
        self._sequence += 1
        request = pb.ApplyRequest(
            epoch=self.engine.epoch, sequence=self._sequence, policy=encode_policy(leased)
        )
        try:
            reply = await self._stub.Apply(request, timeout=APPLY_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            self.is_superseded = error.code() is grpc.StatusCode.FAILED_PRECONDITION
            raise EngineUnavailableError(_described(error)) from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            # So it looks when the session's channel is closed under or just before the call.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise EngineUnavailableError("the session ended before the engine answered") from error
        return reply.first_micro_batch

    async def _watch_once(self) -> None:
        async with _channel(self._settings) as channel:
            stub = SchedulerControlStub(channel)
            call = stub.Watch(pb.WatchRequest(controller_name=_CONTROLLER_NAME))
            while not self._must_reopen:
                # Python 3.11's `wait_for` loses a cancellation that comes with an event.
                async with asyncio.timeout(self._patience_s):
                    event = await call.read()
                if not isinstance(event, pb.WatchEvent):
                    return  # the stream's end
                match event.WhichOneof("event"):
                    case "hello":
                        self._open(decode_hello(event.hello), stub)
                    case "records":
                        self._inbox.put(decode_records(event.records))
                    case _:
                        pass  # an event of a newer contract, which additions may bring

    @property
    def _patience_s(self) -> float | None:
        """How long the session may be silent; one that cannot be controlled has nothing to tell."""
        is_inactive = self.engine is not None and bool(self.engine.inactive_reason)
        return None if is_inactive else self._silence_s

    def _open(self, engine: EngineFacts, stub: "SchedulerControlAsyncStub") -> None:
        self._inbox, self._stub, self._sequence = Inbox(), stub, 0
        self._must_reopen = self.is_superseded = False
        self.engine, self.problem = engine, ""
        self.num_sessions += 1
        self.since_unix_s = self._unix_s()
        logger.info("engine connected: %s, session %d", engine.name, engine.epoch)
        if engine.inactive_reason:
            logger.warning("the engine cannot be controlled: %s", engine.inactive_reason)

    def _lose(self, problem: str) -> None:
        if self.is_connected:
            self.since_unix_s = self._unix_s()
            logger.warning("engine connection lost: %s", problem)
        self._stub, self.engine, self.problem = None, None, problem
        self.is_superseded = False


def _channel(settings: SidecarSettings) -> grpc.aio.Channel:
    """A channel to the engine; certificates are read anew each time, since they are replaced."""
    # One sidecar has one engine: the proxy of the environment is never meant for it.
    options: list[tuple[str, int | str]] = [("grpc.enable_http_proxy", 0)]
    if settings.is_engine_local:
        return grpc.aio.insecure_channel(settings.engine_address, options=options)
    if settings.engine_server_name:
        options.append(("grpc.ssl_target_name_override", settings.engine_server_name))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=Path(settings.engine_ca_file).read_bytes(),
        private_key=Path(settings.engine_key_file).read_bytes(),
        certificate_chain=Path(settings.engine_certificate_file).read_bytes(),
    )
    return grpc.aio.secure_channel(settings.engine_address, credentials, options=options)


def _described(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    if isinstance(error, TimeoutError):
        return "the engine told nothing for too long"
    return str(error)
