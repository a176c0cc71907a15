"""`pserve render`: the objects that a resource comes to in a cluster, without one."""

import json
import re
from collections.abc import Sequence
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import yaml

from pipelineserve.api import PipelineServe
from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.manifests import read_resource
from pipelineserve_operator.render import (
    JsonObject,
    OperatorSettings,
    Subject,
    all_objects,
)

UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"
_FIRST_GENERATION = 1
_DEFAULT_NAMESPACE = "default"
# What a reader of YAML may take for a number although it is a text: 1e3, 0x10, 1_000, 12:30.
_LIKE_A_NUMBER = re.compile(r"[-+.]?[0-9]")


class OutputFormat(Enum):
    """How objects are written."""

    YAML = "yaml"
    JSON = "json"


@click.command()
@click.option(
    "-f",
    "--filename",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Manifest of one PipelineServe.",
)
@click.option("-n", "--namespace", help="Namespace of the objects; the manifest's, or default.")
@click.option(
    "-o",
    "--output",
    default=OutputFormat.YAML.value,
    show_default=True,
    type=click.Choice([one.value for one in OutputFormat]),
    help="YAML documents, or one List as JSON.",
)
@click.option("--engine-image", help="Where the manifest names none.")
@click.option("--controller-image", help="Image of the controller.")
def render(
    filename: Path,
    namespace: str | None,
    output: str,
    engine_image: str | None,
    controller_image: str | None,
) -> None:
    """Print the objects that the operator would make of a manifest, without a cluster.

    They are those of a cluster that knows Prometheus' kinds. The uid, which only a cluster gives,
    is all zeros: the objects are to be read, not to be applied.
    """
    subject = subject_without_cluster(read_resource(filename), namespace)
    settings = settings_without_cluster(engine_image, controller_image)
    objects = all_objects(subject, settings)
    click.echo(
        f"note: {len(objects)} objects with the uid {UNKNOWN_UID}, which stands for the one that "
        "a cluster gives",
        err=True,
    )
    click.echo(objects_text(objects, OutputFormat(output)), nl=False)


def subject_without_cluster(resource: PipelineServe, namespace: str | None) -> Subject:
    """The resource as a cluster would have it at first.

    Raises:
        InvalidInputError: it is of another namespace than the one asked for.
    """
    own = resource.metadata.namespace
    if namespace and own and namespace != own:
        text = f"expected {namespace}, as --namespace says, got {own}; drop one of the two"
        raise InvalidInputError(
            f"PipelineServe {resource.name}", [Fault("metadata.namespace", text)]
        )
    return Subject(
        name=resource.name,
        namespace=namespace or own or _DEFAULT_NAMESPACE,
        uid=resource.metadata.uid or UNKNOWN_UID,
        generation=resource.metadata.generation or _FIRST_GENERATION,
        served_name=resource.served_name,
        spec=resource.spec,
    )


def settings_without_cluster(
    engine_image: str | None = None, controller_image: str | None = None
) -> OperatorSettings:
    """Settings of an operator that is not there; its address and images only have to look right."""
    own = version("pipelineserve")
    return OperatorSettings(
        engine_image=engine_image or f"pipelineserve/engine:{own}",
        controller_image=controller_image or f"pipelineserve/controller:{own}",
        sglang_image=f"pipelineserve/sglang:{own}",
        operator_address="pipelineserve-operator.pipelineserve.svc:8443",
        version=own,
        has_pod_monitors=True,
        has_prometheus_rules=True,
    )


def objects_text(objects: Sequence[JsonObject], output: OutputFormat) -> str:
    """All objects as one text."""
    match output:
        case OutputFormat.YAML:
            return "".join(f"---\n{yaml_text(one)}" for one in objects)
        case OutputFormat.JSON:
            items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
            return f"{json.dumps(items, indent=2)}\n"


class _Dumper(yaml.SafeDumper):
    """Writes what occurs twice twice, and texts so that every reader takes them for texts."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        del data
        return True


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _LIKE_A_NUMBER.match(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def yaml_text(document: JsonObject) -> str:
    """One document, keys in their order, as every reader of YAML takes it alike."""
    text: Any = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=10_000)
    return str(text)
