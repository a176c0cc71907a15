"""How requests end: by themselves, by their client in any state, or with the executor."""

import pytest

from pipelineserve.scheduler.messages import Emission, StepResult
from pipelineserve.scheduler.requests import FinishReason, NewRequest, RequestState
from scheduling import Pipeline, make_request, make_settings, output_alone
from scheduling_invariants import check_drained, check_running


def waiting() -> Pipeline:
    pipeline = Pipeline(make_settings(max_running_requests=1))
    pipeline.submit(make_request("other", 4))
    pipeline.submit(make_request("r", 4))
    pipeline.launch()
    assert pipeline.request("r").state is RequestState.WAITING
    return pipeline


def prefilling_with_two_pieces_in_flight() -> Pipeline:
    pipeline = Pipeline(chunk_tokens=8)
    pipeline.submit(make_request("r", 20))
    pipeline.submit(make_request("other", 4))
    pipeline.fill()
    assert pipeline.request("r").state is RequestState.PREFILLING
    assert pipeline.request("r").num_in_flight == 2
    return pipeline


def last_piece_in_flight() -> Pipeline:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 20))
    pipeline.submit(make_request("other", 4))
    pipeline.launch()
    assert pipeline.request("r").state is RequestState.DECODING
    return pipeline


def ready() -> Pipeline:
    pipeline = last_piece_in_flight()
    pipeline.complete()
    assert "r" in {r.request_id for r in pipeline.scheduler._decodes.first_ready(9)}
    return pipeline


def decode_in_flight() -> Pipeline:
    pipeline = ready()
    pipeline.fill()
    assert pipeline.request("r").num_in_flight == 1
    return pipeline


def preempted() -> Pipeline:
    settings = make_settings(num_slots=1, num_blocks=8, block_tokens=1)
    pipeline = Pipeline(settings)
    pipeline.submit(make_request("other", 3, max_output_tokens=5))
    pipeline.submit(make_request("r", 3, max_output_tokens=5))
    while not pipeline.scheduler.tally.preemptions:
        pipeline.fill()
        pipeline.complete()
    assert pipeline.request("r").num_requeues == 1
    return pipeline


def recalled_and_waiting() -> Pipeline:
    """The executor was replaced while it decoded; nothing was given to the new one yet."""
    pipeline = decode_in_flight()
    pipeline.recall_all()
    assert pipeline.request("r").state is RequestState.WAITING
    assert pipeline.output("r") != []
    return pipeline


def replaying_with_two_pieces_in_flight() -> Pipeline:
    """The executor was replaced; its tokens are computed again, in several slots."""
    pipeline = Pipeline(chunk_tokens=8)
    pipeline.submit(make_request("r", 20))
    pipeline.submit(make_request("other", 4))
    while not pipeline.output("r"):
        pipeline.fill()
        pipeline.complete()
    pipeline.recall_all()
    pipeline.fill()
    assert pipeline.request("r").state is RequestState.PREFILLING
    assert pipeline.request("r").num_in_flight == 2
    return pipeline


STATES = [
    waiting,
    prefilling_with_two_pieces_in_flight,
    last_piece_in_flight,
    ready,
    decode_in_flight,
    preempted,
    recalled_and_waiting,
    replaying_with_two_pieces_in_flight,
]
in_every_state = pytest.mark.parametrize("pipeline_with_r", STATES, ids=lambda s: s.__name__)


@in_every_state
def test_a_cancelled_request_is_never_scheduled_again_and_others_go_on(
    pipeline_with_r: object,
) -> None:
    assert callable(pipeline_with_r)
    pipeline: Pipeline = pipeline_with_r()
    num_output = len(pipeline.output("r"))
    num_launched = len(pipeline.launched)
    record = pipeline.cancel("r")
    check_running(pipeline)
    assert record is not None
    assert (record.finish, record.num_output_tokens) == (FinishReason.CANCELLED, num_output)
    pipeline.drain()
    later = [p for micro_batch in pipeline.launched[num_launched:] for p in micro_batch.pieces]
    assert "r" not in {piece.request_id for piece in later}
    assert pipeline.tracked("other").record is not None
    check_drained(pipeline)


@in_every_state
def test_the_id_of_a_cancelled_request_can_be_used_at_once(pipeline_with_r: object) -> None:
    assert callable(pipeline_with_r)
    pipeline: Pipeline = pipeline_with_r()
    pipeline.cancel("r")
    again = NewRequest("r", (7, 7, 7), max_output_tokens=4)
    pipeline.submit(again)
    pipeline.drain()
    assert pipeline.output("r") == output_alone(again, 4)[0]
    check_drained(pipeline)


@in_every_state
def test_a_request_whose_text_is_complete_ends_with_stop(pipeline_with_r: object) -> None:
    assert callable(pipeline_with_r)
    pipeline: Pipeline = pipeline_with_r()
    record = pipeline.finish("r")
    assert record is not None
    assert record.finish is FinishReason.STOP
    pipeline.drain()
    check_drained(pipeline)


@in_every_state
def test_a_request_that_fails_ends_alone_with_an_error_and_others_go_on(
    pipeline_with_r: object,
) -> None:
    assert callable(pipeline_with_r)
    pipeline: Pipeline = pipeline_with_r()
    num_launched = len(pipeline.launched)
    record = pipeline.fail("r")
    check_running(pipeline)
    assert record is not None
    assert record.finish is FinishReason.ERROR
    assert pipeline.scheduler.census().failed == 1
    pipeline.drain()
    later = [p for micro_batch in pipeline.launched[num_launched:] for p in micro_batch.pieces]
    assert "r" not in {piece.request_id for piece in later}
    other = pipeline.tracked("other").record
    assert other is not None
    assert other.finish is FinishReason.LENGTH
    check_drained(pipeline)


def test_ending_a_request_that_is_not_live_is_nothing() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r"))
    pipeline.drain()
    assert pipeline.cancel("r") is None
    assert pipeline.finish("r") is None
    assert pipeline.fail("r") is None
    assert pipeline.cancel("never came") is None
    assert pipeline.scheduler.census().cancelled == 0
    assert pipeline.scheduler.census().failed == 0


def test_blocks_come_back_when_the_last_piece_in_flight_does_not_before() -> None:
    pipeline = Pipeline(make_settings(num_blocks=5, block_tokens=4), chunk_tokens=8)
    pipeline.submit(make_request("r", 16))
    pipeline.fill()
    pool = pipeline.scheduler.kv.pool
    pipeline.cancel("r")
    assert pool.num_free == 1
    pipeline.complete()
    assert pool.num_free == 1
    pipeline.complete()
    assert pool.num_free == 5


def test_a_token_that_comes_back_for_a_cancelled_request_is_dropped() -> None:
    pipeline = last_piece_in_flight()
    pipeline.cancel("r")
    assert [emission.request_id for emission in pipeline.complete()] == ["other"]
    assert pipeline.scheduler.tally.output_tokens == 1


def test_a_request_ends_at_its_length_with_the_last_token() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 4, max_output_tokens=3))
    pipeline.drain()
    last = pipeline.tracked("r").emissions[-1]
    assert last.token_id is not None
    assert last.finish is FinishReason.LENGTH
    assert [emission.finish for emission in pipeline.tracked("r").emissions[:-1]] == [None, None]


def scripted(pipeline: Pipeline, token_ids: list[int]) -> list[Emission]:
    """Run the only request on given tokens instead of the model's."""
    emissions: list[Emission] = []
    for token_id in token_ids:
        micro_batch = pipeline.scheduler.next_micro_batch(0, 0.0)
        assert micro_batch is not None
        result = StepResult(micro_batch.sequence, (token_id,))
        emissions += pipeline.scheduler.complete(0, result, 0.0)
    return emissions


def test_a_stop_token_ends_the_request_and_is_not_part_of_the_output() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 4, max_output_tokens=9, stop_token_ids=(5,)))
    emissions = scripted(pipeline, [1, 2, 5])
    assert [emission.token_id for emission in emissions] == [1, 2, None]
    record = emissions[-1].record
    assert record is not None
    assert (record.finish, record.num_output_tokens) == (FinishReason.STOP, 2)
    assert not pipeline.scheduler.has_work


def test_a_stop_token_in_the_last_place_is_a_stop_not_a_length() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 4, max_output_tokens=2, stop_token_ids=(5,)))
    assert scripted(pipeline, [1, 5])[-1].finish is FinishReason.STOP


def test_a_stop_token_of_another_request_is_an_ordinary_token() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 4, max_output_tokens=2, stop_token_ids=(6,)))
    assert [emission.token_id for emission in scripted(pipeline, [5, 5])] == [5, 5]


def test_a_stop_token_inside_the_prompt_ends_nothing() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", (5, 5, 5), max_output_tokens=1, stop_token_ids=(5,)))
    assert scripted(pipeline, [1])[-1].finish is FinishReason.LENGTH


@in_every_state
def test_when_the_executor_is_lost_every_live_request_ends_with_an_error(
    pipeline_with_r: object,
) -> None:
    assert callable(pipeline_with_r)
    pipeline: Pipeline = pipeline_with_r()
    live = set(pipeline.live)
    records = pipeline.fail_all()
    assert {record.request_id for record in records} == live
    assert {record.finish for record in records} == {FinishReason.ERROR}
    assert pipeline.scheduler.num_in_flight == 0
    check_drained(pipeline)


@in_every_state
def test_when_the_executor_is_replaced_every_live_request_goes_on_to_the_same_output(
    pipeline_with_r: object,
) -> None:
    assert callable(pipeline_with_r)
    pipeline: Pipeline = pipeline_with_r()
    live = list(pipeline.live.values())
    pipeline.recall_all()
    assert pipeline.scheduler.census().running == 0
    pipeline.drain()  # compares each output with that of the request alone
    assert all(t.record is not None and t.record.finish.is_success for t in live)
    check_drained(pipeline)


def test_requests_after_a_lost_executor_find_no_prefix_of_before() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 20))
    pipeline.fill()
    pipeline.fail_all()
    pipeline.submit(make_request("r", 20))
    pipeline.drain()
    record = pipeline.tracked("r").record
    assert record is not None
    assert (record.finish, record.num_cached_tokens) == (FinishReason.LENGTH, 0)
    check_drained(pipeline)


def test_a_result_from_before_the_executor_was_lost_is_refused() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 4))
    pipeline.launch()
    late = pipeline.flights[0].result
    pipeline.fail_all()
    pipeline.submit(make_request("r", 4))
    pipeline.launch()
    with pytest.raises(ValueError, match="slot 0 does not hold micro-batch 0"):
        pipeline.scheduler.complete(0, late, 0.0)
