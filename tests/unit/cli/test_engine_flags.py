"""A manifest becomes the engine's flags, or a message that says what local mode cannot do."""

from pathlib import Path

import pytest

from pipelineserve.api import PipelineServe, parse_resource
from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.engine_flags import engine_flags, inactive_fields
from pipelineserve_engine.settings import EngineSettings, parse_settings

QUICKSTART = Path(__file__).parents[3] / "examples" / "quickstart.yaml"


def a_resource(spec: str = "") -> PipelineServe:
    text = f"""
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {{name: tiny}}
spec:
  model: {{uri: file:///models/tiny}}
  slo: {{ttft: {{milliseconds: 1000}}}}
  {spec or "{}"}
"""
    return parse_resource(text.replace("\n  {}\n", "\n"), "test.yaml")


def settings_of(resource: PipelineServe) -> EngineSettings:
    return parse_settings(engine_flags(resource, Path("/models/tiny"), 8000))


def test_the_quickstart_becomes_valid_settings_without_notes() -> None:
    resource = parse_resource(QUICKSTART.read_text(), str(QUICKSTART))
    settings = settings_of(resource)
    chunking = resource.spec.effective_chunking()
    assert settings.stages == 2
    assert settings.served_name == "smollm2-135m"
    assert settings.static_chunk_tokens == chunking.static_tokens
    assert settings.max_chunk_tokens == chunking.ceiling_tokens
    assert inactive_fields(resource, has_control=True) == []
    assert inactive_fields(resource, has_control=False) == []


def test_layers_given_by_the_user_reach_the_engine() -> None:
    resource = a_resource(
        "engine: {type: Torch}\n"
        "  parallelism: {stages: 3, layers: {mode: Manual, perStage: [9, 11, 10]}}"
    )
    assert settings_of(resource).layers_per_stage == "9,11,10"


def test_the_users_own_arguments_win() -> None:
    resource = a_resource(
        "engine: {type: Torch, args: ['--kv-tokens=640']}\n  parallelism: {stages: 1}"
    )
    assert settings_of(resource).kv_tokens == 640


def test_everything_that_local_mode_cannot_run_is_named_at_once() -> None:
    resource = a_resource(
        "engine: {type: SGLang}\n  parallelism: {stages: 2, tensorParallel: 2}\n  replicas: 3\n"
        "  api: {keySecretRef: {name: key, key: apiKey}}"
    )
    with pytest.raises(InvalidInputError) as caught:
        engine_flags(resource, Path("/models/tiny"), 8000)
    assert [fault.field for fault in caught.value.faults] == [
        "spec.engine.type",
        "spec.replicas",
        "spec.parallelism.tensorParallel",
        "spec.api.keySecretRef",
    ]


def test_recovery_and_drain_reach_the_engine() -> None:
    resource = a_resource(
        "engine: {type: Torch}\n  parallelism: {stages: 1}\n"
        "  recovery: {maxRestarts: 2, windowSeconds: 60}\n  rollout: {drainSeconds: 7}"
    )
    settings = settings_of(resource)
    assert (settings.recovery_max_restarts, settings.recovery_window_seconds) == (2, 60)
    assert settings.drain_seconds == 7


def test_arguments_that_pserve_sets_itself_are_refused() -> None:
    resource = a_resource(
        "engine: {type: Torch, args: ['--kv-tokens=64', '--port=9']}\n  parallelism: {stages: 1}"
    )
    with pytest.raises(
        InvalidInputError, match=r"spec\.engine\.args\[1\]: --port is set by pserve"
    ):
        engine_flags(resource, Path("/models/tiny"), 8000)


def test_fields_that_only_a_cluster_obeys_are_said() -> None:
    resource = a_resource(
        "engine: {type: Torch, image: 'a/b:1', env: [{name: A, value: b}]}\n"
        "  parallelism: {stages: 1}\n  networkPolicy: {ingressFrom: []}"
    )
    fields = {note.field for note in inactive_fields(resource, has_control=True)}
    assert fields >= {
        "spec.networkPolicy",
        "spec.engine.image",
        "spec.engine.env",
    }
    assert "spec.placement" not in fields


CONTROLLED = (
    "engine: {type: Torch}\n  parallelism: {stages: 2}\n"
    "  chunking: {policy: Predictive, staticTokens: 256}\n"
    "  rebalancing: {mode: Auto}\n  queueing: {order: Triage}\n  control: {mode: Paused}"
)


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


def test_a_control_address_reaches_the_engine_and_cannot_be_given_by_hand() -> None:
    resource = a_resource("engine: {type: Torch}\n  parallelism: {stages: 1}")
    flags = engine_flags(resource, Path("/models/tiny"), 8000, "unix:/run/control.sock")
    assert parse_settings(flags).control_address == "unix:/run/control.sock"
    assert settings_of(resource).control_address == ""
    given = a_resource(
        "engine: {type: Torch, args: ['--control-address=unix:/a']}\n  parallelism: {stages: 1}"
    )
    with pytest.raises(InvalidInputError, match="--control-address is set by pserve"):
        settings_of(given)
