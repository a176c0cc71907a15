"""The metadata of what belongs to a resource."""

from collections.abc import Mapping

from pipelineserve_operator.render import labels
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject


def owned(
    subject: Subject,
    settings: OperatorSettings,
    name: str,
    more_labels: Mapping[str, str] | None = None,
) -> JsonObject:
    """Of an object that disappears with its resource; our labels win over the further ones."""
    return named(
        subject, name, {**(more_labels or {}), **labels.of_object(subject.name, settings.version)}
    )


def named(subject: Subject, name: str, all_labels: Mapping[str, str]) -> JsonObject:
    """The same with exactly these labels."""
    return {
        "name": name,
        "namespace": subject.namespace,
        "labels": dict(all_labels),
        "ownerReferences": [subject.owner_reference],
    }
