"""What the figures of a request are, given the times that were passed in."""

from scheduling import Pipeline, make_request, make_settings


def run_at(pipeline: Pipeline, times_s: list[float]) -> None:
    """Launch, let the time come, complete; once per time."""
    for now_s in times_s:
        pipeline.fill()
        pipeline.now_s = now_s
        pipeline.complete()


def test_first_token_gaps_and_mean_come_from_the_times_passed_in() -> None:
    pipeline = Pipeline()
    pipeline.now_s = 10.0
    pipeline.submit(make_request("r", max_output_tokens=3))
    pipeline.now_s = 11.0
    run_at(pipeline, [12.5, 13.0, 14.5])
    emissions = pipeline.tracked("r").emissions
    assert [emission.ttft_s for emission in emissions] == [2.5, None, None]
    assert [emission.gap_s for emission in emissions] == [None, 0.5, 1.5]
    record = pipeline.tracked("r").record
    assert record is not None
    assert (record.arrival_s, record.first_issue_s) == (10.0, 11.0)
    assert (record.first_token_s, record.last_token_s, record.end_s) == (12.5, 14.5, 14.5)
    assert record.tpot_s == 1.0


def test_a_request_that_ends_with_its_first_token_has_a_ttft_and_no_tpot() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", max_output_tokens=1))
    run_at(pipeline, [3.0])
    assert [emission.ttft_s for emission in pipeline.tracked("r").emissions] == [3.0]
    record = pipeline.tracked("r").record
    assert record is not None
    assert record.first_token_s == 3.0
    assert record.tpot_s is None


def test_a_request_that_stops_at_once_has_a_ttft_and_no_output() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", max_output_tokens=9, stop_token_ids=(0, 1, 2, 3)))
    run_at(pipeline, [3.0])
    (emission,) = pipeline.tracked("r").emissions
    assert (emission.token_id, emission.ttft_s, emission.gap_s) == (None, 3.0, None)
    assert emission.record is not None
    assert (emission.record.num_output_tokens, emission.record.tpot_s) == (0, None)


def test_a_request_cancelled_before_its_first_token_has_no_figures() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r"))
    pipeline.launch()
    pipeline.now_s = 4.0
    record = pipeline.cancel("r")
    assert record is not None
    assert (record.first_token_s, record.last_token_s, record.tpot_s) == (None, None, None)
    assert (record.first_issue_s, record.end_s) == (0.0, 4.0)


def test_a_request_cancelled_in_the_queue_was_never_issued() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r"))
    record = pipeline.cancel("r")
    assert record is not None
    assert record.first_issue_s is None


def test_the_mean_runs_to_the_last_token_and_not_to_the_end() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", max_output_tokens=3))
    run_at(pipeline, [1.0, 2.0])
    pipeline.now_s = 9.0
    record = pipeline.finish("r")
    assert record is not None
    assert (record.last_token_s, record.end_s, record.tpot_s) == (2.0, 9.0, 1.0)


def test_preemption_shows_in_the_gap_and_not_in_the_time_to_the_first_token() -> None:
    pipeline = Pipeline(make_settings(num_slots=1, num_blocks=8, block_tokens=1))
    pipeline.submit(make_request("other", 3, max_output_tokens=5))
    pipeline.submit(make_request("r", 3, max_output_tokens=5))
    while pipeline.live:
        run_at(pipeline, [pipeline.now_s + 1.0])
    tracked = pipeline.tracked("r")
    assert tracked.record is not None
    assert tracked.record.num_requeues > 0
    assert [emission.ttft_s for emission in tracked.emissions] == [1.0, None, None, None, None]
    gaps = [emission.gap_s for emission in tracked.emissions if emission.gap_s is not None]
    assert max(gaps) > 1.0
    assert tracked.record.first_issue_s == 0.0


def test_the_gap_over_a_recall_is_a_gap_like_any_other() -> None:
    pipeline = Pipeline()
    pipeline.submit(make_request("r", max_output_tokens=3))
    run_at(pipeline, [1.0])
    pipeline.recall_all()
    run_at(pipeline, [8.0, 9.0])
    tracked = pipeline.tracked("r")
    assert [emission.gap_s for emission in tracked.emissions] == [None, 7.0, 1.0]
    assert tracked.record is not None
    assert tracked.record.longest_gap_s == 7.0
