"""Which edits roll: exactly those of the fields that say so."""

from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from pipelineserve.api import PipelineServeSpec
from pipelineserve_operator.render import Subject, group_template, revision_of
from pipelineserve_operator.render.configuration import control_config_map
from rendering import SETTINGS, a_subject

# For every field an edit of it, in a spec where it has a meaning.
EDITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "model.uri": ({}, {"model.uri": "hf://org/other"}),
    "model.revision": ({}, {"model.revision": "main"}),
    "model.servedName": ({}, {"model.servedName": "other"}),
    "model.maxContextTokens": ({}, {"model.maxContextTokens": 2048}),
    "model.dtype": ({}, {"model.dtype": "BFloat16"}),
    "model.tokenSecretRef.name": (
        {"model.tokenSecretRef": {"name": "a", "key": "k"}},
        {"model.tokenSecretRef.name": "b"},
    ),
    "model.tokenSecretRef.key": (
        {"model.tokenSecretRef": {"name": "a", "key": "k"}},
        {"model.tokenSecretRef.key": "l"},
    ),
    "model.cache.claimName": ({}, {"model.cache.claimName": "weights"}),
    "model.cache.sizeLimit": ({}, {"model.cache.sizeLimit": "1Gi"}),
    "engine.image": ({}, {"engine.image": "a/b:1"}),
    "engine.args": ({}, {"engine.args": ["--kv-tokens=640"]}),
    "engine.env.name": (
        {"engine.env": [{"name": "A", "value": "1"}]},
        {"engine.env": [{"name": "B", "value": "1"}]},
    ),
    "engine.env.value": (
        {"engine.env": [{"name": "A", "value": "1"}]},
        {"engine.env": [{"name": "A", "value": "2"}]},
    ),
    "engine.env.valueFrom": (
        {"engine.env": [{"name": "A", "value": "1"}]},
        {"engine.env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]},
    ),
    "engine.maxChunkTokens": ({}, {"engine.maxChunkTokens": 4096}),
    "parallelism.stages": ({}, {"parallelism.stages": 2}),
    "parallelism.stagesPerPod": ({}, {"parallelism.stagesPerPod": 2}),
    "parallelism.layers.mode": (
        {},
        {"parallelism.layers": {"mode": "Manual", "perStage": [1, 1, 1, 1]}},
    ),
    "parallelism.layers.perStage": (
        {"parallelism.layers": {"mode": "Manual", "perStage": [1, 1, 1, 1]}},
        {"parallelism.layers.perStage": [2, 1, 1, 1]},
    ),
    "rollout.drainSeconds": ({}, {"rollout.drainSeconds": 60}),
    "restartTime": ({}, {"restartTime": "2026-12-01T00:00:00Z"}),
    "api.keySecretRef.name": (
        {"api.keySecretRef": {"name": "a", "key": "k"}},
        {"api.keySecretRef.name": "b"},
    ),
    "api.keySecretRef.key": (
        {"api.keySecretRef": {"name": "a", "key": "k"}},
        {"api.keySecretRef.key": "l"},
    ),
    "resources.stage.requests": ({}, {"resources.stage.requests": {"cpu": "1"}}),
    "resources.stage.limits": ({}, {"resources.stage.limits": {"cpu": "1"}}),
    "resources.stage.sharedMemory": ({}, {"resources.stage.sharedMemory": "1Gi"}),
    "resources.controller.requests": ({}, {"resources.controller.requests": {"cpu": "1"}}),
    "resources.controller.limits": ({}, {"resources.controller.limits": {"cpu": "1"}}),
    "resources.deviceResourceName": ({}, {"resources.deviceResourceName": "a.b/c"}),
    "placement.nodeSelector": ({}, {"placement.nodeSelector": {"a": "b"}}),
    "placement.tolerations": ({}, {"placement.tolerations": [{"operator": "Exists"}]}),
    "placement.affinity": ({}, {"placement.affinity": {"nodeAffinity": {}}}),
    "placement.topologySpread": ({}, {"placement.topologySpread": [{"maxSkew": 1}]}),
    "placement.runtimeClassName": ({}, {"placement.runtimeClassName": "a"}),
    "placement.priorityClassName": ({}, {"placement.priorityClassName": "a"}),
    "placement.schedulerName": ({}, {"placement.schedulerName": "a"}),
    "placement.imagePullSecrets.name": (
        {"placement.imagePullSecrets": [{"name": "a"}]},
        {"placement.imagePullSecrets": [{"name": "b"}]},
    ),
    "podMetadata.labels": ({}, {"podMetadata.labels": {"a": "b"}}),
    "podMetadata.annotations": ({}, {"podMetadata.annotations": {"a": "b"}}),
}
# Only one value is possible today: the engine that runs it takes no other.
WITHOUT_EDIT = {"engine.type", "parallelism.tensorParallel"}
# Read when a container starts, so that it is never less than the static chunk, which is live.
FROM_CONFIG_MAP = {"engine.maxChunkTokens": "max-chunk-tokens"}


def fields_that_roll(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Paths of the fields that hold values and whose description says that they roll."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inner = _model_in(field.annotation)
        if inner is not None:
            yield from fields_that_roll(inner, f"{path}.")
        elif (field.description or "").startswith("Rolls"):
            yield path


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _model_in(one))), None)


def before_and_after(field: str) -> list[Subject]:
    start, edit = EDITS[field]
    return [a_subject(start), a_subject({**start, **edit})]


def test_there_is_an_edit_for_every_field_that_rolls() -> None:
    assert set(fields_that_roll(PipelineServeSpec)) == set(EDITS) | WITHOUT_EDIT


@pytest.mark.parametrize("field", EDITS)
def test_an_edit_of_a_rolling_field_changes_revision_and_pods(field: str) -> None:
    subjects = before_and_after(field)
    old, new = (group_template(subject, SETTINGS) for subject in subjects)
    assert old.revision != new.revision
    without_revision = [
        str(template.pods).replace(template.revision, "") for template in (old, new)
    ]
    if key := FROM_CONFIG_MAP.get(field):
        values = [control_config_map(subject, SETTINGS)["data"][key] for subject in subjects]
        assert values[0] != values[1]
    else:
        assert without_revision[0] != without_revision[1]


def test_writing_a_default_out_is_no_edit() -> None:
    written = {
        "engine.args": [],
        "model.dtype": "Auto",
        "parallelism.tensorParallel": 1,
        "parallelism.layers": {"mode": "Auto"},
        "rollout.drainSeconds": 120,
        "resources": {"stage": {"requests": {}}},
        "placement": {},
    }
    assert revision_of(a_subject(written).spec) == revision_of(a_subject().spec)


def test_the_order_of_labels_is_no_edit() -> None:
    one, other = ({"a.b/c": "1", "d": "2"}, {"d": "2", "a.b/c": "1"})
    revisions = {revision_of(a_subject({"podMetadata.labels": it}).spec) for it in (one, other)}
    assert len(revisions) == 1


def test_the_revision_of_a_spec_is_the_same_in_every_version() -> None:
    # Another hash here would replace the pods of every user at an upgrade.
    assert revision_of(a_subject().spec) == "d84b4e4395"
