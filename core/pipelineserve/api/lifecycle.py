"""Rollout, recovery, autoscaling, monitoring and the network's border."""

from typing import Annotated

from pydantic import Field

from pipelineserve.api.texts import INTERVAL
from pipelineserve.api.vocabulary import ApiModel, JsonObject, LabelMap


class RolloutSpec(ApiModel):
    """How groups of pods are replaced."""

    max_surge: Annotated[
        int, Field(ge=0, le=100, description="Live: replicas that may exist above spec.replicas.")
    ] = 0
    max_unavailable: Annotated[
        int, Field(ge=0, le=100, description="Live: replicas that may be down at the same time.")
    ] = 1
    drain_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=86_400,
            description="Rolls: how long a leader may finish its requests before it ends.",
        ),
    ] = 120
    startup_deadline_seconds: Annotated[
        int,
        Field(
            ge=10,
            le=86_400,
            description="Live: how long a group may take to become ready before it is stalled.",
        ),
    ] = 3600


class RecoverySpec(ApiModel):
    """How often a group is started anew before a person must look."""

    max_restarts: Annotated[
        int, Field(ge=0, le=1000, description="Live: restarts of a group within the window.")
    ] = 5
    window_seconds: Annotated[
        int, Field(ge=60, le=604_800, description="Live: the window in which restarts count.")
    ] = 3600
    node_lost_seconds: Annotated[
        int,
        Field(
            ge=10,
            le=86_400,
            description="Live: how long a silent node is waited for before its group starts anew.",
        ),
    ] = 120


class NetworkPolicySpec(ApiModel):
    """Who may reach the API; the pods of a group always reach each other."""

    ingress_from: Annotated[
        tuple[JsonObject, ...] | None,
        Field(
            max_length=32,
            description=(
                "Live: peers as in a NetworkPolicy's from; all when not given, none when empty."
            ),
        ),
    ] = None


class AutoscalingSpec(ApiModel):
    """Bounds within which replicas follow the load."""

    min_replicas: Annotated[int, Field(ge=0, le=1000, description="Live: the fewest replicas.")] = 1
    max_replicas: Annotated[
        int, Field(ge=1, le=1000, description="Live: the most replicas.", examples=[4])
    ]


class MonitoringSpec(ApiModel):
    """What Prometheus scrapes."""

    enabled: Annotated[
        bool, Field(description="Live: whether a PodMonitor and alert rules are made.")
    ] = False
    interval: Annotated[
        str,
        Field(
            max_length=8,
            pattern=INTERVAL.regex,
            description="Live: the interval between two scrapes, as a PodMonitor spells it.",
        ),
    ] = "15s"
    labels: Annotated[
        LabelMap, Field(description="Live: labels by which a Prometheus finds its monitors.")
    ] = Field(default_factory=dict)
