"""A container's command and environment on this machine."""

import sys
from pathlib import Path
from typing import Any

from pipelineserve_cli.pods.addresses import names_of
from pipelineserve_cli.pods.keeper import MARK
from pipelineserve_cli.pods.keeping import KeptTexts
from pipelineserve_cli.pods.launches import Launch, Surroundings, launch_of, probe_launch
from pipelineserve_cli.pods.specs import RunCommand, pods_of
from pipelineserve_cli.pods.volumes import SCRATCH, Mounts
from small_pods import a_config_map, a_container, a_set

FOLDERS = {SCRATCH: Path("/r/0/tmp"), "/home/x": Path("/home/me")}


OTHER_PYTHON = Path("/opt/other/bin/python")


def launch(*arguments: str, environment: dict[str, str] | None = None, **more: Any) -> Launch:
    (pod,) = pods_of([a_set(a_container("one", "pass", *arguments, **more))])
    texts = KeptTexts()
    texts.apply([a_config_map("live", {"chunk": "64"})])
    names = names_of([pod], {"small-0": "127.70.0.1"})
    pythons = {"other": OTHER_PYTHON}
    around = Surroundings(pod, names, texts, environment or {}, "m", pythons)
    return launch_of(pod.containers[0], Mounts(FOLDERS), around)


def env(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


def env_from(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": source}


def test_the_python_of_an_image_is_the_one_that_runs_this() -> None:
    assert launch("a").command == (sys.executable, "-c", "pass", "a")


def test_another_python_may_stand_for_an_image_and_is_not_misled_by_this_one_s_variables() -> None:
    own = {"PATH": "/bin", "PYTHONPATH": "/here", "PYTHONUNBUFFERED": "1"}
    found = launch("a", image="other", environment=own)
    assert found.command == (str(OTHER_PYTHON), "-c", "pass", "a")
    assert found.environment["PATH"] == "/opt/other/bin:/bin"
    assert found.environment["PYTHONUNBUFFERED"] == "1"
    assert "PYTHONPATH" not in found.environment
    assert launch("a", environment=own).environment.items() >= own.items()


def test_a_probe_s_python_is_that_of_its_container() -> None:
    check = RunCommand(("python3", "-m", "ready"))
    assert probe_launch(check, launch(image="other")).command[0] == str(OTHER_PYTHON)
    assert probe_launch(check, launch()).command[0] == sys.executable


def test_variables_come_from_the_pod_and_its_config_maps_in_their_order() -> None:
    found = launch(
        "--chunk=$(CHUNK)",
        "--leader=$(LEADER):1",
        "$$(CHUNK) $(NOT_THERE)",
        env=[
            env_from("NAME", fieldRef={"fieldPath": "metadata.name"}),
            env_from("IP", fieldRef={"fieldPath": "status.podIP"}),
            env_from("ROLE", fieldRef={"fieldPath": "metadata.labels['a.example/role']"}),
            env_from("INDEX", fieldRef={
                "fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}),
            env_from("CHUNK", configMapKeyRef={"name": "live", "key": "chunk"}),
            env("LEADER", "$(NAME).small-pods"),
            env("HOME", "/home/x"),
        ],
    )  # fmt: skip
    assert found.command[-3:] == ("--chunk=64", "--leader=127.70.0.1:1", "$(CHUNK) $(NOT_THERE)")
    expected = {
        "NAME": "small-0",
        "IP": "127.70.0.1",
        "ROLE": "leader",
        "INDEX": "0",
        "CHUNK": "64",
        "LEADER": "127.70.0.1",
        "HOME": "/home/me",
        "TMPDIR": "/r/0/tmp",
        MARK: "m/small-0/one/",
        "SPT_NOENV": "1",
    }
    assert found.environment == expected


def test_what_only_a_cluster_has_stays_as_it_is_here() -> None:
    own = {"TOKEN": "mine", "PATH": "/bin"}
    found = launch(
        env=[
            env_from("TOKEN", secretKeyRef={"name": "a", "key": "b"}),
            env_from("OTHER", secretKeyRef={"name": "a", "key": "b"}),
            env_from("CPUS", resourceFieldRef={"resource": "limits.cpu"}),
            env_from("NODE", fieldRef={"fieldPath": "spec.nodeName"}),
        ],
        environment=own,
    )
    assert found.environment.items() >= own.items()
    assert not {"OTHER", "CPUS", "NODE"} & set(found.environment)


def test_the_server_listens_on_the_pods_own_address() -> None:
    assert launch("--host=0.0.0.0").command[-1] == "--host=127.70.0.1"
