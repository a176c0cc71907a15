"""How long a stage computes: by the clock where it computes at once, by device events elsewhere."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Span(NamedTuple):
    """One micro-batch's computation, on a clock of which only differences count."""

    turn: int
    num_tokens: int
    chunk_tokens: int
    start_s: float
    end_s: float


class Stopwatch(Protocol):
    """Times what is between `start` and `stop`."""

    def start(self) -> None:
        """The computation is launched from here on."""
        ...

    def stop(self, turn: int, num_tokens: int, chunk_tokens: int) -> None:
        """All of it is launched."""
        ...

    def take(self) -> list[Span]:
        """The spans that have ended and were not taken before, in order; never waits."""
        ...


class HostStopwatch:
    """For a device on which a launch returns when the work is done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start_s = 0.0
        self._spans: list[Span] = []

    def start(self) -> None:
        """See `Stopwatch.start`."""
        self._start_s = self._clock()

    def stop(self, turn: int, num_tokens: int, chunk_tokens: int) -> None:
        """See `Stopwatch.stop`."""
        self._spans.append(Span(turn, num_tokens, chunk_tokens, self._start_s, self._clock()))

    def take(self) -> list[Span]:
        """See `Stopwatch.take`."""
        spans, self._spans = self._spans, []
        return spans


class _Pending(NamedTuple):
    turn: int
    num_tokens: int
    chunk_tokens: int
    start: Any
    end: Any


class DeviceStopwatch:
    """For a device that works through a stream of launches; events in the stream are timed by it.

    Each span is placed after the one before, since events only tell differences.

    Args:
        make_event: an event of the device, with timing, on `record` of its current stream.
        clock: places the first span.
    """

    def __init__(
        self, make_event: Callable[[], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make_event = make_event
        self._clock = clock
        self._start: Any = None
        self._pending: deque[_Pending] = deque()
        self._last_end: Any = None
        self._last_end_s = 0.0

    def start(self) -> None:
        """See `Stopwatch.start`."""
        self._start = self._make_event()
        self._start.record()

    def stop(self, turn: int, num_tokens: int, chunk_tokens: int) -> None:
        """See `Stopwatch.stop`."""
        end = self._make_event()
        end.record()
        self._pending.append(_Pending(turn, num_tokens, chunk_tokens, self._start, end))

    def take(self) -> list[Span]:
        """See `Stopwatch.take`."""
        spans = []
        while self._pending and self._pending[0].end.query():
            spans.append(self._placed(self._pending.popleft()))
        return spans

    def _placed(self, pending: _Pending) -> Span:
        length_s = pending.start.elapsed_time(pending.end) / 1000.0
        if self._last_end is None:
            start_s = self._clock() - length_s
        else:
            start_s = self._last_end_s + self._last_end.elapsed_time(pending.start) / 1000.0
        self._last_end, self._last_end_s = pending.end, start_s + length_s
        turn, num_tokens, chunk_tokens, _, _ = pending
        return Span(turn, num_tokens, chunk_tokens, start_s, start_s + length_s)


def stopwatch_of(device: str) -> Stopwatch:
    """The one for an engine's device, as torch names it."""
    if device == "cpu":
        return HostStopwatch()
    import torch  # noqa: PLC0415 - only engines' processes have a device

    module = torch.get_device_module(device)
    return DeviceStopwatch(lambda: module.Event(enable_timing=True))
