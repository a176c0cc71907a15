"""What a person reads: the report as tables, the plan in a few lines."""

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from pipelineserve.load.summaries import Share, Summary, summarise
from pipelineserve.load.targets import Target
from pipelineserve_cli.load.figures import Figures
from pipelineserve_cli.load.plan import LoadPlan
from pipelineserve_cli.load.report import Conditions, LoadReport

_COLUMNS = ("", "mean", "P50", "P90", "P95", "P99", "max", "target")


def report_tables(report: LoadReport) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = [_conditions(report)]
    parts.append(_figures(report, report.whole_run, "Whole run"))
    if report.steady_window is not None:
        parts.append(_figures(report, report.steady_window, "Steady window (10 % to 90 %)"))
    if report.bubble_ratios:
        parts.append(_bubbles(report.bubble_ratios))
    parts.extend(f"[yellow]note:[/yellow] {escape(note)}" for note in report.notes)
    return Group(*parts)


def plan_table(plan: LoadPlan) -> Table:
    """The plan's summary."""
    inputs = summarise(r.prompt_tokens for r in plan.measured if r.prompt_tokens is not None)
    outputs = summarise(request.max_tokens for request in plan.measured)
    first_s, last_s = plan.measured[0].at_s, plan.measured[-1].at_s
    rows = [
        ("requests", f"{len(plan.measured)} measured after {plan.num_warm_up} of warm-up"),
        ("arrivals", f"{plan.arrivals}; {first_s:.2f} s to {last_s:.2f} s"),
        ("ended by", plan.bound.value),
        ("lengths", plan.lengths),
        ("rows", plan.rows),
        ("input tokens", _token_line(inputs)),
        ("output tokens", _token_line(outputs)),
        ("seed", f"{plan.seed}"),
    ]
    return _listing(rows)


def print_on(console: Console, content: RenderableType) -> None:
    """Print without guesses about what in it may be coloured."""
    console.print(content, highlight=False)


def _conditions(report: LoadReport) -> Table:
    conditions: Conditions = report.conditions
    lag = report.lag_s
    eos = "ignored" if conditions.ignore_eos else "ends an answer"
    rows = [
        ("server", f"{conditions.url}, {conditions.endpoint}, model {conditions.model}"),
        ("arrivals", f"{conditions.arrivals}; seed {conditions.seed}"),
        (
            "requests",
            f"{conditions.num_sent} sent of {conditions.num_planned} planned, ended by "
            + conditions.planned_until,
        ),
        ("lengths", f"{conditions.lengths}; end of sequence {eos}"),
        ("rows", conditions.rows),
        ("warm-up", conditions.warm_up),
        ("drain", conditions.drain),
        ("policy", conditions.policy),
        (
            "generator lag",
            "" if lag is None else f"P50 {_ms(lag.p50)}, P99 {_ms(lag.p99)}, max {_ms(lag.max)}",
        ),
    ]
    return _listing(rows)


def _listing(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, text in rows:
        table.add_row(name, escape(text))
    return table


def _figures(report: LoadReport, figures: Figures, title: str) -> Table:
    table = Table(title=f"{title}, {figures.window.duration_s:.1f} s")
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    targets = report.targets
    table.add_row("TTFT ms", *_summary(figures.ttft_s), _target(targets.ttft))
    table.add_row("TPOT ms", *_summary(figures.tpot_s), _target(targets.tpot))
    table.add_row("gaps ms", *_summary(figures.gap_s), "")
    table.add_row("E2E ms", *_summary(figures.e2e_s), _target(targets.e2e))
    table.caption = "\n".join(_sentences(figures))
    table.caption_justify = "left"
    return table


def _sentences(figures: Figures) -> list[str]:
    failures = ", ".join(f"{count} {kind}" for kind, count in figures.failures.items())
    lines = [
        f"{figures.num_sent} sent, {figures.num_finished} finished, {figures.num_failed} failed"
        + (f" ({failures})" if failures else ""),
        _rates(figures),
    ]
    if figures.attainment is not None:
        lines.append(
            f"attainment {_share(figures.attainment)}, goodput {figures.goodput_per_s:.2f}/s"
        )
    return lines


def _rates(figures: Figures) -> str:
    return (
        f"{figures.requests_per_s:.2f} requests/s, {figures.output_tokens_per_s:.1f} output "
        f"tokens/s, {figures.input_tokens_per_s:.1f} input tokens/s"
    )


def _share(share: Share) -> str:
    return (
        f"{share.ratio:.1%} ({share.num_met} of {share.num_judged}; 95 % interval "
        f"{share.low_ratio:.1%} to {share.high_ratio:.1%})"
    )


def _bubbles(ratios: tuple[float, ...]) -> Table:
    return _listing(
        [(f"bubble, stage {stage}", f"{ratio:.0%}") for stage, ratio in enumerate(ratios)]
    )


def _summary(summary: Summary | None) -> list[str]:
    if summary is None:
        return ["-"] * 6
    values = (summary.mean, summary.p50, summary.p90, summary.p95, summary.p99, summary.max)
    return [_number_ms(value) for value in values]


def _ms(value_s: float) -> str:
    return f"{_number_ms(value_s)} ms"


def _number_ms(value_s: float) -> str:
    milliseconds = value_s * 1000
    return f"{milliseconds:.{1 if milliseconds < 100 else 0}f}"


def _target(target: Target | None) -> str:
    return "" if target is None else f"P{target.percentile} {target.target_s * 1000:g}"


def _token_line(summary: Summary | None) -> str:
    if summary is None:
        return "unknown to the client"
    return (
        f"mean {summary.mean:.1f}, P50 {summary.p50:.0f}, P99 {summary.p99:.0f}, "
        f"max {summary.max:.0f}"
    )
