"""KV blocks shared by requests that begin alike."""

from pipelineserve.scheduler.messages import Piece
from scheduling import Pipeline, make_prompt, make_request, make_settings
from scheduling_invariants import check_drained

# Blocks hold four tokens throughout.


def pieces_of(pipeline: Pipeline, request_id: str) -> list[Piece]:
    pieces = [piece for micro_batch in pipeline.launched for piece in micro_batch.pieces]
    return [piece for piece in pieces if piece.request_id == request_id]


def cached_tokens(pipeline: Pipeline, request_id: str) -> int:
    record = pipeline.tracked(request_id).record
    assert record is not None
    return record.num_cached_tokens


def test_only_what_comes_after_the_common_blocks_is_computed() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("a", make_prompt(10)))
    pipeline.drain()
    pipeline.submit(make_request("b", (*make_prompt(10), 99, 98)))
    pipeline.drain()
    assert (pieces_of(pipeline, "b")[0].start, cached_tokens(pipeline, "b")) == (8, 8)
    assert pipeline.tracked("b").emissions[0].num_cached_tokens == 8
    assert pipeline.scheduler.tally.cached_tokens == 8
    check_drained(pipeline)


def test_the_last_block_of_a_wholly_cached_prompt_is_computed_again() -> None:
    pipeline = Pipeline()
    for request_id in ("a", "b"):
        pipeline.submit(make_request(request_id, make_prompt(12)))
        pipeline.drain()
    first = pieces_of(pipeline, "b")[0]
    assert (first.start, len(first.token_ids), first.samples) == (8, 4, True)
    check_drained(pipeline)


def test_equal_prompts_share_across_micro_batches_while_the_first_is_in_flight() -> None:
    pipeline = Pipeline(make_settings(num_slots=3), chunk_tokens=8)
    pipeline.submit(make_request("a", make_prompt(16)))
    pipeline.submit(make_request("b", make_prompt(16)))
    pipeline.fill()
    assert [flight.micro_batch.sequence for flight in pipeline.flights] == [0, 1, 2]
    shared, own = pieces_of(pipeline, "a")[1], pieces_of(pipeline, "b")[0]
    assert own.start == 12
    assert own.block_ids[:3] == shared.block_ids[:3]
    assert own.block_ids[3] != shared.block_ids[3]
    pipeline.drain()
    assert pipeline.output("a") == pipeline.output("b")
    check_drained(pipeline)


def test_equal_prompts_in_one_micro_batch_do_not_share() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("a", make_prompt(16)))
    pipeline.submit(make_request("b", make_prompt(16)))
    micro_batch = pipeline.launch()
    assert micro_batch is not None
    assert [piece.start for piece in micro_batch.pieces] == [0, 0]
    pipeline.drain()
    check_drained(pipeline)


def test_what_was_cached_on_arrival_and_is_gone_at_the_start_is_no_hit() -> None:
    pipeline = Pipeline(make_settings(num_blocks=4, max_running_requests=1))
    pipeline.submit(make_request("a", make_prompt(12), max_output_tokens=1))
    pipeline.drain()
    pipeline.submit(make_request("evicts", 15, max_output_tokens=1))
    pipeline.submit(make_request("b", make_prompt(12), max_output_tokens=1))
    pipeline.drain()
    assert cached_tokens(pipeline, "b") == 0
    assert pipeline.scheduler.tally.cached_tokens == 0
    check_drained(pipeline)


def test_what_is_computed_between_arrival_and_start_is_a_hit() -> None:
    pipeline = Pipeline(make_settings(max_running_requests=1))
    pipeline.submit(make_request("a", make_prompt(12)))
    pipeline.submit(make_request("b", make_prompt(13)))
    pipeline.drain()
    assert cached_tokens(pipeline, "b") == 12


def test_a_preempted_requests_own_blocks_do_not_count_as_hits() -> None:
    pipeline = Pipeline(make_settings(num_slots=1, num_blocks=8, block_tokens=1))
    pipeline.submit(make_request("a", 3, max_output_tokens=5))
    pipeline.submit(make_request("b", 3, max_output_tokens=5))
    pipeline.drain()
    assert pipeline.scheduler.tally.preemptions > 0
    assert cached_tokens(pipeline, "b") == 0
    assert pipeline.scheduler.tally.cached_tokens == 0


def test_a_hit_is_counted_once_for_a_request_that_starts_twice() -> None:
    pipeline = Pipeline(make_settings(num_slots=1, num_blocks=8, block_tokens=1))
    pipeline.submit(make_request("seed", make_prompt(3), max_output_tokens=1))
    pipeline.drain()
    pipeline.submit(make_request("a", 3, max_output_tokens=5))
    pipeline.submit(make_request("b", make_prompt(3), max_output_tokens=5))
    pipeline.drain()
    record = pipeline.tracked("b").record
    assert record is not None
    assert record.num_requeues > 0
    assert record.num_cached_tokens == pipeline.scheduler.tally.cached_tokens == 2


def test_a_cancelled_requests_blocks_stay_good_for_others() -> None:
    pipeline = Pipeline(make_settings(num_slots=2), chunk_tokens=8)
    pipeline.submit(make_request("a", make_prompt(16)))
    pipeline.launch()
    pipeline.cancel("a")
    pipeline.submit(make_request("b", make_prompt(16)))
    pipeline.launch()
    assert pieces_of(pipeline, "b")[0].start == 8
    pipeline.drain()
    check_drained(pipeline)


def test_a_conversation_finds_the_answer_that_it_was_given() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("turn 1", make_prompt(6), max_output_tokens=6))
    pipeline.drain()
    answer = pipeline.output("turn 1")
    pipeline.submit(make_request("turn 2", (*make_prompt(6), *answer, 50, 51, 52)))
    pipeline.drain()
    assert cached_tokens(pipeline, "turn 2") == 8  # the last of 12 tokens was never computed
    check_drained(pipeline)


def test_equal_prompts_share_nothing_when_sharing_is_off() -> None:
    pipeline = Pipeline(make_settings(shares_prefixes=False))
    for request_id in ("a", "b"):
        pipeline.submit(make_request(request_id, make_prompt(12)))
        pipeline.drain()
    assert (pieces_of(pipeline, "b")[0].start, cached_tokens(pipeline, "b")) == (0, 0)
    check_drained(pipeline)


def test_no_content_is_looked_at_when_sharing_is_off() -> None:
    pipeline = Pipeline(make_settings(shares_prefixes=False))
    pipeline.submit(make_request("r", make_prompt(12)))
    pipeline.launch()
    (request,) = pipeline.scheduler._live.values()
    assert (request.block_digests, request.num_published) == ([], 0)
