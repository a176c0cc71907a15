"""What the sidecars of a resource come to, in the words of its conditions."""

from dataclasses import dataclass
from enum import Enum

from pipelineserve.policy.control.answers import Answer


class LinkReason(Enum):
    """Why a condition that sidecars' words decide is as it is; a condition's `reason`."""

    ALL_CONNECTED = "AllConnected"
    NOT_CONNECTED = "NotConnected"
    SCALED_TO_ZERO = "ScaledToZero"
    NO_REPORT = "NoReport"
    EFFECTIVE = "PolicyInForce"
    NOT_EFFECTIVE = "PolicyNotInForce"
    ENGINE_DISCONNECTED = "EngineDisconnected"
    ENGINE_INACTIVE = "EngineInactive"
    MODE_ADVISORY = "ModeAdvisory"
    MODE_PAUSED = "ModePaused"
    FRESH = "MetricsFresh"
    STALE = "MetricsStale"
    TARGETS_MET = "TargetsMet"
    TARGETS_MISSED = "TargetsMissed"
    NO_TRAFFIC = "NoTraffic"
    FEASIBLE = "TargetsFeasible"
    INFEASIBLE = "TargetsInfeasible"
    NOT_KNOWN_YET = "NotKnownYet"


@dataclass(frozen=True, slots=True)
class Finding:
    """One condition's status and why.

    Attributes:
        message: in words; it holds no figure that changes with every request.
    """

    answer: Answer
    reason: LinkReason
    message: str = ""


@dataclass(frozen=True, slots=True)
class ResourceReport:
    """What all sidecars of a resource come to.

    Attributes:
        is_conclusive: whether every replica was heard, or waited for long enough: while it is
            False, for example just after the operator began, what is known from before holds.
        look_again_at_s: when a finding changes although nobody says anything; None: never.
        ttft_s: over the window, all replicas' requests together, at the percentile of the targets
            (90 where there is no target); None without any.
        tpot_s: likewise.
        num_requests: in the window, those that clients gave up not.
        num_attained: of these, the ones that met every target.
        received_generation: of objectives that every replica has; None: not heard of all.
        applied_generation: that every replica runs; None likewise.
        applied: replica index and the generation that it runs, of those that were heard.
        reason: of the latest decision, the one that most replicas give; empty: none was heard.
        connected: ControllerConnected.
        effective: ControlEffective.
        fresh: MetricsFresh.
        slo_met: SLOMet, judged by the merged percentiles.
        slo_feasible: SLOFeasible.
    """

    is_conclusive: bool
    look_again_at_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    num_requests: int
    num_attained: int
    received_generation: int | None
    applied_generation: int | None
    applied: tuple[tuple[int, int], ...]
    reason: str
    connected: Finding
    effective: Finding
    fresh: Finding
    slo_met: Finding
    slo_feasible: Finding

    @property
    def attainment_ratio(self) -> float | None:
        """Share of requests that met every target; None without any."""
        return self.num_attained / self.num_requests if self.num_requests else None
