"""What a container comes to on this machine: a command, and its whole environment."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from pipelineserve_cli.pods.addresses import PodNames
from pipelineserve_cli.pods.keeper import MARK
from pipelineserve_cli.pods.keeping import KeptTexts
from pipelineserve_cli.pods.specs import (
    ContainerSpec,
    KeptKey,
    Literal,
    PodField,
    PodSpec,
    RunCommand,
    VariableSource,
)
from pipelineserve_cli.pods.volumes import Mounts

# Of images; here the one that runs this has the same packages.
_PYTHON = "python3"
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_LABEL = re.compile(r"metadata\.labels\['(.*)'\]")


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to start."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Surroundings:
    """What a pod's containers are started in.

    Attributes:
        names: of all pods.
        texts: ConfigMaps and Secrets, as they are at the moment.
        environment: of this process. What a cluster would give and this machine has not, such as a
            user's Secret, stays as it is here.
        mark: of the run; its processes are found by it.
    """

    pod: PodSpec
    names: PodNames
    texts: KeptTexts
    environment: Mapping[str, str]
    mark: str

    @property
    def address(self) -> str:
        """The pod's own."""
        return self.names.addresses[self.pod.name]

    def mark_of(self, container: ContainerSpec) -> str:
        """What the environment of every process of this container begins its mark with."""
        return f"{self.mark}/{self.pod.name}/{container.name}/"


def launch_of(container: ContainerSpec, mounts: Mounts, around: Surroundings) -> Launch:
    """The process of a container; variables have the values of this moment."""
    variables = _variables(container, around)
    command = [
        around.names.within(around.pod.name, mounts.translated(_expanded(argument, variables)))
        for argument in container.command
    ]
    own = {
        name: around.names.resolved(mounts.translated(variables[name]))
        if isinstance(source, Literal)
        else variables[name]
        for name, source in container.variables
        if name in variables
    }
    scratch = {} if mounts.scratch is None else {"TMPDIR": str(mounts.scratch)}
    marked = {MARK: around.mark_of(container)}
    return Launch(_here(command), {**around.environment, **own, **scratch, **marked})


def probe_launch(check: RunCommand, launch: Launch) -> Launch:
    """A probe's command in a container's environment; as in a cluster, nothing is replaced."""
    return Launch(_here(list(check.command)), launch.environment)


def _here(command: list[str]) -> tuple[str, ...]:
    return (sys.executable if command[0] == _PYTHON else command[0], *command[1:])


def _variables(container: ContainerSpec, around: Surroundings) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, source in container.variables:
        value = _value(source, values, around)
        if value is not None:
            values[name] = value
    return values


def _value(source: VariableSource, known: Mapping[str, str], around: Surroundings) -> str | None:
    match source:
        case Literal(text):
            return _expanded(text, known)
        case PodField(path):
            return _field(path, around)
        case KeptKey():
            return around.texts.text(source)
        case None:
            return None


def _field(path: str, around: Surroundings) -> str | None:
    pod = around.pod
    if (label := _LABEL.fullmatch(path)) is not None:
        return pod.labels.get(label[1])
    facts = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "status.podIP": around.address,
        "status.hostIP": around.address,
    }
    return facts.get(path)


def _expanded(text: str, values: Mapping[str, str]) -> str:
    """As Kubernetes does it: `$$` is a dollar, an unknown variable stays as it is written."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else values.get(match[1], match[0])

    return _REFERENCE.sub(replaced, text)
