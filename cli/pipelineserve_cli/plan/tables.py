"""What a person reads: the question in a few lines, the ranking, the refusals, the formulas."""

import math
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from pipelineserve.load.targets import Target
from pipelineserve_simulator.measures.intervals import Estimate
from pipelineserve_simulator.planning.explanations import Explained, explain
from pipelineserve_simulator.planning.layouts import Refused, size_text
from pipelineserve_simulator.planning.search import Plan, Question, Ranked, Spread
from pipelineserve_simulator.planning.trials import ChunkPolicyName


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
    table = _table("Simulated, best first")
    table.add_column("layout", no_wrap=True)
    table.add_column("GPUs", justify="right")
    table.add_column("chunk", min_width=len(ChunkPolicyName.PREDICTIVE.value))
    for name in ("goodput /s", "per GPU", *_percentile_columns(plan), "attained"):
        table.add_column(name, justify="right")
    table.add_column("met", justify="right")
    for ranked in plan.ranked:
        table.add_row(*_row(ranked))
    table.caption = (
        "Of the steady window (10 % to 90 % of the requests), over seeds: goodput's mean with half "
        "of its 95 % interval, latencies' medians with the interval of the seeds."
    )
    return table


def _percentile_columns(plan: Plan) -> list[str]:
    targets = plan.question.targets
    return [
        f"P{90 if target is None else target.percentile} {name} ms"
        for name, target in (("TTFT", targets.ttft), ("TPOT", targets.tpot))
    ]


def _row(ranked: Ranked) -> Iterable[str]:
    deployment = ranked.deployment
    return (
        f"{deployment.num_replicas} x {deployment.placed.shape}",
        f"{deployment.num_devices}",
        f"{deployment.policy.value} {deployment.static_tokens}",
        _with_spread(ranked.goodput_per_s),
        f"{ranked.goodput_per_device_s:.2f}",
        _milliseconds(ranked.ttft_s),
        _milliseconds(ranked.tpot_s),
        f"{ranked.attainment_ratio:.1%}",
        "yes" if ranked.meets_targets else "[red]no[/red]",
    )


def _stages(ranked: Ranked) -> Table:
    table = _table("Memory of each GPU of the first, by stage")
    for name in ("stage", "layers", "weights", "left for KV", "KV per token", "room, tokens"):
        table.add_column(name, justify="right")
    placed = ranked.deployment.placed
    layers = placed.layout.partition.layers_per_stage
    for stage_index, memory in enumerate(placed.memories):
        table.add_row(
            f"{stage_index}",
            f"{layers[stage_index]}",
            size_text(memory.weights_bytes),
            size_text(memory.usable_bytes - memory.weights_bytes),
            f"{memory.kv_bytes_per_token / 1024:.1f} KiB",
            f"{memory.room_tokens:,}",
        )
    found = ranked.forecast
    table.caption = (
        f"By formula one replica bears {found.capacity_per_s:.2f}/s; a stage idles "
        f"{ranked.bubble_ratio:.0%} of the time with work, and at most "
        f"{ranked.kv_used_ratio_max:.0%} of KV is in use."
    )
    return table


def _refusals(refused: Iterable[Refused]) -> Table:
    table = _table("Not ranked")
    table.add_column("layout", no_wrap=True)
    table.add_column("why")
    for refusal in refused:
        count = "" if refusal.num_replicas is None else f"{refusal.num_replicas} x "
        table.add_row(f"{count}{refusal.shape}", escape(refusal.why))
    return table


def _formulas(explained: Iterable[Explained]) -> Table:
    table = _table("Formulas of the first")
    table.add_column("what", ratio=1)
    table.add_column("formula, with its numbers, source", ratio=3)
    for line in explained:
        steps = f"{line.formula}\n= {line.numbers}\n= [bold]{escape(line.result)}[/bold]"
        table.add_row(line.name, f"{steps}\n[dim]{escape(line.source)}[/dim]")
    return table


def _table(title: str) -> Table:
    """Narrow, so that all of it can be read in 80 columns."""
    return Table(
        title=title,
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0),
        pad_edge=False,
    )


def _with_spread(found: Estimate) -> str:
    text = f"{found.mean:.2f}"
    return text if found.high is None else f"{text} +-{found.high - found.mean:.2f}"


def _milliseconds(found: Spread) -> str:
    low_s, high_s = found.interval.low, found.interval.high
    text = _ms(found.median)
    return text if low_s == high_s else f"{text} {_ms(low_s)}-{_ms(high_s)}"


def _ms(value_s: float) -> str:
    return "never" if math.isinf(value_s) else f"{value_s * 1000:.0f}"


def _target(target: Target | None) -> str:
    return "none" if target is None else f"P{target.percentile} {target.target_s * 1000:g} ms"
