"""A malformed field is named by its path, with what was expected and what was got."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from pipelineserve.api import PipelineServeSpec
from resource_documents import MINIMAL

Faults = Callable[[dict[str, Any]], list[str]]


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (
            "parallelism.stages",
            "4",
            'spec.parallelism.stages: expected an integer, got the string "4"',
        ),
        (
            "parallelism.stages",
            True,
            "spec.parallelism.stages: expected an integer, got the boolean true",
        ),
        (
            "parallelism.stages",
            4.0,
            "spec.parallelism.stages: expected an integer, got the number 4.0",
        ),
        (
            "parallelism.stages",
            0,
            "spec.parallelism.stages: expected at least 1, got the integer 0",
        ),
        ("replicas", 1001, "spec.replicas: expected at most 1000, got the integer 1001"),
        ("chunking", [], "spec.chunking: expected a mapping, got a list"),
        (
            "engine.args",
            [None],
            (
                "spec.engine.args[0]: expected a string, got nothing (null); "
                "give it a value or remove the line"
            ),
        ),
        ("engine.args", {}, "spec.engine.args: expected a list, got a mapping"),
        (
            "engine.args",
            ["a", "b", 3],
            "spec.engine.args[2]: expected a string, got the integer 3; put it in quotes",
        ),
        ("engine.args", ["a"] * 65, "spec.engine.args: expected at most 64 entries, got 65"),
        (
            "engine.type",
            "vllm",
            'spec.engine.type: expected one of SGLang, Torch, got the string "vllm"',
        ),
        (
            "monitoring.enabled",
            "true",
            'spec.monitoring.enabled: expected true or false, got the string "true"',
        ),
        (
            "resources.stage.limits",
            {"nvidia.com/gpu": -1},
            (
                'spec.resources.stage.limits["nvidia.com/gpu"]: expected a Kubernetes quantity '
                'such as 4, "500m" or 16Gi, got the string "-1"'
            ),
        ),
        (
            "parallelism.layers",
            {"mode": "Manual", "perStage": [1, 1, 0, 1]},
            "spec.parallelism.layers.perStage[2]: expected at least 1, got the integer 0",
        ),
        (
            "restartTime",
            "2026-13-01T00:00:00Z",
            (
                "spec.restartTime: expected a time of RFC 3339 in quotes such as "
                '2026-12-01T00:00:00Z, got "2026-13-01T00:00:00Z"'
            ),
        ),
        (
            "podMetadata.labels",
            {"pipelineserve.dev/stage": "1"},
            (
                "spec.podMetadata.labels: expected keys outside pipelineserve.dev/, which selects "
                "the pods, got pipelineserve.dev/stage; choose a domain of your own"
            ),
        ),
        (
            "placement.nodeSelector",
            {"a b": "c"},
            (
                "spec.placement.nodeSelector: expected every key to be a name such as app or "
                "example.com/app: letters, digits, '-', '_' and '.'; got \"a b\""
            ),
        ),
        (
            "placement.affinity",
            {"long": "x" * 20000},
            (
                "spec.placement.affinity: expected at most 16384 characters as JSON, got 20012; "
                "remove what is not needed"
            ),
        ),
        (
            "model.uri",
            "s3://bucket/model",
            (
                "spec.model.uri: expected hf://organisation/model, pvc://claim/path, file:///path "
                'or pypi://distribution/file.gguf, got "s3://bucket/model"; '
                "write the address in that form"
            ),
        ),
    ],
)
def test_says_where_what_was_expected_and_what_was_got(
    faults_with: Faults, path: str, value: object, fault: str
) -> None:
    assert faults_with({f"spec.{path}": value}) == [fault]


@pytest.mark.parametrize("name", sorted(to_camel(name) for name in PipelineServeSpec.model_fields))
def test_a_group_without_a_value_is_one_that_is_not_there(faults_with: Faults, name: str) -> None:
    without = {f"spec.{name}": ...} if name in MINIMAL["spec"] else {}
    assert faults_with({f"spec.{name}": None}) == faults_with(without)


def test_suggests_the_nearest_field_for_a_misspelt_one(faults_with: Faults) -> None:
    faults = faults_with({"spec.slo.ttft": ..., "spec.slo.tptf": {"milliseconds": 1}})
    # Nor is the target called missing, which it only is because of the spelling.
    assert faults == ["spec.slo.tptf: unknown field; did you mean ttft?"]


def test_refuses_the_attribute_spelling_of_a_field(faults_with: Faults) -> None:
    faults = faults_with({"spec.chunking.max_tokens": 512})
    assert faults == ["spec.chunking.max_tokens: unknown field; did you mean maxTokens?"]


def test_lists_the_known_fields_when_none_is_near(faults_with: Faults) -> None:
    faults = faults_with({"spec.api.zzz": 1})
    assert faults == ["spec.api.zzz: unknown field; the fields here are keySecretRef"]


def test_suggests_within_an_entry_of_a_list(faults_with: Faults) -> None:
    faults = faults_with({"spec.engine.env": [{"name": "A", "value": "1", "Valuefrom": {"a": 1}}]})
    assert faults == ["spec.engine.env[0].Valuefrom: unknown field; did you mean valueFrom?"]


def test_shows_an_example_for_a_missing_field(faults_with: Faults) -> None:
    assert faults_with({"spec.model": {}, "spec.slo": ...}) == [
        'spec.model.uri: required, but missing; for example uri: "hf://Qwen/Qwen2.5-32B-Instruct"',
        'spec.slo: required, but missing; for example slo: {"ttft": {"milliseconds": 2000}}',
    ]


def test_explains_that_yaml_reads_a_bare_off_as_a_boolean(faults_with: Faults) -> None:
    (fault,) = faults_with({"spec.rebalancing.mode": False})
    assert fault.startswith("spec.rebalancing.mode: expected one of Off, TpotFirst, E2eFirst, Auto")
    assert "put the word in quotes" in fault


def test_cuts_long_values_and_keys_in_messages(faults_with: Faults) -> None:
    faults = faults_with({"spec.model.servedName": "x" * 5000, "spec." + "k" * 5000: 1})
    assert len(faults) == 2
    assert "expected at most 128 characters, got 5000" in faults[0]
    assert all(len(fault) < 500 for fault in faults)


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a.b", "a" * 41])
def test_refuses_a_name_that_pods_could_not_carry(faults_with: Faults, name: str) -> None:
    (fault,) = faults_with({"metadata.name": name})
    assert fault.startswith("metadata.name: expected")


@pytest.mark.parametrize("name", ["a", "a-1", "a" * 40])
def test_takes_a_dns_label_of_at_most_40_characters(faults_with: Faults, name: str) -> None:
    assert faults_with({"metadata.name": name}) == []


@pytest.mark.parametrize(
    "time", ["2026-12-01T00:00:00Z", "2026-12-01T00:00:00.5+02:00", "2026-12-01t00:00:00z"]
)
def test_takes_a_time_of_rfc_3339(faults_with: Faults, time: str) -> None:
    assert faults_with({"spec.restartTime": time}) == []


@pytest.mark.parametrize("time", ["2026-12-01", "2026-12-01 00:00:00Z", "2026-12-01T00:00:00", ""])
def test_refuses_a_time_without_day_clock_or_offset(faults_with: Faults, time: str) -> None:
    (fault,) = faults_with({"spec.restartTime": time})
    assert fault.startswith("spec.restartTime: expected a time of RFC 3339")
