"""One call of a sidecar, from its token to its end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pipelineserve.wire.v1 import operator_pb2 as pb
from pipelineserve.wire.v1.operator_pb2_grpc import OperatorLinkServicer
from pipelineserve_operator.attend.attendance import Attendance
from pipelineserve_operator.attend.refusals import Refusal, RefusalLedger, RefusedError
from pipelineserve_operator.attend.roster import Roster
from pipelineserve_operator.attend.statuses import check_status
from pipelineserve_operator.attend.tokens import PodIdentity, TokenChecker

# Whoever does not take a message for this long loses its connection to keepalive, not to us.
_LAST_WRITE_S = 5.0
_Context = grpc.aio.ServicerContext[pb.ControllerStatus, pb.Objectives]


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """What one stream may ask of the operator.

    Attributes:
        status_gap_s: statuses are read no faster than this; a sidecar has at most one in 0.2 s.
        silence_s: a sidecar says something every 5 s, or it no longer runs.
    """

    status_gap_s: float = 0.1
    silence_s: float = 30.0


class AttendService(OperatorLinkServicer):
    """Lets in who may speak, and keeps what is said.

    Args:
        roster: what sidecars are told, and where their words go.
        tokens: tells who speaks.
        ledger: of whoever is turned away.
        unix_s: seconds since 1970, by which tokens end.
        bounds: of each stream.
    """

    def __init__(
        self,
        roster: Roster,
        tokens: TokenChecker,
        ledger: RefusalLedger,
        unix_s: Callable[[], float],
        bounds: StreamBounds,
    ) -> None:
        self._roster = roster
        self._tokens = tokens
        self._ledger = ledger
        self._unix_s = unix_s
        self._bounds = bounds

    # gRPC takes a coroutine that reads and writes by its context, which the stubs do not know.
    async def Attend(  # type: ignore[override] # noqa: N802 # the contract's name
        self, request_iterator: AsyncIterator[pb.ControllerStatus], context: _Context
    ) -> None:
        """Tell objectives and hear statuses until one of them ends."""
        del request_iterator
        try:
            identity = await self._tokens.check(_authorization(context))
            await self._attend(identity, context)
        except RefusedError as error:
            self._ledger.note(context.peer(), error)
            await context.abort(code_of(error.refusal), str(error))

    async def _attend(self, identity: PodIdentity, context: _Context) -> None:
        attendance = self._roster.join(identity)
        hearing = asyncio.create_task(self._hear(attendance, context))
        telling = asyncio.create_task(_tell(attendance, context))
        try:
            done, _ = await asyncio.wait(
                (hearing, telling),
                timeout=identity.ends_at_s - self._unix_s(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                task.result()
            if not done:
                # Whoever still is that pod has a fresh one: the kubelet replaces it long before.
                raise RefusedError(
                    Refusal.TOKEN_ENDED,
                    "token: ended while its stream was open; show the present one",
                )
        finally:
            self._roster.leave(attendance)
            attendance.close()
            hearing.cancel()
            # While a message is under way gRPC cannot send how the call ends, and a cancelled task
            # does not stop the message: the call would never end.
            await asyncio.wait((telling,), timeout=_LAST_WRITE_S)
            telling.cancel()
            await asyncio.gather(hearing, telling, return_exceptions=True)

    async def _hear(self, attendance: Attendance, context: _Context) -> None:
        """Keep what is said until the sidecar says that this was all."""
        while True:
            try:
                async with asyncio.timeout(self._bounds.silence_s):
                    status = await context.read()
            except TimeoutError:
                raise RefusedError(
                    Refusal.SILENT, f"status: none within {self._bounds.silence_s:g} s"
                ) from None
            except DecodeError:
                error = RefusedError(Refusal.MALFORMED_STATUS, "status: not a ControllerStatus")
                self._ledger.note(context.peer(), error)
                continue
            if not isinstance(status, pb.ControllerStatus):
                return  # gRPC's mark of the end
            self._keep(attendance, status, context.peer())
            # Reading no further makes HTTP/2 hold back whoever says too much.
            await asyncio.sleep(self._bounds.status_gap_s)

    def _keep(self, attendance: Attendance, status: pb.ControllerStatus, peer: str) -> None:
        """A status out of bounds is left out; the targets must reach its sidecar all the same."""
        try:
            check_status(status)
        except RefusedError as error:
            self._ledger.note(peer, error)
            return
        status.DiscardUnknownFields()
        self._roster.hear(attendance, status)


async def _tell(attendance: Attendance, context: _Context) -> None:
    while (objectives := await attendance.next_objectives()) is not None:
        await context.write(objectives)


def _authorization(context: _Context) -> str | None:
    metadata: Any = context.invocation_metadata() or ()
    return next((value for key, value in metadata if key == "authorization"), None)


def code_of(refusal: Refusal) -> grpc.StatusCode:
    """The status that a call ends with."""
    match refusal:
        case (
            Refusal.NO_TOKEN
            | Refusal.NOT_A_TOKEN
            | Refusal.OTHER_ALGORITHM
            | Refusal.UNKNOWN_KEY
            | Refusal.BAD_SIGNATURE
            | Refusal.OTHER_ISSUER
            | Refusal.OTHER_AUDIENCE
            | Refusal.NOT_YET_VALID
            | Refusal.EXPIRED
            | Refusal.TOKEN_ENDED
            | Refusal.MISSING_CLAIM
        ):
            return grpc.StatusCode.UNAUTHENTICATED
        case (
            Refusal.UNKNOWN_POD
            | Refusal.OTHER_NAMESPACE
            | Refusal.OTHER_ACCOUNT
            | Refusal.OTHER_RESOURCE
            | Refusal.WITHDRAWN
        ):
            return grpc.StatusCode.PERMISSION_DENIED
        case Refusal.KEYS_UNAVAILABLE:
            return grpc.StatusCode.UNAVAILABLE
        case Refusal.REPLACED:
            return grpc.StatusCode.ABORTED
        case Refusal.SILENT:
            return grpc.StatusCode.DEADLINE_EXCEEDED
        case Refusal.MALFORMED_STATUS:
            return grpc.StatusCode.INVALID_ARGUMENT
