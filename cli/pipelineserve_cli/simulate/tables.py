"""What a person reads of a simulation."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from pipelineserve.load.summaries import Share, Summary
from pipelineserve.load.targets import Target, Targets
from pipelineserve.policy.reason_texts import _TEXTS
from pipelineserve.policy.reasons import Reason
from pipelineserve_cli.simulate.report import Conditions, SimulationReport
from pipelineserve_simulator.described.running import ControlFigures, SeedRun
from pipelineserve_simulator.measures.figures import RunFigures
from pipelineserve_simulator.measures.intervals import Estimate
from pipelineserve_simulator.measures.merging import MergedFigures, MergedSummary

_ONE_RUN = ("", "mean", "P50", "P90", "P95", "P99", "max", "target")
_SEEDS = ("", "mean", "P50", "P90", "P99", "max", "target")


def report_tables(report: SimulationReport) -> RenderableType:
    """The whole report: of one run its own figures, of several their means and intervals."""
    parts: list[RenderableType] = [_conditions(report.conditions, report.runs)]
    if len(report.runs) == 1:
        (run,) = report.runs
        parts.append(_run_table(run.whole, report.targets, "Whole run"))
        if run.steady is not None:
            parts.append(_run_table(run.steady, report.targets, "Steady window (10 % to 90 %)"))
    else:
        parts.append(_merged_table(report.whole, report.targets, "Whole runs"))
        if report.steady is not None:
            title = "Steady windows (10 % to 90 %)"
            parts.append(_merged_table(report.steady, report.targets, title))
    return Group(*parts)


def _conditions(conditions: Conditions, runs: Iterable[SeedRun]) -> Table:
    given = conditions.description
    layers = ", ".join(map(str, conditions.layers_per_stage))
    layout = (
        f"{len(conditions.layers_per_stage)} stages of {layers} layers, "
        f"{conditions.num_devices} devices, KV for {conditions.kv_tokens} tokens"
    )
    rows = [
        ("profile", conditions.profile),
        ("layout", layout),
        ("workload", conditions.workload),
        ("policy", given["policy"]),
        ("timing", f"{given['timing']}, {conditions.num_slots} micro-batches in flight"),
        *[("fault", _fault_text(fault)) for fault in given["faults"]],
        *[(f"controller, seed {run.seed}", _control(run.control)) for run in runs if run.control],
    ]
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in rows:
        table.add_row(name, escape(text))
    return table


def _fault_text(fault: dict[str, object]) -> str:
    fields = [f"{name} {value}" for name, value in fault.items() if name != "kind"]
    return f"{fault['kind']}: {', '.join(text for text in fields if not text.endswith('None'))}"


def _control(figures: ControlFigures) -> str:
    begun = figures.predictive_from_s
    parts = [
        f"{figures.num_turns} turns, {figures.num_policies} policies sent",
        "never predicted" if begun is None else f"predicted from {begun:.1f} s on",
        f"leases that ended: {len(figures.lapses_s)}",
        _TEXTS[Reason(figures.latest_reason)],
    ]
    return "; ".join(parts)


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, caption_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    return table


def _run_table(figures: RunFigures, targets: Targets, title: str) -> Table:
    table = _table(f"{title}, {figures.window.duration_s:.1f} s", _ONE_RUN)
    for name, summary, target in (
        ("TTFT ms", figures.ttft_s, targets.ttft),
        ("TPOT ms", figures.tpot_s, targets.tpot),
        ("E2E ms", figures.e2e_s, targets.e2e),
        ("longest gap ms", figures.longest_gap_s, None),
    ):
        table.add_row(name, *_summary(summary), _target(target))
    steps = figures.steps
    if steps is not None:
        table.add_row("slowest stage ms", *_summary(steps.longest_stage_s), "")
        table.add_row("all stages ms", *_summary(steps.span_s), "")
        table.add_row("chunk tokens", *_summary(steps.chunk_tokens, scale=1.0), "")
    lines = [
        _counts(figures.num_arrived, figures.num_finished),
        f"{figures.requests_per_s:.2f} requests/s, {figures.output_tokens_per_s:.1f} tokens/s out",
        f"attainment {_share(figures.attainment)}, goodput {figures.goodput_per_s:.2f}/s",
        f"KV use mean {figures.kv_used_ratio_mean:.0%}, max {figures.kv_used_ratio_max:.0%}",
        f"{figures.num_preemptions} preemptions",
    ]
    if steps is not None:
        bubbles = ", ".join(f"{ratio:.0%}" for ratio in steps.bubble_ratios)
        lines.append(f"bubble {steps.mean_bubble_ratio:.0%} (by stage {bubbles})")
    table.caption = escape("\n".join(lines))
    return table


def _merged_table(figures: MergedFigures, targets: Targets, title: str) -> Table:
    table = _table(f"{title} of {figures.num_runs} seeds, mean ± half of the 95 % interval", _SEEDS)
    for name, summary, target in (
        ("TTFT ms", figures.ttft_s, targets.ttft),
        ("TPOT ms", figures.tpot_s, targets.tpot),
        ("E2E ms", figures.e2e_s, targets.e2e),
        ("longest gap ms", figures.longest_gap_s, None),
        ("slowest stage ms", figures.longest_stage_s, None),
        ("all stages ms", figures.step_span_s, None),
    ):
        table.add_row(name, *_merged(summary), _target(target))
    kv_used = _estimate(figures.kv_used_ratio_mean, 100.0, " %")
    lines = [
        f"{_counts(figures.num_arrived, figures.num_finished)}, of all seeds",
        f"attainment {_estimate(figures.attainment_ratio, 100.0, ' %')}",
        f"of all requests together {_share(figures.pooled_attainment)}",
        f"goodput {_estimate(figures.goodput_per_s, 1.0, '/s')}",
        _estimate(figures.requests_per_s, 1.0, " requests/s"),
        f"bubble {_estimate(figures.bubble_ratio, 100.0, ' %')}",
        f"KV use mean {kv_used}, max {figures.kv_used_ratio_max:.0%}",
        f"{figures.num_preemptions} preemptions",
    ]
    table.caption = escape("\n".join(lines))
    return table


def _counts(num_arrived: int, num_finished: int) -> str:
    num_failed = num_arrived - num_finished
    return f"{num_arrived} arrived, {num_finished} finished, {num_failed} failed"


def _summary(summary: Summary | None, scale: float = 1000.0) -> list[str]:
    if summary is None:
        return ["-"] * 6
    values = (summary.mean, summary.p50, summary.p90, summary.p95, summary.p99, summary.max)
    return [_number(scale * value) for value in values]


def _merged(summary: MergedSummary | None) -> list[str]:
    if summary is None:
        return ["-"] * 5
    estimates = (summary.mean, summary.p50, summary.p90, summary.p99)
    return [*(_estimate(e, 1000.0, "") for e in estimates), _number(1000.0 * summary.max)]


def _estimate(estimate: Estimate | None, scale: float, unit: str) -> str:
    if estimate is None:
        return "-"
    shown = _number(scale * estimate.mean)
    if estimate.high is None:
        return f"{shown}{unit}"
    return f"{shown} ± {_number(scale * (estimate.high - estimate.mean))}{unit}"


def _share(share: Share | None) -> str:
    if share is None:
        return "-"
    return (
        f"{share.ratio:.1%} ({share.num_met} of {share.num_judged}; 95 % interval "
        f"{share.low_ratio:.1%} to {share.high_ratio:.1%})"
    )


def _target(target: Target | None) -> str:
    return "" if target is None else f"P{target.percentile} {target.target_s * 1000:g}"


def _number(value: float) -> str:
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"
