"""A resource's pods on this machine give the engine settings that it takes."""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from local_resources import QUICKSTART, a_resource
from pipelineserve.api import PipelineServe, parse_resource
from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.local_objects import SGLANG_IMAGE, LocalObjects, with_engine_argument
from pipelineserve_cli.pods.addresses import Network, names_of
from pipelineserve_cli.pods.keeping import KeptTexts
from pipelineserve_cli.pods.launches import Launch, Surroundings, launch_of
from pipelineserve_cli.pods.volumes import HostFolders, PodVolumes
from pipelineserve_controller.settings import SidecarSettings
from pipelineserve_controller.settings import parse_settings as parse_sidecar
from pipelineserve_engine.settings import EngineSettings, parse_settings
from pipelineserve_engine.stage_host import parse_flags

SPREAD = "engine: {type: Torch}\n  parallelism: {stages: 3, stagesPerPod: 1}"


SGLANG_PYTHON = Path("/opt/sglang/bin/python")


def launches(resource: PipelineServe, *, has_control: bool = True) -> dict[tuple[str, str], Launch]:
    """By pod and container, as they would be started."""
    objects = LocalObjects(resource)
    pods = objects.pods(has_control=has_control)
    texts = KeptTexts()
    texts.apply(objects.objects)
    network = Network(random.Random(1))
    names = names_of(pods, network.addresses(pods))
    network.close()
    root = Path("/r")
    folders = HostFolders(root / "run", root / "memory", root / "claims", {})
    found = {}
    for index, pod in enumerate(pods):
        volumes = PodVolumes(pod, index, folders, texts)
        pythons = {SGLANG_IMAGE: SGLANG_PYTHON}
        around = Surroundings(pod, names, texts, os.environ, "m", pythons)
        for one in (*pod.initial, *pod.containers):
            found[pod.name, one.name] = launch_of(one, volumes.mounted(one), around)
    return found


def engine_settings(found: dict[tuple[str, str], Launch]) -> EngineSettings:
    return parse_settings(found["tiny-r0-e0-0", "engine"].command[3:])


def test_the_quickstart_becomes_settings_of_engine_and_controller() -> None:
    resource = parse_resource(QUICKSTART.read_text(), str(QUICKSTART))
    found = launches(resource)
    pod = "quickstart-r0-e0-0"
    assert [name for _, name in found] == ["model", "engine", "controller"]
    engine = parse_settings(found[pod, "engine"].command[3:])
    sidecar: SidecarSettings = parse_sidecar(found[pod, "controller"].command[3:])
    chunking = resource.spec.effective_chunking()
    assert (engine.stages, engine.served_name) == (2, "smollm2-135m")
    assert engine.static_chunk_tokens == chunking.static_tokens
    assert engine.max_chunk_tokens == chunking.ceiling_tokens
    assert engine.model_folder == Path("/r/run/0/model-link/current")
    assert engine.host == sidecar.host
    assert engine.host.startswith("127.")
    assert engine.host != "127.0.0.1"
    assert sidecar.engine_metrics_url == f"http://{engine.host}:8000/metrics"
    assert engine.control_address == "unix:/r/memory/0/control-socket/policy.sock"
    assert sidecar.engine_address == engine.control_address
    assert sidecar.operator_address == ""
    fetch = found[pod, "model"].command
    assert fetch[1:4] == ("-m", "pipelineserve_engine.models", resource.spec.model.uri)


def test_stages_of_several_pods_are_told_addresses_instead_of_names() -> None:
    found = launches(a_resource(SPREAD))
    engine = engine_settings(found)
    hosts = [
        parse_flags(launch.command[3:])
        for (_, name), launch in found.items()
        if name.startswith("stage-")
    ]
    assert [host.stage_index for host in hosts] == [0, 1, 2]
    assert tuple(host.address for host in hosts) == engine.stage_address_list
    assert len({host.address for host in hosts}) == 3
    assert {host.leader for host in hosts} == {f"{engine.leader_address}:{engine.leader_port}"}
    assert engine.leader_address == engine.host == hosts[0].address
    assert {host.group_key_file.name for host in hosts} == {"key"}


def test_recovery_drain_layers_and_arguments_reach_the_engine() -> None:
    resource = a_resource(
        "engine: {type: Torch, args: ['--kv-tokens=640']}\n"
        "  parallelism: {stages: 3, layers: {mode: Manual, perStage: [9, 11, 10]}}\n"
        "  recovery: {maxRestarts: 2, windowSeconds: 60}\n  rollout: {drainSeconds: 7}"
    )
    settings = engine_settings(launches(with_engine_argument(resource, "--trace-file=/records/r")))
    assert (settings.recovery_max_restarts, settings.recovery_window_seconds) == (2, 60)
    assert (settings.drain_seconds, settings.kv_tokens) == (7, 640)
    assert settings.layers_per_stage == "9,11,10"
    assert settings.trace_file == "/records/r"


def test_arguments_that_pods_are_made_with_are_refused() -> None:
    resource = a_resource("engine: {type: Torch, args: ['--kv-tokens=64', '--port=9']}")
    with pytest.raises(InvalidInputError, match=r"spec\.engine\.args\[1\]: --port is set by"):
        LocalObjects(resource)


def test_sglang_and_its_model_are_run_by_its_own_python_whatever_image_is_named() -> None:
    spec = "engine: {type: SGLang, image: 'a/b:1'}\n  parallelism: {stages: 2}"
    found = launches(a_resource(spec, model="uri: hf://a/b"))
    pythons = {name: launch.command[0] for (_, name), launch in found.items()}
    assert pythons == {
        "model": str(SGLANG_PYTHON),
        "engine": str(SGLANG_PYTHON),
        "controller": sys.executable,
    }
    engine = found["tiny-r0-e0-0", "engine"]
    sidecar = parse_sidecar(found["tiny-r0-e0-0", "controller"].command[3:])
    host = engine.command[engine.command.index("--port=8000") - 1].partition("=")[2]
    assert sidecar.engine_metrics_url == f"http://{host}:8000/metrics"
    address = engine.environment["PIPELINESERVE_ADDON_CONTROL_ADDRESS"]
    assert address == sidecar.engine_address == "unix:/r/memory/0/control-socket/policy.sock"
    assert engine.environment["PIPELINESERVE_ADDON_STATIC_CHUNK_TOKENS"].isdecimal()


def test_without_control_no_controller_is_among_the_containers() -> None:
    assert [name for _, name in launches(a_resource(), has_control=False)] == ["engine"]


@pytest.mark.parametrize("replicas", [0, 1, 3])
def test_one_replica_runs_whatever_is_asked_for(replicas: int) -> None:
    objects = LocalObjects(a_resource(f"engine: {{type: Torch}}\n  replicas: {replicas}"))
    assert [pod.name for pod in objects.pods(has_control=True)] == ["tiny-r0-e0-0"]


def objectives(objects: list[Any]) -> dict[str, Any]:
    (config_map,) = objects
    found: dict[str, Any] = json.loads(config_map["data"]["objectives.json"])
    return found


def test_each_edit_has_the_next_generation_of_the_same_resource() -> None:
    objects = LocalObjects(a_resource())
    edits = [objectives(objects.edited(a_resource())) for _ in range(2)]
    assert [edit["generation"] for edit in edits] == ["2", "3"]
    assert len({edit["resourceUid"] for edit in edits}) == 1
