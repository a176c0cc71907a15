"""What travels with a micro-batch from the scheduler to the stages, in vLLM's own message."""

from typing import Any, NamedTuple

_ATTRIBUTE = "pipelineserve_note"


class TurnNote(NamedTuple):
    """Of one micro-batch.

    Attributes:
        turn: that it was composed at.
        chunk_tokens: the budget in force.
        reports_path: the socket that hears how long each stage took.
    """

    turn: int
    chunk_tokens: int
    reports_path: str


def attach(scheduler_output: Any, note: TurnNote) -> None:
    """Send this along with the micro-batch; as a plain tuple, which any process can read."""
    setattr(scheduler_output, _ATTRIBUTE, tuple(note))


def note_of(scheduler_output: Any) -> TurnNote | None:
    """What came along with the micro-batch; None if nothing was decided for it."""
    note = getattr(scheduler_output, _ATTRIBUTE, None)
    return None if note is None else TurnNote(*note)
