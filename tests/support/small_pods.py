"""Pods whose containers are small Python programs, as rendered objects would describe them."""

import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine_server import wait_until
from pipelineserve_cli.ending import EndRequests
from pipelineserve_cli.pods import runner as runner_module
from pipelineserve_cli.pods.containers import ContainerEnd, ContainerId, Listeners
from pipelineserve_cli.pods.runner import Machine, PodRunner
from pipelineserve_cli.pods.specs import pods_of
from pipelineserve_operator.render import JsonObject

# Says so and then waits for a signal, which ends it.
WAITS = "import signal, sys; print('waits', file=sys.stderr, flush=True); signal.pause()"


def a_container(name: str, program: str, *arguments: str, **more: Any) -> JsonObject:
    """Runs this Python program."""
    command = ["python3", "-c", program]
    return {"name": name, "image": "a", "command": command, "args": list(arguments), **more}


def a_set(
    *containers: JsonObject,
    name: str = "small",
    initial: Sequence[JsonObject] = (),
    volumes: Sequence[JsonObject] = (),
    num_pods: int = 1,
    grace_s: int = 10,
) -> JsonObject:
    """A StatefulSet of such pods."""
    return {
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "here"},
        "spec": {
            "serviceName": "small-pods",
            "replicas": num_pods,
            "ordinals": {"start": 0},
            "template": {
                "metadata": {"labels": {"a.example/role": "leader"}},
                "spec": {
                    "terminationGracePeriodSeconds": grace_s,
                    "initContainers": list(initial),
                    "containers": list(containers),
                    "volumes": list(volumes),
                },
            },
        },
    }


def a_config_map(name: str, data: Mapping[str, str]) -> JsonObject:
    """With these texts."""
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}


class Heard:
    """What the containers of a run have said, and which of them have ended by themselves."""

    def __init__(self) -> None:
        self.lines: list[tuple[ContainerId, str]] = []
        self.ends: list[ContainerEnd] = []
        self._lock = threading.Lock()

    @property
    def listeners(self) -> Listeners:
        """Hear it."""
        return Listeners(self._take_line, self._take_end)

    def said(self, container: str) -> list[str]:
        """The lines of the containers of this name, in any pod."""
        with self._lock:
            return [line for one, line in self.lines if one.name == container]

    def wait_said(self, container: str, line: str, times: int = 1) -> None:
        """Return when it has said so, so often."""
        wait_until(lambda: self.said(container), lambda lines: lines.count(line) >= times)

    def wait_ended(self, times: int = 1) -> list[ContainerEnd]:
        """Return when so many have ended."""
        return wait_until(lambda: list(self.ends), lambda ends: len(ends) >= times)

    def _take_line(self, container: ContainerId, line: str) -> None:
        with self._lock:
            self.lines.append((container, line))

    def _take_end(self, end: ContainerEnd) -> None:
        with self._lock:
            self.ends.append(end)


def a_run(
    folder: Path,
    heard: Heard,
    *objects: JsonObject,
    shared: Mapping[str, Path] | None = None,
    end_requests: EndRequests | None = None,
) -> PodRunner:
    """All pods of these objects; no signal ends them unless they are told of its requests."""
    machine = Machine(folder / "claims", shared or {}, {})
    requests = end_requests or EndRequests()
    return PodRunner(pods_of(objects), objects, machine, heard.listeners, requests)


def keep_runs_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that runs make for themselves be in this folder."""
    for name in ("memory", "scratch"):
        (folder / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "scratch"))
    monkeypatch.setattr(runner_module, "SHARED_MEMORY", folder / "memory")


def left_of_runs(folder: Path) -> list[str]:
    """What runs have left there."""
    return [path.name for path in folder.glob("*/*") if path.name.startswith("pserve-")]
