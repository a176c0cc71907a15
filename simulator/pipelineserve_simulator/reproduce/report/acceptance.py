"""The acceptance table for programs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelineserve_simulator.reproduce.effort import Effort
from pipelineserve_simulator.reproduce.findings import Accept, Finding, RowResult


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """What the report says of itself.

    Attributes:
        code: digest of the code that the figures come from.
        trace: name of the trace that was given; empty without any.
    """

    effort: Effort
    code: str
    trace: str


def acceptance_as_json(results: Sequence[RowResult], facts: ReportFacts) -> dict[str, Any]:
    """Rows with their lines; shares are shares of 1, times seconds."""
    return {
        "effort": facts.effort.name,
        "seeds": list(facts.effort.seeds),
        "code": facts.code,
        "trace": facts.trace or None,
        "rows": [
            {
                "row": result.row,
                "title": result.title,
                "verdict": result.verdict.value,
                "explanation": result.explanation,
                "lines": [_line(finding) for finding in result.findings],
                "supports": [_line(finding) for finding in result.supports],
            }
            for result in results
        ],
    }


def _line(finding: Finding) -> dict[str, Any]:
    accept = finding.accept
    return {
        "what": finding.what,
        "paper": finding.paper,
        "ours": finding.ours,
        "shown": finding.unit.show(finding.ours),
        "interval": None if finding.interval is None else list(finding.interval),
        "accepted": None if accept is None else _ends(accept),
        "verdict": finding.verdict.value,
        "basis": finding.basis,
    }


def _ends(accept: Accept) -> list[float | None]:
    """An open end is null: JSON has no infinity."""
    return [end if math.isfinite(end) else None for end in (accept.low, accept.high)]
