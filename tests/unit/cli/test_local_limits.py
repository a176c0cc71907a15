"""What local mode refuses, and what it says of fields that it cannot obey."""

from pathlib import Path

import pytest

from local_resources import QUICKSTART, a_resource
from pipelineserve.api import parse_resource
from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.local_limits import inactive_fields, require_local

CONTROLLED = (
    "engine: {type: Torch}\n  parallelism: {stages: 2}\n"
    "  chunking: {policy: Predictive, staticTokens: 256}\n"
    "  rebalancing: {mode: Auto}\n  queueing: {order: Triage}\n  control: {mode: Paused}"
)


def test_everything_that_cannot_run_here_is_named_at_once() -> None:
    resource = a_resource(
        "engine: {type: SGLang}\n  parallelism: {stages: 2}\n"
        "  api: {keySecretRef: {name: key, key: apiKey}}"
    )
    with pytest.raises(InvalidInputError) as caught:
        require_local(resource, None)
    assert [fault.field for fault in caught.value.faults] == [
        "spec.engine.type",
        "spec.api.keySecretRef",
    ]
    assert "--sglang-python or PIPELINESERVE_SGLANG_PYTHON" in str(caught.value)


def test_sglang_runs_where_there_is_a_python_for_it() -> None:
    spec = "engine: {type: SGLang}\n  parallelism: {stages: 2, tensorParallel: 2}"
    require_local(a_resource(spec), Path("/opt/sglang/bin/python"))
    assert inactive_fields(a_resource(spec), has_control=True) == []


def test_pods_that_share_the_machine_s_gpus_are_said() -> None:
    spread = "engine: {{type: {}}}\n  parallelism: {{stages: 2, stagesPerPod: 1}}"
    (note,) = inactive_fields(a_resource(spread.format("SGLang")), has_control=True)
    assert note.field == "spec.parallelism.stagesPerPod"
    assert inactive_fields(a_resource(spread.format("Torch")), has_control=True) == []


def test_the_quickstart_runs_without_a_note() -> None:
    resource = parse_resource(QUICKSTART.read_text(), str(QUICKSTART))
    require_local(resource, None)
    assert inactive_fields(resource, has_control=True) == []
    assert inactive_fields(resource, has_control=False) == []


def test_fields_that_only_a_cluster_obeys_are_said_and_no_others() -> None:
    resource = a_resource(
        "engine: {type: Torch, image: 'a/b:1', env: [{name: A, value: b}]}\n"
        "  parallelism: {stages: 1}\n  networkPolicy: {ingressFrom: []}\n  replicas: 3\n"
        "  podMetadata: {labels: {a: b}}"
    )
    notes = {note.field: note.message for note in inactive_fields(resource, has_control=True)}
    assert notes == {
        "spec.replicas": "local mode runs one, got 3; more would only share this machine",
        "spec.podMetadata": "has no effect in local mode",
        "spec.networkPolicy": "has no effect in local mode",
        "spec.engine.image": "has no effect in local mode",
    }


def test_variables_that_only_a_cluster_has_are_said_to_come_from_here() -> None:
    resource = a_resource(
        "engine:\n    type: Torch\n    env:\n"
        "      - {name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}\n"
        "      - {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}\n"
        "  parallelism: {stages: 1}",
        model="uri: hf://a/b, tokenSecretRef: {name: hf, key: token}, cache: {sizeLimit: 1Gi}",
    )
    notes = {note.field: note.message for note in inactive_fields(resource, has_control=True)}
    assert set(notes) == {
        "spec.engine.env[0]",
        "spec.model.tokenSecretRef",
        "spec.model.cache.sizeLimit",
    }
    assert "A is taken from the environment" in notes["spec.engine.env[0]"]
    assert "HF_TOKEN is taken from the environment" in notes["spec.model.tokenSecretRef"]


def test_fields_without_effect_are_said_where_no_controller_runs() -> None:
    found = inactive_fields(a_resource(CONTROLLED), has_control=False)
    notes = {note.field: note.message for note in found}
    assert notes["spec.chunking.policy"].endswith("every micro-batch gets 256 tokens")
    assert set(notes) == {
        "spec.chunking.policy",
        "spec.rebalancing.mode",
        "spec.queueing.order",
        "spec.control",
    }


def test_a_controller_obeys_all() -> None:
    assert inactive_fields(a_resource(CONTROLLED), has_control=True) == []
