"""Preempted requests whose KV waits in host memory; the pipeline checks what every piece reads."""

import pytest

from pipelineserve.policy.preemption import (
    AlwaysSwap,
    ByCost,
    KvCosts,
    Preemption,
    PreemptionDecision,
    PreemptionPolicy,
)
from pipelineserve.policy.reasons import Reason
from pipelineserve.scheduler.messages import CopyDirection, MicroBatch
from pipelineserve.scheduler.requests import RequestState
from scheduling import Pipeline, make_request, make_settings
from scheduling_invariants import check_drained, check_running

OUT, IN = CopyDirection.OUT, CopyDirection.IN


def tight(
    *,
    num_slots: int = 1,
    num_blocks: int = 8,
    block_tokens: int = 1,
    chunk_tokens: int = 64,
    num_host_blocks: int = 16,
    preemption: PreemptionPolicy | None = None,
    costs: KvCosts = KvCosts(),  # noqa: B008 - frozen
) -> Pipeline:
    """A pool of a few blocks, and host blocks enough."""
    settings = make_settings(
        num_slots=num_slots,
        num_blocks=num_blocks,
        block_tokens=block_tokens,
        num_host_blocks=num_host_blocks,
    )
    return Pipeline(
        settings,
        chunk_tokens=chunk_tokens,
        preemption=preemption or AlwaysSwap(),
        costs=costs,
    )


def start_two(pipeline: Pipeline, *, prompt_tokens: int = 3, max_output_tokens: int = 5) -> None:
    pipeline.submit(make_request("first", prompt_tokens, max_output_tokens=max_output_tokens))
    pipeline.launch()
    pipeline.complete()
    pipeline.now_s = 1.0
    pipeline.submit(make_request("second", prompt_tokens, max_output_tokens=max_output_tokens))


def run_until_preempted(pipeline: Pipeline) -> MicroBatch:
    """Run until somebody yields; return the micro-batch that was composed then."""
    for _ in range(50):
        launched = pipeline.launch()
        check_running(pipeline)
        if pipeline.scheduler.tally.preemptions:
            assert launched is not None
            return launched
        pipeline.complete()
    pytest.fail("nobody was preempted")


def run_until_resumed(pipeline: Pipeline) -> MicroBatch:
    """Run until KV comes back from the host; return the micro-batch that brings it."""
    for _ in range(50):
        if pipeline.flights:
            pipeline.complete()
        launched = pipeline.launch()
        check_running(pipeline)
        if launched is not None and any(copy.direction is IN for copy in launched.copies):
            return launched
    pytest.fail("nothing came back")


def test_the_copies_out_ride_with_the_micro_batch_that_needs_the_blocks() -> None:
    pipeline = tight()
    start_two(pipeline)
    launched = run_until_preempted(pipeline)
    assert [piece.request_id for piece in launched.pieces] == ["first"]
    assert {copy.direction for copy in launched.copies} == {OUT}
    taken = set(launched.pieces[0].block_ids)
    assert taken & {copy.device_block_id for copy in launched.copies}, "reused at once"
    second = pipeline.request("second")
    assert second.host_block_ids == [copy.host_block_id for copy in launched.copies]


def test_a_decode_that_comes_back_goes_on_with_one_token() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    num_before = len(pipeline.output("second"))
    second = pipeline.request("second")
    assert (second.state, second.num_remaining) == (RequestState.WAITING, 1)
    launched = run_until_resumed(pipeline)
    [piece] = [piece for piece in launched.pieces if piece.request_id == "second"]
    assert (len(piece.token_ids), piece.samples, piece.output_index) == (1, True, num_before)
    pipeline.drain()
    check_drained(pipeline)
    assert len(pipeline.output("second")) == 5


def test_host_blocks_are_free_once_their_copies_in_are_composed() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    assert pipeline.scheduler.kv.host.num_taken > 0
    run_until_resumed(pipeline)
    assert pipeline.scheduler.kv.host.num_taken == 0


def test_blocks_that_the_prefix_cache_still_has_are_not_copied_in() -> None:
    pipeline = tight(num_blocks=12)
    start_two(pipeline, max_output_tokens=7)
    run_until_preempted(pipeline)
    num_kept = len(pipeline.request("second").host_block_ids)
    # The one that goes on has taken two of the blocks in the meantime, the tail first.
    pipeline.complete()
    pipeline.cancel("first")
    launched = run_until_resumed(pipeline)
    copies = [copy for copy in launched.copies if copy.direction is IN]
    assert 0 < len(copies) < num_kept
    cached = pipeline.request("second").block_ids[: num_kept - len(copies)]
    assert not set(cached) & {copy.device_block_id for copy in copies}
    pipeline.drain()
    check_drained(pipeline)


def test_a_partly_filled_last_block_is_copied_too() -> None:
    pipeline = tight(num_blocks=4, block_tokens=4)
    pipeline.submit(make_request("first", 4, max_output_tokens=7))
    pipeline.submit(make_request("second", 2, max_output_tokens=7))
    launched = run_until_preempted(pipeline)
    assert len(launched.copies) == pipeline.scheduler.kv.num_blocks_for(
        pipeline.request("second").num_issued
    )
    assert pipeline.request("second").num_issued % 4 != 0
    pipeline.drain()
    check_drained(pipeline)
    assert len(pipeline.output("second")) == 7


def test_a_prompt_that_is_partly_computed_keeps_what_there_is() -> None:
    pipeline = tight(num_blocks=10, chunk_tokens=2)
    pipeline.submit(make_request("senior", 2, max_output_tokens=8))
    pipeline.launch()
    pipeline.complete()
    pipeline.now_s = 1.0
    pipeline.submit(make_request("junior", 6, max_output_tokens=2))
    run_until_preempted(pipeline)
    junior = pipeline.request("junior")
    assert 0 < junior.num_issued == len(junior.host_block_ids) < len(junior.token_ids)
    pipeline.drain()
    check_drained(pipeline)


def test_a_full_host_pool_means_computing_again() -> None:
    pipeline = tight(num_host_blocks=2)
    start_two(pipeline)
    launched = run_until_preempted(pipeline)
    assert launched.copies == ()
    assert pipeline.request("second").num_issued == 0
    decisions = pipeline.scheduler.tally.preemption_decisions
    assert decisions == {PreemptionDecision(Preemption.RECOMPUTE, Reason.NO_HOST_BLOCKS): 1}
    pipeline.drain()
    check_drained(pipeline)


@pytest.mark.parametrize(("copy_s_per_block", "num_swaps"), [(0.1, 1), (10.0, 0)])
def test_the_costs_that_the_caller_measured_decide(copy_s_per_block: float, num_swaps: int) -> None:
    pipeline = tight(preemption=ByCost(), costs=KvCosts(1.0, copy_s_per_block))
    start_two(pipeline)
    run_until_preempted(pipeline)
    assert pipeline.scheduler.tally.swaps == num_swaps


def test_blocks_shared_with_others_make_computing_again_cheaper() -> None:
    prompt = (0, 1, 2, 3, 3, 2)
    pipeline = tight(num_blocks=10, preemption=ByCost(), costs=KvCosts(1.0, 0.25))
    for name in ("first", "second"):
        pipeline.submit(make_request(name, prompt, max_output_tokens=4))
        pipeline.launch()
        pipeline.complete()
        pipeline.now_s += 1.0
    run_until_preempted(pipeline)
    assert pipeline.scheduler.tally.swaps == 0
    pipeline.drain()
    check_drained(pipeline)


def test_one_that_is_cancelled_while_its_kv_is_on_the_host_gives_it_back() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    pipeline.cancel("second")
    check_running(pipeline)
    assert pipeline.scheduler.kv.host.num_taken == 0
    pipeline.drain()
    check_drained(pipeline)


def preempted_between_steps() -> Pipeline:
    """Both decode; the second is made to yield while nothing is composed."""
    pipeline = tight(num_blocks=20)
    start_two(pipeline)
    pipeline.launch()
    pipeline.complete()
    second = pipeline.request("second")
    pipeline.scheduler._preempt(second)
    return pipeline


def test_copies_out_and_in_of_one_micro_batch_are_in_the_order_of_the_decisions() -> None:
    pipeline = preempted_between_steps()
    num_kept = len(pipeline.request("second").host_block_ids)
    # Another one takes its blocks first, so that none is found in the prefix cache.
    pipeline.submit(make_request("third", 14, max_output_tokens=1, priority=1))
    pipeline.launch()
    pipeline.complete()
    launched = pipeline.launch()
    assert launched is not None
    copies_in = [copy for copy in launched.copies if copy.direction is IN]
    assert 0 < len(copies_in) <= num_kept
    pipeline.drain()
    check_drained(pipeline)


def test_copies_wait_for_the_next_micro_batch_when_there_is_no_piece() -> None:
    pipeline = preempted_between_steps()
    pipeline.cancel("first")
    pipeline.cancel("second")
    assert pipeline.launch() is None
    pipeline.submit(make_request("third", 14, max_output_tokens=1))
    launched = pipeline.launch()
    assert launched is not None
    assert [copy.direction for copy in launched.copies] == [OUT] * 3
    pipeline.drain()
    check_drained(pipeline)


def test_one_that_yields_again_is_copied_again() -> None:
    pipeline = tight(num_blocks=20)
    start_two(pipeline, max_output_tokens=16)
    pipeline.submit(make_request("third", 3, max_output_tokens=16))
    pipeline.drain()
    check_drained(pipeline)
    records = [pipeline.tracked(name).record for name in ("first", "second", "third")]
    assert max(record.num_requeues for record in records if record is not None) >= 2
    assert pipeline.scheduler.tally.swaps == pipeline.scheduler.tally.preemptions


def test_recall_forgets_what_was_on_the_host_and_text_is_the_same() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    pipeline.recall_all()
    check_running(pipeline)
    assert pipeline.request("second").num_issued == 0
    assert pipeline.scheduler.kv.host.num_taken == 0
    pipeline.drain()
    check_drained(pipeline)
    assert all(copy.direction is not IN for m in pipeline.launched[-3:] for copy in m.copies)


def test_fail_all_leaves_no_host_block_taken() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    pipeline.fail_all()
    check_drained(pipeline)


def test_what_waits_on_the_host_is_not_counted_as_work_to_prefill() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    assert pipeline.scheduler.view(0, 0.0).waiting_tokens == 1
