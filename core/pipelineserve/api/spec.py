"""`spec` of the custom resource: what the user wants."""

import datetime as dt
from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from pipelineserve.api.chunking import EffectiveChunking, effective_chunking
from pipelineserve.api.engine import ApiSpec, EngineSpec
from pipelineserve.api.lifecycle import (
    AutoscalingSpec,
    MonitoringSpec,
    NetworkPolicySpec,
    RecoverySpec,
    RolloutSpec,
)
from pipelineserve.api.model import ModelSpec
from pipelineserve.api.parallelism import ParallelismSpec
from pipelineserve.api.placement import PlacementSpec, PodMetadataSpec, ResourcesSpec
from pipelineserve.api.rules import broken_rules
from pipelineserve.api.targets import (
    ChunkingSpec,
    ControlSpec,
    QueueingSpec,
    RebalancingSpec,
    SloSpec,
)
from pipelineserve.api.texts import RFC_3339
from pipelineserve.api.vocabulary import ApiModel, expectation

CONTRADICTION = "contradiction"
"""Type of the error that a spec with broken rules raises; its message lists them."""


def _is_instant(text: str) -> str:
    try:
        dt.datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise expectation(f'expected {RFC_3339.meaning}, got "{text}"') from error
    return text


Instant: TypeAlias = Annotated[
    str, Field(max_length=40, pattern=RFC_3339.regex), AfterValidator(_is_instant)
]


class PipelineServeSpec(ApiModel):
    """What the user wants. Fields that contradict each other are refused (`rules.py`)."""

    model: Annotated[
        ModelSpec,
        Field(
            description="Rolls: the model to serve.",
            examples=[{"uri": "hf://Qwen/Qwen2.5-32B-Instruct"}],
        ),
    ]
    engine: Annotated[EngineSpec, Field(description="Rolls: what runs the model.")] = EngineSpec()
    parallelism: Annotated[
        ParallelismSpec,
        Field(description="Rolls: the shape of one replica.", examples=[{"stages": 4}]),
    ]
    replicas: Annotated[
        int,
        Field(
            ge=0,
            le=1000,
            description="Live: full copies of the model; those that stay are not restarted.",
        ),
    ] = 1
    slo: Annotated[
        SloSpec,
        Field(
            description="Live: the latency targets, at least one.",
            examples=[{"ttft": {"milliseconds": 2000}}],
        ),
    ]
    chunking: Annotated[
        ChunkingSpec, Field(description="Live: the token budget of a micro-batch.")
    ] = ChunkingSpec()
    rebalancing: Annotated[RebalancingSpec, Field(description="Live: delay scheduling.")] = (
        RebalancingSpec()
    )
    queueing: Annotated[
        QueueingSpec, Field(description="Live: the order of the waiting queue.")
    ] = QueueingSpec()
    control: Annotated[ControlSpec, Field(description="Live: the controller's own settings.")] = (
        ControlSpec()
    )
    rollout: Annotated[
        RolloutSpec,
        Field(description="Live: how groups are replaced; drainSeconds alone rolls (Rolls)."),
    ] = RolloutSpec()
    recovery: Annotated[
        RecoverySpec, Field(description="Live: how often a failing group is started anew.")
    ] = RecoverySpec()
    restart_time: Annotated[
        Instant | None,
        Field(
            description=(
                "Rolls: a time of RFC 3339; another one restarts every group, one after the other, "
                "and resets the recovery budget."
            ),
        ),
    ] = None
    api: Annotated[ApiSpec, Field(description="Rolls: the API in front of the model.")] = ApiSpec()
    resources: Annotated[ResourcesSpec, Field(description="Rolls: compute for the containers.")] = (
        ResourcesSpec()
    )
    placement: Annotated[PlacementSpec, Field(description="Rolls: where pods run.")] = (
        PlacementSpec()
    )
    pod_metadata: Annotated[
        PodMetadataSpec, Field(description="Rolls: labels and annotations of every pod.")
    ] = PodMetadataSpec()
    network_policy: Annotated[
        NetworkPolicySpec, Field(description="Live: who may reach the API.")
    ] = NetworkPolicySpec()
    autoscaling: Annotated[
        AutoscalingSpec | None,
        Field(description="Live: bounds within which replicas follow the load; none by default."),
    ] = None
    monitoring: Annotated[MonitoringSpec, Field(description="Live: what Prometheus scrapes.")] = (
        MonitoringSpec()
    )

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        document = {"spec": self.model_dump(mode="json", by_alias=True, exclude_none=True)}
        faults = broken_rules(document)
        if faults:
            broken = "; ".join(str(fault) for fault in faults)
            raise PydanticCustomError(CONTRADICTION, "{broken}", {"broken": broken})
        return self

    def effective_chunking(self) -> EffectiveChunking:
        """Chunk sizes in effect, those not given derived from those that are."""
        return effective_chunking(self.chunking, self.engine.max_chunk_tokens)
