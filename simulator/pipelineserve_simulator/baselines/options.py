"""Names of what can be compared, and what of it can be varied."""

from dataclasses import dataclass
from enum import Enum

from pipelineserve.policy.fastpp.latency_model import RELEASED_FIT
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.rebalancing import HoldMode


class BaselineName(Enum):
    """What can be compared.

    Our greedy law is not among them: it decides on what was measured outside, so it is the
    controller's, in the loop (`control`).

    TunedStatic of a workload is `STATIC` with the chunk that suits it best, found by trying each.
    Tensor parallelism and hybrids differ in costs, not in the scheduler.
    """

    STATIC = "Static"
    PREDICTIVE = "Predictive"
    PACED = "Paced"
    FASTPP_STATIC = "FastppStatic"
    """A fixed chunk in FastPP's engine: decodes are bound to slots."""
    FASTPP_GREEDY = "FastppGreedy"
    FASTPP_PREDICTIVE = "FastppPredictive"
    FASTPP_GREEDY_DELAY = "FastppGreedy+FastppDelay"
    FASTPP_PREDICTIVE_DELAY = "FastppPredictive+FastppDelay"
    SGLANG_DYNAMIC = "SglangDynamic"
    GLLM_THROTTLING = "GllmThrottling"


class Lengths(Enum):
    """What admission knows of outputs to come."""

    UNKNOWN = "unknown"
    """The product's rule: a prompt starts when it fits beside what decodes take next."""
    KNOWN = "known"
    """Foresees everybody's growth."""
    KNOWN_AS_RELEASED = "known_as_released"
    """Foresees what FastPP's released code does; `KNOWN` where decodes are bound to no slot."""


@dataclass(frozen=True, slots=True)
class LatencyTargets:
    """What latencies should stay below, at whatever percentile is judged."""

    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """What can be varied.

    Attributes:
        static_chunk_tokens: the fixed chunk; SGLang's for first pieces; FastppPredictive's first.
        min_chunk_tokens: smallest candidate of laws that choose.
        max_chunk_tokens: largest one, bounded by the scheduler's ceiling.
        step_chunk_tokens: distance between two candidates; FastPP's unit, too.
        order: of the queue under PREDICTIVE; PACED has Triage, all others Arrival.
        hold_mode: whose sake PREDICTIVE and PACED hold decodes for; None: they hold none.
        boundaries: token counts at which they may hold, as measured.
        lengths: what admission knows.
        is_as_in_the_paper: FastPP's laws as its paper has them, rather than its released code.
        fastpp_tpot_ratio, fastpp_throughput_ratio: margins of its predictive law. The released
            code had 1.08 and 0.92 before July 2026.
        fastpp_forgetting: weight of a sample of its predictor one sample later.
        step_overhead_s: time per micro-batch in which the slowest stage does nothing.
        cycle_overhead_s: time per cycle in which a slot is in no stage's hands.
        late_share_ratio: what PACED keeps for requests that are late.
    """

    static_chunk_tokens: int = 512
    min_chunk_tokens: int = 128
    max_chunk_tokens: int = 2048
    step_chunk_tokens: int = 128
    order: Arrival | Ageing = Ageing()  # noqa: RUF009 # frozen
    hold_mode: HoldMode | None = None
    boundaries: tuple[int, ...] = ()
    lengths: Lengths = Lengths.UNKNOWN
    is_as_in_the_paper: bool = False
    fastpp_tpot_ratio: float = 1.05
    fastpp_throughput_ratio: float = 1.0
    fastpp_forgetting: float = RELEASED_FIT.forgetting
    step_overhead_s: float = 0.0
    cycle_overhead_s: float = 0.0
    late_share_ratio: float = 0.05
