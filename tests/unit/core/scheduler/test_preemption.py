"""Who yields when KV blocks run out, and what that changes for its text: nothing."""

import pytest

from pipelineserve.scheduler.messages import MicroBatch
from pipelineserve.scheduler.requests import RequestState
from scheduling import Pipeline, make_request, make_settings
from scheduling_invariants import check_drained, check_running


def tight(
    *,
    num_slots: int = 1,
    num_blocks: int = 8,
    chunk_tokens: int = 64,
    max_waiting_requests: int = 1,
) -> Pipeline:
    """A pool of a few blocks of one token each."""
    settings = make_settings(
        num_slots=num_slots,
        num_blocks=num_blocks,
        block_tokens=1,
        max_waiting_requests=max_waiting_requests,
    )
    return Pipeline(settings, chunk_tokens=chunk_tokens)


def carried(micro_batch: MicroBatch | None) -> list[str]:
    return [] if micro_batch is None else [piece.request_id for piece in micro_batch.pieces]


def run_until_preempted(pipeline: Pipeline) -> None:
    for _ in range(50):
        pipeline.launch()
        check_running(pipeline)
        if pipeline.scheduler.tally.preemptions:
            return
        pipeline.complete()
    pytest.fail("nobody was preempted")


def start_two(pipeline: Pipeline, *, priority_of_second: int = 0) -> None:
    pipeline.submit(make_request("first", 3, max_output_tokens=5))
    pipeline.launch()
    pipeline.complete()
    pipeline.now_s = 1.0
    new = make_request("second", 3, max_output_tokens=5, priority=priority_of_second)
    pipeline.submit(new)


def test_the_one_that_came_last_yields() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    assert pipeline.request("second").state is RequestState.WAITING
    assert pipeline.request("second").block_ids == ()
    assert pipeline.request("first").state is RequestState.DECODING


def test_the_one_of_lower_priority_yields_though_it_came_first() -> None:
    pipeline = tight()
    start_two(pipeline, priority_of_second=1)
    run_until_preempted(pipeline)
    assert pipeline.request("first").num_requeues == 1
    assert pipeline.request("second").num_requeues == 0


def test_equal_arrivals_yield_in_reverse_order_of_submission() -> None:
    pipeline = tight(max_waiting_requests=2)
    pipeline.submit(make_request("first", 3, max_output_tokens=5))
    pipeline.submit(make_request("second", 3, max_output_tokens=5))
    run_until_preempted(pipeline)
    assert pipeline.request("first").num_requeues == 0
    assert pipeline.request("second").num_requeues == 1


@pytest.mark.parametrize("priority_of_second", [0, 1])
def test_preemption_changes_no_text(priority_of_second: int) -> None:
    pipeline = tight()
    start_two(pipeline, priority_of_second=priority_of_second)
    pipeline.drain()
    assert pipeline.scheduler.tally.preemptions > 0
    assert [len(pipeline.output(name)) for name in ("first", "second")] == [5, 5]
    check_drained(pipeline)


def test_the_record_counts_preemptions_and_no_output_twice() -> None:
    pipeline = tight()
    start_two(pipeline)
    pipeline.drain()
    record = pipeline.tracked("second").record
    assert record is not None
    assert record.num_requeues == pipeline.scheduler.tally.preemptions > 0
    assert (record.num_prompt_tokens, record.num_output_tokens) == (3, 5)
    assert pipeline.scheduler.tally.output_tokens == 10


def test_a_request_in_flight_does_not_yield() -> None:
    pipeline = tight(num_slots=2, num_blocks=9)
    start_two(pipeline)
    assert carried(pipeline.launch(0)) == ["first", "second"]
    pipeline.complete()
    assert carried(pipeline.launch(0)) == ["first"]
    assert carried(pipeline.launch(1)) == ["second"]
    pipeline.complete()
    assert pipeline.scheduler.kv.pool.num_free == 0
    assert carried(pipeline.launch(0)) == []  # first needs a block, second is in flight
    assert pipeline.scheduler.tally.preemptions == 0
    pipeline.complete()
    assert carried(pipeline.launch(0)) == ["first"]
    assert pipeline.request("second").num_requeues == 1
    pipeline.drain()
    check_drained(pipeline)


def test_a_junior_decode_waits_for_a_block_rather_than_take_a_seniors() -> None:
    pipeline = tight(num_slots=2)
    start_two(pipeline)
    assert carried(pipeline.launch(0)) == ["first", "second"]
    pipeline.complete()
    assert carried(pipeline.launch(0)) == ["first"]
    assert pipeline.scheduler.kv.pool.num_free == 0
    assert carried(pipeline.launch(1)) == []
    assert pipeline.scheduler.tally.preemptions == 0
    pipeline.drain()
    check_drained(pipeline)


def test_a_standstill_of_a_junior_decode_and_a_senior_prompt_ends_with_the_junior() -> None:
    pipeline = tight(num_blocks=10, chunk_tokens=2)
    pipeline.submit(make_request("junior", 2, max_output_tokens=8))
    pipeline.launch()
    pipeline.complete()
    pipeline.submit(make_request("senior", 6, max_output_tokens=2, priority=1))
    run_until_preempted(pipeline)
    assert pipeline.request("junior").num_requeues == 1
    assert pipeline.request("senior").state is not RequestState.WAITING
    pipeline.drain()
    check_drained(pipeline)


def test_a_preempted_request_goes_before_those_of_its_client_that_came_later() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    pipeline.now_s = 9.0
    pipeline.submit(make_request("third", 1, max_output_tokens=1))
    head = pipeline.scheduler._waiting.head()
    assert head is pipeline.request("second")


def test_a_preempted_request_does_not_count_in_the_bound_of_the_queue() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    assert pipeline.scheduler.census().waiting == 1
    pipeline.submit(make_request("new", 1))
    assert pipeline.rejected == []
    pipeline.submit(make_request("one too many", 1))
    assert [rejected.request_id for rejected in pipeline.rejected] == ["one too many"]


def test_computing_again_is_a_prefill_that_samples_the_next_output() -> None:
    pipeline = tight()
    start_two(pipeline)
    run_until_preempted(pipeline)
    num_before = len(pipeline.output("second"))
    num_launched = len(pipeline.launched)
    pipeline.drain()
    again = [
        piece
        for micro_batch in pipeline.launched[num_launched:]
        for piece in micro_batch.pieces
        if piece.request_id == "second"
    ]
    assert not again[0].is_decode
    assert (again[0].samples, again[0].output_index) == (True, num_before)
