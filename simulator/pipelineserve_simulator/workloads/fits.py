"""The fits that are shipped with the package: `fits.yaml`, read and checked once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any

import yaml

from pipelineserve_simulator.workloads.arriving import ChangingRate, FittedGaps
from pipelineserve_simulator.workloads.curves import JointCurves, QuantileCurve


class FitName(Enum):
    """Which fit."""

    AZURE_CONVERSATION = "azure-conversation"
    AZURE_CONVERSATION_FIRST_400 = "azure-conversation-first-400"
    AZURE_CONVERSATION_FIRST_15_MIN = "azure-conversation-first-15-min"
    AZURE_CONVERSATION_WINDOW_2 = "azure-conversation-window-2"
    AZURE_CONVERSATION_WINDOW_3 = "azure-conversation-window-3"
    AZURE_CONVERSATION_WINDOW_4 = "azure-conversation-window-4"
    AZURE_CONVERSATION_WINDOW_5 = "azure-conversation-window-5"
    AZURE_CODE = "azure-code"
    SHAREGPT = "sharegpt"


@dataclass(frozen=True, slots=True)
class Fit:
    """What is known of one set of rows.

    Attributes:
        origin: which rows of which data set, in words.
        citation: whom to name, and the licence of what was fitted.
        arrivals: None where they were not fitted.
    """

    origin: str
    citation: str
    lengths: JointCurves
    arrivals: ChangingRate | FittedGaps | None


def fit(name: FitName) -> Fit:
    """One fit."""
    return _read(_documents()[name.value])


@cache
def _documents() -> Mapping[str, Any]:
    file = resources.files("pipelineserve_simulator.workloads").joinpath("fits.yaml")
    documents: Mapping[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return documents


def _read(document: Mapping[str, Any]) -> Fit:
    return Fit(
        origin=document["origin"],
        citation=document["citation"],
        lengths=JointCurves(
            _curve(document["prompt_tokens"]),
            _curve(document["output_tokens"]),
            tuple(tuple(row) for row in document["weights"]),
        ),
        arrivals=_arrivals(document),
    )


def _arrivals(document: Mapping[str, Any]) -> ChangingRate | FittedGaps | None:
    match document:
        case {"origin": str(origin), "rates": {"per_s": list(per_s), "bin_s": float(bin_s)}}:
            return ChangingRate(origin, tuple(per_s), bin_s)
        case {"origin": str(origin), "gap_s": gap_s}:
            return FittedGaps(origin, _curve(gap_s))
        case _:
            return None


def _curve(knots: Mapping[str, Sequence[float]]) -> QuantileCurve:
    return QuantileCurve(tuple(knots["ranks"]), tuple(knots["values"]))
