"""Lines from figures over seeds."""

import math
from collections.abc import Callable, Sequence

from pipelineserve_simulator.measures.capacity import Bound, Capacity
from pipelineserve_simulator.measures.intervals import Estimate, estimate
from pipelineserve_simulator.reproduce.effort import Effort
from pipelineserve_simulator.reproduce.figures import TargetPair, TrialFigures
from pipelineserve_simulator.reproduce.findings import Accept, Finding, Unit
from pipelineserve_simulator.reproduce.traces import Source

Value = Callable[[TrialFigures], float]


def met_ratio(targets: TargetPair, run: TrialFigures) -> float:
    """Share of the requests that met both targets."""
    return run.attainment(targets).ratio


def ttft_p99_s(run: TrialFigures) -> float:
    """Of the requests that finished."""
    return run.ttft_s.p99


def over_seeds(runs: Sequence[TrialFigures], value: Value) -> Estimate:
    """The mean of a figure with its interval."""
    found = estimate([value(run) for run in runs])
    if found is None:
        raise ValueError("got no run, expected one for each seed")
    return found


def bounds_of(found: Estimate) -> tuple[float, float] | None:
    """Its interval, if it has one."""
    return None if found.low is None or found.high is None else (found.low, found.high)


def basis_of(runs: Sequence[TrialFigures]) -> str:
    """Seeds, requests, window."""
    return f"{len(runs)} seeds, n = {runs[0].num_requests}, whole run"


def of_runs(
    what: str,
    paper: str,
    runs: Sequence[TrialFigures],
    value: Value,
    unit: Unit,
    *,
    accept: Accept | None = None,
) -> Finding:
    """A figure over seeds as a line."""
    found = over_seeds(runs, value)
    return Finding(what, paper, found.mean, unit, accept, bounds_of(found), basis_of(runs))


def of_capacity(
    what: str, paper: str, capacity: Capacity, num_requests: int, accept: Accept | None = None
) -> Finding:
    """A capacity as a line, with the seeds' own thresholds as its spread."""
    spread = (capacity.interval.low, capacity.interval.high)
    seeds = len(capacity.search.seeds)
    basis = f"{seeds} seeds, n = {num_requests}, whole run, ± {_percent(capacity)} %"
    match capacity.bound:
        case Bound.FOUND:
            pass
        case Bound.BELOW:
            basis += f"; below {capacity.search.low_per_s:g} /s, the search's lower end"
        case Bound.ABOVE:
            basis += f"; above {capacity.search.high_per_s:g} /s, the search's upper end"
    is_finite = all(map(math.isfinite, spread))
    return Finding(
        what,
        paper,
        capacity.capacity_per_s,
        Unit.PER_S,
        accept,
        spread if is_finite else None,
        basis,
    )


def _percent(capacity: Capacity) -> str:
    return f"{100 * capacity.search.tolerance_ratio:g}"


def if_whole(effort: Effort, part: Callable[[Effort], int], accept: Accept) -> Accept | None:
    """The tolerance for a part that is run whole; what is run shorter is only reported."""
    return accept if effort.is_whole(part) else None


def label(source: Source) -> str:
    """What is added to a line's name where a trace was given."""
    match source:
        case Source.FITTED:
            return ""
        case Source.ROWS:
            return " (rows of the trace)"
