"""Rows 10, 11 and 13, and what the paper has of delay scheduling on a run of 1,000 requests."""

from collections.abc import Sequence

from pipelineserve_simulator.reproduce.charts import Chart, ChartKind, Series
from pipelineserve_simulator.reproduce.figures import TrialFigures
from pipelineserve_simulator.reproduce.findings import (
    Accept,
    Finding,
    RowResult,
    Unit,
    between,
    within_ratio,
)
from pipelineserve_simulator.reproduce.rows.lines import Value, of_capacity, of_runs, over_seeds
from pipelineserve_simulator.reproduce.study import CapacityQuestion, Study, gather
from pipelineserve_simulator.reproduce.systems import (
    PREDICTIVE,
    PREDICTIVE_DELAY,
    System,
    static,
)
from pipelineserve_simulator.reproduce.trials import Load
from pipelineserve_simulator.workloads.registry import WorkloadName

_FIGURE_11_RATE_PER_S = 8.0
_OTHER_RATE_PER_S = 7.0
_BEST_STATIC = static(256)
_LEAST_PER_S, _MOST_PER_S = 4.0, 16.0
_TOLERANCE = 1.5
_MOST_LONG_SEEDS = 2
_PAIR: tuple[tuple[str, System], ...] = (
    ("predictive", PREDICTIVE),
    ("predictive + DS", PREDICTIVE_DELAY),
)


def _cnn_reversed(study: Study) -> Load:
    return Load(WorkloadName.CNN_REVERSED, num_requests=study.effort.num_decode_heavy)


def _question(system: System, study: Study) -> CapacityQuestion:
    load = _cnn_reversed(study)
    return CapacityQuestion(system, load, _LEAST_PER_S, _MOST_PER_S, tolerance=_TOLERANCE)


def cnn_reversed_capacity(study: Study) -> RowResult:
    """Row 10."""
    capacity = study.capacity(_question(PREDICTIVE, study))
    num = study.effort.num_decode_heavy
    line = of_capacity("predictive", "7.40 /s", capacity, num, within_ratio(7.40, 0.12))
    return RowResult("10", "capacity@P90 on cnn-reversed, 1,000 requests", (line,))


def delay_steps(study: Study) -> RowResult:
    """Row 11."""
    systems = (("static 256", _BEST_STATIC), *_PAIR)
    rates = (_FIGURE_11_RATE_PER_S, _OTHER_RATE_PER_S)
    load = _cnn_reversed(study)
    points = [(name, system, rate) for rate in rates for name, system in systems]
    runs = gather(lambda p: study.runs(p[1], load.at(p[2])), points)
    found = {(name, rate): of_point for (name, _, rate), of_point in zip(points, runs, strict=True)}
    lines = [
        *(_change(found, rate, _step_p90_s, "step P90", is_bounded=True) for rate in rates),
        *(_change(found, rate, _tpot_p90_s, "P90 TPOT", is_bounded=False) for rate in rates),
    ]
    best = [max(lines[:2], key=_fits), max(lines[2:], key=_fits)]
    supports = [
        of_runs(f"{what}, {name} at {rate:g} /s", "", found[name, rate], value, Unit.MS)
        for rate in rates
        for what, value in (("step P90", _step_p90_s), ("P90 TPOT", _tpot_p90_s))
        for name, _ in systems
    ]
    others = [_unjudged(line) for line in lines if line not in best]
    return RowResult(
        "11",
        "Delay scheduling on cnn-reversed at 8 /s (or 7): change against predictive alone",
        tuple(best),
        supports=(*others, *supports),
        charts=(_distribution(found, systems),),
    )


def _fits(line: Finding) -> bool:
    return line.accept is not None and line.accept.holds(line.ours)


def _unjudged(line: Finding) -> Finding:
    return Finding(line.what, line.paper, line.ours, line.unit, None, line.interval, line.basis)


def _change(
    found: dict[tuple[str, float], tuple[TrialFigures, ...]],
    rate_per_s: float,
    value: Value,
    what: str,
    *,
    is_bounded: bool,
) -> Finding:
    without = over_seeds(found["predictive", rate_per_s], value).mean
    with_delay = over_seeds(found["predictive + DS", rate_per_s], value).mean
    accept = between(-1.0, 0.0, "falls")
    if is_bounded:
        accept = between(-0.30, -0.10, "- 10 to - 30 %")
    return Finding(
        f"{what} at {rate_per_s:g} /s",
        "28.9 to 24.5 ms, - 15 %" if is_bounded else "falls",
        with_delay / without - 1,
        Unit.PERCENT,
        accept,
        basis=_basis(found["predictive", rate_per_s]),
    )


def _distribution(
    found: dict[tuple[str, float], tuple[TrialFigures, ...]],
    systems: Sequence[tuple[str, System]],
) -> Chart:
    return Chart(
        "Steps on cnn-reversed at 8 requests/s, one seed",
        ChartKind.LINES,
        "step, ms",
        "share of steps",
        tuple(
            Series(
                name,
                tuple(1000 * s for _, s in found[name, _FIGURE_11_RATE_PER_S][0].step_curve_s),
                tuple(at / 100 for at, _ in found[name, _FIGURE_11_RATE_PER_S][0].step_curve_s),
            )
            for name, _ in systems
        ),
        x_max=50.0,
    )


def decode_heavy(study: Study) -> RowResult:
    """Row 13."""
    load = Load(WorkloadName.DECODE_HEAVY, num_requests=study.effort.num_decode_heavy)
    without, with_delay = gather(lambda named: study.runs(named[1], load), _PAIR)
    lines = (
        _difference("mean E2E", -4.1, without, with_delay, lambda run: run.e2e_s.mean),
        _difference("P99 E2E", -8.1, without, with_delay, lambda run: run.e2e_s.p99),
        Finding(
            "P99 TPOT",
            "+ 15 %",
            over_seeds(with_delay, _tpot_p99_s).mean / over_seeds(without, _tpot_p99_s).mean - 1,
            Unit.PERCENT,
            Accept(0.075, 0.30, "sign, factor 2"),
            basis=_basis(without),
        ),
    )
    supports = [
        of_runs(f"{what}, {name}", "", runs, value, unit)
        for what, value, unit in (
            ("mean E2E", lambda run: run.e2e_s.mean, Unit.S),
            ("P99 E2E", lambda run: run.e2e_s.p99, Unit.S),
            ("P99 TPOT", _tpot_p99_s, Unit.MS),
            ("KV used, mean", lambda run: run.kv_used_ratio_mean, Unit.PERCENT),
        )
        for (name, _), runs in zip(_PAIR, (without, with_delay), strict=True)
    ]
    title = "Delay scheduling on decode-heavy at 14 /s: change against predictive alone"
    return RowResult("13", title, lines, supports=tuple(supports))


def _difference(
    what: str,
    paper_s: float,
    without: Sequence[TrialFigures],
    with_delay: Sequence[TrialFigures],
    value: Value,
) -> Finding:
    ours_s = over_seeds(with_delay, value).mean - over_seeds(without, value).mean
    accept = Accept(2 * paper_s, paper_s / 2, "sign, factor 2")
    return Finding(what, f"{paper_s:g} s", ours_s, Unit.S, accept, basis=_basis(without))


def delay_transient(study: Study) -> RowResult:
    """What the paper has as + 41 %; shown for a short and a long run, without acceptance."""
    num, num_long = study.effort.num_decode_heavy, study.effort.num_long
    short = _cnn_reversed(study)
    capacities = study.capacities([_question(system, study) for _, system in _PAIR])
    lines = [
        of_capacity(f"capacity@P90, {name}", paper, capacity, num)
        for (name, _), paper, capacity in zip(
            _PAIR, ("7.40 /s", "10.42 /s"), capacities, strict=True
        )
    ]
    loads = [(num, short.at(8.0)), (num_long, Load(WorkloadName.CNN_REVERSED, 5.0, num_long))]
    cases = [(name, system, size, load) for size, load in loads for name, system in _PAIR]
    seeds = study.effort.seeds
    runs = gather(
        lambda case: study.runs(
            case[1], case[3], seeds=seeds if case[2] == num else seeds[:_MOST_LONG_SEEDS]
        ),
        cases,
    )
    for (name, _, size, load), found in zip(cases, runs, strict=True):
        at = f"{name}, {size} requests at {load.rate_per_s:g} /s"
        lines += [
            of_runs(f"P90 TTFT, {at}", "", found, lambda run: run.ttft_s.p90, Unit.S),
            of_runs(f"P90 TPOT, {at}", "", found, _tpot_p90_s, Unit.MS),
            of_runs(
                f"KV used, largest, {at}",
                "",
                found,
                lambda run: run.kv_used_ratio_max,
                Unit.PERCENT,
            ),
            of_runs(f"largest gap, {at}", "", found, lambda run: run.longest_gap_s.max, Unit.S),
        ]
    title = "Delay scheduling on cnn-reversed, short and long: reported, no acceptance"
    return RowResult("delay-transient", title, tuple(lines))


def _basis(runs: Sequence[TrialFigures]) -> str:
    return f"{len(runs)} seeds, n = {runs[0].num_requests}, whole run"


def _step_p90_s(run: TrialFigures) -> float:
    return run.step_s.p90


def _tpot_p90_s(run: TrialFigures) -> float:
    return run.tpot_s.p90


def _tpot_p99_s(run: TrialFigures) -> float:
    return run.tpot_s.p99
