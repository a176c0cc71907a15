"""Virtual time as whole nanoseconds, so that sums are exact and the same on every machine."""

TICKS_PER_S = 1_000_000_000


def to_ticks(seconds: float) -> int:
    """The nearest tick."""
    return round(seconds * TICKS_PER_S)


def to_seconds(ticks: int) -> float:
    """Seconds as the scheduler and the measures take them."""
    return ticks / TICKS_PER_S
