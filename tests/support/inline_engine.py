"""The engine in one process: real scheduler, real stages, no sockets; runs as fast as it can."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import torch
from prometheus_client import CollectorRegistry

from pipelineserve.partition import LayerPartition
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.preemption import PreemptionPolicy
from pipelineserve.policy.schedule import Schedule
from pipelineserve.scheduler.messages import Accepted
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import (
    GREEDY,
    GenerationRequest,
    SamplingParameters,
    TokenLogprobs,
)
from pipelineserve_engine.kv_cache import HostPoolShape
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.stage_messages import ReadyReport, StageReport, StepCommand, StepReport
from pipelineserve_engine.stage_model import StageModel, StageShape
from pipelineserve_engine.stage_runner import StageRunner
from pipelineserve_engine.telemetry import Telemetry

BLOCK_TOKENS = 8


class InlineExecutor:
    """All stages in this process, one after the other: for tests and for comparisons."""

    def __init__(self, stages: Sequence[StageRunner], clock: Callable[[], float]) -> None:
        self._stages = stages
        self._clock = clock
        self._reports: list[StageReport] = []

    def send(self, command: StepCommand) -> None:
        """Run the micro-batch through all stages now."""
        hidden: torch.Tensor | None = None
        for stage_index, stage in enumerate(self._stages):
            start_s = self._clock()
            output = stage.run(command, hidden)
            hidden = output.hidden
            self._reports.append(
                StepReport(
                    stage_index=stage_index,
                    sequence=command.sequence,
                    slot_index=command.slot_index,
                    start_s=start_s,
                    end_s=self._clock(),
                    token_ids=output.token_ids,
                    extras=output.extras,
                )
            )

    def receive(self, timeout_s: float) -> list[StageReport]:  # noqa: ARG002 - never waits
        """Return the reports of what was sent since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def restart(self) -> None:
        """Be ready again at once; what was in flight is dropped."""
        self._reports = [
            ReadyReport(stage_index, 0, 0, 0) for stage_index in range(len(self._stages))
        ]

    def wait(self, timeout_s: float) -> None:
        """Never waits."""

    def wake(self) -> None:
        """Nothing waits."""


@dataclass
class InlineEngine:
    """One pipeline, stepped by `run`; holds what every request has produced."""

    core: EngineCore
    executor: InlineExecutor
    registry: CollectorRegistry
    outputs: dict[str, list[int]] = field(default_factory=dict)
    finishes: dict[str, FinishReason] = field(default_factory=dict)
    logprobs: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    now_s: float = 0.0

    def submit(
        self, request_id: str, prompt: Iterable[int], num_tokens: int,
        sampling: SamplingParameters = GREEDY, stop_token_ids: frozenset[int] = frozenset(),
        *, num_top_logprobs: int | None = None,
    ) -> None:  # fmt: skip
        """Queue a request that must be accepted."""
        request = GenerationRequest(
            request_id, tuple(prompt), num_tokens, sampling, stop_token_ids,
            num_top_logprobs=num_top_logprobs,
        )  # fmt: skip
        assert isinstance(self.core.submit(request, self.now_s), Accepted)
        self.outputs[request_id] = []

    def step(self) -> None:
        """Fill the slots and take in everything that came back."""
        self.now_s += 1.0
        self.core.fill_slots(self.now_s)
        for report in self.executor.receive(0.0):
            for output in self.core.absorb(report, self.now_s):
                if output.token_id is not None:
                    self.outputs[output.request_id].append(output.token_id)
                if output.finish is not None:
                    self.finishes[output.request_id] = output.finish
                if output.event.logprobs is not None:
                    self.logprobs.setdefault(output.request_id, []).append(output.event.logprobs)

    def run(self, max_steps: int = 10_000) -> Mapping[str, list[int]]:
        """Step until no request is live; return all outputs."""
        for _ in range(max_steps):
            if not self.core.scheduler.has_work:
                return self.outputs
            self.step()
        raise AssertionError(f"requests are still live after {max_steps} steps")


def an_inline_engine(
    folder: Path,
    layers_per_stage: tuple[int, ...],
    *,
    chunk_tokens: int = 64,
    num_blocks: int = 128,
    max_context_tokens: int = 512,
    extra_slots: int = 0,
    schedule: Schedule | None = None,
    num_host_blocks: int = 0,
    preemption: PreemptionPolicy | None = None,
) -> InlineEngine:
    """Load a model from its folder into stages of these sizes."""
    stages = [
        StageRunner(StageModel(folder, shape), BLOCK_TOKENS)
        for shape in _stage_shapes(LayerPartition(layers_per_stage), num_blocks, num_host_blocks)
    ]
    ticks = count()
    executor = InlineExecutor(stages, lambda: float(next(ticks)))
    settings = SchedulerSettings(
        num_slots=len(stages) + extra_slots,
        max_chunk_tokens=4096,
        num_blocks=num_blocks,
        block_tokens=BLOCK_TOKENS,
        max_context_tokens=max_context_tokens,
        num_host_blocks=num_host_blocks,
    )
    registry = CollectorRegistry()
    core = EngineCore(
        Scheduler(settings, Static(chunk_tokens), schedule=schedule, preemption=preemption),
        executor,
        Observer(Telemetry(registry), len(stages)),
        draw_seed=lambda: 7,
    )
    return InlineEngine(core, executor, registry)


def _stage_shapes(
    partition: LayerPartition, num_blocks: int, num_host_blocks: int
) -> list[StageShape]:
    return [
        StageShape(
            first_layer_index=layers.start,
            num_layers=len(layers),
            is_first=stage_index == 0,
            is_last=stage_index == partition.num_stages - 1,
            num_kv_positions=num_blocks * BLOCK_TOKENS,
            dtype=torch.float32,
            device=torch.device("cpu"),
            host_pool=HostPoolShape(num_host_blocks, BLOCK_TOKENS),
        )
        for stage_index, layers in enumerate(partition)
    ]
