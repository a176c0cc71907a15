"""What a layout comes to by the steady-state formula, before anything is simulated.

Time that passes per cycle in which a slot is in no stage's hands (the leader's work, hand-offs, the
way back) is shared out over the cycle's steps: with as many slots as stages it slows the pipeline
down as much as it makes each token wait.
"""

import math
from dataclasses import dataclass, replace

from pipelineserve.load.targets import Targets as LatencyTargets
from pipelineserve.policy.candidates import candidate_sizes
from pipelineserve.policy.control.feasibility import (
    Pipeline,
    SteadyState,
    Targets,
    Verdict,
    judge,
)
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepTimeModel, StepTimeTable
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.description import HardwareProfile
from pipelineserve_simulator.hardware.layouts import Layout
from pipelineserve_simulator.hardware.measured import measured_model
from pipelineserve_simulator.planning.demand import Demand
from pipelineserve_simulator.planning.layouts import Placed

CHUNK_STEP_TOKENS = 128
"""Between two chunk sizes that are considered, the smallest as well."""
# The bounds lie a thousandfold apart: these steps find the rate to less than 1 %.
_SEARCH_STEPS = 10
_LEAST_RATIO = 1e-3


@dataclass(frozen=True, slots=True)
class Forecast:
    """One replica of a placed shape, by formula.

    Attributes:
        pipeline: what the formula was asked with.
        capacity_per_s: the highest rate at which some chunk size meets the targets; 0 if none does
            at any rate.
        at_capacity: that chunk's state there; near no load if there is none.
        limit: what is in the way of more, or of any load at all.
    """

    placed: Placed
    pipeline: Pipeline
    capacity_per_s: float
    at_capacity: SteadyState
    limit: Reason


def forecast(
    placed: Placed,
    profile: HardwareProfile,
    demand: Demand,
    targets: LatencyTargets,
    max_chunk_tokens: int,
) -> Forecast:
    """Search for the highest rate by bisection; the formula's verdict falls with the rate."""
    pipeline = pipeline_of(placed, profile, max_chunk_tokens)
    wanted = formula_targets(targets)

    def verdict_at(rate_per_s: float) -> Verdict:
        return judge(pipeline, demand.load_at(rate_per_s), wanted)

    high_per_s = _bound_per_s(pipeline, demand)
    low_per_s = _LEAST_RATIO * high_per_s
    verdict = verdict_at(low_per_s)
    if not verdict.is_feasible:
        return Forecast(placed, pipeline, 0.0, _state(verdict), verdict.reason)
    failing = verdict_at(high_per_s)
    for _ in range(_SEARCH_STEPS):
        middle_per_s = math.sqrt(low_per_s * high_per_s)
        found = verdict_at(middle_per_s)
        if found.is_feasible:
            low_per_s, verdict = middle_per_s, found
        else:
            high_per_s, failing = middle_per_s, found
    return Forecast(placed, pipeline, low_per_s, _state(verdict), failing.reason)


def pipeline_of(placed: Placed, profile: HardwareProfile, max_chunk_tokens: int) -> Pipeline:
    """A placed shape as the steady-state formula knows it."""
    least = min(CHUNK_STEP_TOKENS, max_chunk_tokens)
    return Pipeline(
        model=steady_model(profile, placed.layout, max_chunk_tokens),
        candidates=candidate_sizes(least, max_chunk_tokens, CHUNK_STEP_TOKENS),
        num_slots=placed.shape.num_stages,
        kv_tokens=placed.pool_tokens,
    )


def steady_model(profile: HardwareProfile, layout: Layout, max_tokens: int) -> StepTimeModel:
    """Steps as they follow each other in a full pipeline with a slot per stage."""
    stage = measured_model(profile, layout, max_tokens, has_host=False)
    costs, table = ProfileCosts(profile, layout), stage.table
    times_s = tuple(
        time_s + exposed_s(costs, tokens)
        for tokens, time_s in zip(table.tokens, table.times_s, strict=True)
    )
    return replace(stage, table=StepTimeTable(table.tokens, times_s))


def exposed_s(costs: ProfileCosts, num_tokens: int) -> float:
    """A step's share of what passes per cycle beside the stages' work."""
    hops_s = (costs.num_stages - 1) * costs.transfer_s(num_tokens)
    return (costs.host_s(1) + hops_s + costs.return_s()) / costs.num_stages


def formula_targets(targets: LatencyTargets) -> Targets:
    """Targets of TTFT and TPOT as the formula wants them."""
    return Targets(
        ttft_s=None if targets.ttft is None else targets.ttft.target_s,
        tpot_s=None if targets.tpot is None else targets.tpot.target_s,
        ttft_percentile=90.0 if targets.ttft is None else float(targets.ttft.percentile),
    )


def _bound_per_s(pipeline: Pipeline, demand: Demand) -> float:
    """No rate above it can be served: all steps full, and attention for nothing."""
    tokens_per_s = max(size / pipeline.model.table.at(size) for size in pipeline.candidates)
    return tokens_per_s / (demand.prompt_tokens + demand.output_tokens)


def _state(verdict: Verdict) -> SteadyState:
    if verdict.best is None:
        raise ValueError("got a verdict without load, expected one with")
    return verdict.best
