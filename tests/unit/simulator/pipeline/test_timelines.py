"""Timelines that are short enough to be computed by hand.

A stage takes 1 s and 1/8 s per token, a hop 1/2 s, the leader 1/4 s, the way back 1/4 s; chunks
have 8 tokens. All of it has an exact binary form.
"""

import pytest

from pipelineserve_simulator.kernel.ticks import to_seconds
from pipelineserve_simulator.measures.runs import RunOutcome
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.options import (
    FreeRunning,
    Interleaved,
    LockStep,
    PipelineOptions,
    Timing,
)
from pipelineserve_simulator.pipeline.passage import Passage
from simulated_pipelines import PlainCosts, Watched, make_requests, make_scheduler

COSTS = PlainCosts(num_stages=2, step_s=1.0, token_s=0.125, hop_s=0.5, leader_s=0.25, back_s=0.25)
# One prompt of a whole chunk with two tokens of output, one of half a chunk, and one much later.
REQUESTS = make_requests((0.0, 8, 2), (0.0, 4, 1), (100.0, 2, 1))


def run(timing: Timing) -> tuple[RunOutcome, list[Passage]]:
    watched = Watched()
    options = PipelineOptions(timing=timing, observe=watched.observe)
    outcome = run_pipeline(REQUESTS, make_scheduler(chunk_tokens=8), COSTS, options)
    return outcome, watched.passages


def spans_s(passage: Passage) -> list[tuple[float, float]]:
    pairs = zip(passage.starts_ticks, passage.ends_ticks, strict=True)
    return [(to_seconds(start), to_seconds(end)) for start, end in pairs]


def token_times_s(outcome: RunOutcome) -> list[tuple[float | None, float | None]]:
    return [(request.first_token_s, request.last_token_s) for request in outcome.requests]


def test_stages_that_run_free() -> None:
    outcome, passages = run(FreeRunning())
    assert [spans_s(passage) for passage in passages] == [
        [(0.25, 2.25), (2.75, 4.75)],
        # The leader sent it at 0.5; both stages have the one before first.
        [(2.25, 3.75), (4.75, 6.25)],
        # The first token came back at 5.0.
        [(5.25, 6.375), (6.875, 8.0)],
        [(100.25, 101.5), (102.0, 103.25)],
    ]
    assert token_times_s(outcome) == [(5.0, 8.25), (6.5, 6.5), (103.5, 103.5)]
    assert [step.bubbles_s for step in outcome.steps] == [
        (0.25, 2.75),
        (0.0, 0.0),
        (1.5, 0.625),
        (0.25, 2.0),  # the lull before the third request is no bubble
    ]
    assert [step.stage_times_s[0] for step in outcome.steps] == [2.0, 1.5, 1.125, 1.25]
    assert [(step.num_tokens, step.num_decodes) for step in outcome.steps] == [
        *((8, 0), (4, 0), (1, 1), (2, 0))
    ]
    assert outcome.duration_s == 103.5


def test_kv_in_use_over_time() -> None:
    outcome, _ = run(FreeRunning())
    # 256 blocks of 4 tokens. Two for the first prompt; one for the second at 0.25; one for the
    # first one's token at 5.0; one back at 6.5, all at 8.25; one for the last from 100 to 103.5.
    assert outcome.kv_used_ratio_max == 4 / 256
    block_seconds = 2 * 0.25 + 3 * 4.75 + 4 * 1.5 + 3 * 1.75 + 1 * 3.5
    assert outcome.kv_used_ratio_mean == pytest.approx(block_seconds / 256 / 103.5)


def test_stages_in_lock_step() -> None:
    outcome, passages = run(LockStep())
    assert [spans_s(passage) for passage in passages] == [
        # The leader's work and the hop are in every step: it is over at 2.75.
        [(0.25, 2.25), (3.0, 5.0)],
        [(3.0, 4.5), (5.25, 6.75)],
        # The step ends at 6.875, when the first stage has handed on.
        [(5.25, 6.375), (7.125, 8.25)],
        [(100.25, 101.5), (102.25, 103.5)],
    ]
    # What the last stage sampled is known to the leader at the end of the step.
    assert token_times_s(outcome) == [(5.0, 8.25), (6.875, 6.875), (103.5, 103.5)]


def test_virtual_stages_the_oldest_micro_batch_first() -> None:
    watched = Watched()
    options = PipelineOptions(timing=Interleaved(num_workers=2), observe=watched.observe)
    requests = make_requests((0.0, 8, 1), (0.0, 8, 1))
    costs = PlainCosts(num_stages=4, step_s=1.0)
    outcome = run_pipeline(requests, make_scheduler(chunk_tokens=8), costs, options)
    assert [spans_s(passage) for passage in watched.passages] == [
        [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)],
        [(1.0, 2.0), (2.0, 3.0), (3.0, 4.0), (4.0, 5.0)],
    ]
    assert token_times_s(outcome) == [(4.0, 4.0), (5.0, 5.0)]


def test_a_slot_more_than_stages_hides_the_leaders_work() -> None:
    costs = PlainCosts(num_stages=2, step_s=1.0, leader_s=0.5)
    requests = make_requests(*[(0.0, 4, 40)] * 6)

    def duration_s(num_slots: int) -> float:
        scheduler = make_scheduler(num_slots=num_slots, chunk_tokens=8)
        return run_pipeline(requests, scheduler, costs, PipelineOptions()).duration_s

    # The stages are never idle with three slots: six requests in three micro-batches, 40 rounds of
    # 3 s; with two slots each round of the slot takes 2.5 s.
    assert duration_s(3) < 40 * 3.0 + 5.0
    assert duration_s(2) > 40 * 2.5


def test_a_lock_step_is_told_for_the_micro_batch_that_entered_with_it() -> None:
    outcome, passages = run(LockStep())
    told_s = [step.lock_step_s for step in outcome.steps]
    # With the leader's quarter and the hop: 1/4 + 2 + 1/2 for a whole chunk on the first stage.
    assert told_s[0] == 2.75
    for passage, step_s in zip(passages, told_s, strict=True):
        entered, follows = passage.starts_ticks[:2]
        assert step_s == to_seconds(follows - entered)
    free, _ = run(FreeRunning())
    assert {step.lock_step_s for step in free.steps} == {None}
