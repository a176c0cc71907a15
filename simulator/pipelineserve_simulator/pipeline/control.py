"""A controller in the loop, as the executor sees it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pipelineserve.scheduler.emissions import Emissions
from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import NewRequest
from pipelineserve_simulator.pipeline.conveyor import Rank
from pipelineserve_simulator.pipeline.faults import Fault
from pipelineserve_simulator.pipeline.passage import Passage


class Agenda(Protocol):
    """Lets something happen at a virtual time, now or later, while requests are live or to come."""

    def __call__(self, at_s: float, rank: Rank, action: Callable[[float], None]) -> None:
        """Call `action` with that time; `rank` orders it among what happens at the same instant."""
        ...


@dataclass(frozen=True, slots=True)
class ControlledRun:
    """What a controller is given when the run begins.

    Attributes:
        num_stages: of the pipeline, virtual ones counted each.
        faults: of the run, the controller's own among them.
        agenda: where it plans its turns.
    """

    num_stages: int
    faults: tuple[Fault, ...]
    agenda: Agenda


class Control:
    """Hears all that happens around the scheduler; each kind overrides what it needs.

    Nothing may keep a passage or its emissions.
    """

    def begin(self, run: ControlledRun) -> None:
        """The run begins at time 0."""

    def on_accepted(self, request: NewRequest, now_s: float) -> None:
        """A request entered the waiting queue."""

    def on_rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """A request was not accepted."""

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """A micro-batch was composed."""

    def on_back(self, passage: Passage, emissions: Emissions, now_s: float) -> None:
        """A micro-batch came back, and this is what it brought."""

    def on_stages_lost(self) -> None:
        """What is in flight never comes back."""
