"""Decodes bound to the slot in which their prompt ended."""

from pipelineserve.policy.assignment import OnePool, SlotBound
from scheduling import Pipeline, make_request, make_settings
from scheduling_invariants import check_drained, check_running


def bound_pipeline(num_slots: int = 2, num_blocks: int = 64) -> Pipeline:
    settings = make_settings(num_slots=num_slots, num_blocks=num_blocks)
    return Pipeline(settings, assignment=SlotBound())


def launched(pipeline: Pipeline, slot_index: int) -> list[str]:
    micro_batch = pipeline.launch(slot_index)
    check_running(pipeline)
    return [] if micro_batch is None else [piece.request_id for piece in micro_batch.pieces]


def a_and_b_in_slots_0_and_1() -> Pipeline:
    pipeline = bound_pipeline()
    for slot_index, request_id in enumerate("ab"):
        pipeline.submit(make_request(request_id, max_output_tokens=5))
        assert launched(pipeline, slot_index) == [request_id]
        pipeline.complete()
    return pipeline


def test_a_request_decodes_in_the_slot_in_which_its_prompt_ended() -> None:
    pipeline = a_and_b_in_slots_0_and_1()
    for _ in range(2):
        assert (launched(pipeline, 1), launched(pipeline, 0)) == (["b"], ["a"])
        pipeline.complete()
        pipeline.complete()


def test_a_long_prompt_ends_up_where_its_last_piece_went() -> None:
    pipeline = bound_pipeline()
    pipeline.submit(make_request("long", 100, max_output_tokens=3))
    assert launched(pipeline, 0) == launched(pipeline, 1) == ["long"]
    pipeline.complete()
    pipeline.complete()
    assert launched(pipeline, 0) == []
    assert launched(pipeline, 1) == ["long"]


def test_all_of_a_slot_go_however_uneven_slots_are() -> None:
    pipeline = bound_pipeline()
    for request_id in "abc":
        pipeline.submit(make_request(request_id, max_output_tokens=5))
    launched(pipeline, 0)
    pipeline.complete()
    assert launched(pipeline, 1) == []
    assert launched(pipeline, 0) == ["a", "b", "c"]


def test_a_slot_without_decodes_preempts_nobody_for_those_of_another() -> None:
    pipeline = a_and_b_in_slots_0_and_1()
    pipeline.cancel("a")
    assert launched(pipeline, 0) == []
    assert pipeline.scheduler.tally.preemptions == 0
    assert launched(pipeline, 1) == ["b"]


def test_a_preempted_request_comes_back_in_any_slot() -> None:
    pipeline = a_and_b_in_slots_0_and_1()
    pipeline.scheduler._preempt(pipeline.request("a"))
    check_running(pipeline)
    assert launched(pipeline, 1) == ["b", "a"]
    pipeline.complete()
    assert launched(pipeline, 0) == []
    pipeline.drain()
    check_drained(pipeline)


def test_views_count_the_decodes_of_their_slot() -> None:
    pipeline = a_and_b_in_slots_0_and_1()
    pipeline.cancel("b")
    views = [pipeline.scheduler.view(slot_index, 0.0) for slot_index in range(2)]
    assert [view.num_ready_decodes for view in views] == [1, 0]
    assert [view.num_decoding for view in views] == [1, 1]


def test_least_slack_goes_first_where_not_all_go() -> None:
    pipeline = Pipeline(make_settings(num_slots=1), assignment=OnePool(tpot_target_s=1.0))
    for request_id in "abc":
        pipeline.submit(make_request(request_id, max_output_tokens=9))
        pipeline.launch()
        pipeline.now_s += 1.0
        pipeline.complete()
    # First tokens came after 1, 2 and 3 s; a has had 3 tokens, b 2 and c 1.
    pipeline.request("a").first_token_s = 3.5
    pipeline.scheduler._decodes.put_least_slack_first(1.0)
    assert launched(pipeline, 0) == ["b", "c", "a"]


def test_with_more_ready_than_an_even_share_slack_decides() -> None:
    late_first = Pipeline(make_settings(num_slots=2), assignment=OnePool(tpot_target_s=1.0))
    by_turn = Pipeline(make_settings(num_slots=2), assignment=OnePool())
    for pipeline in (late_first, by_turn):
        for request_id in "ab":
            pipeline.submit(make_request(request_id, max_output_tokens=9))
        pipeline.launch()
        pipeline.complete()
        pipeline.request("b").first_token_s = -5.0
    assert launched(late_first, 0) == ["b"]
    assert launched(by_turn, 0) == ["a"]
