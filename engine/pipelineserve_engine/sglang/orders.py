"""What stage 0 orders and what the stages report; both travel between processes."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class TurnOrder:
    """What every rank does from one turn on; travels among SGLang's own requests.

    Attributes:
        turn: the turn at which it takes effect, which all ranks count alike.
        chunk_tokens: the budget of this and the following turns, decodes included.
        held: ids of the requests that leave this turn's slot for now.
        released: ids of the held requests that join this turn's slot.
    """

    turn: int
    chunk_tokens: int
    held: tuple[str, ...] = ()
    released: tuple[str, ...] = ()


class StageReport(NamedTuple):
    """A stage has run a micro-batch.

    Attributes:
        stage_index: which one.
        turn: the micro-batch's.
        num_tokens: that the stage computed; all stages agree on it, or they run apart.
        chunk_tokens: the budget in force on the stage at that turn; likewise.
        start_s: on the stage's own clock, of which only differences count.
        end_s: likewise.
    """

    stage_index: int
    turn: int
    num_tokens: int
    chunk_tokens: int
    start_s: float
    end_s: float
