"""Fields that contradict each other are refused, each rule with its message."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from pipelineserve.api import (
    RULES,
    LatencyTarget,
    ModelSpec,
    ParallelismSpec,
    PipelineServe,
    PipelineServeSpec,
    SloSpec,
)

Faults = Callable[[dict[str, Any]], list[str]]

BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "StagesPerPodDividesStages": (
        {"parallelism.stagesPerPod": 3},
        "spec.parallelism.stagesPerPod: expected a divisor of stages, got stages 4, stagesPerPod 3",
    ),
    "PerStageWithManualOnly": (
        {"parallelism.layers": {"perStage": [1, 1, 1, 1]}},
        "spec.parallelism.layers.perStage: expected perStage with mode Manual",
    ),
    "PerStageAsLongAsStages": (
        {"parallelism.layers": {"mode": "Manual", "perStage": [1, 1]}},
        ("spec.parallelism.layers.perStage: expected as many entries as stages, "
        "got stages 4, perStage [1, 1]"),
    ),
    "TorchWithoutTensorParallel": (
        {"engine.type": "Torch", "parallelism.tensorParallel": 2},
        "spec.parallelism.tensorParallel: expected 1 with engine Torch",
    ),
    "MinTokensAtMostStaticTokens": (
        {"chunking.minTokens": 65, "chunking.staticTokens": 64},
        ("spec.chunking.minTokens: expected at most spec.chunking.staticTokens, "
        "got minTokens 65, staticTokens 64; lower minTokens or raise staticTokens"),
    ),
    "MinTokensAtMostMaxTokens": (
        {"chunking.minTokens": 65, "chunking.maxTokens": 64},
        "spec.chunking.minTokens: expected at most spec.chunking.maxTokens",
    ),
    "MinTokensAtMostMaxChunkTokens": (
        {"chunking.minTokens": 65, "engine.maxChunkTokens": 64},
        "spec.chunking.minTokens: expected at most spec.engine.maxChunkTokens",
    ),
    "StaticTokensAtMostMaxTokens": (
        {"chunking.staticTokens": 65, "chunking.maxTokens": 64},
        "spec.chunking.staticTokens: expected at most spec.chunking.maxTokens",
    ),
    "StaticTokensAtMostMaxChunkTokens": (
        {"chunking.staticTokens": 65, "engine.maxChunkTokens": 64},
        "spec.chunking.staticTokens: expected at most spec.engine.maxChunkTokens",
    ),
    "MaxTokensAtMostMaxChunkTokens": (
        {"chunking.maxTokens": 65, "engine.maxChunkTokens": 64},
        "spec.chunking.maxTokens: expected at most spec.engine.maxChunkTokens",
    ),
    "StepTokensAtMostMaxTokens": (
        {"chunking.stepTokens": 65, "chunking.maxTokens": 64},
        "spec.chunking.stepTokens: expected at most spec.chunking.maxTokens",
    ),
    "StepTokensAtMostMaxChunkTokens": (
        {"chunking.stepTokens": 65, "engine.maxChunkTokens": 64},
        "spec.chunking.stepTokens: expected at most spec.engine.maxChunkTokens",
    ),
    "AtLeastOneTarget": (
        {"slo": {"windowSeconds": 60}},
        "spec.slo: expected at least one of ttft and tpot, got no ttft, no tpot",
    ),
    "OneKindOfCache": (
        {"model.cache": {"claimName": "a", "sizeLimit": "1Gi"}},
        ("spec.model.cache: expected exactly one of claimName and sizeLimit, "
        "got claimName, sizeLimit"),
    ),
    "OneSourceOfVariable": (
        {"engine.env": [{"name": "A", "value": ""}, {"name": "B"}]},
        ("spec.engine.env[1]: expected exactly one of value and valueFrom, "
        "got no value, no valueFrom"),
    ),
    "VariableNamesUnique": (
        {"engine.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        "spec.engine.env: expected every variable once",
    ),
    "RevisionOfVersionedSource": (
        {"model": {"uri": "file:///models/a", "revision": "main"}},
        "spec.model.revision: expected no revision with a pvc:// or file:// model",
    ),
    "RolloutCanProceed": (
        {"rollout.maxUnavailable": 0},
        ("spec.rollout.maxUnavailable: expected at least 1 while maxSurge is 0, "
        "got maxSurge 0, maxUnavailable 0"),
    ),
    "MinReplicasAtMostMaxReplicas": (
        {"autoscaling": {"minReplicas": 3, "maxReplicas": 2}},
        ("spec.autoscaling.minReplicas: expected at most maxReplicas, "
        "got minReplicas 3, maxReplicas 2"),
    ),
}  # fmt: skip

KEPT: list[dict[str, Any]] = [
    {"parallelism.stagesPerPod": 2},
    {"parallelism.layers": {"mode": "Manual", "perStage": [9, 10, 10, 7]}},
    {"engine.type": "SGLang", "parallelism.tensorParallel": 2},
    {"engine.type": "Torch"},
    {"chunking": {"minTokens": 64, "staticTokens": 64, "maxTokens": 64, "stepTokens": 64}},
    {"engine.maxChunkTokens": 64, "chunking.maxTokens": 64},
    {"slo": {"tpot": {"milliseconds": 1}}},
    {"model.cache": {"sizeLimit": "1Gi"}},
    {"engine.env": [{"name": "A", "value": ""}, {"name": "B", "valueFrom": {"fieldRef": {}}}]},
    {"model": {"uri": "pypi://dist/a.gguf", "revision": "0.1.2"}},
    {"rollout": {"maxSurge": 1, "maxUnavailable": 0}},
    {"autoscaling": {"minReplicas": 2, "maxReplicas": 2}},
]


def in_spec(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"spec.{path}": value for path, value in changes.items()}


def test_every_rule_has_an_own_name_and_a_case_here() -> None:
    assert [rule.name for rule in RULES] == list(dict.fromkeys(rule.name for rule in RULES))
    assert {rule.name for rule in RULES} == set(BROKEN)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_names_the_field_and_the_values(faults_with: Faults, name: str) -> None:
    changes, start = BROKEN[name]
    rule = next(rule for rule in RULES if rule.name == name)
    (fault,) = faults_with(in_spec(changes))
    assert fault.startswith(start)
    assert fault.endswith(f"; {rule.remedy}")
    assert rule.message == f"expected {rule.expected}; {rule.remedy}"


@pytest.mark.parametrize("changes", KEPT, ids=str)
def test_a_kept_rule_is_silent(faults_with: Faults, changes: dict[str, Any]) -> None:
    assert faults_with(in_spec(changes)) == []


def test_manual_layers_without_a_list_are_refused(faults_with: Faults) -> None:
    (fault,) = faults_with({"spec.parallelism.layers": {"mode": "Manual"}})
    assert 'got mode "Manual", no perStage' in fault


def test_broken_rules_are_reported_beside_malformed_fields(faults_with: Faults) -> None:
    faults = faults_with(
        {"spec.replicas": "2", "spec.parallelism.stagesPerPod": 3, "spec.slo": {"windowSeconds": 1}}
    )
    assert [fault.partition(":")[0] for fault in faults] == [
        "spec.replicas",
        "spec.slo.windowSeconds",
        "spec.parallelism.stagesPerPod",
        "spec.slo",
    ]


def test_a_rule_is_not_held_against_a_malformed_field(faults_with: Faults) -> None:
    faults = faults_with({"spec.parallelism.stages": "4", "spec.parallelism.stagesPerPod": 3})
    assert faults == ['spec.parallelism.stages: expected an integer, got the string "4"']


def test_one_contradiction_between_three_sizes_is_said_once(faults_with: Faults) -> None:
    faults = faults_with({"spec.chunking": {"minTokens": 9, "staticTokens": 8, "maxTokens": 8}})
    assert [fault.partition(":")[0] for fault in faults] == ["spec.chunking.minTokens"]


def test_a_variable_of_the_environment_never_shows_its_value(faults_with: Faults) -> None:
    variable = {"name": "A", "value": "hunter2", "valueFrom": {"secretKeyRef": {"name": "x"}}}
    (fault,) = faults_with({"spec.engine.env": [variable, {**variable, "name": "B"}]})[:1]
    assert "hunter2" not in fault


def test_a_contradictory_spec_cannot_be_constructed_in_code_either() -> None:
    with pytest.raises(ValidationError, match="expected a divisor of stages"):
        PipelineServeSpec(
            model=ModelSpec(uri="hf://org/model"),
            parallelism=ParallelismSpec(stages=4, stages_per_pod=3),
            slo=SloSpec(ttft=LatencyTarget(milliseconds=1)),
        )


def test_a_resource_cannot_be_changed(
    resource_with: Callable[[dict[str, Any]], PipelineServe],
) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        resource_with({}).spec.replicas = 2
