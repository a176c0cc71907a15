"""What a container comes to on this machine: a command, and its whole environment."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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

# Of images; here it is the one that stands for the image.
_PYTHON = "python3"
# What they say is about the Python that runs this, and would mislead another one.
_OF_THIS_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
# Programs that give themselves a name, as SGLang's do, else write it over where the mark is read.
_KEEPS_ENVIRONMENT = {"SPT_NOENV": "1"}
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_LABEL = re.compile(r"metadata\.labels\['(.*)'\]")


@dataclass(frozen=True, slots=True)
class Launch:
    """One process to start.

    Attributes:
        python: the image's, for whatever else is run in the container.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    python: Path


@dataclass(frozen=True)
class Surroundings:
    """What a pod's containers are started in.

    Attributes:
        names: of all pods.
        texts: ConfigMaps and Secrets, as they are at the moment.
        environment: of this process. What a cluster would give and this machine has not, such as a
            user's Secret, stays as it is here.
        mark: of the run; its processes are found by it.
        pythons: by image, where it is not the one that runs this.
    """

    pod: PodSpec
    names: PodNames
    texts: KeptTexts
    environment: Mapping[str, str]
    mark: str
    pythons: Mapping[str, Path]

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
    marked = {MARK: around.mark_of(container), **_KEEPS_ENVIRONMENT}
    python = around.pythons.get(container.image, Path(sys.executable))
    outer = environment_for(python, around.environment)
    return Launch(_here(command, python), {**outer, **own, **scratch, **marked}, python)


def probe_launch(check: RunCommand, launch: Launch) -> Launch:
    """A probe's command in a container's environment; as in a cluster, nothing is replaced."""
    command = _here(list(check.command), launch.python)
    return Launch(command, launch.environment, launch.python)


def _here(command: list[str], python: Path) -> tuple[str, ...]:
    return (str(python) if command[0] == _PYTHON else command[0], *command[1:])


def environment_for(python: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """What processes of this Python get of `environment`, which is one of the present process.

    Programs that lie beside another Python come before all others, as where it is activated.
    """
    if python == Path(sys.executable):
        return dict(environment)
    kept = {name: text for name, text in environment.items() if name not in _OF_THIS_PYTHON}
    folders = [str(python.parent), *filter(None, [environment.get("PATH")])]
    return {**kept, "PATH": os.pathsep.join(folders)}


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
