"""The search: every layout is laid out, forecast, and the best few are simulated and ranked.

The formula counts every micro-batch as full, so it errs on the safe side; that is why layouts that
it finds a little too small are simulated too. What decides is the simulation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from pipelineserve.load.targets import Targets
from pipelineserve.policy.reason_texts import text_of
from pipelineserve_simulator.measures.intervals import (
    Estimate,
    MedianInterval,
    estimate,
    median_interval,
)
from pipelineserve_simulator.planning.demand import Demand
from pipelineserve_simulator.planning.forecasts import Forecast, forecast
from pipelineserve_simulator.planning.layouts import Placed, Refused, Shape, place, shapes_for
from pipelineserve_simulator.planning.machines import Machine
from pipelineserve_simulator.planning.models import PlannedModel
from pipelineserve_simulator.planning.trials import (
    ChunkPolicyName,
    Conditions,
    Deployment,
    Trial,
    TrialResult,
    run_trial,
)
from pipelineserve_simulator.workloads.requests import Workload

# Layouts that bear this share of the rate by formula are worth a simulation.
_CLOSE_RATIO = 0.75


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        num_devices: the most that may be used.
        demand: of the workload, all replicas together.
        tensor_parallel, num_stages: only layouts with as many; None for any.
    """

    model: PlannedModel
    machine: Machine
    num_devices: int
    workload: Workload
    demand: Demand
    targets: Targets
    max_chunk_tokens: int = 2048
    tensor_parallel: int | None = None
    num_stages: int | None = None


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated.

    Attributes:
        num_layouts: so many layouts, each with every chunk policy; at least 1.
        seeds: of the workload and the machine's noise; at least one.
    """

    num_layouts: int = 4
    seeds: tuple[int, ...] = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Spread:
    """A percentile over seeds.

    Attributes:
        median: infinite if requests failed.
        interval: of the true median, from the seeds' order statistics.
    """

    median: float
    interval: MedianInterval


@dataclass(frozen=True, slots=True)
class Ranked:
    """A deployment that was simulated.

    Attributes:
        results: one per seed that there was time for, at least one.
    """

    deployment: Deployment
    forecast: Forecast
    results: tuple[TrialResult, ...]

    @property
    def meets_targets(self) -> bool:
        """Whether more than half of the seeds do.

        A mean of their percentiles would be decided by the one seed that broke down; a capacity is
        content with half of them (`measures.capacity`), a plan is to be safe.
        """
        return 2 * sum(result.meets_targets for result in self.results) > len(self.results)

    @property
    def goodput_per_s(self) -> Estimate:
        """Requests per second that meet every target, all replicas together."""
        return self._estimate(lambda result: result.figures.goodput_per_s)

    @property
    def goodput_per_device_s(self) -> float:
        """The same for one device; what the ranking goes by."""
        return self.goodput_per_s.mean / self.deployment.num_devices

    @property
    def ttft_s(self) -> Spread:
        """At the percentile that is judged."""
        return _spread([result.ttft_s for result in self.results])

    @property
    def tpot_s(self) -> Spread:
        """At the percentile that is judged."""
        return _spread([result.tpot_s for result in self.results])

    @property
    def attainment_ratio(self) -> float:
        """Share of all requests that met every target, mean over seeds."""
        return self._estimate(_attainment_ratio).mean

    @property
    def mean_e2e_s(self) -> float:
        """Arrival to last token, mean over requests and seeds; infinite if none finished."""
        return self._estimate(_mean_e2e_s).mean

    @property
    def bubble_ratio(self) -> float:
        """Idle time of a stage while there is work, mean over stages and seeds."""
        return self._estimate(_bubble_ratio).mean

    @property
    def kv_used_ratio_max(self) -> float:
        """The largest share of KV in use, over replicas and seeds."""
        return max(result.figures.kv_used_ratio_max for result in self.results)

    def _estimate(self, value_of: Callable[[TrialResult], float]) -> Estimate:
        found = estimate([value_of(result) for result in self.results])
        if found is None:
            raise ValueError("got no result, expected one or more")
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer.

    Attributes:
        ranked: those that meet their targets first, then by goodput per device in steps of two
            digits, since less is noise, then by mean latency.
        refused: every other layout, in the order in which they were looked at.
        is_cut_short: whether time ran out before all seeds of all deployments.
    """

    question: Question
    ranked: tuple[Ranked, ...]
    refused: tuple[Refused, ...]
    is_cut_short: bool

    @property
    def best(self) -> Ranked | None:
        """The first that meets its targets."""
        return self.ranked[0] if self.ranked and self.ranked[0].meets_targets else None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the simulations stand: about to begin the trial after `num_done` of `num_trials`."""

    num_done: int
    num_trials: int
    trial: Trial


def make_plan(
    question: Question,
    effort: Effort,
    may_go_on: Callable[[], bool] = lambda: True,
    tell: Callable[[Progress], None] = lambda _: None,
    run: Callable[[Trial], TrialResult] = run_trial,
) -> Plan:
    """Answer a question.

    Args:
        question: model, devices, load, targets.
        effort: how much to simulate.
        may_go_on: asked before each simulation but the first; one that has begun is finished.
        tell: told before each simulation.
        run: what simulates.
    """
    refused: list[Refused] = []
    options: list[_Option] = []
    for placed in _placed(question, refused):
        options += _sized(question, placed, refused)
    chosen = _chosen(options, effort.num_layouts)
    trials = _trials(question, chosen, effort.seeds)
    results = _run_all(trials, may_go_on, tell, run)
    ranked = _ranked(chosen, results)
    refused += [_beaten(option) for option in options if option not in chosen]
    refused += _without_result(chosen, ranked)
    return Plan(question, ranked, tuple(refused), is_cut_short=len(results) < len(trials))


@dataclass(frozen=True, slots=True)
class _Option:
    """So many replicas of a forecast shape; `borne_ratio` is what they bear over what is asked."""

    forecast: Forecast
    num_replicas: int
    borne_ratio: float

    @property
    def num_devices(self) -> int:
        return self.num_replicas * self.forecast.placed.shape.num_devices


def _placed(question: Question, refused: list[Refused]) -> list[Placed]:
    found = []
    profile, needed_tokens = question.machine.profile, question.demand.longest_tokens
    for shape in shapes_for(question.num_devices):
        if not _is_asked_for(shape, question):
            continue
        placed = place(shape, question.model, profile, needed_tokens)
        if isinstance(placed, Refused):
            refused.append(placed)
        else:
            found.append(placed)
    return found


def _is_asked_for(shape: Shape, question: Question) -> bool:
    wanted = (question.tensor_parallel, question.num_stages)
    given = (shape.tensor_parallel, shape.num_stages)
    return all(want in (None, have) for want, have in zip(wanted, given, strict=True))


def _sized(question: Question, placed: Placed, refused: list[Refused]) -> list[_Option]:
    """The fewest replicas that bear the rate by formula, and one less if that comes close."""
    rate_per_s = question.demand.rate_per_s
    found = forecast(
        placed,
        question.machine.profile,
        question.demand,
        question.targets,
        question.max_chunk_tokens,
    )
    if found.capacity_per_s == 0.0:
        refused.append(Refused(placed.shape, _hopeless(question, found)))
        return []
    most = question.num_devices // placed.shape.num_devices
    needed = math.ceil(rate_per_s / found.capacity_per_s)
    counts = {min(count, most) for count in (needed - 1, needed) if count > 0}
    options = [
        _Option(found, count, count * found.capacity_per_s / rate_per_s) for count in sorted(counts)
    ]
    close = [option for option in options if option.borne_ratio >= _CLOSE_RATIO]
    if not close:
        refused.append(Refused(placed.shape, _too_little(question, found, needed), most))
    return close


def _chosen(options: Sequence[_Option], num_layouts: int) -> list[_Option]:
    """What is simulated: the smallest that do by formula, and smaller ones that nearly do."""
    enough = sorted((o for o in options if o.borne_ratio >= 1.0), key=_size)
    fewest = enough[0].num_devices if enough else math.inf
    nearly = [o for o in options if o.borne_ratio < 1.0 and o.num_devices < fewest]
    nearly.sort(key=lambda option: -option.borne_ratio)
    kept = num_layouts // 2 if enough else num_layouts
    return [*enough[: num_layouts - len(nearly[:kept])], *nearly[:kept]]


def _size(option: _Option) -> tuple[int, float]:
    return option.num_devices, -option.borne_ratio


def _trials(
    question: Question, chosen: Sequence[_Option], seeds: Sequence[int]
) -> list[tuple[int, Trial]]:
    """Each with its deployment's index; one seed after the other, so that each has some in time."""
    conditions = Conditions(
        question.machine.profile,
        question.workload,
        question.targets,
        question.max_chunk_tokens,
        question.demand.longest_tokens,
    )
    deployments = list(enumerate(_deployments(chosen)))
    return [
        (index, Trial(deployment, conditions, seed))
        for seed in seeds
        for index, (_, deployment) in deployments
    ]


def _deployments(chosen: Sequence[_Option]) -> list[tuple[_Option, Deployment]]:
    return [
        (option, Deployment(option.forecast.placed, option.num_replicas, policy, _chunk(option)))
        for option in chosen
        for policy in ChunkPolicyName
    ]


def _chunk(option: _Option) -> int:
    """The chunk that bears the most within the targets."""
    return option.forecast.at_capacity.chunk_tokens


def _run_all(
    trials: Sequence[tuple[int, Trial]],
    may_go_on: Callable[[], bool],
    tell: Callable[[Progress], None],
    run: Callable[[Trial], TrialResult],
) -> list[tuple[int, TrialResult]]:
    results: list[tuple[int, TrialResult]] = []
    for index, trial in trials:
        if results and not may_go_on():
            break
        tell(Progress(len(results), len(trials), trial))
        results.append((index, run(trial)))
    return results


def _ranked(
    chosen: Sequence[_Option], results: Sequence[tuple[int, TrialResult]]
) -> tuple[Ranked, ...]:
    ranked = []
    for index, (option, deployment) in enumerate(_deployments(chosen)):
        mine = tuple(result for owner, result in results if owner == index)
        if mine:
            ranked.append(Ranked(deployment, option.forecast, mine))
    return tuple(sorted(ranked, key=_rank))


def _rank(ranked: Ranked) -> tuple[bool, float, float]:
    goodput = float(f"{ranked.goodput_per_device_s:.1e}")
    return not ranked.meets_targets, -goodput, ranked.mean_e2e_s


def _hopeless(question: Question, found: Forecast) -> str:
    state = found.at_capacity
    late = "no bound" if state.ttft_s is None else f"{state.ttft_s * 1000:,.0f} ms"
    return (
        f"{text_of(found.limit)}, not even at next to no load: at best P"
        f"{question.targets.ttft.percentile if question.targets.ttft else 90} TTFT {late}, "
        f"TPOT {state.tpot_s * 1000:,.0f} ms with full chunks of {state.chunk_tokens}"
    )


def _too_little(question: Question, found: Forecast, needed: int) -> str:
    num_devices = needed * found.placed.shape.num_devices
    return (
        f"by formula one replica bears {found.capacity_per_s:.2f}/s, with room for KV of "
        f"{found.placed.pool_tokens:,} tokens (then {text_of(found.limit)}); "
        f"{question.demand.rate_per_s:.2f}/s takes {needed} replicas, {num_devices} GPUs, of "
        f"{question.num_devices}"
    )


def _beaten(option: _Option) -> Refused:
    why = (
        f"by formula {option.num_replicas} x {option.forecast.capacity_per_s:.2f}/s on "
        f"{option.num_devices} GPUs, {option.borne_ratio:.0%} of the rate; not simulated, since "
        "others bear more with no more GPUs"
    )
    return Refused(option.forecast.placed.shape, why, option.num_replicas)


def _without_result(chosen: Sequence[_Option], ranked: Sequence[Ranked]) -> list[Refused]:
    seen = {(r.deployment.placed.shape, r.deployment.num_replicas) for r in ranked}
    return [
        Refused(
            option.forecast.placed.shape,
            "time was over before it was simulated",
            option.num_replicas,
        )
        for option in chosen
        if (option.forecast.placed.shape, option.num_replicas) not in seen
    ]


def _spread(values_s: Sequence[float]) -> Spread:
    interval = median_interval(values_s)
    if interval is None:
        raise ValueError("got no result, expected one or more")
    return Spread(median(values_s), interval)


def _attainment_ratio(result: TrialResult) -> float:
    share = result.figures.attainment
    return 0.0 if share is None else share.ratio


def _mean_e2e_s(result: TrialResult) -> float:
    summary = result.figures.e2e_s
    return math.inf if summary is None else summary.mean


def _bubble_ratio(result: TrialResult) -> float:
    steps = result.figures.steps
    return 0.0 if steps is None else steps.mean_bubble_ratio
