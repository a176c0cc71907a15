"""Looks at a resource on a cluster in memory: what is written, and what is said."""

import base64
import copy
import itertools
from dataclasses import replace

import pytest

from operating import KEY, Operating, a_report
from pipelineserve.policy.control.answers import Answer
from pipelineserve_operator.cluster import ApiError, Kind
from pipelineserve_operator.findings import Finding, LinkReason
from pipelineserve_operator.render import JsonObject
from rendering import SETTINGS

SPREAD = {"parallelism.stagesPerPod": 2}


def test_a_new_resource_gets_everything_and_becomes_ready() -> None:
    operating = Operating({"replicas": 2})
    operating.look()
    assert operating.condition("Ready")[:2] == ("False", "Starting")
    operating.settle()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e0", "small-r1-e0"]
    for kind in (Kind.SERVICE_ACCOUNT, Kind.CONFIG_MAP, Kind.NETWORK_POLICY):
        assert len(operating.names(kind)) == 1
    assert operating.condition("Ready")[:2] == ("True", "Serving")
    assert operating.condition("Progressing")[:2] == ("True", "Complete")
    assert operating.condition("Stalled")[0] == "False"
    assert operating.status["readyReplicas"] == operating.status["updatedReplicas"] == 2
    assert operating.status["observedGeneration"] == 1


def test_all_conditions_are_there_from_the_first_look_on() -> None:
    operating = Operating()
    operating.look()
    conditions = operating.status["conditions"]
    assert len(conditions) == 10
    assert all(one["reason"] and one["observedGeneration"] == 1 for one in conditions)


def test_what_pods_need_is_there_before_they_are() -> None:
    operating = Operating(SPREAD)
    operating.look()
    kinds = [one.split()[1] for one in operating.written()]
    first_set = kinds.index("StatefulSet")
    assert {"ServiceAccount", "ConfigMap", "NetworkPolicy", "Secret"} <= set(kinds[:first_set])


def test_nothing_is_written_while_nothing_changes_and_after_a_restart_neither() -> None:
    operating = Operating({"replicas": 2, **SPREAD})
    operating.settle()
    operating.cluster.writes.clear()
    operating.look()
    operating.restart()
    operating.look()
    assert operating.cluster.writes == []


def test_an_edited_target_changes_the_config_map_and_no_set() -> None:
    operating = Operating()
    operating.settle()
    operating.written()
    operating.edit({"slo.ttft.milliseconds": 900})
    operating.settle()
    assert operating.written() == ["apply ConfigMap small-control"]
    assert operating.sidecars.offered[-1].generation == 2
    assert '"milliseconds":900' in operating.sidecars.offered[-1].spec_json


def test_an_upgrade_of_the_operator_rolls_nothing() -> None:
    operating = Operating({"replicas": 2})
    operating.settle()
    before = [one["metadata"]["uid"] for one in operating.cluster.of_kind(Kind.POD)]
    operating.settings = replace(SETTINGS, version="9.9.9", controller_image="another:9")
    operating.restart()
    operating.settle()
    sets = operating.cluster.of_kind(Kind.STATEFUL_SET)
    assert [one["metadata"]["name"] for one in sets] == ["small-r0-e0", "small-r1-e0"]
    assert [one["metadata"]["uid"] for one in operating.cluster.of_kind(Kind.POD)] == before
    assert "another:9" not in str(sets)


def test_a_rolling_edit_replaces_group_after_group() -> None:
    operating = Operating({"replicas": 3})
    operating.settle()
    operating.edit({"model.uri": "hf://org/another"})
    fewest = 3
    for _ in range(20):
        operating.look()
        operating.cluster.run_controllers()
        operating.look()
        fewest = min(fewest, operating.status["readyReplicas"])
        operating.cluster.end_pods()
        operating.look()
        operating.cluster.run_controllers()
        operating.cluster.ready_pods()
    assert fewest == 2
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e1", "small-r1-e1", "small-r2-e1"]
    assert operating.condition("Progressing")[:2] == ("True", "Complete")
    assert len(operating.names(Kind.CONTROLLER_REVISION)) == 1


def test_the_next_epoch_waits_until_the_pods_of_the_last_one_are_gone() -> None:
    operating = Operating()
    operating.settle()
    operating.edit({"model.uri": "hf://org/another"})
    for _ in range(3):
        operating.look()
        operating.cluster.run_controllers()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e0"]
    operating.cluster.end_pods()
    operating.look()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e0", "small-r0-e1"]
    operating.look()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e1"]


def test_pods_that_never_end_are_not_waited_for_for_ever() -> None:
    operating = Operating({"recovery.nodeLostSeconds": 60})
    operating.settle()
    operating.edit({"restartTime": "2026-12-01T00:00:00Z"})
    operating.look()
    operating.cluster.run_controllers()
    pause_s = operating.look()
    assert pause_s is not None
    operating.cluster.now_s += 91
    operating.look()
    operating.look()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e1"]


def test_with_surge_the_next_epoch_stands_beside_the_last_one_until_it_serves() -> None:
    operating = Operating({"rollout": {"maxSurge": 1, "maxUnavailable": 0}})
    operating.settle()
    operating.edit({"model.uri": "hf://org/another"})
    operating.settle(is_ready=False)
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e0", "small-r0-e1"]
    assert operating.condition("Ready")[0] == "True"
    assert operating.condition("Progressing")[:2] == ("True", "RollingOut")
    assert operating.status["updatedReplicas"] == 1
    operating.settle()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e1"]


def test_groups_that_do_not_serve_are_replaced_at_once_even_if_none_may_be_down() -> None:
    operating = Operating({"replicas": 3, "rollout": {"maxSurge": 1, "maxUnavailable": 0}})
    operating.settle(is_ready=False)
    operating.edit({"model.uri": "hf://org/another"})
    operating.settle()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e1", "small-r1-e1", "small-r2-e1"]
    assert operating.condition("Ready")[0] == "True"


def test_a_broken_edit_stops_at_the_first_group() -> None:
    operating = Operating({"replicas": 3})
    operating.settle()
    operating.edit({"model.uri": "hf://org/broken"})
    operating.settle(is_ready=False)
    operating.settle(is_ready=False)
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e1", "small-r1-e0", "small-r2-e0"]
    assert operating.status["readyReplicas"] == 2
    operating.edit({"model.uri": "hf://org/mended"})
    operating.settle()
    assert operating.condition("Progressing")[:2] == ("True", "Complete")
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e2", "small-r1-e1", "small-r2-e1"]


def test_scaling_takes_the_highest_and_leaves_the_others_alone() -> None:
    operating = Operating({"replicas": 3, **SPREAD})
    operating.settle()
    uids = {
        one["metadata"]["name"]: one["metadata"]["uid"]
        for one in operating.cluster.of_kind(Kind.POD)
    }
    assert len(operating.names(Kind.SECRET)) == 3
    operating.written()
    operating.edit({"replicas": 1})
    operating.look()
    deleted = [one for one in operating.written() if one.startswith("delete")]
    assert deleted[:3] == [
        "delete Secret small-r2-e0-key",
        "delete StatefulSet small-r2-e0-w",
        "delete StatefulSet small-r2-e0",
    ]
    operating.settle()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e0", "small-r0-e0-w"]
    assert operating.names(Kind.SECRET) == ["small-r0-e0-key"]
    left = operating.cluster.of_kind(Kind.POD)
    assert {one["metadata"]["name"]: one["metadata"]["uid"] for one in left}.items() <= uids.items()
    operating.edit({"replicas": 2})
    operating.settle()
    assert operating.status["readyReplicas"] == 2


def test_no_replica_counts_as_ready() -> None:
    operating = Operating({"replicas": 0})
    operating.settle()
    assert operating.condition("Ready")[:2] == ("True", "ScaledToZero")
    assert operating.condition("Progressing")[:2] == ("True", "Complete")
    assert operating.names(Kind.STATEFUL_SET) == []


def test_a_budget_for_disruptions_goes_when_it_is_not_wanted_any_more() -> None:
    operating = Operating({"replicas": 2})
    operating.settle()
    assert operating.names(Kind.DISRUPTION_BUDGET) == ["small-pods"]
    operating.edit({"replicas": 1})
    operating.settle()
    assert operating.names(Kind.DISRUPTION_BUDGET) == []


def test_drift_is_repaired_and_nothing_else() -> None:
    operating = Operating({"replicas": 2})
    operating.settle()
    operating.written()
    services = operating.cluster.of_kind(Kind.SERVICE)
    changed = copy.deepcopy(services[0])
    changed["spec"]["ports"][0]["port"] = 1
    operating.cluster.put(changed)
    operating.cluster.objects.pop((Kind.NETWORK_POLICY, "models", "small-pods"))
    operating.look()
    assert operating.written() == ["apply Service small-api", "apply NetworkPolicy small-pods"]
    assert ("Repaired", "Service small-api was not as it should be") in operating.events()


def test_what_cannot_be_repaired_by_applying_is_taken_back() -> None:
    operating = Operating()
    operating.settle()
    (service,) = [
        one
        for one in operating.cluster.of_kind(Kind.SERVICE)
        if "api" in str(one["metadata"]["name"])
    ]
    changed = copy.deepcopy(service)
    changed["spec"]["ports"] = [{"name": "http", "port": 1}]
    operating.cluster.put(changed)

    def refuse_once(what: str) -> None:
        if what == "apply Service small-api":
            operating.cluster.fail = lambda _: None
            raise ApiError(what, 422, "Duplicate value: http")

    operating.cluster.fail = refuse_once
    operating.look()
    assert operating.written()[-2:] == ["merge Service small-api", "apply Service small-api"]
    live = operating.cluster.objects[Kind.SERVICE, "models", "small-api"]
    assert [one["port"] for one in live["spec"]["ports"]] == [8000]


def test_pods_whose_set_was_taken_away_get_it_back() -> None:
    operating = Operating(SPREAD)
    operating.settle()
    operating.cluster.objects.pop((Kind.STATEFUL_SET, "models", "small-r0-e0"))
    operating.cluster.objects.pop((Kind.STATEFUL_SET, "models", "small-r0-e0-w"))
    operating.look()
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e0", "small-r0-e0-w"]


def test_a_key_is_made_once_of_32_bytes() -> None:
    operating = Operating(SPREAD)
    operating.settle()
    (secret,) = operating.cluster.of_kind(Kind.SECRET)
    assert len(base64.b64decode(secret["data"]["key"])) == 32
    assert [one for one in operating.cluster.writes if "Secret" in one] == [
        "create Secret small-r0-e0-key"
    ]


def test_a_name_that_somebody_else_has_is_left_alone() -> None:
    operating = Operating()
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "small-api", "namespace": "models"},
        "spec": {"ports": []},
    }
    operating.cluster.put(theirs)
    operating.look()
    assert operating.condition("Stalled")[:2] == ("True", "NameTaken")
    assert "Service small-api" in operating.condition("Stalled")[2]
    (service,) = [
        s for s in operating.cluster.of_kind(Kind.SERVICE) if s["metadata"]["name"] == "small-api"
    ]
    assert service["spec"] == {"ports": []}


def test_what_a_resource_of_the_same_name_left_is_waited_for() -> None:
    operating = Operating()
    owner = {"kind": "PipelineServe", "name": "small", "uid": "earlier", "controller": True}
    left = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "small-api", "namespace": "models", "ownerReferences": [owner]},
    }
    operating.cluster.put(left)
    operating.look()
    assert operating.condition("Stalled")[0] == "False"
    assert operating.condition("Ready")[:2] == ("False", "WaitingForLeftovers")
    del operating.cluster.objects[Kind.SERVICE, "models", "small-api"]
    operating.settle()
    assert operating.condition("Ready")[0] == "True"


def test_an_engine_without_an_image_is_said_and_the_rest_is_there() -> None:
    operating = Operating({"engine.type": "SGLang"})
    operating.settings = replace(operating.settings, sglang_image="")
    operating.settle()
    for name in ("Ready", "Progressing"):
        assert operating.condition(name)[:2] == ("False", "InvalidSpec")
    assert operating.condition("Stalled")[:2] == ("True", "InvalidSpec")
    assert operating.names(Kind.STATEFUL_SET) == []


def test_an_edit_that_cannot_be_leaves_serving_what_serves() -> None:
    operating = Operating()
    operating.settle()
    operating.edit({"engine.args": ["--port=1"]})
    operating.settle()
    assert operating.condition("Ready")[0] == "True"
    assert operating.condition("Stalled")[:2] == ("True", "InvalidSpec")
    assert "spec.engine.args[0]" in operating.condition("Stalled")[2]
    assert operating.names(Kind.STATEFUL_SET) == ["small-r0-e0"]


def test_a_spec_that_cannot_be_read_becomes_a_condition() -> None:
    operating = Operating()
    operating.settle()
    operating.edit({"parallelism.stagesPerPod": 3})
    operating.look()
    assert operating.condition("Stalled")[:2] == ("True", "InvalidSpec")
    assert "stagesPerPod" in operating.condition("Stalled")[2]
    assert operating.condition("Ready")[0] == "True"


def test_what_the_api_server_refuses_is_named() -> None:
    operating = Operating()

    def refuse(what: str) -> None:
        if what.startswith("apply NetworkPolicy"):
            raise ApiError(what, 403, "exceeded quota")

    operating.cluster.fail = refuse
    operating.look()
    assert operating.condition("Stalled")[:2] == ("True", "ApplyRefused")
    assert "exceeded quota" in operating.condition("Ready")[2]
    assert operating.names(Kind.STATEFUL_SET) == []


def test_an_api_server_that_is_away_is_not_the_resources_fault() -> None:
    operating = Operating()

    def away(what: str) -> None:
        if what.startswith("apply"):
            raise ApiError(what, 0, "no route")

    operating.cluster.fail = away
    with pytest.raises(ApiError):
        operating.look()
    operating.cluster.fail = lambda _: None
    operating.settle()
    assert operating.condition("Ready")[0] == "True"


def test_a_process_that_lost_the_lease_writes_nothing_more() -> None:
    operating = Operating()
    operating.may_write = False
    with pytest.raises(InterruptedError):
        operating.look()
    assert operating.cluster.writes == []


def test_a_resource_that_is_gone_is_withdrawn_and_never_looked_at_again() -> None:
    operating = Operating()
    operating.settle()
    del operating.cluster.objects[Kind.PIPELINE_SERVE, "models", "small"]
    operating.cluster.writes.clear()
    assert operating.look() is None
    assert operating.sidecars.withdrawn == [operating.resource["metadata"]["uid"]]
    assert operating.cluster.writes == []


def test_only_pods_of_the_resource_may_speak_for_it() -> None:
    operating = Operating({"replicas": 2})
    operating.settle()
    operating.look()
    pods = {one["metadata"]["uid"] for one in operating.cluster.of_kind(Kind.POD)}
    offered = operating.sidecars.offered[-1]
    assert offered.pod_uids == pods
    assert (offered.service_account, offered.namespace) == ("small-pods", "models")


def test_what_sidecars_say_is_said_without_reading_the_cluster() -> None:
    operating = Operating()
    operating.settle()
    operating.sidecars.said = a_report()
    operating.cluster.num_requests = 0
    operating.hear()
    assert operating.cluster.num_requests == 1  # the status
    assert operating.condition("SLOMet")[:2] == ("True", "TargetsMet")
    assert operating.status["slo"]["ttftMilliseconds"] == 1500
    assert operating.status["summary"]["ttft"] == "1.5s/2s"
    assert operating.status["policy"]["appliedGeneration"] == 1
    operating.hear()
    assert operating.cluster.num_requests == 1


def test_a_status_that_we_wrote_ourselves_is_no_reason_to_read_anything() -> None:
    operating = Operating()
    operating.settle()
    operating.sidecars.said = a_report()
    operating.hear()
    operating.told()
    operating.cluster.num_requests = 0
    operating.hear()
    assert operating.cluster.num_requests == 0
    operating.edit({"slo.ttft.milliseconds": 900})
    operating.told()
    operating.hear()
    assert operating.condition("Ready")[0] == "True"
    assert operating.status["observedGeneration"] == 2


def test_between_looks_no_object_is_kept_whole() -> None:
    """Those of one resource are 400 KB in Python, and a process looks after a thousand."""
    operating = Operating()
    for step in (operating.look, operating.settle, operating.hear):
        step()
        kept = repr(vars(operating.reconciler)["_memories"])
        assert "'conditions'" in kept
        assert "managedFields" not in kept
        assert "'containers'" not in kept


def test_an_edit_that_comes_just_before_our_status_is_not_lost() -> None:
    operating = Operating()
    operating.settle()
    operating.sidecars.said = a_report()
    write, number = operating.cluster.apply_status, itertools.count()

    async def write_after_an_edit(document: JsonObject) -> JsonObject:
        if next(number) == 0:
            operating.edit({"slo.ttft.milliseconds": 900})
        return await write(document)

    operating.cluster.apply_status = write_after_an_edit  # type: ignore[method-assign]
    operating.hear()
    operating.told()
    assert operating.status["observedGeneration"] == 1
    operating.hear()
    assert operating.status["observedGeneration"] == 2


def test_sidecars_are_told_of_an_edit_before_its_look_has_its_turn() -> None:
    operating = Operating()
    operating.settle()
    pods = operating.sidecars.offered[-1].pod_uids
    operating.sidecars.offered.clear()
    operating.edit({"slo.ttft.milliseconds": 900})
    operating.cluster.num_requests = 0
    operating.told()
    (offered,) = operating.sidecars.offered
    assert operating.cluster.num_requests == 0
    assert (offered.generation, offered.pod_uids) == (2, pods)
    assert '"milliseconds":900' in offered.spec_json.replace(" ", "")


def test_what_is_heard_of_a_resource_tells_sidecars_nothing_unless_its_spec_is_new_and_good() -> (
    None
):
    operating = Operating()
    operating.told()
    assert operating.sidecars.offered == []
    operating.settle()
    operating.sidecars.offered.clear()
    operating.told()
    operating.edit({"parallelism.stages": "many"})
    operating.told()
    assert operating.sidecars.offered == []


def test_a_resource_of_another_uid_is_not_offered_to_the_pods_of_the_last_one() -> None:
    operating = Operating()
    operating.settle()
    operating.sidecars.offered.clear()
    operating.edit({"slo.ttft.milliseconds": 900})
    operating.resource["metadata"]["uid"] = "another"
    operating.told()
    assert operating.sidecars.offered == []


def test_missed_targets_make_nothing_unready() -> None:
    operating = Operating()
    operating.settle()
    missed = Finding(Answer.NO, LinkReason.INFEASIBLE, "raise ttft")
    operating.sidecars.said = a_report(slo_met=missed, slo_feasible=missed, connected=missed)
    operating.hear()
    assert operating.condition("Ready")[0] == "True"
    assert operating.condition("SLOFeasible")[0] == "False"
    assert ("TargetsInfeasible", "TargetsInfeasible: raise ttft") in operating.events()


def test_what_was_known_of_targets_stays_while_sidecars_come_back_to_a_new_operator() -> None:
    operating = Operating()
    operating.settle()
    operating.sidecars.said = a_report()
    operating.hear()
    operating.restart()
    unheard = Finding(Answer.NO, LinkReason.NOT_CONNECTED, "not heard")
    operating.sidecars.said = a_report(is_conclusive=False, connected=unheard, ttft_s=None)
    operating.cluster.writes.clear()
    operating.look()
    assert operating.condition("ControllerConnected")[0] == "True"
    assert operating.status["slo"]["ttftMilliseconds"] == 1500


def test_looks_again_by_itself_before_the_resync_is_over() -> None:
    operating = Operating()
    operating.settle()
    assert operating.look() == pytest.approx(600.0)
    assert operating.reconciler.key_of(operating.resource["metadata"]["uid"]) == KEY
