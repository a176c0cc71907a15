"""Conditions say why pods wait, the most telling reason first."""

from typing import Any

import pytest

from cluster_in_memory import set_ready
from operating import NAMESPACE, Operating
from pipelineserve_operator.cluster import Kind


def starting(operating: Operating) -> list[Any]:
    """The pods of a resource whose groups have just been made."""
    operating.settle(is_ready=False)
    return operating.cluster.of_kind(Kind.POD)


def waits(pod: Any, reason: str, message: str = "", container: str = "engine") -> None:
    """What a kubelet says of a container that it cannot start."""
    pod.setdefault("status", {})["containerStatuses"] = [
        {
            "name": container,
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
        }
    ]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("ErrImagePull", "ImageUnavailable"),
        ("ImagePullBackOff", "ImageUnavailable"),
        ("CreateContainerConfigError", "ConfigurationMissing"),
        ("CrashLoopBackOff", "CrashLoop"),
        ("ContainerCreating", "Starting"),
    ],
)
def test_what_a_kubelet_says_is_said(reason: str, said: str) -> None:
    operating = Operating()
    (pod,) = starting(operating)
    waits(pod, reason, "because of this")
    operating.look()
    for name in ("Ready", "PodsReady"):
        assert operating.condition(name)[:2] == ("False", said)
    if said != "Starting":
        assert "small-r0-e0-0, container engine: because of this" in operating.condition("Ready")[2]


def test_a_missing_secret_is_named() -> None:
    operating = Operating({"model.tokenSecretRef": {"name": "hub", "key": "token"}})
    (pod,) = starting(operating)
    waits(pod, "CreateContainerConfigError", 'secret "hub" not found', "model")
    operating.look()
    assert 'secret "hub" not found' in operating.condition("Ready")[2]


def test_a_pod_without_a_node_says_what_the_scheduler_says() -> None:
    operating = Operating()
    (pod,) = starting(operating)
    condition = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
    pod["status"] = {"conditions": [condition]}
    operating.look()
    assert operating.condition("PodsReady")[:2] == ("False", "Unschedulable")
    assert "0/2 nodes are available" in operating.condition("PodsReady")[2]


def test_a_missing_claim_is_named_before_all_else() -> None:
    operating = Operating({"model.cache": {"claimName": "weights"}})
    (pod,) = starting(operating)
    waits(pod, "CrashLoopBackOff")
    operating.look()
    assert operating.condition("Ready")[:2] == ("False", "ClaimMissing")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "weights", "namespace": NAMESPACE},
    }
    operating.cluster.put(claim)
    operating.look()
    assert operating.condition("Ready")[:2] == ("False", "CrashLoop")


def test_pods_that_are_refused_are_explained_by_the_latest_event() -> None:
    operating = Operating()
    operating.look()
    (one,) = operating.cluster.of_kind(Kind.STATEFUL_SET)
    for number, words in enumerate(("older words", "exceeded quota: none")):
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"e{number}", "namespace": NAMESPACE},
            "involvedObject": {"uid": one["metadata"]["uid"]},
            "reason": "FailedCreate",
            "message": words,
            "lastTimestamp": f"2027-01-15T08:00:0{number}Z",
        }
        operating.cluster.put(event)
    operating.look()
    assert operating.condition("Ready")[:2] == ("False", "PodsRefused")
    assert "exceeded quota: none" in operating.condition("Ready")[2]


def test_a_volume_that_cannot_be_mounted_is_explained() -> None:
    operating = Operating()
    (pod,) = starting(operating)
    pod["spec"]["nodeName"] = "node-a"
    waits(pod, "ContainerCreating")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": NAMESPACE},
        "involvedObject": {"uid": pod["metadata"]["uid"]},
        "reason": "FailedMount",
        "message": 'secret "keys" not found',
        "lastTimestamp": "2027-01-15T08:00:00Z",
    }
    operating.cluster.put(event)
    operating.look()
    assert operating.condition("Ready")[:2] == ("False", "VolumeUnavailable")
    assert 'secret "keys" not found' in operating.condition("Ready")[2]


def test_a_broken_sidecar_leaves_the_engine_ready() -> None:
    operating = Operating()
    operating.settle()
    (pod,) = operating.cluster.of_kind(Kind.POD)
    pod["status"]["conditions"][0]["status"] = "False"
    for one in pod["status"]["containerStatuses"]:
        one["ready"] = one["name"] != "controller"
    operating.look()
    assert operating.condition("EngineReady")[0] == "True"
    assert operating.condition("PodsReady")[0] == "False"
    assert operating.condition("Ready")[0] == "False"


def test_a_service_with_enough_replicas_stays_ready_and_says_what_is_amiss() -> None:
    operating = Operating({"replicas": 2})
    operating.settle()
    pod = operating.cluster.of_kind(Kind.POD)[0]
    set_ready(pod, is_ready=False, now_s=operating.cluster.now_s)
    waits(pod, "ImagePullBackOff", "no such image")
    operating.look()
    assert operating.condition("Ready")[0] == "True"
    assert operating.condition("PodsReady")[:2] == ("False", "ImageUnavailable")
    assert operating.condition("Progressing")[:2] == ("True", "Starting")


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    operating = Operating()
    operating.settle()
    since = {one["type"]: one["lastTransitionTime"] for one in operating.status["conditions"]}
    operating.cluster.now_s += 100
    (pod,) = operating.cluster.of_kind(Kind.POD)
    set_ready(pod, is_ready=False, now_s=operating.cluster.now_s)
    operating.look()
    after = {one["type"]: one["lastTransitionTime"] for one in operating.status["conditions"]}
    assert {name for name in since if since[name] != after[name]} == {
        *("Ready", "PodsReady", "EngineReady")
    }


def test_conditions_of_others_are_left_alone_and_cost_no_write() -> None:
    operating = Operating()
    operating.settle()
    operating.status["conditions"].append(
        {
            "type": "Theirs",
            "status": "True",
            "reason": "A",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    )
    operating.cluster.writes.clear()
    operating.look()
    assert operating.cluster.writes == []
