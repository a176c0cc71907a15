"""Resources as documents: a valid one, changes by path, and which changes break which rule."""

import copy
from typing import Any

MINIMAL: dict[str, Any] = {
    "apiVersion": "pipelineserve.dev/v1alpha1",
    "kind": "PipelineServe",
    "metadata": {"name": "small"},
    "spec": {
        "model": {"uri": "hf://org/model"},
        "parallelism": {"stages": 4},
        "slo": {"ttft": {"milliseconds": 2000}},
    },
}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The minimal document with the value at each dotted path set; `...` removes the field."""
    document = copy.deepcopy(MINIMAL)
    for path, value in changes.items():
        *parents, leaf = path.split(".")
        mapping = document
        for parent in parents:
            mapping = mapping.setdefault(parent, {})
        if value is ...:
            del mapping[leaf]
        else:
            mapping[leaf] = value
    return document


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
    """The same changes with paths from the document's root."""
    return {f"spec.{path}": value for path, value in changes.items()}
