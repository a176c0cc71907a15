"""Rows 5, 6 and 14: steps and latencies over rates of azure-400."""

from collections.abc import Sequence
from functools import partial

from pipelineserve_simulator.reproduce.charts import Chart, ChartKind, Series
from pipelineserve_simulator.reproduce.figures import TrialFigures
from pipelineserve_simulator.reproduce.findings import (
    Finding,
    RowResult,
    Unit,
    between,
    within_points,
    within_ratio,
)
from pipelineserve_simulator.reproduce.rows.azure import BEST_STATIC_TOKENS, azure_400
from pipelineserve_simulator.reproduce.rows.lines import (
    Value,
    label,
    of_runs,
    over_seeds,
)
from pipelineserve_simulator.reproduce.study import Study, gather
from pipelineserve_simulator.reproduce.systems import (
    EARLIER_PREDICTIVE,
    GREEDY,
    PAPER_PREDICTIVE,
    PREDICTIVE,
    System,
    static,
)
from pipelineserve_simulator.reproduce.traces import Source

FIGURE_11_RATE_PER_S = 4.0
_RATES_BELOW = (3.0, 3.5)
_ACCEPTED_P90_S = 0.0215 * 1.15
_ACCEPTED_P99_S = 0.0309 * 1.20
_EDGE = (
    "Steps under the predictive law have few lengths: about 20 ms with the smallest chunk, 29 ms "
    "with the next one, 40 ms with the third. At 4 requests/s the percentile lies where one gives "
    "way to another, so that a percent of the steps decides between two of them. The lines below "
    "show what share lies within the accepted value, the same at lower rates, and with other "
    "constants of the law: the released ones are not those of the paper's runs, which are unknown."
)
_STATIC = static(BEST_STATIC_TOKENS)
_NAMED: tuple[tuple[str, System], ...] = (
    (f"static {BEST_STATIC_TOKENS}", _STATIC),
    ("greedy", GREEDY),
    ("predictive", PREDICTIVE),
)
_Runs = tuple[TrialFigures, ...]


def step_p90(study: Study) -> RowResult:
    """Row 5."""
    published = ((0.0517, 0.10), (0.0296, 0.40), (0.0215, 0.15))
    parts = gather(partial(_at_4, study), study.sources)
    lines = [
        of_runs(
            f"{name}{label(source)}",
            Unit.MS.show(paper_s),
            runs,
            _step_p90_s,
            Unit.MS,
            accept=within_ratio(paper_s, ratio),
        )
        for source, found in zip(study.sources, parts, strict=True)
        for (name, _), (paper_s, ratio), runs in zip(_NAMED, published, found, strict=True)
    ]
    charts = tuple(
        _distribution(source, found) for source, found in zip(study.sources, parts, strict=True)
    )
    return RowResult(
        "5",
        "P90 of a step at 4 requests/s",
        tuple(lines),
        _EDGE,
        _around_the_edge(study, "P90", _step_p90_s, _ACCEPTED_P90_S),
        charts,
    )


def step_p99(study: Study) -> RowResult:
    """Row 14."""
    published = ((_STATIC, "static 512", 0.0653), (PREDICTIVE, "predictive", 0.0309))
    lines: list[Finding] = []
    parts = gather(partial(_at_4, study), study.sources)
    for source, (of_static, _, of_predictive) in zip(study.sources, parts, strict=True):
        for (_, name, paper_s), runs in zip(published, (of_static, of_predictive), strict=True):
            lines.append(
                of_runs(
                    f"{name}{label(source)}",
                    Unit.MS.show(paper_s),
                    runs,
                    _step_p99_s,
                    Unit.MS,
                    accept=within_ratio(paper_s, 0.20),
                )
            )
    return RowResult(
        "14",
        "P99 of a step at 4 requests/s",
        tuple(lines),
        _EDGE,
        _around_the_edge(study, "P99", _step_p99_s, _ACCEPTED_P99_S),
    )


def _around_the_edge(
    study: Study, name: str, value: Value, accepted_s: float
) -> tuple[Finding, ...]:
    """The predictive law at rates below, and with constants that it had or may have had."""
    load = azure_400(study, Source.FITTED)
    cases: list[tuple[str, System, float]] = [
        *((f"predictive at {rate:g} /s", PREDICTIVE, rate) for rate in _RATES_BELOW),
        ("predictive at 4 /s", PREDICTIVE, FIGURE_11_RATE_PER_S),
        ("with margins of before July 2026 at 4 /s", EARLIER_PREDICTIVE, FIGURE_11_RATE_PER_S),
        ("with the paper's rules at 4 /s", PAPER_PREDICTIVE, FIGURE_11_RATE_PER_S),
    ]
    found = gather(lambda case: study.runs(case[1], load.at(case[2])), cases)
    share = partial(_share_of_short_steps, accepted_s)
    return tuple(
        of_runs(f"{what}, {case[0]}", "", runs, shown, unit)
        for what, shown, unit in (
            (name, value, Unit.MS),
            (f"steps of at most {1000 * accepted_s:.1f} ms", share, Unit.PERCENT),
        )
        for case, runs in zip(cases, found, strict=True)
    )


def _at_4(study: Study, source: Source) -> list[_Runs]:
    load = azure_400(study, source).at(FIGURE_11_RATE_PER_S)
    return gather(lambda named: study.runs(named[1], load), _NAMED)


def _distribution(source: Source, found: Sequence[_Runs]) -> Chart:
    """Curves of the first seed: a mean of distributions is none."""
    series = tuple(
        Series(
            name,
            tuple(1000 * value_s for _, value_s in runs[0].step_curve_s),
            tuple(percent / 100 for percent, _ in runs[0].step_curve_s),
        )
        for (name, _), runs in zip(_NAMED, found, strict=True)
    )
    return Chart(
        f"Steps at 4 requests/s, one seed{label(source)}",
        ChartKind.LINES,
        "step, ms",
        "share of steps",
        series,
        x_max=80.0,
    )


def largest_cuts(study: Study) -> RowResult:
    """Row 6: what dynamic chunks take off the static one's P90, at the rate where it is most."""
    parts = gather(partial(_cuts, study), study.sources)
    return RowResult(
        "6",
        "Largest cut of P90 latency against static 512, over the rates that all serve",
        tuple(line for lines, _ in parts for line in lines),
        charts=tuple(chart for _, charts in parts for chart in charts),
    )


def _cuts(study: Study, source: Source) -> tuple[list[Finding], list[Chart]]:
    rates = study.effort.sweep_rates_per_s
    load = azure_400(study, source)
    points = [(system, rate) for _, system in _NAMED for rate in rates]
    found = dict(
        zip(
            points,
            gather(lambda p: study.runs(p[0], load.at(p[1])), points),
            strict=True,
        )
    )
    published = (
        ("predictive", PREDICTIVE, "TPOT", _tpot_p90_s, 0.35),
        ("predictive", PREDICTIVE, "E2E", _e2e_p90_s, 0.31),
        ("greedy", GREEDY, "TPOT", _tpot_p90_s, 0.19),
        ("greedy", GREEDY, "E2E", _e2e_p90_s, 0.18),
    )
    lines: list[Finding] = []
    for name, system, latency, value, paper in published:
        cuts = {
            rate: 1
            - over_seeds(found[system, rate], value).mean
            / over_seeds(found[_STATIC, rate], value).mean
            for rate in rates
        }
        rate, cut = max(cuts.items(), key=lambda item: item[1])
        seeds = len(study.effort.seeds)
        lines.append(
            Finding(
                f"{name}, {latency}{label(source)}",
                Unit.PERCENT.show(paper),
                cut,
                Unit.PERCENT,
                within_points(paper, 8),
                basis=f"at {rate:g} /s of {rates[0]:g} to {rates[-1]:g}; {seeds} seeds, n = "
                f"{study.effort.num_azure}, whole run",
            )
        )
    lines.append(_order(lines, source))
    charts = [
        Chart(
            f"P90 {title} on azure-400{label(source)}",
            ChartKind.LINES,
            "requests per second",
            f"P90 {title}, {unit}",
            tuple(
                _line(name, rates, [found[system, rate] for rate in rates], value, scale)
                for name, system in _NAMED
            ),
        )
        for title, value, scale, unit in (
            ("TTFT", _ttft_p90_s, 1.0, "s"),
            ("TPOT", _tpot_p90_s, 1000.0, "ms"),
            ("E2E", _e2e_p90_s, 1.0, "s"),
        )
    ]
    return lines, charts


def _order(cuts: Sequence[Finding], source: Source) -> Finding:
    """Whether the predictive law cuts more than the greedy one, and that one anything."""
    tpot, e2e, greedy_tpot, greedy_e2e = (line.ours for line in cuts)
    least = min(tpot - greedy_tpot, e2e - greedy_e2e, greedy_tpot, greedy_e2e)
    return Finding(
        f"order: predictive, greedy, static{label(source)}",
        "falling",
        least,
        Unit.PERCENT,
        between(0.0, 1.0, "no step up"),
        basis="the smallest of the steps between the cuts above",
    )


def _line(
    name: str, rates: Sequence[float], runs: Sequence[_Runs], value: Value, scale: float
) -> Series:
    estimates = [over_seeds(of_rate, value) for of_rate in runs]
    return Series(
        name,
        tuple(rates),
        tuple(scale * found.mean for found in estimates),
        tuple(scale * (found.mean if found.low is None else found.low) for found in estimates),
        tuple(scale * (found.mean if found.high is None else found.high) for found in estimates),
    )


def _step_p99_s(run: TrialFigures) -> float:
    return run.step_s.p99


def _step_p90_s(run: TrialFigures) -> float:
    return run.step_s.p90


def _share_of_short_steps(accepted_s: float, run: TrialFigures) -> float:
    """Within a percent."""
    below = [percent for percent, value_s in run.step_curve_s if value_s <= accepted_s]
    return max(below, default=0.0) / 100


def _ttft_p90_s(run: TrialFigures) -> float:
    return run.ttft_s.p90


def _tpot_p90_s(run: TrialFigures) -> float:
    return run.tpot_s.p90


def _e2e_p90_s(run: TrialFigures) -> float:
    return run.e2e_s.p90
