"""What runs in the pods of a group, and with what."""

from dataclasses import replace
from typing import Any

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_operator.render import all_objects, group_template
from rendering import SETTINGS, Pod, a_subject, pods_of

SPREAD = {"parallelism": {"stages": 6, "stagesPerPod": 2}}


def pods_with(changes: dict[str, Any] | None = None) -> list[Pod]:
    return pods_of(all_objects(a_subject(changes), SETTINGS))


def leader(changes: dict[str, Any] | None = None) -> Pod:
    return pods_with(changes)[0]


def names_in(pod: Pod) -> list[str]:
    return [container["name"] for container in pod.containers()]


def flag(arguments: list[str], name: str) -> str:
    return next(one.partition("=")[2] for one in arguments if one.startswith(f"--{name}="))


def test_a_group_of_one_pod_holds_all_stages_in_the_engines_container() -> None:
    (pod,) = pods_with()
    assert names_in(pod) == ["model", "engine", "controller"]
    assert flag(pod.arguments("engine"), "stages") == "4"
    assert "stage-addresses" not in str(pod.spec)
    assert "group-key" not in str(pod.spec)


def test_a_group_of_several_pods_has_a_container_for_each_stage() -> None:
    first, *workers = pods_with(SPREAD)
    assert names_in(first) == ["model", "engine", "stage-0", "stage-1", "controller"]
    assert [names_in(pod) for pod in workers] == [["model", "stage-0", "stage-1"]] * 2
    addresses = flag(first.arguments("engine"), "stage-addresses").split(",")
    assert addresses == [pod.name for pod in (first, *workers) for _ in range(2)]


def test_every_pod_of_a_group_mounts_the_groups_own_key_for_its_group_only() -> None:
    pods = pods_with({**SPREAD, "replicas": 2})
    secrets = [
        volume["secret"]
        for pod in pods
        for volume in pod.spec["volumes"]
        if volume["name"] == "group-key"
    ]
    assert [secret["secretName"] for secret in secrets] == [
        *["small-r0-e0-key"] * 3,
        *["small-r1-e0-key"] * 3,
    ]
    assert {secret["defaultMode"] for secret in secrets} == {0o440}


def test_the_socket_is_shared_by_engine_and_sidecar_and_nobody_else() -> None:
    pod = leader(SPREAD)
    sharing = [
        container["name"]
        for container in pod.containers()
        if any(mount["name"] == "control-socket" for mount in container["volumeMounts"])
    ]
    assert sharing == ["engine", "controller"]
    (volume,) = [one for one in pod.spec["volumes"] if one["name"] == "control-socket"]
    assert volume["emptyDir"]["medium"] == "Memory"


def test_the_sidecar_has_no_probe_and_a_supervisor_as_its_first_process() -> None:
    sidecar = leader().container("controller")
    assert sidecar["command"] == ["python3", "-m", "pipelineserve_controller.supervisor"]
    assert [name for name in sidecar if name.endswith("Probe")] == []


def test_the_sidecars_token_is_for_the_operator_only() -> None:
    pod = leader()
    (volume,) = [one for one in pod.spec["volumes"] if one["name"] == "operator-token"]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "pipelineserve.dev"
    assert flag(pod.arguments("controller"), "operator-address") == SETTINGS.operator_address


def test_a_loading_engine_is_not_killed_before_the_longest_deadline_that_can_be_given() -> None:
    probe = leader().container("engine")["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 86_400
    assert probe["httpGet"]["path"] == "/health"


def test_a_leader_is_ready_when_its_engine_is_and_a_worker_when_its_leader_is() -> None:
    first, worker, _ = pods_with(SPREAD)
    assert first.container("engine")["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert [name for name in names_in(first) if "readinessProbe" in first.container(name)] == [
        "engine"
    ]
    command = worker.container("stage-0")["readinessProbe"]["exec"]["command"]
    program = "pipelineserve_engine.leader_ready"
    assert command[2:] == [program, "PSERVE_LEADER_HOST", "8000", "/ready"]
    assert "readinessProbe" not in worker.container("stage-1")


def test_streams_have_their_time_before_the_pod_is_killed() -> None:
    pod = leader({"rollout.drainSeconds": 300})
    pause_s = pod.container("engine")["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod.spec["terminationGracePeriodSeconds"] > pause_s + 300
    for name in ("engine", "controller"):
        assert flag(pod.arguments(name), "drain-seconds") == "300"


def test_a_container_gets_a_stages_share_for_each_stage_in_it() -> None:
    stage = {"requests": {"cpu": "500m"}, "limits": {"memory": "1.5Gi"}, "sharedMemory": "1Gi"}
    alone = leader({"resources.stage": stage, "resources.deviceResourceName": "a.b/c"})
    assert alone.container("engine")["resources"] == {
        "requests": {"cpu": "2000m"},
        "limits": {"memory": "6Gi", "a.b/c": "4"},
    }
    (shm,) = [one for one in alone.spec["volumes"] if one["name"] == "shared-memory"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "4Gi"}
    spread = leader({**SPREAD, "resources.stage": stage})
    assert spread.container("stage-1")["resources"] == {
        "requests": {"cpu": "500m"},
        "limits": {"memory": "1.5Gi"},
    }


def test_a_server_beside_its_stages_sees_their_limits_and_asks_for_no_more() -> None:
    stage = {"limits": {"cpu": "100m", "memory": "2Gi", "a.b/c": "1"}}
    resources = leader({**SPREAD, "resources.stage": stage}).container("engine")["resources"]
    assert resources["limits"] == {"cpu": "200m", "memory": "4Gi"}
    assert resources["requests"] == {"cpu": "200m", "memory": "1Gi"}


def test_fetching_takes_no_device() -> None:
    stage = {"limits": {"a.b/c": "2", "memory": "1Gi"}}
    changes = {"resources.stage": stage, "resources.deviceResourceName": "a.b/c"}
    resources = leader(changes).container("model")["resources"]
    assert resources == {"limits": {"memory": "4Gi"}}


def test_pods_run_under_one_id_or_the_one_that_the_cluster_chooses() -> None:
    assert leader().spec["securityContext"]["runAsUser"] == 65532
    choosing = replace(SETTINGS, user_id=None)
    chosen = pods_of(all_objects(a_subject(), choosing))[0].spec["securityContext"]
    assert {"runAsUser", "runAsGroup", "fsGroup"} & set(chosen) == set()
    assert chosen["runAsNonRoot"] is True


def test_everything_of_placement_reaches_the_pods() -> None:
    placement = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpread": [{"maxSkew": 1}],
        "runtimeClassName": "sandboxed",
        "priorityClassName": "urgent",
        "schedulerName": "another",
        "imagePullSecrets": [{"name": "registry"}],
    }
    expected = {
        ("topologySpreadConstraints" if name == "topologySpread" else name): value
        for name, value in placement.items()
    }
    for pod in pods_with({**SPREAD, "placement": placement}):
        assert {name: pod.spec[name] for name in expected} == expected


def test_the_users_labels_and_annotations_are_on_every_pod_and_ours_win() -> None:
    metadata = {
        "labels": {"team.example/queue": "a", "app.kubernetes.io/name": "mine"},
        "annotations": {"a.example/b": "c"},
    }
    template = group_template(a_subject({**SPREAD, "podMetadata": metadata}), SETTINGS)
    for pod in template.pods.values():
        assert pod["metadata"]["labels"]["team.example/queue"] == "a"
        assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "pipelineserve"
        assert pod["metadata"]["annotations"]["a.example/b"] == "c"


def test_the_users_variables_come_after_ours_in_every_container_of_the_engine() -> None:
    pod = leader({**SPREAD, "engine.env": [{"name": "A", "value": "$(PSERVE_POD_IP)"}]})
    for name in ("model", "engine", "stage-0"):
        assert pod.container(name)["env"][-1] == {"name": "A", "value": "$(PSERVE_POD_IP)"}
    assert "A" not in {entry["name"] for entry in pod.container("controller")["env"]}


def test_the_users_arguments_come_last() -> None:
    arguments = leader({"engine.args": ["--kv-tokens=640"]}).arguments("engine")
    assert arguments[-1] == "--kv-tokens=640"


def test_what_would_take_the_place_of_ours_is_refused_all_at_once() -> None:
    changes = {
        "engine.args": ["--kv-tokens=1", "--port=1", "--group-epoch", "--host-index=1"],
        "engine.env": [{"name": "HOME", "value": "/"}, {"name": "PSERVE_POD_IP", "value": "1"}],
    }
    with pytest.raises(InvalidInputError) as caught:
        leader(changes)
    assert [fault.field for fault in caught.value.faults] == [
        "spec.engine.args[1]",
        "spec.engine.args[2]",
        "spec.engine.env[0].name",
        "spec.engine.env[1].name",
    ]


def test_every_flag_that_we_set_is_one_that_is_refused() -> None:
    changes = {**SPREAD, "api.keySecretRef": {"name": "keys", "key": "k"}}
    for argument in leader(changes).arguments("engine"):
        with pytest.raises(InvalidInputError):
            leader({"engine.args": [argument]})


@pytest.mark.parametrize("name", ["parent-pid", "control-tls-key", "group-key-file"])
def test_flags_that_have_no_place_in_this_pod_are_refused_too(name: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"args\[0\]: --{name} is set by the operator"):
        leader({"engine.args": [f"--{name}=/a"]})


def test_api_keys_are_mounted_as_a_folder_that_follows_the_secret() -> None:
    pod = leader({"api.keySecretRef": {"name": "keys", "key": "apiKey"}})
    (volume,) = [one for one in pod.spec["volumes"] if one["name"] == "api-keys"]
    assert volume["secret"]["items"] == [{"key": "apiKey", "path": "keys"}]
    assert flag(pod.arguments("engine"), "api-key-file") == "/etc/pipelineserve/api/keys"
    assert "api-key-file" not in str(leader().spec)
