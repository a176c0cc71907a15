"""A real API server takes every rendered object, under the strictest pod security."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tools.sources import ROOT

from engine_server import wait_until
from kube_cluster import KubeApi, control_plane, foreign_definitions, starter
from pipelineserve.api import parse_resource
from pipelineserve_cli.render import subject_without_cluster
from pipelineserve_operator.render import JsonObject, Subject, all_objects
from rendering import SETTINGS, a_subject, of_kind, pods_of

NAMESPACE = f"render-{secrets.token_hex(4)}"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MONITORING_KINDS = ("PodMonitor", "PrometheusRule")
PLURALS = {"NetworkPolicy": "networkpolicies"}

EVERYTHING: dict[str, Any] = {
    "model": {
        "uri": "hf://org/model",
        "revision": "main",
        "tokenSecretRef": {"name": "hub", "key": "token"},
        "cache": {"claimName": "weights"},
    },
    "engine": {
        "type": "Torch",
        "args": ["--kv-tokens=640"],
        "env": [
            {"name": "HF_ENDPOINT", "value": "http://mirror.example"},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
        ],
    },
    "parallelism": {"stages": 6, "stagesPerPod": 2},
    "replicas": 3,
    "api": {"keySecretRef": {"name": "keys", "key": "apiKey"}},
    "restartTime": "2026-12-01T00:00:00Z",
    "resources": {
        "stage": {
            "requests": {"cpu": "500m", "memory": "1.5Gi"},
            "limits": {"cpu": "1", "memory": "1536Mi"},
            "sharedMemory": "256Mi",
        },
        "controller": {"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}},
        "deviceResourceName": "example.com/device",
    },
    "placement": {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"pipelineserve.dev/name": "small"}},
                    }
                ]
            }
        },
        "topologySpread": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"pipelineserve.dev/name": "small"}},
            }
        ],
        "runtimeClassName": "sandboxed",
        "priorityClassName": "urgent",
        "schedulerName": "another",
        "imagePullSecrets": [{"name": "registry"}],
    },
    "podMetadata": {"labels": {"team.example/queue": "a"}, "annotations": {"a.example/b": "c d"}},
    "networkPolicy": {"ingressFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]},
    "monitoring": {"enabled": True, "interval": "30s", "labels": {"release": "prometheus"}},
}


def example(name: str) -> Subject:
    path = ROOT / "examples" / name
    return subject_without_cluster(parse_resource(path.read_text(), name), None)


SUBJECTS = {
    "quickstart": example("quickstart.yaml"),
    "two-pods": example("two-pods.yaml"),
    "everything": a_subject(EVERYTHING),
    "longest-name": a_subject({"parallelism.stagesPerPod": 1}, name="n" * 40),
    "digit-first": a_subject({"replicas": 2}, name="3b"),
    "claim": a_subject({"model.uri": "pvc://claim/a/b", "monitoring": {"enabled": True}}),
    "no-replica": a_subject({"replicas": 0, "networkPolicy": {"ingressFrom": []}}),
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """An API server with a namespace in which pods must be "restricted"."""
    if starter() is None:
        pytest.skip("needs a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER to start one")
    with control_plane(tmp_path_factory.mktemp("kube")) as cluster:
        for definition in foreign_definitions():
            if definition["spec"]["names"]["kind"] in MONITORING_KINDS:
                _define(cluster, definition)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": NAMESPACE, "labels": labels}
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        cluster.apply(f"/api/v1/namespaces/{NAMESPACE}", space)
        # Pods may only name classes that are there.
        cluster.apply(
            "/apis/scheduling.k8s.io/v1/priorityclasses/urgent",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "urgent"},
                "value": 1000,
            },
        )
        cluster.apply(
            "/apis/node.k8s.io/v1/runtimeclasses/sandboxed",
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": "sandboxed"},
                "handler": "sandbox",
            },
        )
        yield cluster
        cluster.delete(f"/api/v1/namespaces/{NAMESPACE}")
        cluster.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent")
        cluster.delete("/apis/node.k8s.io/v1/runtimeclasses/sandboxed")


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_object_is_applied_without_a_word(api: KubeApi, name: str) -> None:
    objects = all_objects(replace(SUBJECTS[name], namespace=NAMESPACE), SETTINGS)
    if not foreign_definitions():
        objects = [one for one in objects if one["kind"] not in MONITORING_KINDS]
    answers = {path_of(one): api.try_apply(path_of(one), one) for one in objects}
    assert {path: answer for path, answer in answers.items() if answer} == {}


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name != "no-replica"])
def test_every_pod_is_admitted_as_restricted(api: KubeApi, name: str) -> None:
    objects = all_objects(replace(SUBJECTS[name], namespace=NAMESPACE), SETTINGS)
    (account,) = of_kind(objects, "ServiceAccount")
    # A pod may only name an account that is there; the owner is not, and would be waited for.
    del account["metadata"]["ownerReferences"]
    api.apply(path_of(account), account)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    answers = {pod.name: api.try_create(pods, pod.document(NAMESPACE)) for pod in pods_of(objects)}
    assert answers
    assert {pod: answer for pod, answer in answers.items() if answer} == {}


def test_pod_security_is_what_refuses_a_pod_that_runs_as_root(api: KubeApi) -> None:
    objects = all_objects(replace(a_subject(), namespace=NAMESPACE), SETTINGS)
    document = pods_of(objects)[0].document(NAMESPACE)
    document["spec"]["securityContext"]["runAsNonRoot"] = False
    answer = api.try_create(f"/api/v1/namespaces/{NAMESPACE}/pods", document)
    assert 'violates PodSecurity "restricted' in answer


def test_the_controllers_of_kubernetes_make_the_pods_that_the_leader_is_told_of(
    api: KubeApi,
) -> None:
    subject = replace(example("two-pods.yaml"), namespace=NAMESPACE, name="applied")
    objects = all_objects(subject, SETTINGS)
    for one in objects:
        if one["kind"] not in MONITORING_KINDS:
            del one["metadata"]["ownerReferences"]
            api.apply(path_of(one), one)
    expected = {pod.name: dict(pod.labels) for pod in pods_of(objects)}
    assert set(expected) == {f"applied-r{r}-e0{p}" for r in (0, 1) for p in ("-0", "-w-1")}
    made = wait_until(lambda: pods_named(api, "applied"), lambda pods: set(pods) == set(expected))
    for name, labels in expected.items():
        assert made[name]["metadata"]["labels"].items() >= labels.items()
        assert made[name]["spec"]["subdomain"] == "applied-pods"
        assert made[name]["spec"]["hostname"] == name


def test_what_was_applied_is_applied_again_without_a_change(api: KubeApi) -> None:
    subject = replace(a_subject(EVERYTHING, name="twice"), namespace=NAMESPACE)
    for one in all_objects(subject, SETTINGS):
        if one["kind"] in MONITORING_KINDS and not foreign_definitions():
            continue
        del one["metadata"]["ownerReferences"]
        first, second = (version_of(api.apply(path_of(one), one)) for _ in range(2))
        assert first == second, one["kind"]


def version_of(one: JsonObject) -> Any:
    """Changes when the object does; of one with a status, only when what is asked for does."""
    metadata = one["metadata"]
    return metadata.get("generation") or metadata["resourceVersion"]


def pods_named(api: KubeApi, name: str) -> dict[str, JsonObject]:
    selector = f"labelSelector=pipelineserve.dev%2Fname%3D{name}"
    found = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}")["items"]
    return {pod["metadata"]["name"]: pod for pod in found}


def path_of(one: JsonObject) -> str:
    kind, version = one["kind"], one["apiVersion"]
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    root = "api" if version == "v1" else "apis"
    return f"/{root}/{version}/namespaces/{NAMESPACE}/{plural}/{one['metadata']['name']}"


def _define(cluster: KubeApi, definition: JsonObject) -> None:
    path = f"{CRDS}/{definition['metadata']['name']}"
    cluster.apply(path, definition)
    wait_until(
        lambda: {
            condition["type"]: condition["status"]
            for condition in cluster.get(path).get("status", {}).get("conditions") or []
        },
        lambda conditions: conditions.get("Established") == "True",
    )
