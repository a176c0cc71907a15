"""What a person reads: the question in a few lines, the ranking, the refusals, the formulas."""

import math
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from pipelineserve.load.targets import Target
from pipelineserve_simulator.measures.intervals import Estimate
from pipelineserve_simulator.planning.explanations import Explained, explain
from pipelineserve_simulator.planning.layouts import Refused, gib
from pipelineserve_simulator.planning.search import Plan, Question, Ranked


def plan_tables(plan: Plan, *, with_formulas: bool) -> RenderableType:
    """The whole answer; the formulas are those of the first in the ranking."""
    parts: list[RenderableType] = [_question(plan.question)]
    if plan.ranked:
        parts += [_ranking(plan), _stages(plan.ranked[0])]
        if with_formulas:
            parts.append(_formulas(explain(plan.question, plan.ranked[0])))
    if plan.refused:
        parts.append(_refusals(plan.refused))
    if plan.is_cut_short:
        parts.append(
            "[yellow]note:[/yellow] time was over before all simulations; --budget-s gives more"
        )
    return Group(*parts)


def _question(question: Question) -> Table:
    demand, model = question.demand, question.model.shape
    load = (
        f"{demand.rate_per_s:.2f}/s, {demand.prompt_tokens:,.0f} tokens in and "
        f"{demand.output_tokens:,.0f} out on average"
    )
    targets = f"TTFT {_target(question.targets.ttft)}, TPOT {_target(question.targets.tpot)}"
    rows = [
        ("model", f"{model.name}, {model.num_layers} layers, {model.parameter_bytes * 8} bits"),
        ("machine", f"up to {question.num_devices} x {question.machine.profile.device}"),
        ("costs", question.machine.source),
        ("workload", question.workload.description),
        ("load", load),
        ("targets", targets),
    ]
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in rows:
        table.add_row(name, escape(text))
    return table


def _ranking(plan: Plan) -> Table:
    table = Table(title="Simulated, best first")
    for name in ("", "layout", "GPUs", "chunk"):
        table.add_column(name, no_wrap=True)
    for name in ("goodput/s", "per GPU", *_percentile_columns(plan), "attained", "bubble", "KV"):
        table.add_column(name, justify="right")
    table.add_column("targets")
    for place, ranked in enumerate(plan.ranked, start=1):
        table.add_row(f"{place}", *_row(ranked))
    table.caption = (
        "mean over seeds of the steady window (10 % to 90 % of the requests), +- half of the 95 % "
        "interval; KV is the highest share in use"
    )
    table.caption_justify = "left"
    return table


def _percentile_columns(plan: Plan) -> tuple[str, str]:
    targets = plan.question.targets
    return tuple(  # type: ignore[return-value] # two in, two out
        f"P{90 if target is None else target.percentile} {name} ms"
        for name, target in (("TTFT", targets.ttft), ("TPOT", targets.tpot))
    )


def _row(ranked: Ranked) -> Iterable[str]:
    deployment = ranked.deployment
    return (
        f"{deployment.num_replicas} x ({deployment.placed.shape})",
        f"{deployment.num_devices}",
        f"{deployment.policy.value} {deployment.static_tokens}",
        _with_spread(ranked.goodput_per_s, 1.0, 2),
        f"{ranked.goodput_per_device_s:.2f}",
        _with_spread(ranked.ttft_s, 1000.0, 0),
        _with_spread(ranked.tpot_s, 1000.0, 0),
        f"{ranked.attainment_ratio:.1%}",
        f"{ranked.bubble_ratio:.0%}",
        f"{ranked.kv_used_ratio_max:.0%}",
        "met" if ranked.meets_targets else "[red]missed[/red]",
    )


def _stages(ranked: Ranked) -> Table:
    table = Table(title="Memory of each GPU of the first, by stage")
    for name in ("stage", "layers", "weights", "left for KV", "KV per token", "room, tokens"):
        table.add_column(name, justify="right")
    placed = ranked.deployment.placed
    layers = placed.layout.partition.layers_per_stage
    for stage_index, memory in enumerate(placed.memories):
        table.add_row(
            f"{stage_index}",
            f"{layers[stage_index]}",
            gib(memory.weights_bytes),
            gib(memory.usable_bytes - memory.weights_bytes),
            f"{memory.kv_bytes_per_token / 1024:.1f} KiB",
            f"{memory.room_tokens:,}",
        )
    found = ranked.forecast
    table.caption = f"by formula one replica bears {found.capacity_per_s:.2f}/s"
    table.caption_justify = "left"
    return table


def _refusals(refused: Iterable[Refused]) -> Table:
    table = Table(title="Not ranked")
    table.add_column("layout", no_wrap=True)
    table.add_column("why")
    for refusal in refused:
        count = "" if refusal.num_replicas is None else f"{refusal.num_replicas} x "
        table.add_row(f"{count}({refusal.shape})", escape(refusal.why))
    return table


def _formulas(explained: Iterable[Explained]) -> Table:
    table = Table(title="Formulas of the first")
    for name in ("", "formula", "with its numbers", "result", "source"):
        table.add_column(name)
    for line in explained:
        cells = (line.name, line.formula, line.numbers, line.result, line.source)
        table.add_row(*map(escape, cells))
    return table


def _with_spread(found: Estimate, factor: float, digits: int) -> str:
    if math.isinf(found.mean):
        return "no bound"
    text = f"{found.mean * factor:,.{digits}f}"
    if found.high is None:
        return text
    return f"{text} +-{(found.high - found.mean) * factor:,.{digits}f}"


def _target(target: Target | None) -> str:
    return "none" if target is None else f"P{target.percentile} {target.target_s * 1000:g} ms"
