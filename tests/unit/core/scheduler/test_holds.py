"""Decodes held out of micro-batches: who, for how long, and what brings them back."""

import pytest

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.step_time import StepTimeModel, StepTimeTable
from pipelineserve.scheduler.holds import HoldKeeper
from scheduling import Pipeline, make_request, make_settings
from scheduling_invariants import check_drained, check_running

# The third decode of a micro-batch makes it ten times as long.
STAIR = StepTimeModel(StepTimeTable((1, 2, 3, 100), (0.01, 0.01, 0.1, 0.1)))


def holding(
    mode: HoldMode = HoldMode.E2E_FIRST, *, max_gap_s: float = 10.0, hold_budget_s: float = 30.0
) -> SchedulingPolicy:
    policy = Rebalance(mode, STAIR, (2,), max_gap_s, hold_budget_s)
    return SchedulingPolicy(Static(64), holding=policy)


def three_decodes(policy: SchedulingPolicy, *, num_blocks: int = 64) -> Pipeline:
    """One slot; requests a, b and c have arrived in this order and decode since 3 s."""
    pipeline = Pipeline(make_settings(num_slots=1, num_blocks=num_blocks))
    for request_id in "abc":
        pipeline.submit(make_request(request_id, max_output_tokens=40))
        pipeline.now_s += 1.0
    run(pipeline)
    pipeline.scheduler.adopt(policy)
    return pipeline


def run(pipeline: Pipeline, *, seconds: float = 0.0) -> list[str]:
    """One micro-batch there and back; who was in it."""
    pipeline.now_s += seconds
    micro_batch = pipeline.launch()
    assert micro_batch is not None
    pipeline.complete()
    check_running(pipeline)
    return [piece.request_id for piece in micro_batch.pieces]


@pytest.mark.parametrize(
    ("mode", "expected"), [(HoldMode.E2E_FIRST, "ab"), (HoldMode.TPOT_FIRST, "bc")]
)
def test_the_end_that_yields_stays_out_with_its_kv(mode: HoldMode, expected: str) -> None:
    pipeline = three_decodes(holding(mode))
    assert run(pipeline, seconds=1.0) == list(expected)
    (held,) = set("abc") - set(expected)
    assert pipeline.scheduler.num_held == 1
    assert len(pipeline.request(held).block_ids) == 1
    assert pipeline.scheduler.census().running == 3


def test_without_holding_all_go() -> None:
    assert run(three_decodes(SchedulingPolicy(Static(64)))) == ["a", "b", "c"]


def test_a_held_request_goes_before_its_gap_grows_too_long() -> None:
    pipeline = three_decodes(holding(max_gap_s=4.0))
    batches = [run(pipeline, seconds=1.0) for _ in range(4)]
    # Cycles of 1 s: after three of them one more would break the gap of 4 s, and c goes first.
    assert batches == [["a", "b"], ["a", "b"], ["a", "b"], ["c", "a"]]


def test_no_gap_of_any_request_becomes_longer_than_allowed() -> None:
    pipeline = three_decodes(holding(max_gap_s=4.0))
    for _ in range(30):
        run(pipeline, seconds=1.0)
    assert max(pipeline.request(r).longest_gap_s for r in "abc") <= 4.0


def test_a_request_whose_budget_is_spent_is_held_no_more() -> None:
    pipeline = three_decodes(holding(max_gap_s=3.0, hold_budget_s=6.0))
    for _ in range(30):
        run(pipeline, seconds=1.0)
    assert pipeline.request("c").held_for_s(pipeline.now_s) <= 6.0
    assert [run(pipeline, seconds=1.0) for _ in range(2)] == [["a", "b", "c"]] * 2


def test_who_was_released_is_not_held_again_before_it_had_a_token() -> None:
    pipeline = three_decodes(holding(max_gap_s=2.0))
    run(pipeline, seconds=1.0)
    assert "c" in run(pipeline, seconds=1.0)
    assert pipeline.scheduler.num_held == 1
    assert "c" not in {r.request_id for r in pipeline.scheduler._decodes.each_held()}


def test_a_held_request_that_is_cancelled_gives_its_blocks_back() -> None:
    pipeline = three_decodes(holding())
    run(pipeline, seconds=1.0)
    free = pipeline.scheduler.kv.pool.num_free
    record = pipeline.cancel("c")
    assert record is not None
    assert pipeline.scheduler.kv.pool.num_free == free + 1
    assert (pipeline.scheduler.num_held, record.held_s) == (0, 0.0)
    pipeline.drain()
    check_drained(pipeline)


def test_the_record_tells_how_long_it_was_held() -> None:
    pipeline = three_decodes(holding())
    run(pipeline, seconds=1.0)
    pipeline.now_s += 2.5
    record = pipeline.cancel("c")
    assert record is not None
    assert record.held_s == 2.5


def test_when_the_others_have_ended_the_held_ones_go_on() -> None:
    pipeline = three_decodes(holding())
    run(pipeline, seconds=1.0)
    pipeline.cancel("a")
    pipeline.cancel("b")
    assert run(pipeline) == ["c"]


def test_a_policy_that_has_learned_a_little_more_goes_on_where_the_one_before_was() -> None:
    pipeline = three_decodes(holding())
    run(pipeline, seconds=1.0)
    holds = pipeline.scheduler._holds
    assert isinstance(holds, HoldKeeper)
    before = holds._planner._memory
    assert before.boundary_tokens == 2
    pipeline.scheduler.adopt(holding(HoldMode.TPOT_FIRST))
    assert holds._planner._memory == before
    pipeline.scheduler.adopt(SchedulingPolicy(Static(64)))
    assert holds._planner._memory.boundary_tokens is None


@pytest.mark.parametrize("reason", [Reason.HOLDING_OFF, Reason.LEASE_ENDED])
def test_when_holding_ends_all_go_with_the_next_micro_batch(reason: Reason) -> None:
    pipeline = three_decodes(holding())
    run(pipeline, seconds=1.0)
    pipeline.scheduler.adopt(SchedulingPolicy(Static(64), holding=HoldNothing(reason)))
    assert sorted(run(pipeline, seconds=1.0)) == ["a", "b", "c"]


def test_kv_pressure_brings_the_held_ones_back() -> None:
    pipeline = three_decodes(holding(), num_blocks=8)
    run(pipeline, seconds=1.0)
    assert pipeline.scheduler.num_held == 1
    while pipeline.scheduler.num_held:
        run(pipeline, seconds=0.0)
    assert pipeline.scheduler.view(0, pipeline.now_s).kv_free_ratio < 0.15


def test_a_held_request_may_be_preempted_and_comes_back() -> None:
    pipeline = three_decodes(holding(), num_blocks=8)
    run(pipeline, seconds=1.0)
    pipeline.scheduler._preempt(pipeline.request("c"))
    check_running(pipeline)
    assert pipeline.scheduler.num_held == 0
    pipeline.drain()
    check_drained(pipeline)


def test_after_a_recall_nobody_is_held() -> None:
    pipeline = three_decodes(holding())
    run(pipeline, seconds=1.0)
    pipeline.recall_all()
    check_running(pipeline)
    assert pipeline.scheduler.num_held == 0
    pipeline.drain()
    check_drained(pipeline)
