"""Figures as text, each with its unit; what is not known is a dash, never 0."""

from collections.abc import Callable, Sequence
from datetime import datetime

from pipelineserve.policy.reason_texts import text_of
from pipelineserve.policy.reasons import Reason

UNKNOWN = "\N{EN DASH}"
_BLOCKS = "▁▂▃▄▅▆▇█"


def duration(seconds: float | None) -> str:
    """At most three digits that matter."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 100.0:
        return f"{seconds:.0f} s"
    if seconds >= 10.0:
        return f"{seconds:.1f} s"
    if seconds >= 1.0:
        return f"{seconds:.2f} s"
    has_decimal = 0.0 < seconds < 0.01
    return f"{seconds * 1000:.1f} ms" if has_decimal else f"{seconds * 1000:.0f} ms"


def count(number: float | None) -> str:
    """A whole number."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def with_unit(number: float | None, unit: str) -> str:
    """A whole number and what it counts."""
    return UNKNOWN if number is None else f"{count(number)} {unit}"


def percent(ratio: float | None) -> str:
    """A share."""
    return UNKNOWN if ratio is None else f"{ratio * 100:.0f} %"


def time_of_day(unix_s: float) -> str:
    """In this machine's time zone."""
    return f"{datetime.fromtimestamp(unix_s).astimezone():%H:%M:%S}"


def reason_text(name: str) -> str:
    """A reason in words; one that only a newer controller knows is shown by its name."""
    try:
        return text_of(Reason(name))
    except ValueError:
        return name.replace("_", " ")


def sparkline(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """The values as blocks from 0 to `top` (by default the largest); a space where none is known.

    Each block is the largest of its share of the values, so that no spike is lost.
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    most = max([*known, top or 0.0]) or 1.0
    return "".join(map(_block(most), _shares(values, width)))


def _shares(values: Sequence[float | None], width: int) -> list[float | None]:
    size = max(1, -(-len(values) // width))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    return [max((value for value in part if value is not None), default=None) for part in parts]


def _block(most: float) -> Callable[[float | None], str]:
    def block(value: float | None) -> str:
        if value is None:
            return " "
        return _BLOCKS[min(len(_BLOCKS) - 1, int(value / most * len(_BLOCKS)))]

    return block
