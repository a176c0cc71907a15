"""The difference between two hosts' monotonic clocks, from messages that went there and back."""

from collections import deque
from dataclasses import dataclass

_NUM_SAMPLES = 32


@dataclass(frozen=True, slots=True)
class _Sample:
    round_trip_s: float
    offset_s: float


class ClockOffset:
    """Cristian's estimate: the quickest of the last round trips, halved.

    Wrong by half of that round trip at most.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_NUM_SAMPLES)

    @property
    def offset_s(self) -> float:
        """What to add to the remote clock to get the local one; 0 before the first round trip."""
        if not self._samples:
            return 0.0
        return min(self._samples, key=lambda sample: sample.round_trip_s).offset_s

    def note(self, *, sent_s: float, held_s: float, remote_s: float, received_s: float) -> None:
        """One round trip.

        Args:
            sent_s: local clock when the question left.
            held_s: how long the other host took to answer, by its own clock.
            remote_s: the other host's clock when the answer left.
            received_s: local clock when the answer came.
        """
        round_trip_s = received_s - sent_s - held_s
        offset_s = received_s - round_trip_s / 2 - remote_s
        self._samples.append(_Sample(round_trip_s, offset_s))
