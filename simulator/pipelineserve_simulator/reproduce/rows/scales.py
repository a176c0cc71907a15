"""Row 9: tighter targets."""

from dataclasses import replace
from functools import partial

from pipelineserve_simulator.measures.capacity import Capacity
from pipelineserve_simulator.reproduce.charts import Chart, ChartKind, Series
from pipelineserve_simulator.reproduce.figures import PAPER_TARGETS
from pipelineserve_simulator.reproduce.findings import (
    Accept,
    Finding,
    RowResult,
    Unit,
    between,
    within_ratio,
)
from pipelineserve_simulator.reproduce.rows.azure import (
    BEST_STATIC_TOKENS,
    azure_400,
    azure_question,
)
from pipelineserve_simulator.reproduce.rows.lines import if_whole, label, of_capacity
from pipelineserve_simulator.reproduce.study import CapacityQuestion, Study, gather
from pipelineserve_simulator.reproduce.systems import GREEDY, PREDICTIVE, System, static
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import Load

_SCALES = (1.0, 0.4, 0.2)
# Below it runs become long, and say more of single requests than of a load. Where a ratio is to be
# told both capacities must be found.
_LEAST_PER_S = {0.4: 0.1, 0.2: 0.5}
_MOST_PER_S = 7.0
_TOLERANCE = 5.0
_REASON = (
    "With targets x 0.4 a token may take 80 ms, and takes 72 ms where nobody else is there: four "
    "steps of decodes alone. What is left, a tenth, is the room for prompts. PP 2048 fills it "
    "with less than one prompt in two seconds, so that both capacities stand at an edge."
)
_SYSTEMS: tuple[tuple[str, System], ...] = (
    ("PP 2048", static(2048)),
    ("predictive", PREDICTIVE),
)
# For the tightest targets every system is asked, at the least load alone.
_OTHERS: tuple[tuple[str, System], ...] = (
    (f"static {BEST_STATIC_TOKENS}", static(BEST_STATIC_TOKENS)),
    ("greedy", GREEDY),
)
_TIGHTEST = _SCALES[-1]
_FEW = 100


def target_scales(study: Study) -> RowResult:
    """Row 9."""
    parts = gather(partial(_scales, study), study.sources)
    return RowResult(
        "9",
        "Capacity against the scale of both targets, azure-400",
        tuple(line for lines, _, _ in parts for line in lines),
        _REASON,
        supports=tuple(line for _, supports, _ in parts for line in supports),
        charts=tuple(chart for _, _, chart in parts),
    )


def _scales(study: Study, source: Source) -> tuple[list[Finding], list[Finding], Chart]:
    load = azure_400(study, source)
    points = [(name, scale) for name, _ in _SYSTEMS for scale in _SCALES]
    points += [(name, _TIGHTEST) for name, _ in _OTHERS]
    named = dict((*_SYSTEMS, *_OTHERS))
    found = dict(
        zip(
            points,
            study.capacities(
                [_question(study, named[name], load, scale) for name, scale in points]
            ),
            strict=True,
        )
    )
    tight = if_whole(study.effort, lambda effort: effort.num_tight, within_ratio(5.4, 0.35))
    lines = [
        _none_left(found, source),
        _gain(found, 1.0, within_ratio(2.7, 0.20), "2.7 x", source),
        _gain(found, 0.4, tight, "5.4 x", source),
    ]
    supports = [
        of_capacity(
            f"{name}, targets x {scale:g}{label(source)}",
            "",
            found[name, scale],
            _num_requests(study, scale),
        )
        for name, scale in points
    ]
    return lines, supports, _chart(found, source)


def _question(study: Study, system: System, load: Load, scale: float) -> CapacityQuestion:
    if scale == 1.0:
        return azure_question(system, load)
    targets = PAPER_TARGETS.scaled(scale)
    tight = replace(load, num_requests=_num_requests(study, scale))
    return CapacityQuestion(
        system, tight, _LEAST_PER_S[scale], _MOST_PER_S, targets=targets, tolerance=_TOLERANCE
    )


def _num_requests(study: Study, scale: float) -> int:
    """What no single request meets needs no long run to be seen."""
    if scale == 1.0:
        return study.effort.num_azure
    return _FEW if scale == _TIGHTEST else study.effort.num_tight


def _none_left(found: dict[tuple[str, float], Capacity], source: Source) -> Finding:
    largest = max(
        capacity.capacity_per_s for (_, scale), capacity in found.items() if scale == _TIGHTEST
    )
    return Finding(
        f"targets x 0.2, the largest of all PP{label(source)}",
        "0",
        largest,
        Unit.PER_S,
        between(0.0, 0.0, "0"),
        basis=f"of the capacities below, searched from {_LEAST_PER_S[_TIGHTEST]:g} /s on",
    )


def _gain(
    found: dict[tuple[str, float], Capacity],
    scale: float,
    accept: Accept | None,
    paper: str,
    source: Source,
) -> Finding:
    above, below = found["predictive", scale].capacity_per_s, found["PP 2048", scale].capacity_per_s
    return Finding(
        f"predictive ÷ PP 2048, targets x {scale:g}{label(source)}",
        paper,
        above / below if below > 0 else 0.0,
        Unit.RATIO,
        accept,
        basis="of the capacities below" if below > 0 else "PP 2048 has none: no ratio, shown as 0",
    )


def _chart(found: dict[tuple[str, float], Capacity], source: Source) -> Chart:
    return Chart(
        f"capacity@P90 on azure-400 against the targets' scale{label(source)}",
        ChartKind.LINES,
        "targets, x 2 s and 200 ms",
        "requests per second",
        tuple(
            Series(name, _SCALES, tuple(found[name, scale].capacity_per_s for scale in _SCALES))
            for name, _ in _SYSTEMS
        ),
    )
