"""Workloads from a source of lengths and a process of arrivals."""

from dataclasses import dataclass
from itertools import islice

from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.workloads.arriving import ArrivalSource
from pipelineserve_simulator.workloads.lengths import LengthSource
from pipelineserve_simulator.workloads.requests import SimulatedRequest


@dataclass(frozen=True, slots=True)
class GeneratedWorkload:
    """Requests whose lengths do not depend on when they arrive.

    Lengths and arrivals have streams of their own, so another rate leaves the lengths as they are.

    Attributes:
        num_requests: the most; fewer only if the arrivals end before.
    """

    lengths: LengthSource
    arrivals: ArrivalSource
    num_requests: int

    @property
    def description(self) -> str:
        """Lengths, arrivals and how many."""
        return (
            f"{self.lengths.description}; {self.arrivals.description}; at most "
            f"{self.num_requests} requests"
        )

    def requests(self, chance: Chance) -> tuple[SimulatedRequest, ...]:
        """See `Workload`."""
        times_s = self.arrivals.times_s(chance.stream("arrivals"))
        timed = zip(times_s, self.lengths.pairs(chance), strict=False)
        return tuple(
            SimulatedRequest(index, at_s, prompt_tokens, output_tokens)
            for index, (at_s, (prompt_tokens, output_tokens)) in enumerate(
                islice(timed, self.num_requests)
            )
        )
