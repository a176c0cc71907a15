"""A recorded run: every call that an engine made to its scheduler, and what came of it."""

from dataclasses import dataclass

from pipelineserve.policy.preemption import KvCosts
from pipelineserve.policy.schedule import Schedule
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve.scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True)
class Queued:
    """A request was accepted; its tokens are those of `Ended.block_numbers`."""

    at_s: float
    request_id: str
    prompt_tokens: int
    max_output_tokens: int | None
    client_id: str
    priority: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """Another policy was put in force."""

    policy: SchedulingPolicy


@dataclass(frozen=True, slots=True)
class CostsKnown:
    """What the scheduler is told of KV from here on."""

    costs: KvCosts


@dataclass(frozen=True, slots=True)
class Tried:
    """Nothing could be composed for this slot."""

    at_s: float
    slot_index: int


@dataclass(frozen=True, slots=True)
class RecordedPiece:
    """Consecutive tokens of one request."""

    request_id: str
    start: int
    num_tokens: int
    is_decode: bool


@dataclass(frozen=True, slots=True)
class Sent:
    """This micro-batch was composed."""

    at_s: float
    sequence: int
    slot_index: int
    chunk_tokens: int
    pieces: tuple[RecordedPiece, ...]


@dataclass(frozen=True, slots=True)
class Completed:
    """The tokens of this micro-batch came back."""

    at_s: float
    sequence: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A request ended.

    Attributes:
        is_early: ended from outside, at `at_s`; else by its last token, in the completion before.
        output_tokens: that it had got.
        block_numbers: of each full block of all its tokens the number of its content; equal where
            the content and that of all blocks before it are equal.
    """

    at_s: float
    request_id: str
    finish: FinishReason
    is_early: bool
    output_tokens: int
    block_numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restarted:
    """The stages were lost with all KV, and what was in flight with them."""


Call = Queued | Adopted | CostsKnown | Tried | Sent | Completed | Ended | Restarted


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A whole run.

    Attributes:
        layers_per_stage: of the pipeline.
        policy: in force before the first call.
        calls: in the order in which they were made; times are the engine's own.
    """

    layers_per_stage: tuple[int, ...]
    sizes: SchedulerSettings
    schedule: Schedule
    policy: SchedulingPolicy
    calls: tuple[Call, ...]
