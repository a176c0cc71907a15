"""An engine core over a scripted executor: valid by default, small, with its own metrics."""

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from pipelineserve.metrics import Metric
from pipelineserve.policy.assignment import DecodeAssignment
from pipelineserve.policy.chunking import Static
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_engine.core import EngineCore
from pipelineserve_engine.generation import GREEDY, GenerationRequest, SamplingParameters
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.telemetry import Telemetry
from scripted_executor import ScriptedExecutor


class WatchedCore(EngineCore):
    """Remembers what it was asked to cancel."""

    cancelled: list[str]

    def cancel(self, request_id: str, now_s: float) -> None:
        """Cancel, and remember."""
        self.cancelled.append(request_id)
        super().cancel(request_id, now_s)


@dataclass
class ScriptedEngine:
    """A core, what it sends to, and what it tells of itself."""

    core: WatchedCore
    executor: ScriptedExecutor
    observer: Observer
    telemetry: Telemetry
    registry: CollectorRegistry

    def metric(self, metric: Metric, part: str = "", **labels: str) -> float:
        """A sample's value; 0 for what was never counted. `part` is "_count" or "_sum"."""
        return self.registry.get_sample_value(f"{metric.name}{part}", labels) or 0.0


def a_scripted_engine(
    *,
    num_slots: int = 2,
    chunk_tokens: int = 16,
    num_blocks: int = 32,
    num_host_blocks: int = 0,
    max_waiting_requests: int = 64,
    max_running_requests: int = 64,
    assignment: DecodeAssignment | None = None,
    draw_seed: Callable[[], int] = lambda: 7,
) -> ScriptedEngine:
    """Build one; blocks hold 4 tokens, the context 64."""
    settings = SchedulerSettings(
        num_slots=num_slots,
        max_chunk_tokens=64,
        num_blocks=num_blocks,
        block_tokens=4,
        max_context_tokens=64,
        max_waiting_requests=max_waiting_requests,
        max_running_requests=max_running_requests,
        num_host_blocks=num_host_blocks,
    )
    executor = ScriptedExecutor()
    registry = CollectorRegistry()
    telemetry = Telemetry(registry)
    observer = Observer(telemetry, num_stages=1)
    scheduler = Scheduler(settings, Static(chunk_tokens), assignment=assignment)
    core = WatchedCore(scheduler, executor, observer, draw_seed)
    core.cancelled = []
    return ScriptedEngine(core, executor, observer, telemetry, registry)


def a_request(
    request_id: str = "a",
    num_prompt_tokens: int = 5,
    max_output_tokens: int | None = 3,
    sampling: SamplingParameters = GREEDY,
    *,
    stop_token_ids: frozenset[int] = frozenset(),
) -> GenerationRequest:
    """A request whose prompt is unlike that of any other id."""
    first = int.from_bytes(request_id.encode()[:4]) * 100
    prompt = tuple(range(first, first + num_prompt_tokens))
    return GenerationRequest(request_id, prompt, max_output_tokens, sampling, stop_token_ids)
