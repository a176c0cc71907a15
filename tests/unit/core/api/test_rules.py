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
from resource_documents import BROKEN, KEPT, in_spec

Faults = Callable[[dict[str, Any]], list[str]]


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
