"""When the ends of a connection notice that the network between them has fallen silent.

A network that is cut off drops packets and closes nothing: without pings, whoever only listens
waits until the kernel gives up resending, which takes a quarter of an hour.
"""

from dataclasses import dataclass
from typing import TypeAlias

Options: TypeAlias = tuple[tuple[str, int], ...]
"""gRPC's, of a channel or a server."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Pings of one end.

    Attributes:
        time_s: without a word of the other end until it is pinged.
        timeout_s: without an answer until the connection counts as lost.
    """

    time_s: float
    timeout_s: float

    def options(self) -> Options:
        """For the end that pings."""
        return (
            ("grpc.keepalive_time_ms", _milliseconds(self.time_s)),
            # How long sent bytes may stay unacknowledged, and (gRPC 1.85) no longer how long a ping
            # may stay unanswered: a proxy on the way acknowledges what it never passes on.
            ("grpc.keepalive_timeout_ms", _milliseconds(self.timeout_s)),
            ("grpc.http2.ping_timeout_ms", _milliseconds(self.timeout_s)),
            # Who only listens sends nothing but pings, and needs them most.
            ("grpc.http2.max_pings_without_data", 0),
        )

    def allowed(self) -> Options:
        """For a server whose clients ping like this: it hangs up on who pings more often."""
        # Half: a ping that was held up on its way comes soon before the next one.
        interval_ms = _milliseconds(self.time_s / 2)
        return (("grpc.http2.min_ping_interval_without_data_ms", interval_ms),)


ENGINE = Keepalive(time_s=30.0, timeout_s=10.0)
"""Of an engine, which speaks to its watchers all the time."""
OPERATOR = Keepalive(time_s=20.0, timeout_s=10.0)
"""Of the operator: sidecars speak every five seconds, so it pings the silent only."""
SIDECAR = Keepalive(time_s=10.0, timeout_s=5.0)
"""Of a sidecar, which hears nothing of the operator for as long as nobody edits a target."""


def _milliseconds(duration_s: float) -> int:
    return round(1000 * duration_s)
