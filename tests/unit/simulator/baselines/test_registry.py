"""Under every baseline, every request ends with its own text."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.admission import Counted, KnownLengths
from pipelineserve.policy.assignment import OnePool, SlotBound
from pipelineserve.policy.fastpp.delay import FastppDelay
from pipelineserve.policy.fastpp.greedy import FastppGreedy
from pipelineserve.policy.fastpp.predictive import FastppPredictive
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.peers.gllm import GllmThrottling
from pipelineserve.policy.peers.sglang import SglangDynamic
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.triage import Triage
from pipelineserve.scheduler.fastpp import FastppScheduler
from pipelineserve.scheduler.fastpp_holds import FastppHolds
from pipelineserve.scheduler.holds import HoldKeeper
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_simulator.baselines.options import (
    BaselineName,
    BaselineOptions,
    LatencyTargets,
    Lengths,
)
from pipelineserve_simulator.baselines.registry import make_scheduler
from policy_views import line_model
from scheduling import Pipeline, make_settings
from scheduling_invariants import check_drained, check_running
from scheduling_scripts import COSTS, draw_request, draw_settings

TARGETS = LatencyTargets(ttft_s=8.0, tpot_s=3.0)
# Steps of 0.1 s and 10 ms per token.
MODEL = line_model(seconds_per_token=0.01, base_s=0.1)
SMALL = BaselineOptions(
    static_chunk_tokens=16,
    min_chunk_tokens=4,
    max_chunk_tokens=64,
    step_chunk_tokens=4,
    boundaries=(2, 8),
)


def made(
    name: BaselineName, options: BaselineOptions = SMALL, targets: LatencyTargets = TARGETS
) -> Scheduler:
    return make_scheduler(name, make_settings(num_slots=4), targets, MODEL, options)


@pytest.mark.parametrize("name", BaselineName)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.sampled_from(Lengths),
    hold_mode=st.sampled_from([None, *HoldMode]),
    is_as_in_the_paper=st.booleans(),
)
def test_every_request_ends_with_its_own_text(
    name: BaselineName,
    seed: int,
    lengths: Lengths,
    hold_mode: HoldMode | None,
    is_as_in_the_paper: bool,
) -> None:
    random = Random(seed)
    options = replace(
        SMALL, lengths=lengths, hold_mode=hold_mode, is_as_in_the_paper=is_as_in_the_paper
    )
    scheduler = make_scheduler(name, draw_settings(random), TARGETS, MODEL, options)
    pipeline = Pipeline(scheduler=scheduler, costs=COSTS)
    for index in range(60):
        pipeline.now_s += random.random()
        if random.random() < 0.6:
            pipeline.submit(draw_request(random, index, pipeline.settings))
        if pipeline.free_slots and random.random() < 0.8:
            pipeline.launch(random.choice(pipeline.free_slots))
        if pipeline.flights and random.random() < 0.6:
            pipeline.complete()
        if pipeline.live and random.random() < 0.05:
            pipeline.cancel(random.choice(sorted(pipeline.live)))
        if random.random() < 0.02:
            pipeline.recall_all()
        check_running(pipeline)
    pipeline.drain()
    check_drained(pipeline)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        (BaselineName.PREDICTIVE, Predictive),
        (BaselineName.PACED, Predictive),
        (BaselineName.SGLANG_DYNAMIC, SglangDynamic),
        (BaselineName.GLLM_THROTTLING, GllmThrottling),
        (BaselineName.FASTPP_GREEDY, FastppScheduler),
    ],
)
def test_each_name_has_its_own_chunk_law(name: BaselineName, policy: type) -> None:
    assert isinstance(made(name).chunk_policy, policy)


def test_published_engines_bind_decodes_to_slots_and_ours_share_one_pool() -> None:
    bound = {name for name in BaselineName if made(name).assignment.is_slot_bound}
    assert bound == {
        BaselineName.FASTPP_STATIC,
        BaselineName.FASTPP_GREEDY,
        BaselineName.FASTPP_PREDICTIVE,
        BaselineName.FASTPP_GREEDY_DELAY,
        BaselineName.FASTPP_PREDICTIVE_DELAY,
        BaselineName.SGLANG_DYNAMIC,
    }
    assert made(BaselineName.PACED).assignment == OnePool(3.0)
    assert made(BaselineName.SGLANG_DYNAMIC).assignment == SlotBound()


def test_orders_are_as_said() -> None:
    orders = {name: made(name)._waiting._order for name in BaselineName}
    assert orders.pop(BaselineName.PACED) == Triage(8.0, 0.05)
    assert orders.pop(BaselineName.PREDICTIVE) == Ageing()
    assert set(orders.values()) == {Arrival()}


@pytest.mark.parametrize("is_as_in_the_paper", [False, True])
def test_fastpp_has_its_laws_as_released_or_as_in_the_paper(
    is_as_in_the_paper: bool,
) -> None:
    options = replace(SMALL, is_as_in_the_paper=is_as_in_the_paper)
    greedy = made(BaselineName.FASTPP_GREEDY_DELAY, options)
    predictive = made(BaselineName.FASTPP_PREDICTIVE, options)
    assert isinstance(greedy, FastppScheduler)
    assert isinstance(predictive, FastppScheduler)
    assert isinstance(greedy._law, FastppGreedy)
    assert isinstance(predictive._law, FastppPredictive)
    assert greedy._law.is_restoring is not is_as_in_the_paper
    assert (predictive._law.cycles_per_decision == 0) is is_as_in_the_paper
    assert isinstance(greedy._holds, FastppHolds)
    expected = FastppDelay(3.0, unit_requests=4)
    assert greedy._holds._policy == (expected.as_in_the_paper() if is_as_in_the_paper else expected)
    assert not isinstance(predictive._holds, FastppHolds)


def test_steps_are_timed_with_whole_prompts_and_the_overhead_of_a_step() -> None:
    scheduler = made(BaselineName.FASTPP_PREDICTIVE, replace(SMALL, step_overhead_s=1.0))
    assert isinstance(scheduler, FastppScheduler)
    assert isinstance(scheduler._law, FastppPredictive)
    assert scheduler._law.chunk_sizes[:2] == (4, 8)
    assert list(scheduler._law.times_s[:2]) == pytest.approx([1.14, 1.18])


def test_candidates_stay_below_the_ceiling() -> None:
    options = BaselineOptions(min_chunk_tokens=128, max_chunk_tokens=2048, step_chunk_tokens=32)
    scheduler = made(BaselineName.PREDICTIVE, options)
    assert isinstance(scheduler.chunk_policy, Predictive)
    assert scheduler.chunk_policy.candidates == (64,)


def test_ours_hold_decodes_if_asked() -> None:
    holding = made(BaselineName.PACED, replace(SMALL, hold_mode=HoldMode.E2E_FIRST))._holds
    assert isinstance(holding, HoldKeeper)
    assert holding.policy == Rebalance(HoldMode.E2E_FIRST, MODEL, (2, 8))


def test_admission_knows_what_it_is_said_to_know() -> None:
    def known(name: BaselineName, lengths: Lengths) -> KnownLengths | None:
        watch = made(name, replace(SMALL, lengths=lengths))._lengths
        return None if watch is None else watch._policy

    for name in BaselineName:
        assert known(name, Lengths.UNKNOWN) is None
        assert known(name, Lengths.KNOWN) == KnownLengths(Counted.ALL, 3)
    as_released = Lengths.KNOWN_AS_RELEASED
    bound, pooled = BaselineName.FASTPP_STATIC, BaselineName.STATIC
    assert known(bound, as_released) == KnownLengths(Counted.SLOT, 3)
    assert known(pooled, as_released) == KnownLengths(Counted.ALL, 3)
