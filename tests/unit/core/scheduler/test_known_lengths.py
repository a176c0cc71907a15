"""Admission with known output lengths on the scheduler."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.admission import Counted, KnownLengths
from pipelineserve.policy.assignment import SlotBound
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.views import DecodeLoad, SchedulerView
from pipelineserve.scheduler.scheduler import Scheduler
from scheduling import Pipeline, make_request, make_settings
from scheduling_invariants import check_drained, check_running


class HoldsOn:
    """Releases nobody by itself."""

    def adopt(self, policy: object) -> None:
        """See `Holder`."""

    def apply(
        self, due: DecodeLoad, view: SchedulerView, *, prefill_tokens: int, cycle_s: float
    ) -> DecodeLoad:
        """See `Holder`."""
        del view, prefill_tokens, cycle_s
        return due

    def release_all(self) -> None:
        """See `Holder`."""


def a_pipeline(
    admission: KnownLengths | None = None, *, num_slots: int = 2, num_blocks: int = 40
) -> Pipeline:
    """A pool of single tokens."""
    settings = make_settings(num_slots=num_slots, num_blocks=num_blocks, block_tokens=1)
    scheduler = Scheduler(
        settings, Static(64), assignment=SlotBound(), admission=admission or KnownLengths()
    )
    return Pipeline(scheduler=scheduler)


def started(pipeline: Pipeline, slot_index: int) -> list[str]:
    micro_batch = pipeline.launch(slot_index)
    pieces = () if micro_batch is None else micro_batch.pieces
    return [piece.request_id for piece in pieces if not piece.is_decode]


def test_who_would_run_into_the_end_of_kv_waits_although_the_prompt_fits() -> None:
    pipeline = a_pipeline()
    for request_id in "ab":
        pipeline.submit(make_request(request_id, 5, max_output_tokens=14))
    assert started(pipeline, 0) == ["a"]
    ordinary = Pipeline(make_settings(num_blocks=40, block_tokens=1))
    for request_id in "ab":
        ordinary.submit(make_request(request_id, 5, max_output_tokens=14))
    assert started(ordinary, 0) == ["a", "b"]


def test_who_starts_with_the_same_micro_batch_counts() -> None:
    pipeline = a_pipeline(num_blocks=40)
    for request_id in "abc":
        pipeline.submit(make_request(request_id, 4, max_output_tokens=6))
    # Two need 2 · (4 + 6 + 3) of 40, three 39, and one must be left.
    assert started(pipeline, 0) == ["a", "b", "c"]
    tight = a_pipeline(num_blocks=39)
    for request_id in "abc":
        tight.submit(make_request(request_id, 4, max_output_tokens=6))
    assert started(tight, 0) == ["a", "b"]


def test_alone_a_request_starts_even_without_room_for_the_reserve() -> None:
    pipeline = a_pipeline(num_blocks=20)
    pipeline.submit(make_request("a", 10, max_output_tokens=10))
    assert started(pipeline, 0) == ["a"]
    pipeline.drain()
    check_drained(pipeline)


@pytest.mark.parametrize(("counted", "expected"), [(Counted.ALL, []), (Counted.SLOT, ["b"])])
def test_as_released_a_prompt_in_flight_in_another_slot_is_forgotten(
    counted: Counted, expected: list[str]
) -> None:
    pipeline = a_pipeline(KnownLengths(counted))
    pipeline.submit(make_request("a", 5, max_output_tokens=14))
    assert started(pipeline, 0) == ["a"]
    pipeline.submit(make_request("b", 5, max_output_tokens=14))
    assert started(pipeline, 1) == expected


def test_as_released_decodes_in_flight_by_themselves_count() -> None:
    pipeline = a_pipeline(KnownLengths(Counted.SLOT))
    pipeline.submit(make_request("a", 5, max_output_tokens=14))
    started(pipeline, 0)
    pipeline.complete()
    pipeline.launch(0)
    pipeline.submit(make_request("b", 5, max_output_tokens=14))
    assert started(pipeline, 1) == []


def test_as_released_those_of_the_slot_count_unless_they_are_held() -> None:
    pipeline = a_pipeline(KnownLengths(Counted.SLOT))
    pipeline.submit(make_request("a", 5, max_output_tokens=14))
    started(pipeline, 0)
    pipeline.complete()
    pipeline.submit(make_request("b", 5, max_output_tokens=14))
    assert started(pipeline, 0) == []
    pipeline.complete()
    pipeline.scheduler._holds = HoldsOn()
    pipeline.scheduler._decodes.hold(pipeline.request("a"))
    assert started(pipeline, 0) == ["b"]


def test_as_released_a_prompt_that_has_started_counts() -> None:
    pipeline = a_pipeline(KnownLengths(Counted.SLOT), num_blocks=100)
    pipeline.submit(make_request("a", 70, max_output_tokens=14))
    assert started(pipeline, 0) == ["a"]
    pipeline.submit(make_request("b", 2, max_output_tokens=14))
    # The rest of a goes first; both would need 70 + 2 + 2 · (14 + 3).
    assert started(pipeline, 1) == ["a"]


@given(seed=st.integers(0, 2**32 - 1), num_slots=st.integers(1, 4))
def test_with_all_counted_nobody_is_ever_preempted(seed: int, num_slots: int) -> None:
    random = Random(seed)
    settings = make_settings(num_slots=num_slots, num_blocks=60, block_tokens=1)
    scheduler = Scheduler(settings, Static(16), admission=KnownLengths(reserve_tokens=num_slots))
    pipeline = Pipeline(scheduler=scheduler)
    for index in range(30):
        prompt = random.randint(1, 30)
        output = random.randint(1, 20)
        pipeline.submit(make_request(f"{index}", prompt, max_output_tokens=output))
        pipeline.fill()
        if random.random() < 0.8:
            pipeline.complete()
        check_running(pipeline)
    pipeline.drain()
    check_drained(pipeline)
    assert scheduler.tally.preemptions == 0
