"""Row 4: capacities on the first 400 requests of Azure's conversation trace."""

from functools import partial

from pipelineserve_simulator.measures.capacity import Capacity
from pipelineserve_simulator.reproduce.charts import PAPER, Chart, ChartKind, Series
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
    ModelName,
    System,
    static,
)
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import Load
from pipelineserve_simulator.workloads.registry import WorkloadName

BEST_STATIC_TOKENS = 512
_REASON = (
    "A capacity answers a change of the machine's speed, or of the sample, several times over: at "
    "the rates where the P90 of TPOT or TTFT crosses its target it rises steeply. "
    "docs/reproduce.md has the experiment. The published runs have one seed and 400 requests; the "
    "spread beside each value is that of our seeds. --quick finds a capacity within a tenth, and "
    "tells the lower end."
)
_LARGE_CHUNK_TOKENS = 768


def azure_400(study: Study, source: Source) -> Load:
    """The paper's sweep."""
    return Load(WorkloadName.AZURE_400, num_requests=study.effort.num_azure, source=source)


def azure_question(
    system: System, load: Load, model: ModelName = ModelName.QWEN_32B, tolerance: float = 1.0
) -> CapacityQuestion:
    """Between rates that leave room on both sides; the same ones for everybody who asks for it.

    Large chunks break the TPOT target early, so that they are looked for further down.
    """
    is_large = system.is_static and system.chunk_tokens >= _LARGE_CHUNK_TOKENS
    match model:
        case ModelName.QWEN_32B:
            low_per_s, high_per_s = (1.25, 7.0) if is_large else (3.0, 14.0)
        case ModelName.QWEN_14B:
            low_per_s, high_per_s = (8.0, 40.0)
    return CapacityQuestion(system, load, low_per_s, high_per_s, model=model, tolerance=tolerance)


def capacities(study: Study) -> RowResult:
    """Row 4."""
    parts = gather(partial(_capacities, study), study.sources)
    findings = tuple(finding for found, _ in parts for finding in found)
    return RowResult(
        "4",
        "capacity@P90 on azure-400",
        findings,
        _REASON,
        charts=tuple(chart for _, chart in parts),
    )


def _capacities(study: Study, source: Source) -> tuple[tuple[Finding, ...], Chart]:
    load = azure_400(study, source)
    questions = (
        azure_question(TENSOR_PARALLEL, load),
        azure_question(static(2048), load),
        azure_question(static(BEST_STATIC_TOKENS), load),
        azure_question(PREDICTIVE, load),
        azure_question(GREEDY, load, tolerance=2.0),
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


def _bars(title: str, lines: list[Finding], published: tuple[tuple[float, str], ...]) -> Chart:
    places = tuple(float(place) for place in range(len(lines)))
    spreads = [line.interval or (line.ours, line.ours) for line in lines]
    return Chart(
        title,
        ChartKind.BARS,
        "",
        "requests per second",
        (
            Series(PAPER, places, tuple(paper for paper, _ in published)),
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
