"""What is accepted, what is not, and what the answer says."""

import pytest

from pipelineserve.scheduler.messages import Accepted, Rejected, RejectReason
from scheduling import Pipeline, make_request, make_settings


def test_says_how_much_output_was_granted() -> None:
    assert Pipeline().submit(make_request("r", 4, max_output_tokens=7)) == Accepted("r", 7)


@pytest.mark.parametrize("asked", [None, 6, 7, 1000])
def test_output_is_clipped_to_what_the_context_leaves(asked: int | None) -> None:
    pipeline = Pipeline(make_settings(max_context_tokens=10))
    answer = pipeline.submit(make_request("r", 4, max_output_tokens=asked))
    assert answer == Accepted("r", 6)
    pipeline.drain()
    assert len(pipeline.output("r")) == 6


def test_the_longest_prompt_leaves_room_for_one_output_token() -> None:
    pipeline = Pipeline(make_settings(max_context_tokens=10))
    assert pipeline.submit(make_request("fits", 9)) == Accepted("fits", 1)
    answer = pipeline.submit(make_request("does not", 10))
    assert answer == Rejected("does not", RejectReason.PROMPT_TOO_LONG, 9)


def test_a_prompt_longer_than_the_pool_is_too_long_whatever_the_context() -> None:
    pipeline = Pipeline(make_settings(max_context_tokens=100, num_blocks=2, block_tokens=4))
    answer = pipeline.submit(make_request("r", 8))
    assert answer == Rejected("r", RejectReason.PROMPT_TOO_LONG, 7)


def test_a_request_that_fills_the_whole_pool_runs_to_its_end() -> None:
    pipeline = Pipeline(make_settings(num_blocks=2, block_tokens=4))
    pipeline.submit(make_request("r", 7))
    pipeline.drain()
    assert len(pipeline.output("r")) == 1


def test_an_empty_prompt_is_rejected() -> None:
    answer = Pipeline().submit(make_request("r", ()))
    assert answer == Rejected("r", RejectReason.EMPTY_PROMPT, 1)


@pytest.mark.parametrize("asked", [0, -1])
def test_asking_for_no_output_is_rejected(asked: int) -> None:
    answer = Pipeline().submit(make_request("r", max_output_tokens=asked))
    assert answer == Rejected("r", RejectReason.NO_OUTPUT_ASKED, 1)


def test_the_id_of_a_live_request_is_rejected_and_the_live_one_goes_on() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 4, max_output_tokens=2))
    pipeline.launch()
    answer = pipeline.submit(make_request("r", 9))
    assert answer == Rejected("r", RejectReason.DUPLICATE_ID, 1)
    pipeline.drain()
    assert len(pipeline.output("r")) == 2


def test_a_full_queue_rejects_and_says_its_bound() -> None:
    pipeline = Pipeline(make_settings(max_waiting_requests=2))
    for name in "ab":
        assert isinstance(pipeline.submit(make_request(name)), Accepted)
    answer = pipeline.submit(make_request("c"))
    assert answer == Rejected("c", RejectReason.QUEUE_FULL, 2)


def test_a_place_in_the_queue_is_free_again_when_a_request_starts_or_is_cancelled() -> None:
    pipeline = Pipeline(make_settings(max_waiting_requests=1))
    pipeline.submit(make_request("starts"))
    pipeline.launch()
    assert isinstance(pipeline.submit(make_request("leaves")), Accepted)
    pipeline.cancel("leaves")
    assert isinstance(pipeline.submit(make_request("comes")), Accepted)


def test_a_rejected_request_leaves_only_a_count() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", ()))
    census = pipeline.scheduler.census()
    assert (census.arrived, census.rejected, census.waiting, census.running) == (1, 1, 0, 0)
    assert census.is_conserved
    assert not pipeline.scheduler.has_work
    assert pipeline.scheduler.tally.prompt_tokens == 0
    assert pipeline.cancel("r") is None
