"""An object has drifted if a field that we set differs, or if we own one that we set no more."""

import copy
from typing import Any

import pytest

from pipelineserve_operator.plan.drift import has_drifted

WANTED: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "a", "namespace": "n", "labels": {"x": "1"}},
    "spec": {
        "replicas": 1,
        "template": {
            "containers": [
                {
                    "name": "engine",
                    "args": ["--a", "--b"],
                    "env": [{"name": "EMPTY", "value": ""}],
                    "resources": {"limits": {"cpu": "0.5", "memory": "1.5Gi"}},
                    "ports": [{"containerPort": 80}],
                }
            ],
            "tolerations": [{"key": "gpu"}],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    },
}
FIELDS: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:x": {}}},
    "f:spec": {
        "f:replicas": {},
        "f:template": {
            "f:containers": {
                'k:{"name":"engine"}': {
                    ".": {},
                    "f:name": {},
                    "f:args": {},
                    "f:env": {'k:{"name":"EMPTY"}': {".": {}, "f:name": {}}},
                    "f:resources": {"f:limits": {"f:cpu": {}, "f:memory": {}}},
                    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {"f:containerPort": {}}},
                }
            },
            "f:tolerations": {},
            "f:volumes": {'k:{"name":"tmp"}': {"f:name": {}, "f:emptyDir": {}}},
        },
    },
}


def live() -> dict[str, Any]:
    """As a server would have it: defaults filled in, amounts respelled, what is empty left out."""
    one = copy.deepcopy(WANTED)
    container = one["spec"]["template"]["containers"][0]
    container["resources"]["limits"] = {"cpu": "500m", "memory": "1536Mi"}
    container["env"] = [{"name": "EMPTY"}]
    container["ports"] = [{"containerPort": 80, "protocol": "TCP"}]
    container["imagePullPolicy"] = "IfNotPresent"
    entry = {"manager": "pipelineserve-operator", "operation": "Apply", "fieldsV1": FIELDS}
    one["metadata"] |= {"uid": "u", "managedFields": [copy.deepcopy(entry)]}
    return one


def container_of(one: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = one["spec"]["template"]["containers"][0]
    return found


def test_what_the_server_fills_in_and_respells_is_no_drift() -> None:
    assert not has_drifted(WANTED, live())


def test_what_others_add_is_no_drift() -> None:
    one = live()
    one["metadata"]["labels"]["theirs"] = "2"
    one["metadata"]["annotations"] = {"theirs": "3"}
    one["spec"]["template"]["containers"].append({"name": "injected"})
    one["status"] = {"replicas": 1}
    assert not has_drifted(WANTED, one)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda one: one["spec"].update(replicas=2),
        lambda one: one["metadata"]["labels"].update(x="2"),
        lambda one: one["metadata"]["labels"].pop("x"),
        lambda one: container_of(one)["args"].append("--c"),
        lambda one: container_of(one)["resources"]["limits"].update(cpu="501m"),
        lambda one: container_of(one)["env"].clear(),
        lambda one: container_of(one)["env"][0].update(value="full"),
        lambda one: container_of(one)["ports"].clear(),
        lambda one: one["spec"]["template"]["containers"].clear(),
        lambda one: one["spec"]["template"]["tolerations"].append({"key": "other"}),
        lambda one: one["spec"]["template"]["tolerations"][0].update(key="other"),
        lambda one: one["metadata"].pop("managedFields"),
    ],
)
def test_a_field_of_ours_with_another_value_is_drift(spoil: Any) -> None:
    one = live()
    spoil(one)
    assert has_drifted(WANTED, one)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda wanted: wanted["metadata"]["labels"].pop("x"),
        lambda wanted: container_of(wanted).pop("args"),
        lambda wanted: container_of(wanted)["env"].clear(),
        lambda wanted: wanted["spec"]["template"]["volumes"].clear(),
        lambda wanted: wanted["spec"]["template"].pop("tolerations"),
    ],
)
def test_a_field_that_we_own_and_set_no_more_is_drift(spoil: Any) -> None:
    wanted = copy.deepcopy(WANTED)
    spoil(wanted)
    assert has_drifted(wanted, live())


def test_fields_of_a_status_that_we_wrote_are_another_matter() -> None:
    one = live()
    one["metadata"]["managedFields"].insert(
        0,
        {
            "manager": "pipelineserve-operator",
            "operation": "Apply",
            "subresource": "status",
            "fieldsV1": {"f:status": {}},
        },
    )
    assert not has_drifted(WANTED, one)
