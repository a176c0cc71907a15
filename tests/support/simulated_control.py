"""The product's controller in the loop of a small pipeline, and what it did there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from control_turns import make_objectives
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.objectives import ChunkLaw, Objectives
from pipelineserve.policy.control.turns import Turn
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_simulator.control.controller import controlled_by
from pipelineserve_simulator.control.settings import (
    ControlEvent,
    ControlSettings,
    Edit,
    LeaseEnded,
    PolicyAdopted,
    TurnTaken,
)
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.faults import Fault
from pipelineserve_simulator.pipeline.options import FreeRunning, PipelineOptions, Timing
from pipelineserve_simulator.workloads.requests import SimulatedRequest
from scheduling import make_settings
from simulated_pipelines import PlainCosts

STATIC_TOKENS = 64
# What the engine runs on before it hears of a controller.
LAUNCH_TOKENS = 32


def small_objectives(
    *,
    generation: int = 1,
    chunk_law: ChunkLaw = ChunkLaw.STATIC,
    static_tokens: int = STATIC_TOKENS,
    tpot_s: float = 0.2,
    lease_s: float = 5.0,
    stale_s: float = 30.0,
) -> Objectives:
    return replace(
        make_objectives(
            generation=generation,
            chunk_law=chunk_law,
            tpot_s=tpot_s,
            lease_s=lease_s,
            stale_s=stale_s,
        ),
        min_tokens=8,
        max_tokens=256,
        step_tokens=8,
        static_tokens=static_tokens,
    )


@dataclass(frozen=True)
class ControlledRunSeen:
    """A run, and everything that its controller did."""

    events: list[ControlEvent]
    outcome: RunOutcome
    scheduler: Scheduler

    @property
    def turns(self) -> list[TurnTaken]:
        """In their order."""
        return [event for event in self.events if isinstance(event, TurnTaken)]

    @property
    def adopted(self) -> list[PolicyAdopted]:
        """In their order."""
        return [event for event in self.events if isinstance(event, PolicyAdopted)]

    @property
    def lapses_s(self) -> list[float]:
        """When leases ended."""
        return [event.now_s for event in self.events if isinstance(event, LeaseEnded)]

    def chunks_between(self, from_s: float, to_s: float) -> set[int]:
        """Budgets of the micro-batches that began then."""
        return {step.chunk_tokens for step in self.outcome.steps if from_s <= step.start_s < to_s}

    def turn_at(self, now_s: float) -> Turn:
        """The latest one up to then."""
        return [taken.turn for taken in self.turns if taken.now_s <= now_s][-1]


def run_controlled(
    requests: Sequence[SimulatedRequest],
    objectives: Objectives | None = None,
    *,
    edits: tuple[Edit, ...] = (),
    faults: tuple[Fault, ...] = (),
    timing: Timing | None = None,
    delay_s: float = 0.001,
    period_s: float = 0.2,
    costs: PlainCosts | None = None,
    num_blocks: int = 2048,
) -> ControlledRunSeen:
    """Two stages, 10 ms a step and half a millisecond a token unless said otherwise."""
    events: list[ControlEvent] = []
    settings = ControlSettings(
        objectives or small_objectives(), edits, period_s, delay_s, events.append
    )
    sizes = make_settings(
        num_slots=2,
        max_chunk_tokens=256,
        num_blocks=num_blocks,
        max_waiting_requests=1000,
        shares_prefixes=False,
    )
    scheduler = Scheduler(sizes, Static(LAUNCH_TOKENS))
    options = PipelineOptions(
        timing=timing or FreeRunning(), faults=faults, control=controlled_by(settings)(scheduler)
    )
    costs = costs or PlainCosts(2, step_s=0.01, token_s=0.0005)
    outcome = run_pipeline(requests, scheduler, costs, options)
    return ControlledRunSeen(events, outcome, scheduler)
