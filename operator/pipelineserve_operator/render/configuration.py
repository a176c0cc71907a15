"""The ConfigMap of what may change while pods run, and the account without rights they run as."""

import json

from pipelineserve.api import PipelineServeSpec
from pipelineserve_operator.render import names, places
from pipelineserve_operator.render.metadata import owned
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject

_LIVE_SECTIONS = frozenset({"slo", "chunking", "rebalancing", "queueing", "control"})


def service_account(subject: Subject, settings: OperatorSettings) -> JsonObject:
    """Bound to no role: it is a name to show to the operator, nothing else."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": owned(subject, settings, names.members(subject.name)),
        "automountServiceAccountToken": False,
    }


def control_config_map(subject: Subject, settings: OperatorSettings) -> JsonObject:
    """Objectives and CA bundle for the sidecar, and what an engine starts with."""
    sizes = subject.spec.effective_chunking()
    recovery = subject.spec.recovery
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owned(subject, settings, names.control(subject.name)),
        "data": {
            places.OBJECTIVES: objectives_text(subject),
            places.CA_BUNDLE: settings.ca_bundle,
            "static-chunk-tokens": str(sizes.static_tokens),
            "max-chunk-tokens": str(sizes.ceiling_tokens),
            "recovery-max-restarts": str(recovery.max_restarts),
            "recovery-window-seconds": str(recovery.window_seconds),
        },
    }


def objectives_text(subject: Subject) -> str:
    """The message `Objectives` of `operator.proto` as protobuf's JSON."""
    message = {
        "resourceUid": subject.uid,
        "generation": str(subject.generation),
        "specJson": live_sections_text(subject.spec),
    }
    return json.dumps(message)


def live_sections_text(spec: PipelineServeSpec) -> str:
    """`Objectives.spec_json`: the live sections, and the engine's ceiling in effect."""
    sections: JsonObject = spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, include=set(_LIVE_SECTIONS)
    )
    sections["engine"] = {"maxChunkTokens": spec.effective_chunking().ceiling_tokens}
    return json.dumps(sections, separators=(",", ":"))
