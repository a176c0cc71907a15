"""A real group of stages with a core over it, without the HTTP server."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from prometheus_client import CollectorRegistry

from pipelineserve.metrics import Metric
from pipelineserve.partition import LayerPartition
from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.messages import Accepted
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import GREEDY, GenerationRequest, SamplingParameters
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.plan import LinkPlan, PipelinePlan
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import StepReport
from pipelineserve_engine.telemetry import Telemetry
from pipelineserve_engine.transport.link_settings import TransportKind
from pipelineserve_engine.transport.opening import num_places
from pipelineserve_engine.transport.shared_memory import RingShape
from pipelineserve_engine.watchdog import Patience
from tiny_models import HIDDEN_SIZE

NUM_BLOCKS = 64
BLOCK_TOKENS = 8
CONTEXT_TOKENS = 256


def a_plan(
    folder: Path,
    layers_per_stage: tuple[int, ...],
    kind: TransportKind = TransportKind.SHARED_MEMORY,
    *,
    num_blocks: int = NUM_BLOCKS,
    num_host_blocks: int = 0,
    patience: Patience | None = None,
) -> PipelinePlan:
    """What the stages of a tiny model run."""
    num_stages = len(layers_per_stage)
    return PipelinePlan(
        model_folder=folder,
        partition=LayerPartition(layers_per_stage),
        num_slots=num_stages,
        num_blocks=num_blocks,
        num_host_blocks=num_host_blocks,
        block_tokens=BLOCK_TOKENS,
        max_context_tokens=CONTEXT_TOKENS,
        dtype="float32",
        threads_per_stage=1,
        links=LinkPlan(kind, RingShape(num_places(num_stages), 64, HIDDEN_SIZE, torch.float32)),
        patience=patience or Patience(),
    )


@dataclass
class RealPipeline:
    """A core over stages that were started; holds what came of every request.

    Attributes:
        steps: what the stages have reported.
    """

    group: StageGroup
    num_stages: int
    chunk_tokens: int = 64
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    outputs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    finishes: dict[str, FinishReason | None] = field(default_factory=dict)
    steps: list[StepReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = SchedulerSettings(
            num_slots=self.num_stages,
            max_chunk_tokens=64,
            num_blocks=NUM_BLOCKS,
            block_tokens=BLOCK_TOKENS,
            max_context_tokens=CONTEXT_TOKENS,
        )
        observer = Observer(Telemetry(self.registry), self.num_stages)
        self.core = EngineCore(Scheduler(settings, Static(self.chunk_tokens)), self.group, observer)

    def submit(
        self,
        prompts: Mapping[str, tuple[int, ...]],
        num_tokens: int,
        sampling: SamplingParameters = GREEDY,
    ) -> None:
        """Queue requests that must be accepted."""
        for name, prompt in prompts.items():
            request = GenerationRequest(name, prompt, num_tokens, sampling)
            assert isinstance(self.core.submit(request, time.monotonic()), Accepted)

    def fill(self) -> None:
        """Send what there is to send."""
        self.core.fill_slots(time.monotonic())

    def run(self) -> Mapping[str, list[int]]:
        """Bring all requests to their end, and take in what the stages say after it."""
        while self.core.scheduler.has_work or self._is_report_missing():
            self.fill()
            for report in self.group.receive(1.0):
                assert isinstance(report, StepReport)
                self.steps.append(report)
                for output in self.core.absorb(report, time.monotonic()):
                    if output.token_id is not None:
                        self.outputs[output.request_id].append(output.token_id)
                    if output.finish is not None:
                        self.finishes[output.request_id] = output.finish
        return self.outputs

    def value(self, metric: Metric, **labels: str) -> float:
        """A sample's value; 0 for what was never counted."""
        return self.registry.get_sample_value(metric.name, labels) or 0.0

    def _is_report_missing(self) -> bool:
        """Whether a stage has yet to report what the last stage has ended."""
        ended = sum(step.token_ids is not None for step in self.steps)
        return len(self.steps) < self.num_stages * ended
