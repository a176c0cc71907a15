"""How many prompt tokens arrived lately."""

from collections import deque

# A rate over a shorter time says nothing.
_LEAST_WINDOW_S = 1.0


class ArrivalWindow:
    """Counts over a sliding window; times never fall.

    Attributes:
        window_s: its length.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._arrivals: deque[tuple[float, int]] = deque()
        self._tokens = 0
        self._first_s: float | None = None

    def add(self, tokens: int, now_s: float) -> None:
        """A prompt of so many tokens was accepted."""
        if self._first_s is None:
            self._first_s = now_s
        self._arrivals.append((now_s, tokens))
        self._tokens += tokens
        self._trim(now_s)

    def at(self, now_s: float) -> tuple[int, float]:
        """Tokens that arrived within the window, and its length: less just after the start."""
        self._trim(now_s)
        first_s = now_s if self._first_s is None else self._first_s
        span_s = min(self.window_s, max(_LEAST_WINDOW_S, now_s - first_s))
        return self._tokens, span_s

    def _trim(self, now_s: float) -> None:
        while self._arrivals and self._arrivals[0][0] <= now_s - self.window_s:
            self._tokens -= self._arrivals.popleft()[1]
