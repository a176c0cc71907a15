"""Whatever valid spec is rendered, what must always hold does."""

import json
import re
from typing import Any

from hypothesis import given

from pipelineserve_controller.objectives import objectives_from_text
from pipelineserve_controller.settings import parse_settings as parse_sidecar
from pipelineserve_engine.settings import parse_settings as parse_server
from pipelineserve_engine.stage_host import StageHostSettings
from pipelineserve_engine.stage_host import parse_flags as parse_stage_host
from pipelineserve_operator.render import Subject, all_objects, group_template, revision_of
from random_specs import LIVE, ROLLING, Spec
from rendering import POD_IP, SETTINGS, UID, Pod, a_subject, of_kind, pods_of


def subject_with(*halves: Spec) -> Subject:
    return a_subject({name: value for half in halves for name, value in half.items()})


def sets_of(subject: Subject) -> dict[str, str]:
    sets = of_kind(all_objects(subject, SETTINGS), "StatefulSet")
    return {one["metadata"]["name"]: json.dumps(one) for one in sets}


def groups(pods: list[Pod]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        found.setdefault(pod.labels["pipelineserve.dev/group"], []).append(pod)
    return found


@given(rolling=ROLLING, live=LIVE, edited=LIVE)
def test_an_edit_of_live_fields_leaves_every_stateful_set_byte_for_byte(
    rolling: Spec, live: Spec, edited: Spec
) -> None:
    before, after = sets_of(subject_with(rolling, live)), sets_of(subject_with(rolling, edited))
    assert all(before[name] == after[name] for name in before.keys() & after.keys())
    assert revision_of(subject_with(rolling, live).spec) == revision_of(
        subject_with(rolling, edited).spec
    )


@given(one=ROLLING, other=ROLLING, live=LIVE)
def test_specs_of_one_revision_have_one_template_and_others_have_others(
    one: Spec, other: Spec, live: Spec
) -> None:
    templates = [group_template(subject_with(half, live), SETTINGS) for half in (one, other)]
    is_same_revision = templates[0].revision == templates[1].revision
    assert (templates[0] == templates[1]) is is_same_revision


@given(rolling=ROLLING, live=LIVE)
def test_every_object_belongs_to_the_resource_once_under_its_own_name(
    rolling: Spec, live: Spec
) -> None:
    objects = all_objects(subject_with(rolling, live), SETTINGS)
    keys = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(keys)) == len(keys)
    for one in objects:
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (UID, True)
        assert one["metadata"]["namespace"] == "models"


@given(rolling=ROLLING, live=LIVE)
def test_programs_understand_their_flags_and_each_stage_has_one_host(
    rolling: Spec, live: Spec
) -> None:
    subject = subject_with(rolling, {**live, "replicas": 2})
    objects = all_objects(subject, SETTINGS)
    config_maps = of_kind(objects, "ConfigMap")
    text = config_maps[0]["data"]["objectives.json"]
    objectives, _ = objectives_from_text(text, "objectives.json", generation=0)
    sizes = subject.spec.effective_chunking()
    assert (objectives.resource_uid, objectives.generation) == (UID, subject.generation)
    assert (objectives.min_tokens, objectives.max_tokens) == (sizes.min_tokens, sizes.max_tokens)
    for group, pods in groups(pods_of(objects)).items():
        server = parse_server(pods[0].arguments("engine", config_maps))
        assert server.static_chunk_tokens == subject.spec.effective_chunking().static_tokens
        sidecar = parse_sidecar(pods[0].arguments("controller", config_maps))
        assert sidecar.engine_address == server.control_address
        assert sidecar.replica_index == int(pods[0].labels["pipelineserve.dev/replica"])
        hosts: dict[int, StageHostSettings] = {}
        for pod in pods:
            for container in pod.containers():
                if container["command"][-1] == "pipelineserve_engine.stage_host":
                    host = parse_stage_host(pod.arguments(container["name"]))
                    assert hosts.setdefault(host.stage_index, host) is host
                    assert host.group_epoch == server.group_epoch
                    is_leader = pod is pods[0]
                    leader = POD_IP if is_leader else f"{group}-0.small-pods"
                    assert host.leader == f"{leader}:{server.leader_port}"
        assert [hosts[index].address for index in sorted(hosts)] == list(server.stage_address_list)
        assert sorted(hosts) == (list(range(server.stages)) if len(pods) > 1 else [])


@given(rolling=ROLLING, live=LIVE)
def test_every_container_is_one_that_restricted_pod_security_admits(
    rolling: Spec, live: Spec
) -> None:
    for pod in pods_of(all_objects(subject_with(rolling, live), SETTINGS)):
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["securityContext"]["runAsNonRoot"] is True
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod.containers():
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True


@given(rolling=ROLLING, live=LIVE)
def test_every_mount_has_its_volume_every_volume_a_mount_and_no_file_is_mounted_alone(
    rolling: Spec, live: Spec
) -> None:
    for pod in pods_of(all_objects(subject_with(rolling, live), SETTINGS)):
        volumes = [volume["name"] for volume in pod.spec["volumes"]]
        mounts: list[dict[str, Any]] = [
            mount for container in pod.containers() for mount in container["volumeMounts"]
        ]
        assert sorted(set(volumes)) == sorted(volumes)
        assert {mount["name"] for mount in mounts} == set(volumes)
        assert [mount for mount in mounts if "subPath" in mount] == []
        for container in pod.containers():
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(set(paths)) == len(paths)


@given(rolling=ROLLING, live=LIVE)
def test_every_path_that_a_program_is_told_lies_in_a_volume_that_it_mounts(
    rolling: Spec, live: Spec
) -> None:
    is_in_image = rolling["model"]["uri"].startswith("file:///models/a$")
    for pod in pods_of(all_objects(subject_with(rolling, live), SETTINGS)):
        for container in pod.containers():
            mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
            told = re.findall(r"--([a-z-]+)=(?:unix:)?(/\S*)", "\n".join(container["args"]))
            assert told
            for flag, path in told:
                if flag != "model-folder" or not is_in_image:
                    assert any(f"{path}/".startswith(f"{folder}/") for folder in mounted), path


@given(rolling=ROLLING, live=LIVE)
def test_names_and_labels_are_short_enough_for_the_longest_resource_name(
    rolling: Spec, live: Spec
) -> None:
    spec = {**rolling, **live}
    for one in all_objects(a_subject(spec, name="n" * 40), SETTINGS):
        limit = 52 if one["kind"] == "StatefulSet" else 63
        assert len(one["metadata"]["name"]) <= limit
        assert all(len(value) <= 63 for value in one["metadata"]["labels"].values())
