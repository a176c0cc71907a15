"""Busy shares from scripted times, to the digit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from micro_batches import micro_batch_of
from pipelineserve import metrics
from pipelineserve.policy.preemption import Preemption, PreemptionDecision
from pipelineserve.policy.reasons import Reason
from pipelineserve.scheduler.messages import Census, MicroBatch, Piece
from pipelineserve.scheduler.tally import Tally
from pipelineserve_engine.observation import BusyMeter, Levels, Observer
from pipelineserve_engine.stage_messages import StepReport
from pipelineserve_engine.telemetry import Telemetry

SWAPPED = PreemptionDecision(Preemption.SWAP, Reason.SWAP_IS_CHEAPER)
RECOMPUTED = PreemptionDecision(Preemption.RECOMPUTE, Reason.NO_HOST_BLOCKS)


def levels(tally: Tally | None = None) -> Levels:
    """An idle scheduler's."""
    return Levels(Census(0, 0, 0, 0, 0, 0, 0), 0.0, 0, 0, tally or Tally())


def a_micro_batch(num_tokens: int = 8) -> MicroBatch:
    piece = Piece(
        "r", 0, tuple(range(num_tokens)), (0,), is_decode=False, samples=True, output_index=0
    )
    return micro_batch_of([piece])


def a_step(stage_index: int, start_s: float, end_s: float) -> StepReport:
    return StepReport(stage_index, 0, 0, start_s, end_s, None)


def run_batch(meter: BusyMeter, start_s: float, end_s: float, busy_s: tuple[float, ...]) -> None:
    """One micro-batch, alone in the pipeline."""
    meter.start_work(start_s)
    for stage_index, stage_busy_s in enumerate(busy_s):
        meter.add_busy(stage_index, stage_busy_s)
    meter.advance(end_s, num_in_flight=0)


# The meter


def test_the_bubble_is_the_share_of_work_time_in_which_a_stage_did_not_compute() -> None:
    meter = BusyMeter(2)
    run_batch(meter, 100.0, 104.0, (3.0, 1.0))
    assert meter.bubble_ratios() == [0.25, 0.75]


def test_there_is_no_bubble_before_any_work() -> None:
    meter = BusyMeter(3)
    assert meter.bubble_ratios() == [0.0, 0.0, 0.0]
    meter.start_work(5.0)
    meter.add_busy(0, 1.0)
    assert meter.bubble_ratios() == [0.0, 0.0, 0.0]


def test_time_without_work_counts_for_nothing() -> None:
    meter = BusyMeter(1)
    run_batch(meter, 0.0, 2.0, (1.0,))
    run_batch(meter, 1000.0, 1002.0, (1.0,))
    assert meter.work_s == 4.0
    assert meter.bubble_ratios() == [0.5]


def test_overlapping_micro_batches_are_one_stretch_of_work() -> None:
    meter = BusyMeter(1)
    meter.start_work(0.0)
    meter.start_work(1.0)
    meter.advance(3.0, num_in_flight=1)
    meter.start_work(3.5)
    meter.advance(5.0, num_in_flight=1)
    meter.advance(6.0, num_in_flight=0)
    meter.advance(9.0, num_in_flight=0)
    assert meter.work_s == 6.0


def test_only_the_last_ten_seconds_of_work_count() -> None:
    meter = BusyMeter(1)
    for second in range(30):
        run_batch(meter, second, second + 1, (0.0,))
        meter.bubble_ratios()
    for second in range(10):
        run_batch(meter, second, second + 1, (1.0,))
        meter.bubble_ratios()
    assert meter.bubble_ratios() == [0.0]
    run_batch(meter, 0.0, 5.0, (0.0,))
    assert meter.bubble_ratios() == [pytest.approx(0.5, abs=0.1)]


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 5.0), st.floats(-1.0, 5.0), st.floats(0.0, 5.0), st.integers(0, 2)
        ),
        max_size=40,
    )
)
def test_ratios_stay_ratios_and_memory_stays_small(
    batches: list[tuple[float, float, float, int]],
) -> None:
    """Even for clocks that disagree by a second."""
    meter = BusyMeter(2)
    now_s = 0.0
    for wait_s, took_s, busy_s, num_in_flight in batches:
        now_s += wait_s
        meter.start_work(now_s)
        meter.add_busy(num_in_flight % 2, busy_s)
        meter.advance(now_s + took_s, num_in_flight)
        assert all(0.0 <= ratio <= 1.0 for ratio in meter.bubble_ratios())
        assert len(meter._marks) <= 13


# The observer


class Observed:
    """An observer and what it has counted."""

    def __init__(self, num_stages: int = 2) -> None:
        self.registry = CollectorRegistry()
        self.observer = Observer(Telemetry(self.registry), num_stages)

    def value(self, name: str, **labels: str) -> float | None:
        """A sample's value; None if there is none."""
        return self.registry.get_sample_value(name, labels)


def test_steps_are_measured_by_stage() -> None:
    observed = Observed()
    observed.observer.on_sent(a_micro_batch(8), 10.0)
    observed.observer.on_step(a_step(0, 10.5, 11.0))
    observed.observer.on_step(a_step(1, 11.0, 12.0))
    observed.observer.on_completed(a_step(1, 11.0, 12.0), 12.5, num_in_flight=0)
    observed.observer.on_levels(levels())
    assert observed.value("pipelineserve_step_time_seconds_sum", stage="0") == 0.5
    assert observed.value("pipelineserve_step_time_seconds_sum", stage="1") == 1.0
    assert observed.value(metrics.STAGE_BUSY.name, stage="1") == 1.0
    assert observed.value(metrics.WORK.name) == 2.0
    assert observed.value(metrics.BUBBLE.name, stage="0") == 0.75
    assert observed.value(metrics.BUBBLE.name, stage="1") == 0.5
    assert observed.value("pipelineserve_micro_batch_tokens_sum") == 8
    assert observed.value(metrics.CHUNK_TOKENS.name) == 64


def test_levels_are_what_they_are_now() -> None:
    observed = Observed()
    observed.observer.on_levels(
        Levels(Census(9, 1, 3, 2, 1, 1, 1), 0.25, num_swapped_blocks=7, num_held=2, tally=Tally())
    )
    assert observed.value(metrics.REQUESTS_WAITING.name) == 3
    assert observed.value(metrics.REQUESTS_RUNNING.name) == 2
    assert observed.value(metrics.KV_USED.name) == 0.25
    assert observed.value(metrics.KV_SWAPPED.name) == 7
    assert observed.value(metrics.REQUESTS_HELD.name) == 2


def test_totals_of_the_scheduler_are_counted_by_their_rise() -> None:
    observed = Observed()
    tally = Tally(cached_tokens=16)
    tally.preemption_decisions[SWAPPED] += 2
    observed.observer.on_levels(levels(tally))
    observed.observer.on_levels(levels(tally))
    tally.preemption_decisions[SWAPPED] += 1
    tally.preemption_decisions[RECOMPUTED] += 5
    observed.observer.on_levels(levels(tally))
    preemptions = metrics.PREEMPTIONS.name
    assert observed.value(preemptions, kind="swap", reason="swap_is_cheaper") == 3
    assert observed.value(preemptions, kind="recompute", reason="no_host_blocks") == 5
    assert observed.value(metrics.CACHED_TOKENS.name) == 16


def test_a_refusal_is_counted_as_rejected() -> None:
    observed = Observed()
    observed.observer.on_rejected(5, 0.0)
    assert observed.value(metrics.REQUESTS.name, outcome="rejected") == 1


def test_every_outcome_is_there_from_the_start_so_that_the_first_error_is_a_rise() -> None:
    observed = Observed()
    for outcome in ("stop", "length", "cancelled", "rejected", "error"):
        assert observed.value(metrics.REQUESTS.name, outcome=outcome) == 0
