"""One simulation as people describe it: a mapping of fields, each with its unit.

Frozen; unknown fields are refused. Milliseconds stand only here, as in the resource.
"""

from enum import Enum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw, OrderLaw
from pipelineserve_simulator.control.settings import DELAY_S, MOST_DELAY_S, PERIOD_S

Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
ChunkTokens = Annotated[int, Field(ge=1, le=131_072)]


class PolicyName(Enum):
    """What schedules: one of the baselines, or the product with its controller in the loop."""

    CONTROLLED = "Controlled"
    STATIC = "Static"
    PREDICTIVE = "Predictive"
    PACED = "Paced"
    FASTPP_STATIC = "FastppStatic"
    FASTPP_GREEDY = "FastppGreedy"
    FASTPP_PREDICTIVE = "FastppPredictive"
    FASTPP_GREEDY_DELAY = "FastppGreedy+FastppDelay"
    FASTPP_PREDICTIVE_DELAY = "FastppPredictive+FastppDelay"
    SGLANG_DYNAMIC = "SglangDynamic"
    GLLM_THROTTLING = "GllmThrottling"


class TimingName(Enum):
    """How micro-batches move."""

    CONTINUOUS = "Continuous"
    FILL_DRAIN = "FillDrain"
    LOCK_STEP = "LockStep"
    INTERLEAVED = "Interleaved"


class FaultKind(Enum):
    """What goes wrong."""

    STAGE_SLOWED = "StageSlowed"
    STAGE_LOST = "StageLost"
    CONTROLLER_GONE = "ControllerGone"
    RECORDS_LOST = "RecordsLost"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Targets(_Part):
    """Bounds of latencies, and the percentile that is held to them."""

    ttft_ms: Positive | None = 2000.0
    tpot_ms: Positive | None = 200.0
    e2e_ms: Positive | None = None
    percentile: Annotated[int, Field(ge=50, le=99)] = 90


class Chunks(_Part):
    """Chunk sizes in tokens of a micro-batch, decodes included."""

    static_tokens: ChunkTokens = 512
    min_tokens: ChunkTokens = 128
    max_tokens: ChunkTokens = 2048
    step_tokens: ChunkTokens = 128


class EditedTargets(_Part):
    """Targets that become others; None stays as it is."""

    ttft_ms: Positive | None = None
    tpot_ms: Positive | None = None
    percentile: Annotated[int, Field(ge=50, le=99)] | None = None


class Edit(_Part):
    """Somebody edits the targets at this time."""

    at_s: Seconds
    targets: EditedTargets


class Control(_Part):
    """The controller; only for the policy Controlled.

    Attributes:
        chunk_law: how the chunk size is chosen.
        period_s: between two turns.
        delay_s: of records and policies, each way.
        lease_s: how long a policy holds without being renewed.
        stale_s: how long the last safe policy is renewed while nothing fresh is heard.
        window_s: over which targets are judged.
        edits: of the targets, in the order of time.
    """

    chunk_law: ChunkLaw = ChunkLaw.PREDICTIVE
    period_s: Annotated[float, Field(ge=0.001, le=60)] = PERIOD_S
    delay_s: Annotated[float, Field(ge=0, le=MOST_DELAY_S)] = DELAY_S
    lease_s: Annotated[float, Field(ge=1, le=300)] = 5.0
    stale_s: Annotated[float, Field(ge=1, le=3600)] = 30.0
    window_s: Annotated[float, Field(ge=10, le=86_400)] = 300.0
    edits: Annotated[tuple[Edit, ...], Field(max_length=100)] = ()


class DescribedFault(_Part):
    """What goes wrong; each kind has fields of its own.

    Attributes:
        stage_index, factor, start_s, end_s: of StageSlowed.
        at_s, down_s: of StageLost, with `stage_index`.
        keeps_journal: of ControllerGone, with `start_s` and `end_s`, which RecordsLost has too.
    """

    kind: FaultKind
    stage_index: Annotated[int, Field(ge=0)] | None = None
    factor: Annotated[float, Field(ge=1, le=1e6)] | None = None
    start_s: Seconds | None = None
    end_s: Positive | None = None
    at_s: Seconds | None = None
    down_s: Seconds | None = None
    keeps_journal: bool | None = None


class SimulationDescription(_Part):
    """Everything that a simulation depends on.

    Attributes:
        profile: a hardware profile that comes with the product, or the path of a file.
        stages: of the pipeline; for Interleaved, virtual ones.
        tensor_parallel: devices of each stage.
        layers_per_stage: None for as many on each.
        workload: by its name; None for the rows of the trace.
        rate_per_s: mean arrivals; None for the workload's own, or the trace's times.
        rate_scale: of workloads with times, how many times as fast these pass.
        requests: the most; None for the workload's own number, or all rows.
        trace_file: the file that the workload is about, or whose rows are the workload.
        policy: what schedules.
        order: None for the policy's own.
        holding: which decodes yield; None for the policy's own.
        workers: of Interleaved; None for half of the stages.
        slots: micro-batches in flight; None for one per stage or worker.
        seeds: the run is repeated with each.
        noise: whether the profile's noise is added.
    """

    profile: str = "a100-40gb-pcie/qwen2.5-32b"
    stages: Annotated[int, Field(ge=1, le=1024)] = 4
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] = 1
    layers_per_stage: Annotated[tuple[Count, ...], Field(max_length=1024)] | None = None
    workload: str | None = None
    rate_per_s: Positive | None = None
    rate_scale: Positive | None = None
    requests: Count | None = None
    trace_file: str | None = None
    policy: PolicyName = PolicyName.PREDICTIVE
    targets: Targets = Targets()
    chunks: Chunks = Chunks()
    order: OrderLaw | None = None
    holding: HoldLaw | None = None
    timing: TimingName = TimingName.CONTINUOUS
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    slots: Annotated[int, Field(ge=1, le=1024)] | None = None
    seeds: Annotated[tuple[int, ...], Field(min_length=1, max_length=1000)] = (1,)
    noise: bool = True
    faults: Annotated[tuple[DescribedFault, ...], Field(max_length=1000)] = ()
    control: Control | None = None
