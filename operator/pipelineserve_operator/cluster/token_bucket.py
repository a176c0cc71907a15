"""A bound on how often something happens: bursts pass, the long run keeps to a rate."""


class TokenBucket:
    """Tokens that come at a rate and may pile up; it has no clock.

    Args:
        per_s: tokens that come each second.
        burst: the most that pile up; they are there at the start.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._filled_s: float | None = None

    def reserve(self, now_s: float) -> float:
        """Take a token that may not have come yet; how long to wait for it, in seconds."""
        self._fill(now_s)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_s)

    def try_take(self, now_s: float) -> bool:
        """Take a token if there is one."""
        self._fill(now_s)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _fill(self, now_s: float) -> None:
        since_s = 0.0 if self._filled_s is None else max(0.0, now_s - self._filled_s)
        self._filled_s = now_s
        self._tokens = min(self._burst, self._tokens + since_s * self._per_s)
