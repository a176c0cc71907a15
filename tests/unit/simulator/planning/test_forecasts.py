"""What the steady-state formula says of a layout."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelineserve.load.targets import Target, Targets
from pipelineserve.policy.control.feasibility import Verdict, judge
from pipelineserve.policy.reasons import Reason
from pipelineserve_simulator.hardware.costs import ProfileCosts
from pipelineserve_simulator.hardware.measured import measured_model
from pipelineserve_simulator.planning.forecasts import (
    Forecast,
    exposed_s,
    forecast,
    formula_targets,
    steady_model,
)
from pipelineserve_simulator.planning.layouts import Placed, Shape, place
from plan_questions import TARGETS, question

QUESTION = question()
PROFILE = QUESTION.machine.profile


def placed(tensor_parallel: int = 1, num_stages: int = 4) -> Placed:
    found = place(Shape(tensor_parallel, num_stages), QUESTION.model, PROFILE, 1000)
    assert isinstance(found, Placed)
    return found


def forecast_of(where: Placed, targets: Targets = TARGETS) -> Forecast:
    return forecast(where, PROFILE, QUESTION.demand, targets, 2048)


def test_the_capacity_meets_the_targets_and_a_little_more_does_not() -> None:
    found = forecast_of(placed())
    wanted = formula_targets(TARGETS)

    def verdict_at(rate_per_s: float) -> Verdict:
        return judge(found.pipeline, QUESTION.demand.load_at(rate_per_s), wanted)

    assert verdict_at(found.capacity_per_s).is_feasible
    assert not verdict_at(1.01 * found.capacity_per_s).is_feasible
    assert found.at_capacity == verdict_at(found.capacity_per_s).best
    assert found.limit is not Reason.TARGETS_FEASIBLE


@settings(max_examples=10, deadline=None)
@given(st.integers(1500, 5000), st.integers(120, 400))
def test_longer_targets_bear_no_less(ttft_ms: int, tpot_ms: int) -> None:
    def capacity_per_s(factor: float) -> float:
        ttft_s, tpot_s = factor * ttft_ms / 1000, factor * tpot_ms / 1000
        return forecast_of(placed(), Targets(Target(90, ttft_s), Target(90, tpot_s))).capacity_per_s

    assert capacity_per_s(1.25) >= capacity_per_s(1.0)


def test_targets_below_a_single_passage_are_met_at_no_rate() -> None:
    found = forecast_of(placed(), Targets(None, Target(90, 0.02)))
    assert found.capacity_per_s == 0.0
    assert found.limit is Reason.TPOT_TOO_STRICT
    assert found.at_capacity.tpot_s > 0.02


def test_without_kv_for_the_load_memory_is_what_limits() -> None:
    narrow = placed()
    memories = tuple(
        replace(memory, usable_bytes=int(memory.weights_bytes) + 64 * 1024 * 8000)
        for memory in narrow.memories
    )
    found = forecast_of(replace(narrow, memories=memories), Targets(None, Target(90, 1.0)))
    assert found.limit is Reason.KV_TOO_SMALL
    assert 0 < found.capacity_per_s < forecast_of(narrow).capacity_per_s


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (2, 2)])
def test_a_steady_step_has_its_share_of_what_passes_beside_the_stages(
    shape: tuple[int, int],
) -> None:
    where = placed(*shape)
    stage = measured_model(PROFILE, where.layout, 2048, has_host=False)
    steady = steady_model(PROFILE, where.layout, 2048)
    costs = ProfileCosts(PROFILE, where.layout)
    for tokens in (128, 512, 2048):
        beside_s = steady.table.at(tokens) - stage.table.at(tokens)
        assert beside_s == pytest.approx(exposed_s(costs, tokens))
    # With one stage the leader's work is in every step.
    assert (exposed_s(costs, 128) > costs.host_s(1)) == (shape[1] == 1)


def test_targets_are_those_of_the_formula() -> None:
    assert formula_targets(TARGETS).ttft_s == 2.0
    only_tpot = formula_targets(Targets(None, Target(95, 0.1)))
    assert (only_tpot.ttft_s, only_tpot.tpot_s) == (None, 0.1)
    assert formula_targets(Targets(Target(95, 1.0), None)).ttft_percentile == 95
