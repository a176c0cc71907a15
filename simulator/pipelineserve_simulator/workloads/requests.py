"""A request as a simulation knows it, and what a workload is."""

from dataclasses import dataclass
from typing import Protocol

from pipelineserve_simulator.kernel.chance import Chance


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """One request.

    Attributes:
        arrival_s: since the run's start.
        prompt_tokens, output_tokens: at least 1 each; the output is exactly that long.
        prompt_token_ids: the prompt, where it is known; a scheduler that shares prefixes needs it.
    """

    index: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    client_id: str = ""
    priority: int = 0
    prompt_token_ids: tuple[int, ...] | None = None


class Workload(Protocol):
    """A source of requests; it holds no state, so it can be asked again."""

    @property
    def description(self) -> str:
        """Lengths, arrivals, rows used, in words."""
        ...

    def requests(self, chance: Chance) -> tuple[SimulatedRequest, ...]:
        """All requests in order of arrival; the same chance gives the same ones."""
        ...
