"""What stage 0 orders; it travels between processes."""

from dataclasses import dataclass


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
