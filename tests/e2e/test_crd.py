"""A real API server takes the CustomResourceDefinition and judges resources as our parser does."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tools.crd import NAME, crd
from tools.sources import ROOT

from engine_server import wait_until
from kube_cluster import KubeApi, control_plane, starter
from pipelineserve.api import RULES
from resource_documents import BROKEN, KEPT, changed, in_spec

NAMESPACE = f"crd-{secrets.token_hex(4)}"
RESOURCES = f"/apis/pipelineserve.dev/v1alpha1/namespaces/{NAMESPACE}/pipelineserves"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"spec.replicas": -1}, "spec.replicas"),
    ({"spec.replicas": "2"}, "spec.replicas"),
    ({"spec.model.uri": ...}, "spec.model.uri"),
    ({"spec.model.dtype": "Float8"}, "spec.model.dtype"),
    ({"spec.slo.ttft.percentile": 100}, "spec.slo.ttft.percentile"),
    ({"spec.slo.ttft.milliseconds": 1.5}, "spec.slo.ttft.milliseconds"),
    ({"spec.engine.env": [{"name": "1A", "value": ""}]}, "spec.engine.env[0].name"),
    ({"spec.resources": {"stage": {"sharedMemory": "8 GB"}}}, "spec.resources.stage.sharedMemory"),
    ({"spec.chunkng": {}}, "spec.chunkng"),
    ({"spec.monitoring": {"interval": "soon"}}, "spec.monitoring.interval"),
    ({"metadata.name": "a" * 41}, "metadata.name"),
    ({"metadata.name": "with.dots"}, "metadata.name"),
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApi]:
    """An API server that has the definition."""
    if starter() is None:
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
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        cluster.apply(f"/api/v1/namespaces/{NAMESPACE}", space)
        yield cluster
        cluster.delete(f"/api/v1/namespaces/{NAMESPACE}")


def test_the_schema_is_structural(api: KubeApi) -> None:
    conditions = api.get(f"{CRDS}/{NAME}")["status"]["conditions"]
    assert [c for c in conditions if c["type"] == "NonStructuralSchema"] == []


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_each_rule_between_fields_is_kept_by_the_server_and_names_its_field(
    api: KubeApi, name: str
) -> None:
    changes, start = BROKEN[name]
    message = api.try_create(RESOURCES, changed(in_spec(changes)))
    rule = next(rule for rule in RULES if rule.name == name)
    if rule.is_list_key:
        assert "Duplicate value" in message
    else:
        assert rule.message in message
    assert start.partition(":")[0].partition("[")[0].rpartition(".")[2] in message


@pytest.mark.parametrize("changes", KEPT, ids=str)
def test_what_keeps_the_rules_is_accepted(api: KubeApi, changes: dict[str, Any]) -> None:
    assert api.try_create(RESOURCES, changed(in_spec(changes))) == ""


@pytest.mark.parametrize(("changes", "field"), MALFORMED, ids=[field for _, field in MALFORMED])
def test_malformed_fields_are_refused_by_name(
    api: KubeApi, changes: dict[str, Any], field: str
) -> None:
    assert field in api.try_create(RESOURCES, changed(changes))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=str)
def test_examples_are_accepted(api: KubeApi, path: Any) -> None:
    assert api.try_create(RESOURCES, yaml.safe_load(path.read_text())) == ""


def test_a_new_resource_says_that_no_operator_has_seen_it_and_can_be_scaled(api: KubeApi) -> None:
    three = changed({"metadata.name": "three", "spec.replicas": 3})  # "small" is the others' name
    created = api.apply(f"{RESOURCES}/three", three)
    (ready,) = created["status"]["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "Unknown", "Pending")
    assert api.get(f"{RESOURCES}/three/scale")["spec"] == {"replicas": 3}
