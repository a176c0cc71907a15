"""`status` of the custom resource: what the operator saw, and nobody else writes.

Everything here is derived anew from what is there; nothing is decided by it. Numbers that change
with every request are metrics, not status.
"""

from enum import Enum
from typing import Annotated

from pydantic import Field

from pipelineserve.api.parallelism import MAX_STAGES
from pipelineserve.api.targets import ControlMode
from pipelineserve.api.vocabulary import ApiModel, ObjectName

MAX_PIPELINES = 1000
_MAX_REASON = 256
_MAX_MESSAGE = 4096

Generation = Annotated[int, Field(ge=0, le=2**63 - 1)]
Moment = Annotated[str, Field(max_length=40, json_schema_extra={"format": "date-time"})]
ShortText = Annotated[str, Field(max_length=64)]


class ConditionStatus(Enum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionType(Enum):
    """All conditions, each there from the first visit on.

    Ready never depends on controller, metrics or targets, and Stalled is True only when a person
    must act: generic tools (kstatus, Helm's wait, Argo CD) judge by these two and Progressing.
    """

    READY = "Ready"
    PROGRESSING = "Progressing"
    STALLED = "Stalled"
    PODS_READY = "PodsReady"
    ENGINE_READY = "EngineReady"
    CONTROLLER_CONNECTED = "ControllerConnected"
    CONTROL_EFFECTIVE = "ControlEffective"
    METRICS_FRESH = "MetricsFresh"
    SLO_MET = "SLOMet"
    SLO_FEASIBLE = "SLOFeasible"


class Condition(ApiModel):
    """One condition, in the shape that Kubernetes has for them."""

    type: Annotated[ConditionType, Field(description="Which condition.")]
    status: Annotated[ConditionStatus, Field(description="Whether it holds.")]
    reason: Annotated[
        str,
        Field(
            min_length=1,
            max_length=_MAX_REASON,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="Why, in one word for programs.",
        ),
    ]
    message: Annotated[
        str, Field(max_length=_MAX_MESSAGE, description="Why, in words; what to do if anything.")
    ] = ""
    last_transition_time: Annotated[Moment, Field(description="When its status last changed.")]
    observed_generation: Annotated[
        Generation | None, Field(description="The generation that it is about.")
    ] = None


class SloStatus(ApiModel):
    """Latencies over the window, merged over replicas, at the percentiles of the spec."""

    attainment_percent: Annotated[
        int | None, Field(ge=0, le=100, description="Requests that met every target.")
    ] = None
    ttft_milliseconds: Annotated[
        int | None, Field(ge=0, le=2**31 - 1, description="Time to first token.")
    ] = None
    tpot_milliseconds: Annotated[
        int | None, Field(ge=0, le=2**31 - 1, description="Time per output token.")
    ] = None
    requests: Annotated[
        int | None, Field(ge=0, le=2**63 - 1, description="Requests in the window.")
    ] = None


class PolicyStatus(ApiModel):
    """Which targets the controllers run."""

    generation: Annotated[Generation | None, Field(description="That they were last told.")] = None
    applied_generation: Annotated[
        Generation | None, Field(description="That all replicas run.")
    ] = None
    source: Annotated[ShortText | None, Field(description="Where replicas have it from.")] = None
    reason: Annotated[
        ShortText | None, Field(description="Why the chunk is what it is, in one word.")
    ] = None


class PipelineStatus(ApiModel):
    """One replica."""

    replica: Annotated[int, Field(ge=0, le=MAX_PIPELINES, description="Its index.")]
    epoch: Annotated[Generation, Field(description="Which start of its group this is.")] = 0
    ready: Annotated[bool, Field(description="Whether it serves.")] = False
    applied_generation: Annotated[
        Generation | None, Field(description="Of the targets that it runs.")
    ] = None
    restarts: Annotated[
        int, Field(ge=0, le=2**31 - 1, description="Of its group within the recovery window.")
    ] = 0
    nodes: Annotated[
        tuple[ObjectName, ...],
        Field(max_length=MAX_STAGES, description="Where its pods run, first stage first."),
    ] = ()


class SummaryStatus(ApiModel):
    """Texts for `kubectl get`."""

    replicas: Annotated[ShortText, Field(description="Ready and wanted replicas.")] = ""
    ttft: Annotated[ShortText, Field(description="Measured and wanted time to first token.")] = ""
    tpot: Annotated[ShortText, Field(description="Measured and wanted time per token.")] = ""
    slo: Annotated[ShortText, Field(description="Attainment over the window.")] = ""


class PipelineServeStatus(ApiModel):
    """What the operator saw."""

    observed_generation: Annotated[
        Generation | None, Field(description="The generation that all of this is about.")
    ] = None
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            description="How things stand, by type.",
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    replicas: Annotated[int, Field(ge=0, le=MAX_PIPELINES, description="Replicas that exist.")] = 0
    ready_replicas: Annotated[
        int, Field(ge=0, le=MAX_PIPELINES, description="Replicas that serve.")
    ] = 0
    updated_replicas: Annotated[
        int, Field(ge=0, le=MAX_PIPELINES, description="Replicas of the present template.")
    ] = 0
    selector: Annotated[
        str,
        Field(
            max_length=4096,
            description="Selects leader pods only, so that an autoscaler averages over replicas.",
        ),
    ] = ""
    endpoint: Annotated[
        str, Field(max_length=512, description="Where the API is, inside the cluster.")
    ] = ""
    mode: Annotated[ControlMode | None, Field(description="Of the controllers.")] = None
    slo: Annotated[SloStatus | None, Field(description="Latencies over the window.")] = None
    policy: Annotated[PolicyStatus | None, Field(description="Which targets run.")] = None
    pipelines: Annotated[
        tuple[PipelineStatus, ...],
        Field(
            max_length=MAX_PIPELINES,
            description="The replicas.",
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["replica"],
            },
        ),
    ] = ()
    summary: Annotated[SummaryStatus | None, Field(description="Texts for kubectl get.")] = None
