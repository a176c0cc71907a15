"""When a container that has ended is started again."""

from dataclasses import dataclass, replace

_FIRST_S = 0.5
_LONGEST_S = 60.0
# A process that lived this long had started well.
_SETTLED_S = 60.0


@dataclass(frozen=True, slots=True)
class Restarts:
    """Pauses that grow while a container ends again and again; the first restart is at once.

    Attributes:
        num_early: ends in a row of processes that had not settled.
    """

    num_early: int = 0

    @property
    def pause_s(self) -> float:
        """Before the next start."""
        if self.num_early <= 1:
            return 0.0
        return float(min(_LONGEST_S, _FIRST_S * 2.0 ** min(self.num_early - 2, 16)))

    def ended(self, lived_s: float) -> "Restarts":
        """After one more end of a process that lived so long."""
        before = 0 if lived_s >= _SETTLED_S else self.num_early
        return replace(self, num_early=before + 1)
