"""From images to nothing left: the operator on two real nodes, under its own rights.

Slow, so each test tells a whole story. `node_cluster` says which clusters will do.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import yaml
from tools.sources import ROOT

import node_cluster
from cluster_programs import CommandError, needed
from helm_chart import CHART
from node_cluster import NodeCluster, wait_until

pytestmark = pytest.mark.timeout(1500)

RELEASE = "pipelineserve"
RELEASE_LABEL = f"app.kubernetes.io/instance={RELEASE}"
SYSTEM = "pipelineserve-system"
MODELS = "models"
CACHE = "models"
MODEL = "smollm2-135m"
QUESTION = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Name three colours."}],
    "max_tokens": 8,
    "temperature": 0,
}
# What a client in a pod runs: the images hold Python and no curl. The answer goes into the pod's
# status: nodes on one machine clear away each other's logs.
ASK = """
import json, sys, urllib.request
kind = {"content-type": "application/json"}
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), kind)
reply = json.load(urllib.request.urlopen(request, timeout=120))
open("/dev/termination-log", "w").write(reply["choices"][0]["message"]["content"])
"""
KINDS = (
    "statefulsets,deployments,pods,services,configmaps,secrets,serviceaccounts,networkpolicies,"
    "poddisruptionbudgets,controllerrevisions,leases,roles,rolebindings"
)


def example(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "examples" / name).read_text())
    return document


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    """Two nodes with our images, and a namespace in which pods must be "restricted"."""
    if (reason := node_cluster.why_not()) is not None:
        if os.environ.get("PIPELINESERVE_TEST_REQUIRE_NODES"):
            pytest.fail(reason)
        pytest.skip(reason)
    model_uri = example("quickstart.yaml")["spec"]["model"]["uri"]
    with node_cluster.node_cluster(tmp_path_factory.mktemp("nodes"), model_uri) as made:
        for name in (SYSTEM, MODELS):
            made.programs.kubectl("apply", "-f", "-", document=restricted_namespace(name))
        if made.model_cache is not None:
            for one in cache_volume(str(made.model_cache)):
                made.programs.kubectl("apply", "-f", "-", document=one)
        yield made
        for place in (f"namespace/{MODELS}", f"namespace/{SYSTEM}", f"pv/pipelineserve-{CACHE}"):
            made.programs.kubectl("delete", "--ignore-not-found", "--wait=false", place)
        made.programs.kubectl(
            "delete", "--ignore-not-found", "crd", "pipelineserves.pipelineserve.dev"
        )


def test_a_resource_is_served_edited_scaled_and_leaves_nothing(cluster: NodeCluster) -> None:
    run = cluster.programs
    before = everything(cluster)
    with installed(cluster):
        models = contents(cluster, MODELS)
        run.helm("test", RELEASE, f"--namespace={SYSTEM}")

        apply(cluster, example("quickstart.yaml"))
        wait_ready(cluster, "quickstart")
        answers = {ask_from_outside(cluster, "quickstart"), ask_from_a_pod(cluster, "quickstart")}
        assert len(answers) == 1
        assert answers != {""}

        pods = pod_uids(cluster, "quickstart")
        patch(cluster, "quickstart", {"slo": {"tpot": {"milliseconds": 321}}})
        generation = run.get("-n", MODELS, "pserve", "quickstart")["metadata"]["generation"]
        wait_until(
            lambda: status_of(cluster, "quickstart").get("policy", {}).get("appliedGeneration"),
            lambda applied: applied == generation,
        )
        assert pod_uids(cluster, "quickstart") == pods

        with pytest.raises(CommandError, match=r"percentile"):
            patch(cluster, "quickstart", {"slo": {"ttft": {"percentile": 100}}})

        run.kubectl("-n", MODELS, "scale", "pserve/quickstart", "--replicas=2")
        wait_replicas(cluster, "quickstart", 2)
        assert pod_uids(cluster, "quickstart").items() >= pods.items()
        run.kubectl("-n", MODELS, "scale", "pserve/quickstart", "--replicas=1")
        wait_replicas(cluster, "quickstart", 1)
        assert pod_uids(cluster, "quickstart") == pods

        run.kubectl("-n", MODELS, "delete", "pserve", "quickstart")
        wait_until(lambda: contents(cluster, MODELS), lambda left: left == models)
    # The operator's pod has a moment to end.
    wait_until(lambda: everything(cluster), lambda left: left == before)


def test_the_stages_of_one_replica_lie_in_two_pods_on_two_nodes(cluster: NodeCluster) -> None:
    document = example("two-pods.yaml")
    document["spec"]["replicas"] = 1
    (spread,) = document["spec"]["placement"]["topologySpread"]
    spread["whenUnsatisfiable"] = "DoNotSchedule"
    name = document["metadata"]["name"]
    before = everything(cluster)
    with installed(cluster, watchNamespaces=[MODELS]):
        models = contents(cluster, MODELS)
        apply(cluster, document)
        wait_ready(cluster, name)
        pods = pods_of(cluster, name)
        assert len(pods) == len({pod["spec"]["nodeName"] for pod in pods}) == 2
        assert ask_from_outside(cluster, name) == ask_from_a_pod(cluster, name) != ""
        cluster.programs.kubectl("-n", MODELS, "delete", "pserve", name)
        wait_until(lambda: contents(cluster, MODELS), lambda left: left == models)
    # The operator's pod has a moment to end.
    wait_until(lambda: everything(cluster), lambda left: left == before)


@contextmanager
def installed(cluster: NodeCluster, **values: Any) -> Iterator[None]:
    """The chart's release, for the length of the block."""
    registry, _, path = cluster.prefix.partition("/")
    own = {
        "image": {"registry": registry, "repository": f"{path}/operator", "tag": cluster.tag},
        "engine": {"image": {"repository": f"{path}/engine"}},
        "controller": {"image": {"repository": f"{path}/controller"}},
    }
    where = (RELEASE, f"--namespace={SYSTEM}")
    cluster.programs.helm(
        "install", *where, str(CHART), "--wait", "--timeout=180s", values={**own, **values}
    )
    try:
        yield
    except BaseException:
        tell(cluster)
        raise
    finally:
        cluster.programs.helm("uninstall", *where, "--wait")


def tell(cluster: NodeCluster) -> None:
    """What a person would look at first; pytest shows it with the failure."""
    looks = [
        ("get", "pods,pserve,events", "-A", "-o", "wide"),
        ("-n", SYSTEM, "logs", "-l", "app.kubernetes.io/component=operator", "--tail=80"),
        ("-n", MODELS, "describe", "pserve"),
        ("-n", MODELS, "logs", "-l", "pipelineserve.dev/name", "--all-containers", "--tail=30"),
    ]
    for look in looks:
        try:
            sys.stderr.write(cluster.programs.kubectl(*look))
        except CommandError as error:
            sys.stderr.write(f"{error}\n")


def apply(cluster: NodeCluster, document: dict[str, Any]) -> None:
    """Apply an example; its model comes out of the nodes' cache where they have one."""
    if cluster.model_cache is not None:
        document["spec"]["model"]["cache"] = {"claimName": CACHE}
    cluster.programs.kubectl("-n", MODELS, "apply", "-f", "-", document=document)


def patch(cluster: NodeCluster, name: str, spec: dict[str, Any]) -> None:
    change = json.dumps({"spec": spec})
    cluster.programs.kubectl("-n", MODELS, "patch", "pserve", name, "--type=merge", "-p", change)


def wait_ready(cluster: NodeCluster, name: str) -> None:
    """Until the resource says so, of the generation that it has now."""
    wait_until(
        lambda: condition_of(cluster, name, "Ready"), lambda found: found.get("status") == "True"
    )


def wait_replicas(cluster: NodeCluster, name: str, num_replicas: int) -> None:
    wait_until(
        lambda: (status_of(cluster, name).get("readyReplicas"), len(pods_of(cluster, name))),
        lambda found: found == (num_replicas, num_replicas),
    )


def status_of(cluster: NodeCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.programs.get("-n", MODELS, "pserve", name).get("status", {})
    return found


def condition_of(cluster: NodeCluster, name: str, kind: str) -> dict[str, Any]:
    generation = cluster.programs.get("-n", MODELS, "pserve", name)["metadata"]["generation"]
    conditions = status_of(cluster, name).get("conditions", [])
    fresh = [one for one in conditions if one.get("observedGeneration") == generation]
    return next((one for one in fresh if one["type"] == kind), {})


def pods_of(cluster: NodeCluster, name: str) -> list[dict[str, Any]]:
    return cluster.programs.items("-n", MODELS, "pods", "-l", f"pipelineserve.dev/name={name}")


def pod_uids(cluster: NodeCluster, name: str) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods_of(cluster, name)}


def contents(cluster: NodeCluster, namespace: str) -> set[tuple[str, str]]:
    """All that anybody has made in a namespace, by kind and name."""
    found = cluster.programs.items("-n", namespace, KINDS)
    return {(one["kind"], one["metadata"]["name"]) for one in found}


def everything(cluster: NodeCluster) -> set[tuple[str, str]]:
    """In both namespaces and outside of any, beside the definition, which is kept on purpose."""
    wide = cluster.programs.items("clusterroles,clusterrolebindings", "-l", RELEASE_LABEL)
    named = {(one["kind"], one["metadata"]["name"]) for one in wide}
    return named | contents(cluster, SYSTEM) | contents(cluster, MODELS)


def ask_from_outside(cluster: NodeCluster, name: str) -> str:
    """The answer that a client outside of the cluster gets through the Service."""
    with service_address(cluster, f"{name}-api") as address:
        reply = httpx.post(
            f"http://{address}/v1/chat/completions", json=QUESTION, timeout=120, trust_env=False
        )
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"]).strip()


@contextmanager
def service_address(cluster: NodeCluster, service: str) -> Iterator[str]:
    """The Service's own address where it can be reached, else one that kubectl forwards."""
    if cluster.is_joined:
        yield f"{cluster.programs.get('-n', MODELS, 'service', service)['spec']['clusterIP']}:8000"
        return
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    command = [
        str(needed("kubectl")),
        "-n",
        MODELS,
        "port-forward",
        f"service/{service}",
        f"{port}:8000",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            assert "Forwarding" in forwarding.stdout.readline()
            yield f"127.0.0.1:{port}"
        finally:
            forwarding.terminate()


def ask_from_a_pod(cluster: NodeCluster, name: str) -> str:
    """The answer that a pod of another namespace gets by the Service's name."""
    url = f"http://{name}-api.{MODELS}.svc:8000/v1/chat/completions"
    pod = client_pod(cluster.image("controller"), ["python3", "-c", ASK, url, json.dumps(QUESTION)])
    run = cluster.programs
    run.kubectl("-n", SYSTEM, "apply", "-f", "-", document=pod)
    try:
        status = wait_until(
            lambda: run.get("-n", SYSTEM, "pod", "client")["status"],
            lambda status: status["phase"] in {"Succeeded", "Failed"},
        )
        assert status["phase"] == "Succeeded", status
        (container,) = status["containerStatuses"]
        return str(container["state"]["terminated"]["message"]).strip()
    finally:
        run.kubectl("-n", SYSTEM, "delete", "pod", "client", "--now")


def client_pod(image: str, command: list[str]) -> dict[str, Any]:
    """A pod that runs one command and may be "restricted"."""
    container = {
        "name": "client",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "client"},
        "spec": {"restartPolicy": "Never", "securityContext": security, "containers": [container]},
    }


def restricted_namespace(name: str) -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def cache_volume(path: str) -> Iterator[dict[str, Any]]:
    """A claim for a folder that every node has."""
    size = {"storage": "4Gi"}
    claimed = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pipelineserve-{CACHE}"},
        "spec": {
            **claimed,
            "capacity": size,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": path, "type": "Directory"},
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CACHE, "namespace": MODELS},
        "spec": {
            **claimed,
            "volumeName": f"pipelineserve-{CACHE}",
            "resources": {"requests": size},
        },
    }
