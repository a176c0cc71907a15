"""The live part of the spec: latency targets and how the controller may meet them."""

from enum import Enum
from typing import Annotated

from pydantic import Field

from pipelineserve.api.vocabulary import ApiModel, ChunkSize
from pipelineserve.units import Seconds


class LatencyTarget(ApiModel):
    """A percentile of a latency, and the bound that it must keep."""

    percentile: Annotated[
        int, Field(ge=50, le=99, description="Live: the percentile that is held to the target.")
    ] = 90
    milliseconds: Annotated[
        int,
        Field(
            ge=1,
            le=3_600_000,
            description="Live: the most that the percentile may be.",
            examples=[2000],
        ),
    ]

    @property
    def target_s(self) -> Seconds:
        """The target in seconds."""
        return Seconds(self.milliseconds / 1000)


class SloSpec(ApiModel):
    """The targets; at least one of TTFT and TPOT."""

    ttft: Annotated[
        LatencyTarget | None,
        Field(description="Live: time from a request's arrival to its first token."),
    ] = None
    tpot: Annotated[
        LatencyTarget | None,
        Field(description="Live: time per output token after the first."),
    ] = None
    window_seconds: Annotated[
        int,
        Field(ge=10, le=86_400, description="Live: the window over which targets are judged."),
    ] = 300


class ChunkingPolicy(Enum):
    """How the chunk size is chosen."""

    STATIC = "Static"
    GREEDY = "Greedy"
    PREDICTIVE = "Predictive"


class ChunkingSpec(ApiModel):
    """The token budget of a micro-batch; sizes not given are derived from those that are."""

    policy: Annotated[
        ChunkingPolicy,
        Field(
            description=(
                "Live: Predictive chooses for each micro-batch from a fitted model, Greedy goes "
                "step by step after what was measured, Static keeps staticTokens."
            )
        ),
    ] = ChunkingPolicy.PREDICTIVE
    min_tokens: Annotated[
        ChunkSize | None, Field(description="Live: the smallest chunk, decodes included.")
    ] = None
    max_tokens: Annotated[
        ChunkSize | None,
        Field(description="Live: the largest chunk, within spec.engine.maxChunkTokens."),
    ] = None
    step_tokens: Annotated[
        ChunkSize | None, Field(description="Live: the distance between two candidate chunks.")
    ] = None
    static_tokens: Annotated[
        ChunkSize | None,
        Field(
            description="Live: the chunk of policy Static, and of an engine without a controller."
        ),
    ] = None


class RebalancingMode(Enum):
    """When decodes are held back so that micro-batches become equal."""

    OFF = "Off"
    TPOT_FIRST = "TpotFirst"
    E2E_FIRST = "E2eFirst"
    AUTO = "Auto"


class RebalancingSpec(ApiModel):
    """Delay scheduling: decodes may be held out of their micro-batch for a while."""

    mode: Annotated[
        RebalancingMode,
        Field(
            description=(
                'Live: "Off" (in quotes: YAML reads a bare Off as a boolean), TpotFirst, E2eFirst '
                "or Auto, which chooses between them."
            )
        ),
    ] = RebalancingMode.AUTO
    max_gap_milliseconds: Annotated[
        int,
        Field(
            ge=1,
            le=600_000,
            description="Live: the longest gap between two tokens that holding may cause.",
        ),
    ] = 2000

    @property
    def max_gap_s(self) -> Seconds:
        """The longest gap in seconds."""
        return Seconds(self.max_gap_milliseconds / 1000)


class QueueOrder(Enum):
    """Who of the waiting goes first, within a priority class and fair among clients."""

    ARRIVAL = "Arrival"
    AGEING = "Ageing"
    TRIAGE = "Triage"


class QueueingSpec(ApiModel):
    """The order of the waiting queue."""

    order: Annotated[
        QueueOrder,
        Field(description="Live: the order in which waiting prompts start."),
    ] = QueueOrder.AGEING
    late_share_percent: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="Live: the share of work kept for requests that are already late.",
        ),
    ] = 5


class ControlMode(Enum):
    """Whether decisions are sent (Active), only shown (Advisory) or not made (Paused)."""

    ACTIVE = "Active"
    ADVISORY = "Advisory"
    PAUSED = "Paused"


class ControlSpec(ApiModel):
    """The controller's own settings."""

    mode: Annotated[
        ControlMode,
        Field(
            description=(
                "Live: Active sends policies, Advisory only shows them, Paused makes none; in the "
                "last two the engine keeps spec.chunking.staticTokens."
            )
        ),
    ] = ControlMode.ACTIVE
    lease_seconds: Annotated[
        int,
        Field(ge=1, le=300, description="Live: how long a policy holds without being renewed."),
    ] = 5
    stale_seconds: Annotated[
        int,
        Field(
            ge=1,
            le=3600,
            description="Live: how long the last safe policy is renewed on stale measurements.",
        ),
    ] = 30
