"""The operator as a process against a real API server; the test plays the kubelets."""

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.crd import NAME, crd

from engine_server import wait_until
from kube_cluster import KubeApi, control_plane, foreign_definitions, starter
from operator_process import OperatorProcess, operator_running
from pipelineserve_operator.moments import text_of
from pipelineserve_operator.render import JsonObject
from resource_documents import changed, in_spec

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LISTED = (
    ("api/v1", "pods"),
    ("api/v1", "services"),
    ("api/v1", "configmaps"),
    ("api/v1", "serviceaccounts"),
    ("apis/apps/v1", "statefulsets"),
    ("apis/apps/v1", "controllerrevisions"),
    ("apis/networking.k8s.io/v1", "networkpolicies"),
    ("apis/policy/v1", "poddisruptionbudgets"),
)


class Place:
    """A namespace with resources in it."""

    def __init__(self, api: KubeApi, namespace: str, folder: Path) -> None:
        self.api = api
        self.namespace = namespace
        self.folder = folder
        self.resources = f"/apis/pipelineserve.dev/v1alpha1/namespaces/{namespace}/pipelineserves"

    def create(self, changes: dict[str, Any] | None = None, name: str = "small") -> None:
        """A resource, by path below spec."""
        spec = in_spec({"engine.type": "Torch", **(changes or {})})
        document = changed({"metadata.name": name, **spec})
        self.api.apply(f"{self.resources}/{name}", document)

    def edit(self, changes: dict[str, Any], name: str = "small") -> None:
        """Its spec, as a user would."""
        self.api.merge(f"{self.resources}/{name}", {"spec": changes})

    def get(self, name: str = "small") -> JsonObject:
        """The resource as it is."""
        return self.api.get(f"{self.resources}/{name}")

    def path(self, root: str, plural: str, name: str = "") -> str:
        """Of a kind's objects here, or of one."""
        return f"/{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def objects(self, name: str = "small") -> dict[str, JsonObject]:
        """Everything with the resource's label, by plural and name."""
        found: dict[str, JsonObject] = {}
        for root, plural in LISTED:
            selector = f"?labelSelector=pipelineserve.dev%2Fname%3D{name}"
            for one in self.api.get(f"{self.path(root, plural)}{selector}")["items"]:
                found[f"{plural}/{one['metadata']['name']}"] = one
        return found

    def sets(self, name: str = "small") -> list[str]:
        """Names of its sets."""
        found = self.objects(name)
        return [key.partition("/")[2] for key in found if key.startswith("statefulsets/")]

    def pods(self, name: str = "small") -> dict[str, JsonObject]:
        """Its pods by name."""
        found = self.objects(name)
        return {key.partition("/")[2]: one for key, one in found.items() if key.startswith("pods/")}

    def make_ready(self, name: str = "small", *, is_ready: bool = True) -> None:
        """What a kubelet would say of every pod that is there."""
        for pod_name, pod in self.pods(name).items():
            path = self.path("api/v1", "pods", f"{pod_name}/status")
            self.api.merge_if_there(path, status_of(pod, is_ready=is_ready))

    def condition(self, kind: str, name: str = "small") -> tuple[str, str]:
        """Status and reason; empty while it is not there."""
        conditions = (self.get(name).get("status") or {}).get("conditions", ())
        found: JsonObject = next((one for one in conditions if one["type"] == kind), {})
        return found.get("status", ""), found.get("reason", "")

    def wait_for(self, kind: str, status: str, name: str = "small") -> None:
        """Until a condition has this status."""
        wait_until(lambda: self.condition(kind, name)[0], lambda found: found == status)

    def wait_until_ready(self, name: str = "small") -> None:
        """Kubelets make every pod ready until the resource is steady."""

        def look() -> tuple[str, str]:
            self.make_ready(name)
            ready, progressing = self.condition("Ready", name), self.condition("Progressing", name)
            status = self.get(name).get("status") or {}
            is_seen = status.get("observedGeneration") == self.get(name)["metadata"]["generation"]
            return (ready[0], progressing[1]) if is_seen else ("", "")

        wait_until(look, lambda found: found == ("True", "Complete"))


def status_of(pod: JsonObject, *, is_ready: bool) -> JsonObject:
    ready = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": text_of(1_790_000_000)}
    containers = [
        {
            "name": one["name"],
            "image": one["image"],
            "imageID": "",
            "ready": is_ready,
            "restartCount": 0,
            "state": {"running": {}},
        }
        for one in pod["spec"]["containers"]
    ]
    return {"status": {"phase": "Running", "conditions": [ready], "containerStatuses": containers}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """An API server that has the definition."""
    if starter() is None and "KUBECONFIG" not in os.environ:
        pytest.skip("needs a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER to start one")
    with control_plane(tmp_path_factory.mktemp("kube")) as cluster:
        cluster.apply(f"{CRDS}/{NAME}", crd())
        wait_until(
            lambda: {
                condition["type"]: condition["status"]
                for condition in cluster.get(f"{CRDS}/{NAME}")["status"].get("conditions") or []
            },
            lambda conditions: conditions.get("Established") == "True",
        )
        yield cluster


@pytest.fixture
def place(api: KubeApi, tmp_path: Path) -> Iterator[Place]:
    """A namespace of its own."""
    namespace = f"operator-{secrets.token_hex(4)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": namespace, "labels": labels}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    api.apply(f"/api/v1/namespaces/{namespace}", space)
    yield Place(api, namespace, tmp_path)
    api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture
def operator(place: Place) -> Iterator[OperatorProcess]:
    """An operator for that namespace."""
    with operator_running(place.api.kubeconfig, place.namespace, place.folder) as process:
        yield process


def num_applied(api: KubeApi) -> float:
    """Server-side applies that the API server has served, whoever sent them."""
    lines = re.findall(
        r'^apiserver_request_total\{.*verb="APPLY".*\} (\S+)$', api.text("/metrics"), re.MULTILINE
    )
    return sum(map(float, lines))


def test_a_resource_is_served_edited_scaled_and_deleted(
    place: Place, operator: OperatorProcess
) -> None:
    place.create({"replicas": 2, "parallelism.stagesPerPod": 2})
    wait_until(place.sets, lambda found: len(found) == 4)
    wait_until(place.pods, lambda found: len(found) == 4)
    assert place.condition("Ready")[0] == "False"
    place.wait_until_ready()
    status = place.get()["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (2, 2, 2)
    assert status["summary"]["replicas"] == "2/2"
    assert status["selector"].startswith("pipelineserve.dev/name=small")

    before = place.objects()
    place.edit({"slo": {"ttft": {"milliseconds": 900}}})
    wait_until(
        lambda: place.objects()["configmaps/small-control"]["data"]["objectives.json"],
        lambda text: "900" in text,
    )
    place.wait_until_ready()
    after = place.objects()
    for key, one in before.items():
        if key.startswith(("statefulsets/", "pods/", "controllerrevisions/")):
            assert after[key]["metadata"]["uid"] == one["metadata"]["uid"], key
            if "generation" in one["metadata"]:
                assert after[key]["metadata"]["generation"] == one["metadata"]["generation"], key

    scale = f"{place.resources}/small/scale"
    place.api.merge(scale, {"spec": {"replicas": 1}})
    wait_until(place.sets, lambda found: found == ["small-r0-e0", "small-r0-e0-w"])
    place.wait_until_ready()
    assert place.get()["status"]["readyReplicas"] == 1

    place.api.delete(f"{place.resources}/small")
    wait_until(place.objects, lambda found: found == {})
    secrets_left = place.api.get(place.path("api/v1", "secrets"))["items"]
    assert secrets_left == []
    assert operator.is_running


def test_a_rolling_edit_replaces_one_group_after_the_other(
    place: Place, operator: OperatorProcess
) -> None:
    place.create({"replicas": 2})
    wait_until(place.pods, lambda found: len(found) == 2)
    place.wait_until_ready()
    place.edit({"model": {"uri": "hf://org/another"}})
    wait_until(place.sets, lambda found: found == ["small-r0-e1", "small-r1-e0"])
    place.wait_for("Ready", "True")
    assert place.condition("Progressing") == ("True", "RollingOut")
    place.wait_until_ready()
    assert place.sets() == ["small-r0-e1", "small-r1-e1"]
    assert operator.is_running


def test_a_restarted_operator_writes_nothing_and_repairs_only_what_drifted(place: Place) -> None:
    place.create({"replicas": 2, "parallelism.stagesPerPod": 2})
    with operator_running(place.api.kubeconfig, place.namespace, place.folder) as first:
        wait_until(place.pods, lambda found: len(found) == 4)
        place.wait_until_ready()
        assert first.end() == 0
    resource, applied = place.get(), num_applied(place.api)
    with operator_running(place.api.kubeconfig, place.namespace, place.folder) as second:
        wait_until(
            lambda: second.figure("pipelineserve_operator_reconciles_total", '{outcome="done"}'),
            lambda num_looks: num_looks > 0,
        )
        assert num_applied(place.api) == applied
        assert second.figure("pipelineserve_operator_writes_total") == 0.0
        assert place.get()["metadata"]["resourceVersion"] == resource["metadata"]["resourceVersion"]

        path = place.path("api/v1", "configmaps", "small-control")
        place.api.merge(path, {"data": {"static-chunk-tokens": "1", "theirs": "2"}})
        wait_until(
            lambda: place.api.get(path)["data"],
            lambda data: data["static-chunk-tokens"] != "1" and data["theirs"] == "2",
        )
        place.api.delete(place.path("apis/networking.k8s.io/v1", "networkpolicies", "small-pods"))
        wait_until(place.objects, lambda found: "networkpolicies/small-pods" in found)
        wait_until(
            lambda: second.figure("pipelineserve_operator_queue_depth"), lambda depth: depth == 0.0
        )
        assert second.figure("pipelineserve_operator_writes_total") == 2.0
        assert place.get()["metadata"]["resourceVersion"] == resource["metadata"]["resourceVersion"]


def test_a_port_that_somebody_changed_is_changed_back(
    place: Place, operator: OperatorProcess
) -> None:
    place.create()
    wait_until(place.objects, lambda found: "services/small-api" in found)
    path = place.path("api/v1", "services", "small-api")
    place.api.merge(path, {"spec": {"ports": [{"name": "http", "port": 1}]}})
    wait_until(
        lambda: [one["port"] for one in place.api.get(path)["spec"]["ports"]],
        lambda ports: ports == [8000],
    )
    assert operator.is_running


def test_two_operators_take_turns(place: Place) -> None:
    with operator_running(place.api.kubeconfig, place.namespace, place.folder) as first:
        first.wait_for_line("lease acquired")
        with operator_running(place.api.kubeconfig, place.namespace, place.folder) as second:
            second.wait_for_line("waiting for the lease")
            wait_until(lambda: second.status_of("/readyz"), lambda status: status == 200)
            assert second.status_of("/healthz") == 200
            assert second.figure("pipelineserve_operator_leader") == 0.0
            place.create()
            wait_until(place.sets, lambda found: found == ["small-r0-e0"])
            assert second.figure("pipelineserve_operator_writes_total") == 0.0
            assert first.end() == 0
            second.wait_for_line("lease acquired")
            place.edit({"replicas": 2})
            wait_until(place.sets, lambda found: found == ["small-r0-e0", "small-r1-e0"])


def test_an_operator_that_was_killed_is_followed_and_a_rollout_goes_on(place: Place) -> None:
    place.create({"replicas": 2})
    with operator_running(place.api.kubeconfig, place.namespace, place.folder) as first:
        wait_until(place.pods, lambda found: len(found) == 2)
        place.wait_until_ready()
        place.edit({"model": {"uri": "hf://org/another"}})
        wait_until(place.sets, lambda found: "small-r0-e1" in found)
        first.kill()
    with operator_running(place.api.kubeconfig, place.namespace, place.folder):
        place.wait_until_ready()
        assert place.sets() == ["small-r0-e1", "small-r1-e1"]


def test_a_group_starts_anew_once_a_pod_waits_for_its_deleted_key(
    place: Place, operator: OperatorProcess
) -> None:
    place.create({"parallelism.stagesPerPod": 2})
    place.wait_until_ready()
    place.api.delete(place.path("api/v1", "secrets", "small-r0-e0-key"))
    # Its pod of the second stage is made anew on some node, which cannot mount its volumes.
    name = "small-r0-e0-w-1"
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    place.api.create(place.path("api/v1", "pods", f"{name}/binding"), binding)
    status = status_of(place.pods()[name], is_ready=False)
    for one in status["status"]["containerStatuses"]:
        one["state"] = {"waiting": {"reason": "ContainerCreating"}}
    place.api.merge(place.path("api/v1", "pods", f"{name}/status"), status)
    events = place.path("api/v1", "events")
    wait_until(
        lambda: {one["message"] for one in place.api.get(events)["items"]},
        lambda messages: "replica 0 drains: KeyLost" in messages,
    )
    assert place.api.get(place.path("api/v1", "secrets"))["items"] == []
    assert operator.is_running


def test_kinds_for_monitoring_that_come_later_are_used_without_a_restart(
    place: Place, operator: OperatorProcess
) -> None:
    names = ("podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
    known = {one["metadata"]["name"] for one in place.api.get(CRDS)["items"]}
    if known & set(names):
        pytest.skip("the cluster has the kinds for monitoring already")
    definitions = {one["metadata"]["name"]: one for one in foreign_definitions()}
    place.create({"monitoring.enabled": True})
    place.wait_until_ready()
    try:
        for name in names:
            place.api.apply(f"{CRDS}/{name}", definitions[name])
        operator.wait_for_line("other kinds for monitoring are known")
        for plural, made in (("podmonitors", "small-pods"), ("prometheusrules", "small-targets")):
            path = place.path("apis/monitoring.coreos.com/v1", plural)
            wait_until(
                lambda path=path: [one["metadata"]["name"] for one in place.api.get(path)["items"]],  # type: ignore[misc]
                lambda found, made=made: found == [made],  # type: ignore[misc]
            )
    finally:
        for name in names:
            place.api.delete(f"{CRDS}/{name}")


def test_what_cannot_be_becomes_a_condition(place: Place, operator: OperatorProcess) -> None:
    place.create({"engine.type": "SGLang"}, "sglang")
    place.create({"engine.args": ["--port=1"]}, "flags")
    place.create({"model.uri": "pvc://weights/a"}, "claim")
    wait_until(
        lambda: [place.condition("Stalled", name) for name in ("sglang", "flags")],
        lambda found: found == [("True", "InvalidSpec")] * 2,
    )
    wait_until(
        lambda: place.condition("PodsReady", "claim"), lambda c: c == ("False", "ClaimMissing")
    )
    events = place.api.get(place.path("api/v1", "events"))["items"]
    stalled = [one for one in events if one["reason"] == "Stalled"]
    assert {one["involvedObject"]["name"] for one in stalled} >= {"sglang", "flags"}
    assert operator.is_running


def test_pods_that_are_refused_are_explained(place: Place, operator: OperatorProcess) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    place.api.apply(place.path("api/v1", "resourcequotas", "none"), quota)
    place.create()
    wait_until(lambda: place.condition("Ready"), lambda c: c == ("False", "PodsRefused"))
    message = next(c for c in place.get()["status"]["conditions"] if c["type"] == "Ready")
    assert "exceeded quota" in message["message"]
    assert operator.is_running


def test_a_resource_goes_while_no_operator_is_there(place: Place) -> None:
    place.create()
    with operator_running(place.api.kubeconfig, place.namespace, place.folder):
        wait_until(place.pods, lambda found: len(found) == 1)
        resource = place.get()
    assert "finalizers" not in resource["metadata"]
    assert "annotations" not in resource["metadata"]
    place.api.delete(f"{place.resources}/small")
    wait_until(place.objects, lambda found: found == {})
