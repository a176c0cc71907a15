"""Where pods run, what they may use, and what is written on them."""

from typing import Annotated

from pydantic import AfterValidator, Field

from pipelineserve.api.texts import QUALIFIED_NAME
from pipelineserve.api.vocabulary import (
    AnnotationMap,
    ApiModel,
    JsonObject,
    LabelMap,
    ObjectName,
    ObjectReference,
    Quantity,
    QuantityMap,
    expectation,
)

OWN_DOMAIN = "pipelineserve.dev"


class ControllerResources(ApiModel):
    """What the controller's container asks for and may use."""

    requests: Annotated[
        QuantityMap, Field(description="Rolls: what the scheduler reserves, by resource.")
    ] = Field(default_factory=dict)
    limits: Annotated[
        QuantityMap, Field(description="Rolls: what the container may use, by resource.")
    ] = Field(default_factory=dict)


class StageResources(ControllerResources):
    """What one stage asks for and may use."""

    shared_memory: Annotated[
        Quantity | None,
        Field(description="Rolls: the size of /dev/shm, for activations between stages of a pod."),
    ] = None


class ResourcesSpec(ApiModel):
    """Compute for the containers."""

    stage: Annotated[
        StageResources, Field(description="Rolls: one stage's share; a pod gets it per stage.")
    ] = StageResources()
    controller: Annotated[
        ControllerResources, Field(description="Rolls: the controller's container.")
    ] = ControllerResources()
    device_resource_name: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=253,
            pattern=QUALIFIED_NAME.regex,
            description=(
                "Rolls: the resource by which a cluster counts devices; nvidia.com/gpu for SGLang "
                "and none for Torch when not given."
            ),
        ),
    ] = None


class PlacementSpec(ApiModel):
    """Constraints on where pods run; structures are those of a pod."""

    node_selector: Annotated[
        LabelMap, Field(description="Rolls: labels that a node must have.")
    ] = Field(default_factory=dict)
    tolerations: Annotated[
        tuple[JsonObject, ...], Field(max_length=64, description="Rolls: a pod's tolerations.")
    ] = ()
    affinity: Annotated[JsonObject | None, Field(description="Rolls: a pod's affinity.")] = None
    topology_spread: Annotated[
        tuple[JsonObject, ...],
        Field(max_length=16, description="Rolls: a pod's topologySpreadConstraints."),
    ] = ()
    runtime_class_name: Annotated[
        ObjectName | None, Field(description="Rolls: the RuntimeClass of the pods.")
    ] = None
    priority_class_name: Annotated[
        ObjectName | None, Field(description="Rolls: the PriorityClass of the pods.")
    ] = None
    scheduler_name: Annotated[
        ObjectName | None,
        Field(description="Rolls: the scheduler of the pods; the cluster's when not given."),
    ] = None
    image_pull_secrets: Annotated[
        tuple[ObjectReference, ...],
        Field(max_length=16, description="Rolls: Secrets for the image registry."),
    ] = ()


def _without_own_keys(labels: dict[str, str]) -> dict[str, str]:
    own = next((key for key in labels if key.partition("/")[0] == OWN_DOMAIN), None)
    if own is not None:
        raise expectation(
            f"expected keys outside {OWN_DOMAIN}/, which selects the pods, got {own}; "
            "choose a domain of your own"
        )
    return labels


class PodMetadataSpec(ApiModel):
    """What is written on every pod, for queues and cost centres."""

    labels: Annotated[
        LabelMap, AfterValidator(_without_own_keys), Field(description="Rolls: further labels.")
    ] = Field(default_factory=dict)
    annotations: Annotated[
        AnnotationMap,
        AfterValidator(_without_own_keys),
        Field(description="Rolls: further annotations."),
    ] = Field(default_factory=dict)
