"""One simulated deployment under one load: everything that its outcome depends on."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pipelineserve.policy.step_time import StepTimeModel
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import Layout, kv_tokens
from pipelineserve_simulator.hardware.measured import measured_model
from pipelineserve_simulator.hardware.noise import ProfileNoise
from pipelineserve_simulator.kernel.chance import Chance
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.pipeline.control import Control
from pipelineserve_simulator.pipeline.costs import Noise, NoNoise
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.faults import Fault
from pipelineserve_simulator.pipeline.options import (
    FreeRunning,
    Interleaved,
    LockStep,
    PipelineOptions,
    Timing,
)
from pipelineserve_simulator.workloads.requests import Workload

SchedulerMaker = Callable[[SchedulerSettings, StepTimeModel], Scheduler]
"""Makes a scheduler with its policies, from sizes and from what a controller would know."""

ControlMaker = Callable[[Scheduler], Control]
"""Makes a controller for a scheduler."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated.

    Attributes:
        profile: the model and the machine.
        layout: layers to stages and devices; for `Interleaved`, to virtual stages.
        workload: what is asked.
        make_scheduler: the scheduler under test.
        timing: how micro-batches move.
        num_slots: micro-batches in flight at once; None for one per stage, or per worker.
        seed: of all chance.
        has_noise: whether the profile's noise is added.
        faults: what goes wrong.
        make_control: a controller in the loop.
        pool_tokens: tokens in the KV pool; None for the pool of a published run.
        max_chunk_tokens: most tokens of one micro-batch.
        block_tokens: tokens of one KV block.
        max_context_tokens: prompt and output of one request together.
        max_waiting_requests: bound of the waiting queue.
        max_running_requests: requests that may hold KV at once; 4,096 in the published runs.
        step_stride: every so many-th step is kept in the outcome; 0 for none.
    """

    profile: HardwareProfile
    layout: Layout
    workload: Workload
    make_scheduler: SchedulerMaker
    timing: Timing = field(default_factory=FreeRunning)
    num_slots: int | None = None
    seed: int = 0
    has_noise: bool = True
    faults: tuple[Fault, ...] = ()
    make_control: ControlMaker | None = None
    pool_tokens: int | None = None
    max_chunk_tokens: int = 2048
    block_tokens: int = 16
    max_context_tokens: int = 16_384
    max_waiting_requests: int = 1_000_000
    max_running_requests: int = 4096
    step_stride: int = 1

    @property
    def sizes(self) -> SchedulerSettings:
        """The scheduler's sizes on this machine."""
        return SchedulerSettings(
            num_slots=self.num_slots or self._num_workers,
            max_chunk_tokens=self.max_chunk_tokens,
            num_blocks=self._pool_tokens // self.block_tokens,
            block_tokens=self.block_tokens,
            max_context_tokens=self.max_context_tokens,
            max_waiting_requests=self.max_waiting_requests,
            max_running_requests=self.max_running_requests,
            shares_prefixes=False,
        )

    @property
    def step_time_model(self) -> StepTimeModel:
        """What a controller would have measured; in lock step the leader's work is in each step."""
        has_host = isinstance(self.timing, LockStep)
        return measured_model(self.profile, self.layout, self.max_chunk_tokens, has_host=has_host)

    @property
    def _pool_tokens(self) -> int:
        if self.pool_tokens is not None:
            return self.pool_tokens
        return kv_tokens(self.profile, self.layout)

    @property
    def _num_workers(self) -> int:
        match self.timing:
            case FreeRunning() | LockStep():
                return self.layout.num_stages
            case Interleaved(num_workers):
                return num_workers


def simulate(scenario: Scenario) -> RunOutcome:
    """Run a scenario; the same one gives the same outcome, byte for byte."""
    chance = Chance(scenario.seed)
    noise: Noise = NoNoise()
    if scenario.has_noise:
        noise = ProfileNoise(scenario.profile.noise, chance.stream("noise"))
    scheduler = scenario.make_scheduler(scenario.sizes, scenario.step_time_model)
    make_control = scenario.make_control
    options = PipelineOptions(
        timing=scenario.timing,
        noise=noise,
        faults=scenario.faults,
        control=None if make_control is None else make_control(scheduler),
        step_stride=scenario.step_stride,
    )
    costs = ProfileCosts(scenario.profile, scenario.layout)
    return run_pipeline(scenario.workload.requests(chance), scheduler, costs, options)
