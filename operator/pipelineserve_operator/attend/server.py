"""The server that sidecars attend to: one port, TLS, and bounds on all that they can ask for."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from pipelineserve.errors import PipelineServeError
from pipelineserve.wire import keepalive
from pipelineserve.wire.keepalive import Keepalive, Options
from pipelineserve.wire.v1.operator_pb2_grpc import add_OperatorLinkServicer_to_server
from pipelineserve_operator.attend.certificates import PairSource, ServedPair
from pipelineserve_operator.attend.keys import Keys
from pipelineserve_operator.attend.refusals import Refusal, RefusalLedger
from pipelineserve_operator.attend.roster import Roster
from pipelineserve_operator.attend.service import AttendService, StreamBounds
from pipelineserve_operator.attend.tokens import TokenChecker

# A status with both histograms as full as they can be has about 20 KiB.
_MAX_STATUS_BYTES = 1 << 16
_MAX_METADATA_BYTES = 1 << 14
_STREAMS_PER_CONNECTION = 4


class AddressTakenError(PipelineServeError):
    """The address cannot be listened on."""


@dataclass(frozen=True, slots=True)
class AttendSettings:
    """Of the server.

    Attributes:
        address: HOST:PORT to listen on; port 0 picks a free one.
        audience: that tokens must be for.
        num_streams: beyond these, calls end with RESOURCE_EXHAUSTED.
        stream: bounds of each.
        pings: to sidecars that say nothing.
        allowed_pings: of sidecars, at most.
    """

    address: str
    audience: str
    num_streams: int = 4096
    stream: StreamBounds = field(default_factory=StreamBounds)
    pings: Keepalive = keepalive.OPERATOR
    allowed_pings: Keepalive = keepalive.SIDECAR


class AttendServer:
    """Serves between `start` and `stop`, in the event loop that these are called in.

    Args:
        settings: where, for whom, how much.
        roster: what sidecars are told, and where their words go.
        keys: that tokens are signed with.
        source: of the certificate.
        unix_s: seconds since 1970, by which tokens are valid.
        clock_s: a monotonic clock.

    Raises:
        CertificateUnavailableError: there is no certificate to serve with.
        AddressTakenError: the address cannot be listened on.
    """

    def __init__(
        self,
        settings: AttendSettings,
        roster: Roster,
        keys: Keys,
        source: PairSource,
        *,
        unix_s: Callable[[], float] = time.time,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = RefusalLedger(clock_s)
        tokens = TokenChecker(keys, settings.audience, unix_s)
        service = AttendService(roster, tokens, self._ledger, unix_s, settings.stream)
        self._server = grpc.aio.server(
            options=_options(settings), maximum_concurrent_rpcs=settings.num_streams
        )
        add_OperatorLinkServicer_to_server(service, self._server)
        self.port = _listen(self._server, settings.address, ServedPair(source))

    @property
    def refusals(self) -> Counter[Refusal]:
        """How often each was given, since the start."""
        return Counter(self._ledger.counts)

    async def start(self) -> None:
        """Let sidecars in."""
        await self._server.start()

    async def stop(self) -> None:
        """End every stream at once: they would never end by themselves, and sidecars come back."""
        await self._server.stop(grace=None)


def _listen(server: grpc.aio.Server, address: str, pair: ServedPair) -> int:
    try:
        port = server.add_secure_port(address, pair.credentials())
    except RuntimeError as error:
        raise AddressTakenError(
            f"{address}: cannot be listened on: {error}; give another address"
        ) from error
    return port


def _options(settings: AttendSettings) -> Options:
    # A sidecar whose machine has gone ends its stream within half a minute.
    return (*_BOUNDS, *settings.pings.options(), *settings.allowed_pings.allowed())


_BOUNDS = (
    ("grpc.max_receive_message_length", _MAX_STATUS_BYTES),
    ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
    ("grpc.max_concurrent_streams", _STREAMS_PER_CONNECTION),
    # A second server on the same port is an error and not a lottery.
    ("grpc.so_reuseport", 0),
    # Connections without a call, and those that never get through TLS, are closed.
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
)
