"""Groups that failed start anew in the next epoch, with pauses and a budget."""

from typing import Any

import pytest

from cluster_in_memory import set_ready
from operating import NAMESPACE, Operating
from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.moments import text_of

SPREAD = {"parallelism.stagesPerPod": 2}


def crash(operating: Operating, container: str = "engine", num_restarts: int = 5) -> None:
    """The leader's container fails again and again."""
    pod = next(
        one
        for one in operating.cluster.of_kind(Kind.POD)
        if "deletionTimestamp" not in one["metadata"]
    )
    set_ready(pod, is_ready=False, now_s=operating.cluster.now_s)
    for one in pod["status"]["containerStatuses"]:
        if one["name"] == container:
            waiting = {"reason": "CrashLoopBackOff", "message": "back-off restarting"}
            one |= {"restartCount": num_restarts, "state": {"waiting": waiting}}


def silence(operating: Operating) -> None:
    """A node falls silent: its pods are marked unready, and nothing is known of containers."""
    pod = operating.cluster.of_kind(Kind.POD)[0]
    condition = {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": text_of(operating.cluster.now_s),
    }
    pod["status"]["conditions"] = [condition]


def epochs(operating: Operating) -> list[str]:
    leaders = [one for one in operating.names(Kind.STATEFUL_SET) if not one.endswith("-w")]
    return [name.rpartition("-")[2] for name in leaders]


def test_a_group_whose_container_fails_again_and_again_starts_anew() -> None:
    operating = Operating(SPREAD)
    operating.settle()
    crash(operating)
    operating.look()
    assert operating.condition("Progressing")[:2] == ("True", "Recovering")
    operating.settle()
    assert epochs(operating) == ["e1"]
    assert operating.status["pipelines"][0]["restarts"] == 1
    assert operating.condition("Ready")[0] == "True"
    assert ("GroupDraining", "replica 0 drains: CrashLoop") in operating.events()


@pytest.mark.parametrize(("container", "num_restarts"), [("engine", 4), ("controller", 50)])
def test_the_kubelet_is_given_its_time_and_a_sidecar_is_no_reason(
    container: str, num_restarts: int
) -> None:
    operating = Operating()
    operating.settle()
    crash(operating, container, num_restarts)
    operating.look()
    operating.look()
    assert epochs(operating) == ["e0"]
    assert operating.condition("Ready")[:2] == ("False", "CrashLoop")


def test_each_restart_waits_longer_and_the_last_one_waits_for_a_person() -> None:
    operating = Operating({"recovery": {"maxRestarts": 2, "windowSeconds": 3600}})
    operating.settle()
    crash(operating)
    operating.settle()
    assert epochs(operating) == ["e1"]
    crash(operating)
    operating.settle()
    assert epochs(operating) == ["e1"], "the second start waits for ten seconds"
    operating.cluster.now_s += 10
    operating.settle()
    assert epochs(operating) == ["e2"]
    crash(operating)
    operating.cluster.now_s += 30
    operating.settle(is_ready=False)
    assert epochs(operating) == ["e2"]
    assert operating.condition("Stalled")[:2] == ("True", "RecoveryBudgetSpent")
    assert operating.condition("Progressing")[:2] == ("False", "RecoveryBudgetSpent")
    assert "spec.restartTime" in operating.condition("Stalled")[2]


def test_a_new_restart_time_begins_with_a_new_budget() -> None:
    operating = Operating({"recovery": {"maxRestarts": 1}})
    operating.settle()
    crash(operating)
    operating.settle()
    crash(operating)
    operating.settle(is_ready=False)
    assert operating.condition("Stalled")[0] == "True"
    operating.edit({"restartTime": "2026-12-01T00:00:00Z"})
    operating.settle()
    assert operating.condition("Stalled")[0] == "False"
    assert operating.condition("Ready")[0] == "True"
    assert operating.status["pipelines"][0]["restarts"] == 0


def test_restarts_of_long_ago_do_not_count() -> None:
    operating = Operating({"recovery": {"maxRestarts": 1, "windowSeconds": 60}})
    operating.settle()
    crash(operating)
    operating.settle()
    operating.cluster.now_s += 61
    crash(operating)
    operating.settle()
    assert epochs(operating) == ["e2"]


def test_a_silent_node_is_waited_for_as_long_as_the_resource_says() -> None:
    operating = Operating({"recovery.nodeLostSeconds": 100})
    operating.settle()
    silence(operating)
    pause_s = operating.look()
    assert pause_s is not None
    assert pause_s <= 100
    assert epochs(operating) == ["e0"]
    assert operating.condition("Ready")[:2] == ("False", "NodeSilent")
    operating.cluster.now_s += 100
    operating.look()
    operating.cluster.run_controllers()
    operating.cluster.now_s += 131
    operating.look()
    operating.look()
    assert epochs(operating) == ["e1"]


def test_a_pod_that_should_have_ended_long_ago_is_on_a_lost_node() -> None:
    operating = Operating({"recovery.nodeLostSeconds": 100})
    operating.settle()
    pod: Any = operating.cluster.of_kind(Kind.POD)[0]
    pod["metadata"]["deletionTimestamp"] = text_of(operating.cluster.now_s)
    operating.cluster.now_s += 99
    operating.look()
    operating.look()
    assert epochs(operating) == ["e0"]
    operating.cluster.now_s += 1
    for _ in range(3):
        operating.look()
    assert epochs(operating) == ["e1"]


def test_one_failed_replica_leaves_the_others_alone() -> None:
    operating = Operating({"replicas": 2})
    operating.settle()
    crash(operating)
    operating.settle()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e1", "small-r1-e0"]


def test_a_start_that_takes_too_long_needs_a_person() -> None:
    operating = Operating({"rollout.startupDeadlineSeconds": 60})
    operating.settle(is_ready=False)
    assert operating.condition("Stalled")[0] == "False"
    operating.cluster.now_s += 60
    operating.look()
    assert operating.condition("Stalled")[:2] == ("True", "StartupDeadlineExceeded")
    operating.settle()
    assert operating.condition("Stalled")[0] == "False"


def prepare(operating: Operating, pod_name: str) -> None:
    """A pod was made anew on some node, which mounts its volumes."""
    pod = operating.cluster.objects[Kind.POD, NAMESPACE, pod_name]
    set_ready(pod, is_ready=False, now_s=operating.cluster.now_s)
    pod["spec"]["nodeName"] = "node-1"
    for one in pod["status"]["containerStatuses"]:
        one["state"] = {"waiting": {"reason": "ContainerCreating"}}


def delete_key(operating: Operating) -> None:
    del operating.cluster.objects[Kind.SECRET, NAMESPACE, "small-r0-e0-key"]


def test_a_deleted_key_disturbs_nobody_who_runs() -> None:
    operating = Operating(SPREAD)
    operating.settle()
    delete_key(operating)
    operating.written()
    operating.cluster.now_s += 3600
    operating.look()
    assert operating.written() == []
    assert operating.condition("Ready")[0] == "True"


def test_a_group_with_a_pod_that_waits_for_a_deleted_key_starts_anew_with_another_one() -> None:
    operating = Operating(SPREAD)
    operating.settle()
    delete_key(operating)
    prepare(operating, "small-r0-e0-w-1")
    operating.look()
    drains = ("GroupDraining", "replica 0 drains: KeyLost")
    assert drains not in operating.events(), "its node may just be slow"
    operating.cluster.now_s += 10
    operating.settle()
    assert epochs(operating) == ["e1"]
    assert operating.names(Kind.SECRET) == ["small-r0-e1-key"]
    assert operating.condition("Ready")[0] == "True"
    assert drains in operating.events()
    assert operating.status["pipelines"][0]["restarts"] == 1


def test_a_pod_that_starts_slowly_with_its_key_there_is_waited_for() -> None:
    operating = Operating(SPREAD)
    operating.settle()
    prepare(operating, "small-r0-e0-w-1")
    operating.cluster.now_s += 300
    operating.look()
    assert epochs(operating) == ["e0"]


def test_a_cluster_that_refuses_even_the_question_for_a_key_hinders_no_look() -> None:
    operating = Operating(SPREAD)
    operating.settle()
    prepare(operating, "small-r0-e0-w-1")
    operating.cluster.now_s += 300

    def refuse(what: str) -> None:
        if what.startswith("try to create Secret"):
            raise ApiError(what, 403, "exceeded quota: secrets")

    operating.cluster.fail = refuse
    operating.look()
    assert epochs(operating) == ["e0"]
    assert operating.condition("PodsReady")[0] == "False"
