"""Aims that set ours against others: by arrival under overload, and the best of all everywhere."""

from dataclasses import dataclass
from functools import partial

from pipelineserve_simulator.reproduce.figures import PAPER_TARGETS, TargetPair, TrialFigures
from pipelineserve_simulator.reproduce.findings import Accept, Finding, RowResult, Unit
from pipelineserve_simulator.reproduce.rows.aims import num_steady
from pipelineserve_simulator.reproduce.rows.lines import (
    Value,
    basis_of,
    if_whole,
    met_ratio,
    of_runs,
    over_seeds,
    ttft_p99_s,
)
from pipelineserve_simulator.reproduce.study import Study, gather
from pipelineserve_simulator.reproduce.systems import (
    GREEDY,
    OURS,
    OURS_BY_AGEING,
    OURS_BY_ARRIVAL,
    PREDICTIVE,
    PREDICTIVE_DELAY,
    System,
    static,
)
from pipelineserve_simulator.reproduce.trials import Load
from pipelineserve_simulator.workloads.registry import WorkloadName

_MOST_SEEDS = 2
# A quarter more than what any law can sustain within the TPOT target.
_OVERLOAD_PER_S = 8.0
_ORDERS: tuple[tuple[str, System], ...] = (
    ("arrival", OURS_BY_ARRIVAL),
    ("ageing", OURS_BY_AGEING),
    ("triage", OURS),
)
_RIVALS: tuple[tuple[str, System], ...] = (
    ("static 384", static(384)),
    ("static 512", static(512)),
    ("greedy", GREEDY),
    ("predictive", PREDICTIVE),
    ("predictive + DS", PREDICTIVE_DELAY),
)
# What two runs of one system differ by where nothing but chance is another.
_NOISE_RATIO = 0.02


@dataclass(frozen=True, slots=True)
class _Place:
    """One workload, about where the best baseline begins to miss targets; None: its own rate."""

    name: WorkloadName
    rate_per_s: float | None
    scale: float = 1.0

    @property
    def targets(self) -> TargetPair:
        """Those of the paper, or tighter ones."""
        return PAPER_TARGETS.scaled(self.scale)

    @property
    def title(self) -> str:
        """As tables show it."""
        rate = "" if self.rate_per_s is None else f" at {self.rate_per_s:g} /s"
        return f"{self.name.value}{rate}{'' if self.scale == 1 else f', targets x {self.scale:g}'}"


_PLACES = (
    _Place(WorkloadName.AZURE_400, 7.0),
    _Place(WorkloadName.AZURE_4000, 5.0),
    _Place(WorkloadName.AZURE_REPLAY, None),
    _Place(WorkloadName.AZURE_CODE, None),
    _Place(WorkloadName.SHAREGPT, 22.0),
    _Place(WorkloadName.CNN, 9.0),
    _Place(WorkloadName.CNN_REVERSED, 7.0),
    _Place(WorkloadName.PREFILL_HEAVY, 11.0),
    _Place(WorkloadName.DECODE_HEAVY, None),
    _Place(WorkloadName.BURSTY_GAMMA, None),
    _Place(WorkloadName.BURSTY_ON_OFF, None),
    _Place(WorkloadName.STRICT, 4.0, scale=0.8),
    _Place(WorkloadName.STRICT, 4.0, scale=0.6),
    _Place(WorkloadName.STRICT, 1.0, scale=0.4),
)


def overload(study: Study) -> RowResult:
    """Who waits longest where not everybody can be served in time, by the order of the queue."""
    seeds = study.effort.seeds[:_MOST_SEEDS]
    load = Load(WorkloadName.AZURE_4000, _OVERLOAD_PER_S, study.effort.num_steady)
    found = gather(lambda named: study.runs(named[1], load, seeds=seeds), _ORDERS)
    fifo, fair, triage = found
    bound = if_whole(study.effort, num_steady, Accept(0.0, 1.5, "<= 1.5"))
    lines = (_longest("ageing", fair, fifo, bound), _longest("triage", triage, fifo, None))
    values: tuple[tuple[str, Value, Unit], ...] = (
        ("P99 TTFT", ttft_p99_s, Unit.S),
        ("P90 TTFT", lambda run: run.ttft_s.p90, Unit.S),
        ("attainment", partial(met_ratio, PAPER_TARGETS), Unit.PERCENT),
        ("P90 TPOT", lambda run: run.tpot_s.p90, Unit.MS),
    )
    supports = tuple(
        of_runs(f"{what}, by {name}", "", runs, value, unit)
        for what, value, unit in values
        for (name, _), runs in zip(_ORDERS, found, strict=True)
    )
    title = f"Aim: P99 TTFT on azure-4000 at {_OVERLOAD_PER_S:g} /s, an overload, by order"
    return RowResult("aim-overload", title, lines, supports=supports)


def _longest(
    name: str,
    runs: tuple[TrialFigures, ...],
    fifo: tuple[TrialFigures, ...],
    accept: Accept | None,
) -> Finding:
    ratio = over_seeds(runs, ttft_p99_s).mean / over_seeds(fifo, ttft_p99_s).mean
    return Finding(
        f"P99 TTFT, {name} ÷ arrival", "1.00 x", ratio, Unit.RATIO, accept, basis=basis_of(runs)
    )


def everywhere(study: Study) -> RowResult:
    """Attainment of every workload against the best of all others there."""
    parts = gather(partial(_compared, study), _PLACES)
    return RowResult(
        "aim-everywhere",
        "Aim: attainment of no workload below the best baseline's by more than chance",
        tuple(line for line, _ in parts),
        supports=tuple(line for _, lines in parts for line in lines),
    )


def _compared(study: Study, place: _Place) -> tuple[Finding, tuple[Finding, ...]]:
    seeds = study.effort.seeds[:_MOST_SEEDS]
    load = Load(place.name, place.rate_per_s, study.effort.num_compared)
    named = (("ours", OURS), *_RIVALS)
    found = gather(
        lambda one: study.runs(one[1], load, place.targets, seeds=seeds),
        named,
    )
    met = partial(met_ratio, place.targets)
    ours, *others = (over_seeds(runs, met).mean for runs in found)
    best = max(range(len(others)), key=others.__getitem__)
    line = Finding(
        f"{place.title}: ours - best, {_RIVALS[best][0]}",
        Unit.PERCENT.show(others[best]),
        ours - others[best],
        Unit.PERCENT,
        if_whole(
            study.effort,
            lambda effort: effort.num_compared,
            Accept(-_NOISE_RATIO, 1.0, f">= - {100 * _NOISE_RATIO:.0f} points"),
        ),
        basis=basis_of(found[0]),
    )
    supports = tuple(
        of_runs(f"attainment, {name}, {place.title}", "", runs, met, Unit.PERCENT)
        for (name, _), runs in zip(named, found, strict=True)
    )
    return line, supports
