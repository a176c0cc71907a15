"""The rolling inputs: the part of a spec whose edit replaces pods, and a name for its state."""

import hashlib
import json

from pipelineserve.api import PipelineServeSpec
from pipelineserve_operator.render.subject import JsonObject

ROLLING_SECTIONS = frozenset(
    {
        *("model", "engine", "parallelism", "restart_time", "api"),
        *("resources", "placement", "pod_metadata"),
    }
)
ROLLING_IN_ROLLOUT = frozenset({"drain_seconds"})
_CHARACTERS = 10


def rolling_inputs(spec: PipelineServeSpec) -> JsonObject:
    """The rolling fields that differ from their defaults.

    Without defaults, so that a field that a later version adds changes no revision of before.
    """
    inputs: JsonObject = spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, include=set(ROLLING_SECTIONS)
    )
    rollout = spec.rollout.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, include=set(ROLLING_IN_ROLLOUT)
    )
    return {**inputs, **({"rollout": rollout} if rollout else {})}


def revision_of(spec: PipelineServeSpec) -> str:
    """Ten hexadecimal digits that change with the rolling inputs and with nothing else."""
    text = json.dumps(rolling_inputs(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_CHARACTERS]
