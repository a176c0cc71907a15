"""The chart renders what it says, refuses unknown values, and grants what is documented."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml
from tools.crd import crd
from tools.images import project_version
from tools.sources import ROOT

from cluster_programs import ClusterPrograms, CommandError, program
from helm_chart import CHART, NAMESPACE, JsonObject, of_kind, rendered, the
from pipelineserve import metrics
from pipelineserve_controller.settings import SidecarSettings
from promql import known, selected

pytestmark = pytest.mark.skipif(program("helm") is None, reason="needs helm")

Rights = set[tuple[str, str, str]]

EVERYTHING: dict[str, Any] = {
    "image": {"registry": "mirror.example:5000", "digest": f"sha256:{'a' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "engine": {"image": {"repository": "own/engine", "tag": "2"}},
    "sglang": {"image": {"registry": "gpu.example", "digest": f"sha256:{'b' * 64}"}},
    "servingPods": {"userId": None, "listenHost": "::"},
    "watchNamespaces": ["models", "more-models"],
    "crds": {"keep": False},
    "commonLabels": {"team": "serving"},
    "replicaCount": 2,
    "podDisruptionBudget": {"enabled": True},
    "certificate": {"source": "CertManager"},
    "monitoring": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
    },
    "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "topologySpreadConstraints": [],
    "priorityClassName": "system-cluster-critical",
    "extraArgs": ["--verbose"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "as-map"}},
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-as-text'}\n",
    ],
}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_helm_finds_no_fault(values: JsonObject) -> None:
    ClusterPrograms().helm("lint", "--strict", str(CHART), values=values)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"imagePullPolicy": "Always"}, "imagePullPolicy"),
        ({"image": {"name": "a"}}, "image"),
        ({"image": {"digest": "latest"}}, "image/digest"),
        ({"sglang": {"image": {"version": "0.5"}}}, "sglang/image"),
        ({"image": {"pullPolicy": "Sometimes"}}, "image/pullPolicy"),
        ({"replicaCount": "2"}, "replicaCount"),
        ({"watchNamespaces": "models"}, "watchNamespaces"),
        ({"certificate": {"source": "Vault"}}, "certificate/source"),
        ({"logging": {"format": "xml"}}, "logging/format"),
        ({"servingPods": {"userId": 0}}, "servingPods/userId"),
        ({"podSecurityContext": {"runAsUser": 0}}, "podSecurityContext/runAsUser"),
        ({"podSecurityContext": {"runAsNonRoot": False}}, "podSecurityContext"),
        ({"monitoring": {"podMonitor": {"interval": "soon"}}}, "monitoring/podMonitor/interval"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_its_field(values: JsonObject, field: str) -> None:
    with pytest.raises(CommandError) as refused:
        rendered(values)
    assert re.search(rf"['/]{field}'", str(refused.value)), refused.value


def test_every_default_has_a_place_in_the_schema() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) == {*defaults, "global"}
    assert dict(open_objects(schema)) == {}


def test_the_chart_is_of_the_product_s_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project_version()


def test_the_definition_is_the_generated_one_and_survives_unless_told_otherwise() -> None:
    (definition,) = of_kind(rendered(), "CustomResourceDefinition")
    assert definition["spec"] == crd()["spec"]
    assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    (definition,) = of_kind(rendered({"crds": {"keep": False}}), "CustomResourceDefinition")
    assert "annotations" not in definition["metadata"]
    assert of_kind(rendered({"crds": {"enabled": False}}), "CustomResourceDefinition") == []


def test_every_object_carries_the_common_labels_and_lies_where_it_should() -> None:
    for one in rendered({**EVERYTHING, "extraObjects": []}):
        metadata = one["metadata"]
        assert metadata["labels"]["team"] == "serving", metadata
        if one["kind"] in {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}:
            assert "namespace" not in metadata
        else:
            assert metadata["namespace"] in {NAMESPACE, "models", "more-models"}, metadata


def test_further_objects_are_taken_as_maps_and_as_templates() -> None:
    names = {one["metadata"]["name"] for one in of_kind(rendered(EVERYTHING), "ConfigMap")}
    assert names == {"as-map", "pipelineserve-as-text"}


def test_images_come_from_the_mirror_by_digest_or_tag() -> None:
    assert set(images(rendered())) == {
        f"pipelineserve/{name}:{project_version()}"
        for name in ("operator", "engine", "sglang", "controller")
    }
    assert set(images(rendered(EVERYTHING))) == {
        f"mirror.example:5000/pipelineserve/operator@sha256:{'a' * 64}",
        "mirror.example:5000/own/engine:2",
        f"gpu.example/pipelineserve/sglang@sha256:{'b' * 64}",
        f"mirror.example:5000/pipelineserve/controller:{project_version()}",
    }


def test_the_operator_may_do_what_is_documented_and_nothing_else() -> None:
    watched, own = documented_rights()
    objects = rendered()
    assert rights(the(objects, "ClusterRole", "-operator")) == watched
    assert rights(the(objects, "Role", "-own")) == own


def test_with_namespaces_given_the_operator_has_no_right_elsewhere() -> None:
    watched, own = documented_rights()
    objects = rendered(EVERYTHING)
    bound = {one["roleRef"]["name"] for one in of_kind(objects, "ClusterRoleBinding")}
    assert bound == set()
    roles = {
        one["metadata"]["namespace"]: rights(one) for one in of_kind(objects, "Role", "-operator")
    }
    assert roles == {"models": watched, "more-models": watched}
    assert rights(the(objects, "Role", "-own")) == own - secret_rights(own)


def test_nobody_may_read_secrets_of_other_namespaces() -> None:
    for one in of_kind(rendered(), "ClusterRole"):
        assert {verb for _, resource, verb in rights(one) if resource == "secrets"} <= {
            "create",
            "delete",
        }
        assert "*" not in str(one["rules"])


def test_in_its_own_namespace_it_may_use_what_the_release_has_made_for_it() -> None:
    objects = rendered()
    rules = the(objects, "Role", "-own")["rules"]
    allowed = {rule["resources"][0]: rule["resourceNames"] for rule in rules}
    made = {kind: [the(objects, kind)["metadata"]["name"]] for kind in ("Lease", "Secret")}
    assert allowed == {"leases": made["Lease"], "secrets": made["Secret"]}
    arguments = the(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--lease-name={made['Lease'][0]}" in arguments
    assert f"--authority-secret={made['Secret'][0]}" in arguments


@pytest.mark.parametrize(
    ("role", "verb", "aggregated"),
    [
        ("-viewer", "get", {"view", "edit", "admin"}),
        ("-editor", "delete", {"edit"}),
        ("-admin", "delete", {"admin"}),
    ],
)
def test_the_roles_of_kubernetes_learn_of_the_resource(
    role: str, verb: str, aggregated: set[str]
) -> None:
    found = the(rendered(), "ClusterRole", role)
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    labels = found["metadata"]["labels"]
    assert {key.removeprefix(prefix) for key in labels if key.startswith(prefix)} == aggregated
    assert ("pipelineserve.dev", "pipelineserves", verb) in rights(found)


def test_only_operators_are_behind_the_service() -> None:
    objects = rendered()
    selector = the(objects, "Service")["spec"]["selector"]
    pod = the(objects, "Pod")
    template = the(objects, "Deployment")["spec"]["template"]
    assert selector.items() <= template["metadata"]["labels"].items()
    assert not selector.items() <= pod["metadata"]["labels"].items()


def test_cert_manager_makes_a_certificate_of_the_name_that_controllers_check() -> None:
    objects = rendered({"certificate": {"source": "CertManager"}})
    name = SidecarSettings.__dataclass_fields__["operator_server_name"].default
    leaf = the(objects, "Certificate", "-operator")
    assert leaf["spec"]["dnsNames"] == [name]
    mounted = the(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"secretName": leaf["spec"]["secretName"], "defaultMode": 0o440} in [
        one.get("secret") for one in mounted
    ]


def test_a_given_issuer_leaves_no_authority_of_our_own() -> None:
    issuer = {"name": "corporate", "kind": "ClusterIssuer"}
    values = {"certificate": {"source": "CertManager", "certManager": {"issuerRef": issuer}}}
    objects = rendered(values)
    assert of_kind(objects, "Issuer") == []
    assert the(objects, "Certificate")["spec"]["issuerRef"].items() >= issuer.items()


def test_alerts_are_about_metrics_that_the_operator_has() -> None:
    values = {"monitoring": {"prometheusRule": {"enabled": True}}}
    (group,) = the(rendered(values), "PrometheusRule")["spec"]["groups"]
    series = known(metrics.OPERATOR_CATALOGUE)
    for rule in group["rules"]:
        asked = selected(rule["expr"])
        assert asked
        for one in asked:
            assert one.labels <= series[one.name], rule["expr"]
            assert "namespace" in one.labels, "of this release only"


def test_notes_say_the_next_commands_and_warn_of_what_deletes_everything() -> None:
    notes = notes_of({"crds": {"keep": False}, "watchNamespaces": ["models"]})
    assert "kubectl -n models apply -f examples/quickstart.yaml" in notes
    assert "WARNING: crds.keep is false" in notes
    assert "WARNING" not in notes_of({})


def notes_of(values: JsonObject) -> str:
    arguments = (
        "install",
        "pipelineserve",
        str(CHART),
        "--dry-run=client",
        f"--namespace={NAMESPACE}",
    )
    return ClusterPrograms().helm(*arguments, values=values).partition("NOTES:")[2]


def images(objects: list[JsonObject]) -> Iterator[str]:
    """Of the operator's container and of those that it is to use."""
    (container,) = the(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    yield container["image"]
    for argument in container["args"]:
        if match := re.fullmatch(r"--(?:engine|sglang|controller)-image=(.*)", argument):
            yield match[1]


def rights(role: JsonObject) -> Rights:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def secret_rights(all_rights: Rights) -> Rights:
    return {one for one in all_rights if one[1] == "secrets"}


def documented_rights() -> tuple[Rights, Rights]:
    """Where resources are looked after, and in the operator's own namespace."""
    page = (ROOT / "docs" / "operator.md").read_text()
    _, _, section = page.partition("\n## Rights\n")
    section = section.partition("\n## ")[0]
    watched, found, own = section.partition("In its own namespace")
    assert found
    return set(table_rights(watched)), set(table_rights(own))


def table_rights(text: str) -> Iterator[tuple[str, str, str]]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) != 4 or cells[0] in {"group", "---"}:
            continue
        group = "" if cells[0] == "core" else cells[0].strip("`")
        for resource in re.findall(r"`([a-z][^`]*)`", cells[1]):
            for verb in cells[2].split(","):
                yield group, resource, verb.strip()


def open_objects(node: Any, path: str = "") -> Iterable[tuple[str, JsonObject]]:
    """Objects of the schema that name their fields and take others all the same."""
    if isinstance(node, list):
        for index, child in enumerate(node):
            yield from open_objects(child, f"{path}[{index}]")
    if not isinstance(node, dict):
        return
    is_partial = path.endswith(".podSecurityContext")  # Kubernetes' own object, in part
    if "properties" in node and node.get("additionalProperties") is not False and not is_partial:
        yield path, node
    for key, child in node.items():
        yield from open_objects(child, f"{path}.{key}")
