"""Whether every accepted request is still accounted for, asked while serving."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipelineserve.scheduler.messages import Census


@dataclass(frozen=True, slots=True)
class Account:
    """How many requests each part of the engine believes to be live, at one moment between turns.

    Attributes:
        census: the scheduler's.
        num_lost: live in the scheduler, but where nothing will ever bring them on.
        num_sampled: whose sampling the engine keeps.
        num_clients: whose clients wait for an answer.
        is_idle: whether, when the slots were last filled, nothing was in flight and nothing could
            be composed although a request was live.
    """

    census: Census
    num_lost: int
    num_sampled: int
    num_clients: int
    is_idle: bool

    @property
    def fault(self) -> str:
        """What does not add up, with its numbers; empty if all is well."""
        return "; ".join(self._faults())

    def _faults(self) -> Iterator[str]:
        num_live = self.census.waiting + self.census.running
        if not self.census.is_conserved:
            yield f"arrived is not the sum of the others: {self.census}"
        if self.num_lost:
            yield f"{self.num_lost} live requests are neither queued, running nor in flight"
        if self.num_sampled != num_live:
            yield f"{num_live} requests are live, but sampling is kept for {self.num_sampled}"
        if self.num_clients != num_live:
            yield f"{num_live} requests are live, but {self.num_clients} clients wait"
        if self.is_idle:
            yield f"{num_live} requests are live, but none of them can be given to the stages"
