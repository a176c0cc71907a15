"""Pauses between attempts: they double up to a bound and are spread by chance."""

import random
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause before the next attempt.

    Attributes:
        first_s: after the first failure.
        longest_s: bound.
        num_failures: in a row.
    """

    first_s: float
    longest_s: float
    num_failures: int = 0

    def pause_s(self, chance: random.Random) -> float:
        """Between half and all of the doubled pause, so that many clients do not come at once."""
        doubled_s = self.first_s * 2.0 ** min(self.num_failures, 32)
        return min(self.longest_s, doubled_s) * (0.5 + 0.5 * chance.random())

    def failed(self) -> "Backoff":
        """After one more failure."""
        return replace(self, num_failures=self.num_failures + 1)

    def succeeded(self) -> "Backoff":
        """After a success."""
        return replace(self, num_failures=0)
