"""Where ours aims beyond the best known scheduler, as far as the twin can judge it.

Ours runs with stages that run free and does not know output lengths; the published systems run as
they did, in lock step and knowing them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pipelineserve_simulator.measures.capacity import Capacity
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
    label,
    of_capacity,
    of_runs,
    over_seeds,
)
from pipelineserve_simulator.reproduce.rows.replay import replay
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
_STEP_S = 0.3


@dataclass(frozen=True, slots=True)
class _Aim:
    """Attainment of one load that ours should reach.

    Attributes:
        known: of the best known, as a study with another simulator has it.
        least_ratio: what ours should attain.
    """

    row: str
    title: str
    load: Load
    known: str
    least_ratio: float
    targets: TargetPair = PAPER_TARGETS


def steady(study: Study) -> RowResult:
    """Attainment under a load that is a little too much."""
    parts = gather(partial(_steady, study), study.sources)
    return _joined(parts)


def _steady(study: Study, source: Source) -> RowResult:
    num = study.effort.num_steady
    load = Load(WorkloadName.AZURE_4000, 5.5, num, source)
    title = "Aim: azure-4000 at 5.5 /s"
    aim = _Aim("aim-steady", title, load, "F+DS 76.5 %", 0.98)
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
        _Aim("aim-bursts", title, gamma, "best static 65, F+DS 57 %", 0.90),
        _Aim("aim-bursts", title, on_off, "best static 80, F+DS 68 %", 0.97),
    )
    return _joined(gather(lambda aim: _attained(study, aim, source), aims))


def strict_replay(study: Study) -> RowResult:
    """The first of the trace's windows; the fits know no other."""
    return _joined(gather(partial(_strict_replay, study), study.sources))


def _strict_replay(study: Study, source: Source) -> RowResult:
    title = "Aim: azure-replay with a TPOT target of 150 ms, first window"
    aim = _Aim("aim-replay", title, replay(study, source), "F+DS 89 %", 0.95, targets=STRICT_TPOT)
    return _attained(study, aim, source)


def _attained(study: Study, aim: _Aim, source: Source) -> RowResult:
    seeds = study.effort.seeds[:_MOST_SEEDS]
    found = gather(lambda named: study.runs(named[1], aim.load, aim.targets, seeds=seeds), _NAMED)
    place = f"{aim.load.name.value}{label(source)}"
    met = partial(_met, aim.targets)
    line = of_runs(
        f"attainment, ours, {place}",
        aim.known,
        found[0],
        met,
        Unit.PERCENT,
        accept=Accept(aim.least_ratio, 1.0, f">= {100 * aim.least_ratio:.0f} %"),
    )
    supports = [
        of_runs(f"{what}, {name}, {place}", "", runs, value, unit)
        for what, value, unit in (
            ("attainment", met, Unit.PERCENT),
            ("P90 TTFT", lambda run: run.ttft_s.p90, Unit.S),
            ("P99 TTFT", _ttft_p99_s, Unit.S),
            ("P90 TPOT", lambda run: run.tpot_s.p90, Unit.MS),
            ("largest gap", _gap_s, Unit.S),
            ("bubble", lambda run: run.bubble_ratio, Unit.PERCENT),
        )
        for (name, _), runs in zip(_NAMED, found, strict=True)
    ]
    return RowResult(aim.row, aim.title, (line,), supports=tuple(supports))


def tail_capacity(study: Study) -> RowResult:
    """Capacity that starves no one: the P99 of TTFT within four times its target as well."""
    load = Load(WorkloadName.AZURE_4000, num_requests=study.effort.num_steady)
    questions = [
        CapacityQuestion(system, load, 3.5, 9.0, has_tail=has_tail, tolerance=2.0, most_seeds=2)
        for has_tail in (True, False)
        for _, system in _NAMED[:2]
    ]
    ours, rival, plain_ours, plain_rival = study.capacities(questions)
    ratio = ours.capacity_per_s / rival.capacity_per_s if rival.capacity_per_s else 0.0
    line = Finding(
        "capacity with P99 TTFT <= 4 x target, ours ÷ F+DS",
        "1.00 x",
        ratio,
        Unit.RATIO,
        Accept(1.10, float("inf"), ">= 1.10"),
        basis="of the capacities below",
    )
    named: tuple[tuple[str, Capacity], ...] = (
        ("with P99 TTFT, ours", ours),
        ("with P99 TTFT, F+DS", rival),
        ("plain, ours", plain_ours),
        ("plain, F+DS", plain_rival),
    )
    supports = [
        of_capacity(f"capacity@P90 {what}", "", capacity, study.effort.num_steady)
        for what, capacity in named
    ]
    title = "Aim: capacity on azure-4000 without starving anyone"
    return RowResult("aim-tail", title, (line,), supports=tuple(supports))


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
    met = partial(_met, PAPER_TARGETS)
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
        ("P99 TTFT", _ttft_p99_s, Unit.S),
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


def _met(targets: TargetPair, run: TrialFigures) -> float:
    return run.attainment(targets).ratio


def _ttft_p99_s(run: TrialFigures) -> float:
    return run.ttft_s.p99


def _gap_s(run: TrialFigures) -> float:
    return run.longest_gap_s.max
