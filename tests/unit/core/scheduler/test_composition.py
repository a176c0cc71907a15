"""What goes into a micro-batch, and into which slot."""

from dataclasses import dataclass, field

import pytest

from pipelineserve.policy.chunking import ChunkDecision, Static
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.views import SchedulerView
from pipelineserve.scheduler.messages import MicroBatch, StepResult
from pipelineserve.scheduler.scheduler import Scheduler
from scheduling import Pipeline, make_request, make_settings


def spans(micro_batch: MicroBatch | None) -> list[tuple[str, int, int]]:
    """Pieces as (request, start, tokens)."""
    assert micro_batch is not None
    return [(piece.request_id, piece.start, len(piece.token_ids)) for piece in micro_batch.pieces]


def decoding(pipeline: Pipeline, number: int, max_output_tokens: int = 50) -> list[str]:
    """Start this many requests, all of them ready for a decode."""
    request_ids = [f"decode-{index}" for index in range(number)]
    for request_id in request_ids:
        new = make_request(request_id, (ord(request_id[-1]),), max_output_tokens=max_output_tokens)
        pipeline.submit(new)
    assert pipeline.launch(0) is not None
    pipeline.complete()
    return request_ids


def test_consecutive_pieces_of_a_prompt_enter_consecutive_slots_without_waiting() -> None:
    pipeline = Pipeline(make_settings(num_slots=3), chunk_tokens=8)
    pipeline.submit(make_request("long", 24))
    launched = pipeline.fill()
    assert [spans(micro_batch) for micro_batch in launched] == [
        [("long", 0, 8)],
        [("long", 8, 8)],
        [("long", 16, 8)],
    ]
    assert [micro_batch.slot_index for micro_batch in launched] == [0, 1, 2]
    assert [micro_batch.pieces[0].samples for micro_batch in launched] == [False, False, True]


def test_a_prompt_longer_than_all_slots_goes_on_as_each_comes_back() -> None:
    pipeline = Pipeline(make_settings(num_slots=2), chunk_tokens=8)
    pipeline.submit(make_request("long", 30))
    pipeline.fill()
    assert pipeline.complete() == []
    assert spans(pipeline.launch()) == [("long", 16, 8)]


def test_decodes_spread_evenly_over_the_slots_and_stay_there() -> None:
    pipeline = Pipeline(make_settings(num_slots=4))
    decoding(pipeline, 8)
    assert [len(micro_batch.pieces) for micro_batch in pipeline.fill()] == [2, 2, 2, 2]
    for _ in range(8):
        pipeline.complete()
        assert len(spans(pipeline.launch())) == 2


def test_cancelled_decodes_do_not_count_in_the_share_of_a_slot() -> None:
    pipeline = Pipeline(make_settings(num_slots=2))
    request_ids = decoding(pipeline, 8)
    pipeline.launch(0)
    for request_id in request_ids[:4]:
        pipeline.cancel(request_id)
    assert pipeline.scheduler.view(1, 0.0).num_decoding == 4
    assert len(spans(pipeline.launch(1))) == 2


def test_decodes_come_first_and_prompts_fill_what_is_left_of_the_chunk() -> None:
    pipeline = Pipeline(chunk_tokens=8)
    decoding(pipeline, 2)
    pipeline.submit(make_request("long", 20))
    assert spans(pipeline.launch()) == [("decode-0", 1, 1), ("long", 0, 7)]


def test_decodes_never_exceed_the_chunk() -> None:
    pipeline = Pipeline(make_settings(num_slots=1), chunk_tokens=64)
    decoding(pipeline, 8)
    pipeline.scheduler.chunk_policy = Static(3)
    assert len(spans(pipeline.launch())) == 3


def test_those_that_became_ready_first_decode_first() -> None:
    pipeline = Pipeline(make_settings(num_slots=1))
    decoding(pipeline, 3)
    pipeline.scheduler.chunk_policy = Static(2)
    order = []
    for _ in range(3):
        order.append([request_id for request_id, _, _ in spans(pipeline.launch())])
        pipeline.complete()
    assert order == [["decode-0", "decode-1"], ["decode-2", "decode-0"], ["decode-1", "decode-2"]]


def test_the_next_prompt_fills_what_the_first_leaves_over() -> None:
    pipeline = Pipeline(chunk_tokens=8)
    pipeline.submit(make_request("a", 5))
    pipeline.submit(make_request("b", 10))
    assert [spans(micro_batch) for micro_batch in pipeline.fill()] == [
        [("a", 0, 5), ("b", 0, 3)],
        [("b", 3, 7)],
    ]


def test_a_started_prompt_is_not_preempted_by_another_of_higher_priority() -> None:
    pipeline = Pipeline(chunk_tokens=8)
    pipeline.submit(make_request("low", 12))
    pipeline.launch()
    pipeline.submit(make_request("high", 12, priority=9))
    assert spans(pipeline.launch()) == [("low", 8, 4), ("high", 0, 4)]


def test_a_decode_enters_again_only_when_its_token_came_back() -> None:
    pipeline = Pipeline()
    decoding(pipeline, 1)
    assert spans(pipeline.launch(0)) == [("decode-0", 1, 1)]
    assert pipeline.launch(1) is None
    pipeline.complete()
    assert spans(pipeline.launch(1)) == [("decode-0", 2, 1)]


def test_a_piece_says_how_many_output_tokens_came_before_its_sample() -> None:
    pipeline = Pipeline(chunk_tokens=3)
    pipeline.submit(make_request("r", 4, max_output_tokens=3))
    pipeline.drain()
    pieces = [micro_batch.pieces[0] for micro_batch in pipeline.launched]
    assert [(p.is_decode, p.samples, p.output_index) for p in pieces] == [
        (False, False, 0),
        (False, True, 0),
        (True, True, 1),
        (True, True, 2),
    ]


def test_no_more_requests_run_at_once_than_allowed() -> None:
    pipeline = Pipeline(make_settings(max_running_requests=2))
    for name in "abc":
        pipeline.submit(make_request(name, 4))
    assert [name for name, _, _ in spans(pipeline.launch())] == ["a", "b"]
    assert pipeline.launch() is None
    assert pipeline.scheduler.census().waiting == 1


def test_nothing_to_run_gives_no_micro_batch() -> None:
    pipeline = Pipeline()
    assert pipeline.launch() is None
    assert not pipeline.scheduler.has_work


@dataclass
class Recording:
    """A chunk policy that keeps what it saw."""

    views: list[SchedulerView] = field(default_factory=list)

    def decide(self, view: SchedulerView) -> ChunkDecision:
        """Give 4 tokens."""
        self.views.append(view)
        return ChunkDecision(4, Reason.STATIC_CHUNK)


def test_the_chunk_is_decided_once_for_exactly_the_micro_batch_being_composed() -> None:
    policy = Recording()
    scheduler = Scheduler(make_settings(num_slots=3, num_blocks=10, block_tokens=4), policy)
    scheduler.submit(make_request("r", 10), 1.0)
    assert scheduler.next_micro_batch(2, 1.5) is not None
    scheduler.submit(make_request("s", 7), 2.0)
    assert scheduler.next_micro_batch(0, 2.5) is not None
    first, second = policy.views
    assert (first.slot_index, first.now_s, first.num_waiting, first.waiting_tokens) == (
        2,
        1.5,
        1,
        10,
    )
    assert (first.num_prefilling, first.kv_free_ratio) == (0, 1.0)
    assert (second.slot_index, second.now_s, second.num_waiting, second.waiting_tokens) == (
        0,
        2.5,
        1,
        7,
    )
    assert (second.num_prefilling, second.kv_free_ratio) == (1, 0.9)


def test_a_slot_in_flight_takes_no_second_micro_batch() -> None:
    pipeline = Pipeline(chunk_tokens=4)
    pipeline.submit(make_request("r", 20))
    pipeline.launch(0)
    assert pipeline.scheduler.is_slot_in_flight(0)
    assert pipeline.scheduler.num_in_flight == 1
    with pytest.raises(ValueError, match="slot 0 is in flight"):
        pipeline.scheduler.next_micro_batch(0, 0.0)


@pytest.mark.parametrize("slot_index", [-1, 2])
def test_a_slot_that_does_not_exist_is_refused(slot_index: int) -> None:
    with pytest.raises(ValueError, match=f"slot {slot_index} is in flight or not below 2"):
        Pipeline().scheduler.next_micro_batch(slot_index, 0.0)


@pytest.mark.parametrize(
    ("slot_index", "result", "message"),
    [
        (1, StepResult(0, (1,)), "slot 1 does not hold micro-batch 0"),
        (0, StepResult(5, (1,)), "slot 0 does not hold micro-batch 5"),
        (0, StepResult(0, ()), "micro-batch 0: expected 1 tokens, got 0"),
        (0, StepResult(0, (1, 2)), "micro-batch 0: expected 1 tokens, got 2"),
    ],
)
def test_a_result_that_is_not_of_the_slots_micro_batch_is_refused_and_changes_nothing(
    slot_index: int, result: StepResult, message: str
) -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", 4))
    pipeline.launch(0)
    with pytest.raises(ValueError, match=message):
        pipeline.scheduler.complete(slot_index, result, 1.0)
    pipeline.drain()
    assert len(pipeline.output("r")) == 2


def test_a_micro_batch_cannot_come_back_before_an_older_one() -> None:
    pipeline = Pipeline(make_settings(num_slots=2), chunk_tokens=4)
    pipeline.submit(make_request("r", 12))
    pipeline.launch(0)
    pipeline.launch(1)
    with pytest.raises(ValueError, match="micro-batch 1 came back before 0"):
        pipeline.scheduler.complete(1, StepResult(1, ()), 1.0)
