"""Where ours aims beyond the best known scheduler, as far as the twin can judge it.

`comparisons` has the aims that set ours against several others.

Ours runs with stages that run free and does not know output lengths; the published systems run as
they did, in lock step and knowing them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from pipelineserve_simulator.measures.capacity import Capacity
from pipelineserve_simulator.measures.intervals import estimate
from pipelineserve_simulator.reproduce.effort import Effort
from pipelineserve_simulator.reproduce.figures import (
    PAPER_TARGETS,
    STRICT_TPOT,
    TargetPair,
    TrialFigures,
)
from pipelineserve_simulator.reproduce.findings import Accept, Finding, RowResult, Unit
from pipelineserve_simulator.reproduce.rows.lines import (
    Value,
    basis_of,
    bounds_of,
    if_whole,
    label,
    met_ratio,
    of_capacity,
    of_runs,
    over_seeds,
    ttft_p99_s,
)
from pipelineserve_simulator.reproduce.rows.replay import num_replayed, windows
from pipelineserve_simulator.reproduce.study import CapacityQuestion, Study, gather
from pipelineserve_simulator.reproduce.systems import OURS, PREDICTIVE_DELAY, System, static
from pipelineserve_simulator.reproduce.traces import Source
from pipelineserve_simulator.reproduce.trials import Load
from pipelineserve_simulator.workloads.registry import WorkloadName

_RIVALS: tuple[tuple[str, System], ...] = (
    ("FastPP predictive + DS", PREDICTIVE_DELAY),
    ("static 384", static(384)),
)
_NAMED: tuple[tuple[str, System], ...] = (("ours", OURS), *_RIVALS)
_MOST_SEEDS = 3
_MOST_WINDOW_SEEDS = 1
_STEP_S = 0.3


def num_steady(effort: Effort) -> int:
    """Requests of the steady loads."""
    return effort.num_steady


@dataclass(frozen=True, slots=True)
class _Aim:
    """Attainment of one load that ours should reach.

    Attributes:
        known: of the best known, as a study with another simulator has it.
        least_ratio: what ours should attain.
        part: requests of the effort that decide whether it is judged.
    """

    row: str
    title: str
    load: Load
    known: str
    least_ratio: float
    part: Callable[[Effort], int]
    targets: TargetPair = PAPER_TARGETS


def steady(study: Study) -> RowResult:
    """Attainment under a load that is a little too much."""
    parts = gather(partial(_steady, study), study.sources)
    return _joined(parts)


def _steady(study: Study, source: Source) -> RowResult:
    num = study.effort.num_steady
    load = Load(WorkloadName.AZURE_4000, 5.5, num, source)
    title = "Aim: azure-4000 at 5.5 /s"
    aim = _Aim("aim-steady", title, load, "F+DS 76.5 %", 0.98, num_steady)
    return _attained(study, aim, source)


def bursts(study: Study) -> RowResult:
    """Attainment under gamma arrivals and under bursts."""
    return _joined(gather(partial(_bursts, study), study.sources))


def _bursts(study: Study, source: Source) -> RowResult:
    num = study.effort.num_steady
    title = "Aim: bursty arrivals"
    gamma = Load(WorkloadName.BURSTY_GAMMA, 3.5, num, source)
    on_off = Load(WorkloadName.BURSTY_ON_OFF, 4.5, num, source)
    aims = (
        _Aim("aim-bursts", title, gamma, "best static 65, F+DS 57 %", 0.90, num_steady),
        _Aim("aim-bursts", title, on_off, "best static 80, F+DS 68 %", 0.97, num_steady),
    )
    return _joined(gather(lambda aim: _attained(study, aim, source), aims))


def strict_replay(study: Study) -> RowResult:
    """All windows of the trace together; the third asks for more than anybody can serve."""
    return _joined(gather(partial(_strict_replay, study), study.sources))


def _strict_replay(study: Study, source: Source) -> RowResult:
    seeds = study.effort.seeds[:_MOST_WINDOW_SEEDS]
    loads = windows(study, source)
    points = [(system, load) for _, system in _NAMED for load in loads]
    runs = gather(lambda p: study.runs(p[0], p[1], STRICT_TPOT, seeds=seeds), points)
    found = dict(zip(points, runs, strict=True))
    met = partial(met_ratio, STRICT_TPOT)
    # Of each seed over the windows, so that the interval is that of the mean.
    each = [
        [met(run) for run in of_seed]
        for of_seed in zip(*(found[OURS, load] for load in loads), strict=True)
    ]
    mean = estimate([fmean(values) for values in each])
    if mean is None:
        raise ValueError("got no run, expected one for each seed")
    line = Finding(
        f"attainment over {len(loads)} windows, ours{label(source)}",
        "F+DS 64 %",
        mean.mean,
        Unit.PERCENT,
        if_whole(study.effort, num_replayed, Accept(0.95, 1.0, ">= 95 %")),
        bounds_of(mean),
        f"{basis_of(found[OURS, loads[0]])} of each window",
    )
    supports = [
        of_runs(
            f"{what}, {name}, {load.name.value}{label(source)}",
            "",
            found[system, load],
            value,
            unit,
        )
        for what, value, unit in (
            ("attainment", met, Unit.PERCENT),
            ("P99 TTFT", ttft_p99_s, Unit.S),
        )
        for name, system in _NAMED
        for load in loads
    ]
    title = "Aim: windows of azure-replay with a TPOT target of 150 ms"
    return RowResult("aim-replay", title, (line,), supports=tuple(supports))


def _attained(study: Study, aim: _Aim, source: Source) -> RowResult:
    seeds = study.effort.seeds[:_MOST_SEEDS]
    found = gather(lambda named: study.runs(named[1], aim.load, aim.targets, seeds=seeds), _NAMED)
    place = f"{aim.load.name.value}{label(source)}"
    met = partial(met_ratio, aim.targets)
    line = of_runs(
        f"attainment, ours, {place}",
        aim.known,
        found[0],
        met,
        Unit.PERCENT,
        accept=if_whole(
            study.effort,
            aim.part,
            Accept(aim.least_ratio, 1.0, f">= {100 * aim.least_ratio:.0f} %"),
        ),
    )
    supports = [
        of_runs(f"{what}, {name}, {place}", "", runs, value, unit)
        for what, value, unit in (
            ("attainment", met, Unit.PERCENT),
            ("P90 TTFT", lambda run: run.ttft_s.p90, Unit.S),
            ("P99 TTFT", ttft_p99_s, Unit.S),
            ("P90 TPOT", lambda run: run.tpot_s.p90, Unit.MS),
            ("largest gap", _gap_s, Unit.S),
            ("bubble", lambda run: run.bubble_ratio, Unit.PERCENT),
        )
        for (name, _), runs in zip(_NAMED, found, strict=True)
    ]
    return RowResult(aim.row, aim.title, (line,), supports=tuple(supports))


def tail_capacity(study: Study) -> RowResult:
    """Capacity that starves no one: the P99 of TTFT within four times its target as well."""
    effort = study.effort
    cases = (
        (effort.num_steady, True, 2),
        (effort.num_sustained, True, 1),
        (effort.num_steady, False, 1),
    )
    questions = [
        CapacityQuestion(
            system,
            Load(WorkloadName.AZURE_4000, num_requests=num),
            3.5,
            9.0,
            has_tail=has_tail,
            tolerance=2.0,
            most_seeds=most_seeds,
        )
        for num, has_tail, most_seeds in cases
        for _, system in _NAMED[:2]
    ]
    found = study.capacities(questions)
    lines = (
        _tail_ratio("", found[0], found[1], if_whole(effort, num_steady, _TAIL)),
        _tail_ratio(", sustained", found[2], found[3], if_whole(effort, _num_sustained, _TAIL)),
    )
    supports = [
        of_capacity(
            f"capacity@P90 {'with P99 TTFT' if has_tail else 'plain'}, {name}, {num} requests",
            "",
            capacity,
            num,
        )
        for ((num, has_tail, _), name), capacity in zip(
            ((case, name) for case in cases for name, _ in _NAMED[:2]), found, strict=True
        )
    ]
    title = "Aim: capacity on azure-4000 without starving anyone"
    return RowResult("aim-tail", title, lines, supports=tuple(supports))


_TAIL = Accept(1.10, float("inf"), ">= 1.10")


def _num_sustained(effort: Effort) -> int:
    return effort.num_sustained


def _tail_ratio(what: str, ours: Capacity, rival: Capacity, accept: Accept | None) -> Finding:
    return Finding(
        f"capacity with P99 TTFT <= 4 x target{what}, ours ÷ F+DS",
        "1.00 x",
        ours.capacity_per_s / rival.capacity_per_s if rival.capacity_per_s else 0.0,
        Unit.RATIO,
        accept,
        basis="of the capacities below",
    )


def unknown_lengths(study: Study) -> RowResult:
    """Decode-heavy loads, where KV decides and ours does not know output lengths."""
    num = study.effort.num_decode_heavy
    cases = (
        Load(WorkloadName.DECODE_HEAVY, num_requests=num),
        Load(WorkloadName.CNN_REVERSED, 8.0, num),
    )
    return _joined(gather(partial(_unknown_lengths, study), cases))


def _unknown_lengths(study: Study, load: Load) -> RowResult:
    seeds = study.effort.seeds[:_MOST_SEEDS]
    ours, rival = gather(lambda named: study.runs(named[1], load, seeds=seeds), _NAMED[:2])
    met = partial(met_ratio, PAPER_TARGETS)
    place = load.name.value
    difference = over_seeds(ours, met).mean - over_seeds(rival, met).mean
    lines = (
        Finding(
            f"attainment, ours - F+DS that knows lengths, {place}",
            "F+DS",
            difference,
            Unit.PERCENT,
            Accept(0.0, 1.0, ">= 0"),
            basis=basis_of(ours),
        ),
        of_runs(
            f"largest gap, ours, {place}",
            "unbounded",
            ours,
            _gap_s,
            Unit.S,
            accept=Accept(0.0, 2.0 + _STEP_S, "<= 2 s and a step"),
        ),
        Finding(
            f"requests retracted, ours, {place}",
            "",
            sum(run.num_preemptions for run in ours) / sum(run.num_requests for run in ours),
            Unit.PERCENT,
            Accept(0.0, 0.0, "0"),
            basis=basis_of(ours),
        ),
    )
    values: tuple[tuple[str, Value, Unit], ...] = (
        ("attainment", met, Unit.PERCENT),
        ("P99 TTFT", ttft_p99_s, Unit.S),
        ("largest gap", _gap_s, Unit.S),
        ("KV used, largest", lambda run: run.kv_used_ratio_max, Unit.PERCENT),
    )
    supports = [
        of_runs(f"{what}, {name}, {place}", "", runs, value, unit)
        for what, value, unit in values
        for (name, _), runs in zip(_NAMED[:2], (ours, rival), strict=True)
    ]
    title = "Aim: decode-heavy loads with unknown output lengths"
    return RowResult("aim-decode", title, lines, supports=tuple(supports))


def _joined(parts: Sequence[RowResult]) -> RowResult:
    return RowResult(
        parts[0].row,
        parts[0].title,
        tuple(line for part in parts for line in part.findings),
        supports=tuple(line for part in parts for line in part.supports),
    )


def _gap_s(run: TrialFigures) -> float:
    return run.longest_gap_s.max
