"""What the controller heard from the engine since its last turn; checked before it gets here."""

from dataclasses import dataclass
from enum import Enum

from pipelineserve.policy.step_time import StepFeatures


class Capability(Enum):
    """What an engine lets a controller set."""

    CHUNK = "chunk"
    PREDICTIVE = "predictive"
    ORDER = "order"
    HOLD = "hold"


class Ending(Enum):
    """How a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself when a session is opened.

    Attributes:
        epoch: of the session; higher for each new one.
        static_chunk_tokens: what it was started with.
        inactive_reason: why it cannot be controlled; empty where it can.
    """

    name: str
    version: str
    epoch: int
    num_stages: int
    num_slots: int
    max_chunk_tokens: int
    static_chunk_tokens: int
    block_tokens: int
    kv_tokens: int
    capabilities: tuple[Capability, ...]
    inactive_reason: str = ""


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One micro-batch that has left the pipeline.

    Attributes:
        sequence: rises by one with each micro-batch.
        chunk_tokens: the budget that it was composed with.
        chunk_reason: why, a value of `Reason`.
        span_s: from composition to the last token taken back.
        step_time_s: computation on each stage.
        bubble_s: idle time of each stage right before it while there was work.
        policy_sequence: of the policy that it was composed under; 0 for the static chunk.
    """

    sequence: int
    chunk_tokens: int
    chunk_reason: str
    num_tokens: int
    num_decodes: int
    features: StepFeatures
    span_s: float
    step_time_s: tuple[float, ...]
    bubble_s: tuple[float, ...]
    policy_sequence: int


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """One request that has ended; None: it does not apply, as a TPOT without a second token."""

    ending: Ending
    num_prompt_tokens: int
    num_output_tokens: int
    ttft_s: float | None
    tpot_s: float | None
    held_s: float
    longest_gap_s: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stood in the scheduler at the engine's time `engine_now_s`.

    Attributes:
        running_tpot_s: TPOT so far of those that decode, at the 50th, 90th and 99th percentile;
            empty if none do.
        policy_epoch: session of the policy in force, which may be an earlier one.
        policy_sequence: of the policy in force; 0 for the static chunk.
    """

    engine_now_s: float
    num_waiting: int
    waiting_tokens: int
    num_running: int
    num_decoding: int
    num_held: int
    kv_free_ratio: float
    oldest_wait_s: float
    running_tpot_s: tuple[float, ...]
    policy_epoch: int
    policy_sequence: int
    lease_left_s: float
    demand_tokens_per_s: float
    capacity_tokens_per_s: float
    most_decodes: int


@dataclass(frozen=True, slots=True)
class Told:
    """What the engine told at once.

    Attributes:
        standing: None: it was not told, or was impossible.
        num_lost: records lost on the way since the session began.
        num_refused: records among these that were impossible and left out.
    """

    steps: tuple[StepSeen, ...]
    requests: tuple[RequestSeen, ...]
    standing: Standing | None
    num_lost: int
    num_refused: int


@dataclass(frozen=True, slots=True)
class Heard:
    """All of one turn.

    Attributes:
        now_s: the controller's monotonic clock.
        engine: of the session that is open; None: none is.
        standing: the latest; None: none came since the last turn.
        steps: in the order of their sequence; at most a bounded number, see `num_steps`.
        requests: as they ended.
        num_steps: micro-batches told of, those that were left out of `steps` too.
        num_lost: records lost on the way since the session began.
        num_refused: records with impossible values that came since the last turn.
    """

    now_s: float
    engine: EngineFacts | None
    standing: Standing | None
    steps: tuple[StepSeen, ...]
    requests: tuple[RequestSeen, ...]
    num_steps: int
    num_lost: int
    num_refused: int
