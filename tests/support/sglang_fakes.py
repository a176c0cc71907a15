"""As much of SGLang's objects as the add-on touches, without SGLang."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self


@dataclass
class FakeMode:
    """ForwardMode."""

    extends: bool

    def is_extend(self) -> bool:
        """As SGLang's."""
        return self.extends


DECODE, EXTEND = FakeMode(extends=False), FakeMode(extends=True)


def plain_sampling() -> SimpleNamespace:
    return SimpleNamespace(
        frequency_penalty=0.0, presence_penalty=0.0, repetition_penalty=1.0, min_new_tokens=0
    )


@dataclass(eq=False)
class FakeRequest:
    """Req."""

    rid: str
    num_prompt: int = 10
    output_ids: list[int] = field(default_factory=list)
    prefix_len: int = 0
    extend_end: int | None = None
    to_finish: object | None = None
    finish_type: str | None = None
    num_matched_prefix_tokens: int = 0
    sampling_params: Any = field(default_factory=plain_sampling)
    grammar: object | None = None
    lora_id: str | None = None
    custom_logit_processor: str | None = None
    beam_group: object | None = None
    multimodal_inputs: object | None = None
    session: object | None = None

    @property
    def origin_input_ids(self) -> list[int]:
        """As SGLang's."""
        return [0] * self.num_prompt

    @property
    def seqlen(self) -> int:
        """As SGLang's."""
        return self.num_prompt + len(self.output_ids)

    @property
    def finished_reason(self) -> SimpleNamespace:
        """As SGLang's."""
        return SimpleNamespace(to_json=lambda: {"type": self.finish_type})

    def finished(self) -> bool:
        """As SGLang's."""
        return self.finish_type is not None


@dataclass(eq=False)
class FakeSampling:
    """SamplingBatchInfo: whose it is."""

    rids: list[str]
    penalizer_orchestrator: Any = field(default_factory=lambda: SimpleNamespace(is_required=False))


@dataclass(eq=False)
class FakeBatch:
    """ScheduleBatch: rows that must stay in step."""

    reqs: list[FakeRequest]
    forward_mode: FakeMode = field(default_factory=lambda: DECODE)
    extend_lens: list[int] = field(default_factory=list)
    prefix_lens: list[int] = field(default_factory=list)
    decoding_reqs: list[FakeRequest] | None = None
    chunked_req: FakeRequest | None = None
    batch_is_full: bool = True
    sampling_info: FakeSampling = field(init=False)

    def __post_init__(self) -> None:
        self.sampling_info = FakeSampling(self.rids)

    @property
    def rids(self) -> list[str]:
        """As SGLang's."""
        return [request.rid for request in self.reqs]

    def is_empty(self) -> bool:
        """As SGLang's."""
        return not self.reqs

    def filter_batch(self, keep_indices: Sequence[int]) -> None:
        """As SGLang's."""
        self.reqs = [self.reqs[index] for index in keep_indices]
        self.sampling_info.rids = self.rids

    def merge_batch(self, other: Self) -> None:
        """As SGLang's."""
        assert self.reqs, "an empty batch has no tensors to append to"
        self.reqs = self.reqs + other.reqs
        self.sampling_info.rids = self.sampling_info.rids + other.sampling_info.rids


def a_batch(*rids: str) -> FakeBatch:
    """Of decodes with these ids."""
    return FakeBatch([FakeRequest(rid) for rid in rids])


class FakeScheduler:
    """Scheduler, with two slots."""

    def __init__(self, *, is_mixed_chunk: bool = True) -> None:
        self.is_mixed_chunk = is_mixed_chunk
        self.chunked_prefill_size = 256
        self.chunked_req: FakeRequest | None = None
        self.running_mbs = [a_batch(), a_batch()]
        self.last_mbs: list[FakeBatch | None] = [None, None]
        self.mbs: list[FakeBatch | None] = [None, None]
        self.max_total_num_tokens = 1000
        self.free_tokens = 1000
        self._engine_paused = False

    @property
    def token_to_kv_pool_allocator(self) -> SimpleNamespace:
        """As SGLang's."""
        return SimpleNamespace(available_size=lambda: self.free_tokens)

    @property
    def tree_cache(self) -> SimpleNamespace:
        """As SGLang's."""
        return SimpleNamespace(evictable_size=lambda: 0)
