"""What the user asked for, as the controller's pure side sees it: one frozen value of numbers."""

from dataclasses import dataclass
from enum import Enum


class ChunkLaw(Enum):
    """How the chunk size is chosen; values as in the resource."""

    STATIC = "Static"
    GREEDY = "Greedy"
    PREDICTIVE = "Predictive"


class HoldLaw(Enum):
    """Which decodes yield to others; values as in the resource."""

    OFF = "Off"
    TPOT_FIRST = "TpotFirst"
    E2E_FIRST = "E2eFirst"
    AUTO = "Auto"


class OrderLaw(Enum):
    """Who of the waiting goes first; values as in the resource."""

    ARRIVAL = "Arrival"
    AGEING = "Ageing"
    TRIAGE = "Triage"


class Mode(Enum):
    """What becomes of decisions; values as in the resource.

    Active sends policies. Advisory decides and shows, Paused does not decide; neither sends
    anything, so the engine keeps its static chunk.
    """

    ACTIVE = "Active"
    ADVISORY = "Advisory"
    PAUSED = "Paused"


@dataclass(frozen=True, slots=True)
class LatencyGoal:
    """A percentile of a latency, from 50 to 99, and the most seconds that it may be."""

    percentile: int
    target_s: float


@dataclass(frozen=True, slots=True)
class Objectives:
    """Targets, and how they may be met.

    Attributes:
        resource_uid: identity of the resource that says so; may be empty.
        generation: of that resource; a newer one replaces an older one of the same uid.
        ttft: None without such a target.
        tpot: None without such a target.
        window_s: over which targets are judged.
        min_tokens: smallest chunk; min <= static <= max.
        max_tokens: largest chunk.
        step_tokens: distance between two candidates.
        static_tokens: chunk of Static, and the one to begin with.
        late_share_ratio: share of work that Triage keeps for requests that are late.
        max_gap_s: longest gap between two tokens that holding may cause.
        lease_s: how long a policy holds without being renewed.
        stale_s: how long the last safe policy is renewed while nothing fresh is seen.
    """

    resource_uid: str
    generation: int
    ttft: LatencyGoal | None
    tpot: LatencyGoal | None
    window_s: float
    chunk_law: ChunkLaw
    min_tokens: int
    max_tokens: int
    step_tokens: int
    static_tokens: int
    hold_law: HoldLaw
    max_gap_s: float
    order_law: OrderLaw
    late_share_ratio: float
    mode: Mode
    lease_s: float
    stale_s: float
