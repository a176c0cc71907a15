"""The chart as Helm renders it, without a cluster."""

from collections.abc import Mapping
from typing import Any

import yaml
from tools.sources import ROOT

from cluster_programs import ClusterPrograms

CHART = ROOT / "charts" / "pipelineserve"
RELEASE = "pipelineserve"
NAMESPACE = "pipelineserve-system"

JsonObject = dict[str, Any]


def rendered(
    values: Mapping[str, Any] | None = None, namespace: str = NAMESPACE
) -> list[JsonObject]:
    """Every object of a release with these values, hooks included.

    Raises:
        CommandError: Helm refuses the values or the templates.
    """
    text = ClusterPrograms().helm(
        "template", RELEASE, str(CHART), f"--namespace={namespace}", values=values or {}
    )
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(objects: list[JsonObject], kind: str, ending: str = "") -> list[JsonObject]:
    """The objects of a kind whose names end so."""
    return [
        one for one in objects if one["kind"] == kind and one["metadata"]["name"].endswith(ending)
    ]


def the(objects: list[JsonObject], kind: str, ending: str = "") -> JsonObject:
    """The only one."""
    (one,) = of_kind(objects, kind, ending)
    return one
