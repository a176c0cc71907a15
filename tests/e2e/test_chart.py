"""A real API server takes every object of the chart, and its operator's pod as "restricted"."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster_programs import ClusterPrograms, program
from engine_server import wait_until
from helm_chart import NAMESPACE, JsonObject, of_kind, rendered
from kube_cluster import KubeApi, control_plane, foreign_definitions, starter

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOREIGN_KINDS = ("PodMonitor", "PrometheusRule", "Certificate", "Issuer")
WATCHED = ("models", "more-models")

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "namespaced": {"watchNamespaces": list(WATCHED)},
    "cert-manager": {"certificate": {"source": "CertManager"}},
    "everything": {
        "watchNamespaces": list(WATCHED),
        "commonLabels": {"team": "serving"},
        "replicaCount": 2,
        "podDisruptionBudget": {"enabled": True},
        "imagePullSecrets": [{"name": "registry"}],
        "certificate": {"source": "CertManager", "certManager": {"issuerRef": {"name": "own"}}},
        "monitoring": {
            "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True},
        },
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "pipelineserve"}},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """An API server with the kinds of others, and namespaces that enforce "restricted"."""
    if starter() is None or program("helm") is None:
        pytest.skip("needs helm and a Kubernetes: KUBECONFIG, or PIPELINESERVE_TEST_CLUSTER")
    definitions = [
        one for one in foreign_definitions() if one["spec"]["names"]["kind"] in FOREIGN_KINDS
    ]
    if len(definitions) != len(FOREIGN_KINDS):
        pytest.skip("needs definitions of other projects: PIPELINESERVE_TEST_CRDS")
    with control_plane(tmp_path_factory.mktemp("kube")) as cluster:
        for definition in definitions:
            cluster.apply(f"{CRDS}/{definition['metadata']['name']}", definition)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        labels |= {"pod-security.kubernetes.io/warn": "restricted"}
        for name in (NAMESPACE, *WATCHED):
            metadata = {"name": name, "labels": labels}
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            cluster.apply(f"/api/v1/namespaces/{name}", space)
        wait_until(lambda: unestablished(cluster), lambda left: left == [])
        yield cluster
        for name in (NAMESPACE, *WATCHED):
            cluster.delete(f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize("name", VALUES)
def test_every_object_is_accepted_without_a_warning(api: KubeApi, name: str) -> None:
    objects = rendered(VALUES[name])
    programs = ClusterPrograms(api.kubeconfig)
    # A pod may only name an account that is there.
    for account in of_kind(objects, "ServiceAccount"):
        api.apply(account_path(account), account)
    # The definition's own resources are not there yet while it is only tried.
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    answer = programs.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server"),
        *("--validate=strict", "--warnings-as-errors", "--filename=-", "--output=json"),
        document=listed,
    )
    taken = json.loads(answer)
    kinds = sorted(one["kind"] for one in taken.get("items", [taken]))
    assert kinds == sorted(one["kind"] for one in objects)


def test_a_warning_of_pod_security_would_be_seen(api: KubeApi) -> None:
    (deployment,) = of_kind(rendered(), "Deployment")
    deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] = False
    with pytest.raises(AssertionError, match="would violate PodSecurity"):
        ClusterPrograms(api.kubeconfig).kubectl(
            *("apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", "-"),
            document=deployment,
        )


def account_path(account: JsonObject) -> str:
    metadata = account["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{metadata['name']}"


def unestablished(cluster: KubeApi) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in cluster.get(CRDS)["items"]
        if "True"
        not in {
            condition["status"]
            for condition in one.get("status", {}).get("conditions") or []
            if condition["type"] == "Established"
        }
    ]
