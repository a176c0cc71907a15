"""When an empty slot is filled: at once, or with the next round."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.schedule import Continuous, FillDecision, FillDrain, SlotsView
from scheduling import Pipeline, make_request, make_settings


@given(num_in_flight=st.integers(0, 8), num_back=st.integers(0, 8))
def test_continuous_fills_whatever_is_in_flight(num_in_flight: int, num_back: int) -> None:
    view = SlotsView(num_slots=9, num_in_flight=num_in_flight, num_sent=num_in_flight + num_back)
    assert Continuous().decide(view) == FillDecision(may_fill=True, reason=Reason.SLOT_EMPTY)


def test_fill_drain_fills_until_the_first_of_the_round_is_back() -> None:
    view = SlotsView(num_slots=3, num_in_flight=2, num_sent=2)
    assert FillDrain().decide(view).may_fill
    view = SlotsView(num_slots=3, num_in_flight=2, num_sent=3)
    assert FillDrain().decide(view) == FillDecision(may_fill=False, reason=Reason.ROUND_DRAINS)


def test_the_scheduler_starts_a_round_only_when_the_pipeline_is_empty() -> None:
    pipeline = Pipeline(make_settings(num_slots=3), chunk_tokens=2, schedule=FillDrain())
    pipeline.submit(make_request("r", 20))
    pipeline.fill()
    assert len(pipeline.flights) == 3
    pipeline.complete()
    pipeline.fill()
    assert len(pipeline.flights) == 2
    pipeline.complete()
    pipeline.complete()
    pipeline.fill()
    assert [micro_batch.sequence for micro_batch in pipeline.launched] == [0, 1, 2, 3, 4, 5]
    pipeline.drain()
