"""SGLang's pods: one launcher each, told by the resource, and controlled through the add-on."""

from dataclasses import replace
from typing import Any

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve.metrics import LATENCY_BUCKETS_S
from pipelineserve_operator.render import all_objects
from rendering import SETTINGS, Pod, a_subject, of_kind, pods_of

SGLANG = {"engine.type": "SGLang", "parallelism.tensorParallel": 2}
SPREAD = {**SGLANG, "parallelism": {"stages": 6, "tensorParallel": 2, "stagesPerPod": 2}}


def pods_with(changes: dict[str, Any] | None = None) -> list[Pod]:
    return pods_of(all_objects(a_subject({**SGLANG, **(changes or {})}), SETTINGS))


def arguments_of(pod: Pod, changes: dict[str, Any] | None = None) -> dict[str, str]:
    objects = all_objects(a_subject({**SGLANG, **(changes or {})}), SETTINGS)
    arguments = pod.arguments("engine", of_kind(objects, "ConfigMap"))
    return dict(argument.partition("=")[::2] for argument in arguments)


def variables_of(pod: Pod) -> dict[str, Any]:
    entries = pod.container("engine")["env"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def test_one_launcher_runs_all_stages_of_a_pod() -> None:
    (pod,) = pods_with()
    assert [container["name"] for container in pod.containers()] == [
        "model",
        "engine",
        "controller",
    ]
    engine = pod.container("engine")
    assert engine["image"] == pod.container("model")["image"] == "example.com/sglang:1"
    assert engine["command"] == ["python3", "-m", "sglang.launch_server"]
    arguments = arguments_of(pod)
    assert (arguments["--pp-size"], arguments["--tp-size"]) == ("4", "2")
    assert arguments["--chunked-prefill-size"] == "2048"
    assert arguments["--port"] == "8000"
    assert {"--enable-mixed-chunk", "--enable-metrics"} <= set(arguments)
    assert "--nnodes" not in arguments
    assert "group-key" not in str(pod.spec)


def test_the_add_on_is_told_the_static_chunk_and_where_the_sidecar_calls() -> None:
    (pod,) = pods_with()
    found = variables_of(pod)
    assert found["PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS"] == "$(PSERVE_STATIC_CHUNK_TOKENS)"
    assert found["PIPELINESERVE_ADDON_CONTROL_ADDRESS"] == "unix:/run/pipelineserve/policy.sock"
    assert found["SGLANG_PLUGINS"] == "pipelineserve"
    sockets = [m for m in pod.container("engine")["volumeMounts"] if m["name"] == "control-socket"]
    assert sockets == [
        m for m in pod.container("controller")["volumeMounts"] if m["name"] == "control-socket"
    ]


def test_each_pod_of_a_group_is_a_node_with_the_same_leader() -> None:
    first, *workers = pods_with(SPREAD)
    nodes = [arguments_of(pod, SPREAD) for pod in (first, *workers)]
    assert [node["--node-rank"] for node in nodes] == ["0", "1", "2"]
    assert {node["--nnodes"] for node in nodes} == {"3"}
    assert nodes[0]["--dist-init-addr"] == "10.0.0.9:7600"
    assert {node["--dist-init-addr"] for node in nodes[1:]} == {"small-r0-e0-0.small-pods:7600"}
    assert [[c["name"] for c in pod.containers()] for pod in workers] == [["model", "engine"]] * 2
    for worker in workers:
        assert "PIPELINESERVE_ADDON_CONTROL_ADDRESS" not in variables_of(worker)
        assert "control-socket" not in str(worker.spec)


def test_a_pod_takes_the_devices_of_its_stages() -> None:
    changes = {**SPREAD, "resources": {"stage": {"requests": {"memory": "4Gi"}}}}
    for pod in pods_with(changes):
        resources = pod.container("engine")["resources"]
        assert resources["limits"]["nvidia.com/gpu"] == "4"
        assert resources["requests"]["memory"] == "8Gi"


def test_probes_ask_sglangs_own_health_and_a_worker_asks_its_leader() -> None:
    first, worker, *_ = pods_with(SPREAD)
    engine = first.container("engine")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert engine[probe]["httpGet"]["path"] == "/health"
    command = worker.container("engine")["readinessProbe"]["exec"]["command"]
    program = "pipelineserve_engine.leader_ready"
    assert command[2:] == [program, "PSERVE_LEADER_HOST", "8000", "/health"]


def test_layers_and_keys_come_as_sglang_takes_them() -> None:
    changes = {
        "parallelism": {"stages": 2, "layers": {"mode": "Manual", "perStage": [9, 7]}},
        "api.keySecretRef": {"name": "keys", "key": "k"},
    }
    (pod,) = pods_with(changes)
    found = variables_of(pod)
    assert found["SGLANG_PP_LAYER_PARTITION"] == "9,7"
    assert found["PSERVE_API_KEY"] == {"secretKeyRef": {"name": "keys", "key": "k"}}
    assert "--api-key=$(PSERVE_API_KEY)" in pod.container("engine")["args"]


def test_latencies_are_counted_into_our_buckets() -> None:
    (pod,) = pods_with()
    arguments = pod.container("engine")["args"]
    bounds = [f"{bound_s:g}" for bound_s in LATENCY_BUCKETS_S]
    for name in ("time-to-first-token", "inter-token-latency", "e2e-request-latency"):
        start = arguments.index(f"--bucket-{name}") + 1
        assert arguments[start : start + len(bounds)] == bounds
        assert arguments[start + len(bounds)].startswith("--")


def test_the_resources_own_arguments_come_last() -> None:
    (pod,) = pods_with({"engine.args": ["--mem-fraction-static=0.8"]})
    assert pod.container("engine")["args"][-1] == "--mem-fraction-static=0.8"


def faults_of(changes: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as raised:
        pods_with(changes)
    return {fault.field: fault.message for fault in raised.value.faults}


def test_every_flag_that_we_set_is_one_that_is_refused() -> None:
    changes = {**SPREAD, "api.keySecretRef": {"name": "keys", "key": "k"}}
    for pod in pods_with(changes):
        for argument in pod.arguments("engine"):
            if not argument.startswith("--"):
                continue  # a bound of the bucket flag before it
            assert "is set by the operator" in str(faults_of({"engine.args": [argument]}))


@pytest.mark.parametrize(
    "argument",
    [
        "--enable-dynamic-chunking",
        "--config=/a.yaml",
        "--dp-size=2",
        "--speculative-algorithm",
        "--disaggregation-mode=prefill",
    ],
)
def test_what_would_end_the_control_is_refused(argument: str) -> None:
    faults = faults_of({"engine.args": [argument, "2"]})
    assert list(faults) == ["spec.engine.args[0]"]
    assert "would keep the engine from being controlled" in faults["spec.engine.args[0]"]


@pytest.mark.parametrize("argument", ["--chunked-prefill=9", "--chunked_prefill_size=9", "--pp=9"])
def test_a_flags_beginning_is_refused_like_the_flag(argument: str) -> None:
    assert "is set by the operator" in str(faults_of({"engine.args": [argument]}))


@pytest.mark.parametrize("name", ["PIPELINESERVE_ADDON_X", "SGLANG_PLUGINS", "PSERVE_EPOCH"])
def test_variables_that_are_ours_are_refused(name: str) -> None:
    entry = {"name": name, "value": "1"}
    assert list(faults_of({"engine.env": [entry]})) == ["spec.engine.env[0].name"]


def test_an_operator_without_an_image_of_sglang_says_so() -> None:
    subject, settings = a_subject(SGLANG), replace(SETTINGS, sglang_image="")
    with pytest.raises(InvalidInputError, match=r"spec\.engine\.image: required"):
        all_objects(subject, settings)
    assert all_objects(a_subject({**SGLANG, "engine.image": "example.com/own:1"}), settings)
