"""Row 3: which fixed chunk serves azure-400 best, for both models.

A first look with one seed says which chunks may be it; only those are told exactly.
"""

from dataclasses import replace
from itertools import compress

from pipelineserve_simulator.measures.capacity import Capacity
from pipelineserve_simulator.reproduce.charts import Chart, ChartKind, Series
from pipelineserve_simulator.reproduce.findings import Accept, Finding, RowResult, Unit
from pipelineserve_simulator.reproduce.rows.azure import azure_400, azure_question
from pipelineserve_simulator.reproduce.rows.lines import label, of_capacity
from pipelineserve_simulator.reproduce.study import Study, gather
from pipelineserve_simulator.reproduce.systems import ModelName, static
from pipelineserve_simulator.reproduce.traces import Source

# Chunks differ by more than this where it matters which one is best.
_TOLERANCE = 2.0
# The first look's, and what a chunk may then lack and still be the best.
_FIRST_TOLERANCE = 5.0
_CLOSE_RATIO = 0.75


def best_static(study: Study) -> RowResult:
    """Row 3."""
    cases = [(model, source) for model in ModelName for source in study.sources]
    parts = gather(lambda case: _capacities(study, *case), cases)
    charts = tuple(
        _chart(model, source, study.effort.static_chunks_tokens, found)
        for (model, source), found in zip(cases, parts, strict=True)
    )
    lines = tuple(
        _best(model, source, study.effort.static_chunks_tokens, found)
        for (model, source), found in zip(cases, parts, strict=True)
    )
    supports = tuple(
        of_capacity(
            f"static {chunk}, {_title(model, source)}", "", capacity, study.effort.num_azure
        )
        for (model, source), found in zip(cases, parts, strict=True)
        for chunk, capacity in zip(study.effort.static_chunks_tokens, found, strict=True)
    )
    return RowResult("3", "The best static chunk on azure-400", lines, "", supports, charts)


def _capacities(study: Study, model: ModelName, source: Source) -> list[Capacity]:
    """Of each chunk, by one seed where it cannot be the best."""
    load = azure_400(study, source)
    questions = [
        azure_question(static(chunk), load, model, _TOLERANCE)
        for chunk in study.effort.static_chunks_tokens
    ]
    if len(study.effort.seeds) == 1:
        return study.capacities(questions)
    first = study.capacities(
        [replace(each, tolerance=_FIRST_TOLERANCE, most_seeds=1) for each in questions]
    )
    least_per_s = _CLOSE_RATIO * max(capacity.capacity_per_s for capacity in first)
    close = [capacity.capacity_per_s >= least_per_s for capacity in first]
    exact = iter(study.capacities(list(compress(questions, close))))
    return [
        next(exact) if is_close else capacity
        for capacity, is_close in zip(first, close, strict=True)
    ]


def _best(
    model: ModelName, source: Source, chunks: tuple[int, ...], found: list[Capacity]
) -> Finding:
    best = max(zip(found, chunks, strict=True), key=lambda pair: pair[0].capacity_per_s)[1]
    match model:
        case ModelName.QWEN_32B:
            paper, accept = "512", Accept(384, 512, "384 or 512")
        case ModelName.QWEN_14B:
            paper, accept = "1024", Accept(1024, 1024, "1024")
    names = ", ".join(map(str, chunks))
    what = f"best of {names}, {_title(model, source)}"
    return Finding(what, paper, best, Unit.TOKENS, accept, basis="of the capacities below")


def _title(model: ModelName, source: Source) -> str:
    return f"{model.value}{label(source)}"


def _chart(
    model: ModelName, source: Source, chunks: tuple[int, ...], found: list[Capacity]
) -> Chart:
    places = tuple(float(place) for place in range(len(chunks)))
    series = Series(
        "twin",
        places,
        tuple(capacity.capacity_per_s for capacity in found),
        tuple(capacity.interval.low for capacity in found),
        tuple(capacity.interval.high for capacity in found),
    )
    return Chart(
        f"capacity@P90 by static chunk, {_title(model, source)}",
        ChartKind.BARS,
        "chunk, tokens",
        "requests per second",
        (series,),
        ticks=tuple(map(str, chunks)),
    )
