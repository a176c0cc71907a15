"""Stop strings in a stream: found wherever they are split, never shown."""

from collections.abc import Sequence


class StopScanner:
    """Cuts a stream of text where a stop string first occurs.

    However the text is split, the pieces shown, joined, are the whole up to the smallest
    `whole.find(stop)`. Text that may be the beginning of a stop string waits until that is decided.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._stop_strings = tuple(stop_strings)
        self._waiting = ""
        self._has_stopped = False

    @property
    def has_stopped(self) -> bool:
        """Whether a stop string was found; nothing more is then shown."""
        return self._has_stopped

    def push(self, text: str) -> str:
        """Add text; returns what can be shown now."""
        if self._has_stopped or not text:
            return ""
        self._waiting += text
        found, undecided = self._find_stop(), self._find_beginning()
        # A stop that may still begin further left comes first, so it is waited for.
        self._has_stopped = found is not None and found <= undecided
        shown = self._waiting[: undecided if found is None else min(found, undecided)]
        self._waiting = self._waiting[len(shown) :]
        return shown

    def flush(self) -> str:
        """End of the text; returns what was held back and is no stop string after all."""
        if self._has_stopped:
            return ""
        found = self._find_stop()
        self._has_stopped = found is not None
        shown, self._waiting = self._waiting[:found], ""
        return shown

    def _find_stop(self) -> int | None:
        places = [self._waiting.find(stop) for stop in self._stop_strings]
        return min((place for place in places if place >= 0), default=None)

    def _find_beginning(self) -> int:
        """First place from where the waiting text begins a stop string; its length if none."""
        longest = max(map(len, self._stop_strings), default=1)
        end = len(self._waiting)
        for place in range(max(0, end - longest + 1), end):
            tail = self._waiting[place:]
            if any(stop.startswith(tail) for stop in self._stop_strings):
                return place
        return end
