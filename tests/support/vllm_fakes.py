"""As much of vLLM's objects as the add-on touches, without vLLM."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MAX_CHUNK_TOKENS = 256
NUM_BLOCKS = 513
BLOCK_TOKENS = 16


@dataclass(eq=False)
class FakeRequest:
    """Request."""

    request_id: str
    num_prompt_tokens: int = 10
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    next_decode_eligible_step: int = 0
    lora_request: object | None = None
    resumable: bool = False
    finish: str | None = None

    @property
    def num_tokens(self) -> int:
        """As vLLM's."""
        return self.num_prompt_tokens + self.num_output_tokens

    def is_finished(self) -> bool:
        """As vLLM's."""
        return self.finish is not None

    def get_finished_reason(self) -> SimpleNamespace:
        """As vLLM's, of which only the name counts."""
        return SimpleNamespace(name=self.finish)


@dataclass
class FakeOutput:
    """SchedulerOutput, and ModelRunnerOutput in one."""

    num_scheduled_tokens: dict[str, int]

    @property
    def total_num_scheduled_tokens(self) -> int:
        """As vLLM's."""
        return sum(self.num_scheduled_tokens.values())


def a_config(num_stages: int = 2) -> SimpleNamespace:
    """A VllmConfig that can be controlled."""
    return SimpleNamespace(
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=num_stages,
            data_parallel_size=1,
            nnodes=1,
            distributed_executor_backend="mp",
        ),
        max_concurrent_batches=num_stages,
    )


@dataclass(eq=False)
class FakeScheduler:
    """vLLM's Scheduler: composes as it does, of what may run, within the budget."""

    vllm_config: Any = field(default_factory=a_config)
    scheduler_config: Any = field(
        default_factory=lambda: SimpleNamespace(async_scheduling=False, enable_chunked_prefill=True)
    )
    max_num_scheduled_tokens: int = MAX_CHUNK_TOKENS
    current_step: int = 0
    block_size: int = BLOCK_TOKENS
    connector: object | None = None
    ec_connector: object | None = None
    is_encoder_decoder: bool = False
    need_mamba_block_aligned_split: bool = False
    num_sampled_tokens_per_step: int = 1
    num_spec_tokens: int = 0
    usage_ratio: float = 0.0
    pause: str = "UNPAUSED"
    running: list[FakeRequest] = field(default_factory=list)
    waiting: list[FakeRequest] = field(default_factory=list)
    requests: dict[str, FakeRequest] = field(default_factory=dict)
    is_shut_down: bool = False

    @property
    def kv_cache_manager(self) -> SimpleNamespace:
        """As vLLM's."""
        pool = SimpleNamespace(num_gpu_blocks=NUM_BLOCKS)
        return SimpleNamespace(usage=self.usage_ratio, block_pool=pool)

    @property
    def pause_state(self) -> SimpleNamespace:
        """As vLLM's, of which only the name counts."""
        return SimpleNamespace(name=self.pause)

    def add_request(self, request: FakeRequest) -> None:
        """As vLLM's."""
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def schedule(self, throttle_prefills: bool = False) -> FakeOutput:
        """As vLLM's: those that run first, then those that wait."""
        del throttle_prefills
        self.current_step += 1
        budget, scheduled = self.max_num_scheduled_tokens, {}
        for request in [*self.running, *self.waiting]:
            num = min(budget, request.num_tokens - request.num_computed_tokens)
            if num < 1 or self.current_step < request.next_decode_eligible_step:
                continue
            if request in self.waiting:
                self.waiting.remove(request)
                self.running.append(request)
            scheduled[request.request_id] = num
            request.num_computed_tokens += num
            budget -= num
        return FakeOutput(scheduled)

    def update_from_output(self, output: FakeOutput, sampled: FakeOutput) -> list[str]:
        """As vLLM's: each whose prompt is computed has a token more."""
        del sampled
        for request_id in output.num_scheduled_tokens:
            request = self.requests[request_id]
            if request.num_computed_tokens == request.num_tokens:
                request.num_output_tokens += 1
            if request.finish is not None:
                self.running.remove(request)
                del self.requests[request_id]
        return list(output.num_scheduled_tokens)

    def finish_requests(self, request_ids: list[str], finished_status: str) -> list[FakeRequest]:
        """As vLLM's."""
        ended = [self.requests.pop(request_id) for request_id in request_ids]
        for request in ended:
            request.finish = finished_status
            queue = self.running if request in self.running else self.waiting
            queue.remove(request)
        return ended

    def _preempt_request(self, request: FakeRequest, timestamp: float) -> None:
        del timestamp
        request.num_computed_tokens = 0
        self.running.remove(request)
        self.waiting.insert(0, request)

    def shutdown(self) -> None:
        """As vLLM's."""
        self.is_shut_down = True
