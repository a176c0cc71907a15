"""Builders for the twin's tests: costs that can be summed in the head, and requests."""

from dataclasses import dataclass, field
from random import Random

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.schedule import Schedule
from pipelineserve.scheduler.emissions import Emissions
from pipelineserve.scheduler.messages import Emission
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.pipeline.loads import StepLoad
from pipelineserve_simulator.pipeline.passage import Passage
from pipelineserve_simulator.workloads.requests import SimulatedRequest
from scheduling import make_settings


@dataclass(frozen=True)
class PlainCosts:
    """A stage takes a fixed time and one per token; the rest is fixed too."""

    num_stages: int = 2
    step_s: float = 1.0
    token_s: float = 0.0
    hop_s: float = 0.0
    leader_s: float = 0.0
    back_s: float = 0.0
    sharing_ratio: float = 1.0

    def stage_times_s(self, load: StepLoad) -> tuple[float, ...]:
        """The same on every stage."""
        return (self.step_s + self.token_s * load.num_tokens,) * self.num_stages

    def transfer_s(self, num_tokens: int) -> float:
        """However many tokens."""
        del num_tokens
        return self.hop_s

    def host_s(self, num_requests: int) -> float:
        """However many requests."""
        del num_requests
        return self.leader_s

    def return_s(self) -> float:
        """Always."""
        return self.back_s


@dataclass
class Watched:
    """Every micro-batch that came back, and what it brought."""

    passages: list[Passage] = field(default_factory=list)
    emissions: list[Emission] = field(default_factory=list)

    def observe(self, passage: Passage, emissions: Emissions) -> None:
        """Take a micro-batch down."""
        self.passages.append(passage)
        self.emissions += emissions


@dataclass(frozen=True)
class FixedWorkload:
    """The same requests whatever the chance."""

    given: tuple[SimulatedRequest, ...]
    description: str = "fixed requests"

    def requests(self, chance: Chance) -> tuple[SimulatedRequest, ...]:
        """Those that were given."""
        del chance
        return self.given


def make_scheduler(
    *,
    num_slots: int = 2,
    chunk_tokens: int = 64,
    num_blocks: int = 256,
    schedule: Schedule | None = None,
) -> Scheduler:
    settings = make_settings(
        num_slots=num_slots,
        max_chunk_tokens=chunk_tokens,
        num_blocks=num_blocks,
        max_waiting_requests=1000,
        shares_prefixes=False,
    )
    return Scheduler(settings, Static(chunk_tokens), schedule=schedule)


def make_requests(*rows: tuple[float, int, int]) -> tuple[SimulatedRequest, ...]:
    """Requests of (arrival in seconds, prompt tokens, output tokens)."""
    return tuple(SimulatedRequest(index, *row) for index, row in enumerate(rows))


def draw_requests(random: Random, most: int = 25) -> tuple[SimulatedRequest, ...]:
    """Bursts and lulls of short and long requests."""
    now_s, requests = 0.0, []
    for index in range(random.randint(1, most)):
        now_s += random.choice([0.0, 0.0, random.random(), 20.0 * random.random()])
        prompt, output = random.randint(1, 150), random.randint(1, 30)
        requests.append(SimulatedRequest(index, now_s, prompt, output))
    return tuple(requests)
