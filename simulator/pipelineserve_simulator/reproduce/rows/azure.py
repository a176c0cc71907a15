"""Row 4: capacities on the first 400 requests of Azure's conversation trace."""

from pipelineserve_simulator.measures.capacity import Capacity
from pipelineserve_simulator.reproduce.charts import Chart, ChartKind, Series
from pipelineserve_simulator.reproduce.findings import (
    Finding,
    RowResult,
    Unit,
    between,
    within_ratio,
)
from pipelineserve_simulator.reproduce.rows.lines import label, of_capacity
from pipelineserve_simulator.reproduce.study import CapacityQuestion, Study, gather
from pipelineserve_simulator.reproduce.systems import (
    GREEDY,
    PREDICTIVE,
    TENSOR_PARALLEL,
    static,
)
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import Load
from pipelineserve_simulator.workloads.registry import WorkloadName

BEST_STATIC_TOKENS = 512


def azure_400(study: Study, source: Source) -> Load:
    """The paper's sweep."""
    return Load(WorkloadName.AZURE_400, num_requests=study.effort.num_azure, source=source)


def capacities(study: Study) -> RowResult:
    """Row 4."""
    parts = gather([lambda source=source: _capacities(study, source) for source in study.sources])
    findings = tuple(finding for found, _ in parts for finding in found)
    return RowResult(
        "4",
        "capacity@P90 on azure-400",
        findings,
        charts=tuple(chart for _, chart in parts),
    )


def _capacities(study: Study, source: Source) -> tuple[tuple[Finding, ...], Chart]:
    load = azure_400(study, source)
    questions = (
        CapacityQuestion(TENSOR_PARALLEL, load, 1.5, 7.0),
        CapacityQuestion(static(2048), load, 1.5, 7.0),
        CapacityQuestion(static(BEST_STATIC_TOKENS), load, 4.0, 16.0),
        CapacityQuestion(PREDICTIVE, load, 4.0, 16.0),
        CapacityQuestion(GREEDY, load, 4.0, 16.0),
    )
    tensor, large, best, predictive, greedy = study.capacities(questions)
    name, num = label(source), study.effort.num_azure
    published = ((3.48, "TP"), (2.9, "PP 2048"), (8.28, "static 512"), (8.47, "predictive"))
    lines = [
        of_capacity(f"{what}{name}", f"{paper}", capacity, num, within_ratio(paper, 0.15))
        for (paper, what), capacity in zip(
            published, (tensor, large, best, predictive), strict=True
        )
    ]
    ratios = (
        _ratio(f"predictive ÷ static{name}", "1.02", predictive, best, (0.97, 1.10)),
        _ratio(f"TP ÷ PP 2048{name}", "1.2", tensor, large, (1.05, 1.3)),
    )
    greedy_line = of_capacity(f"greedy{name}", "about predictive", greedy, num)
    found = (*lines, greedy_line, *ratios)
    return found, _bars(f"capacity@P90 on azure-400{name}", lines, published)


def _ratio(
    what: str, paper: str, above: Capacity, below: Capacity, ends: tuple[float, float]
) -> Finding:
    accept = between(*ends, f"{ends[0]:g} to {ends[1]:g}")
    ratio = above.capacity_per_s / below.capacity_per_s if below.capacity_per_s else 0.0
    return Finding(what, paper, ratio, Unit.RATIO, accept, basis="of the two capacities above")


def _bars(
    title: str, lines: list[Finding], published: tuple[tuple[float, str], ...]
) -> Chart:
    places = tuple(float(place) for place in range(len(lines)))
    spreads = [line.interval or (line.ours, line.ours) for line in lines]
    return Chart(
        title,
        ChartKind.BARS,
        "",
        "requests per second",
        (
            Series("paper", places, tuple(paper for paper, _ in published)),
            Series(
                "twin",
                places,
                tuple(line.ours for line in lines),
                tuple(low for low, _ in spreads),
                tuple(high for _, high in spreads),
            ),
        ),
        ticks=tuple(what for _, what in published),
    )

