"""Figures follow their definitions, and every request that was sent is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load_builders import plan_of, record_of
from pipelineserve.load.targets import Target, Targets, Window
from pipelineserve_cli.load.figures import Figures, measure, meets, whole_run
from pipelineserve_cli.load.records import FailureKind, RequestRecord

TTFT_1S = Targets(ttft=Target(90, 1.0))
WHOLE = Window(0.0, 10.0)


def test_latencies_are_counted_from_the_sending_not_from_the_plan() -> None:
    record = record_of((2.0, 2.5, 3.5), planned_s=0.5, sent_s=1.0)
    assert (record.ttft_s, record.e2e_s, record.lag_s) == (1.0, 2.5, 0.5)
    assert record.gaps_s == (0.5, 1.0)
    assert record.tpot_s == 0.75


def test_tpot_counts_tokens_not_chunks() -> None:
    assert record_of((1.0, 2.0), output_tokens=5).tpot_s == 0.25


@pytest.mark.parametrize("record", [record_of((1.0,)), record_of((1.0,), output_tokens=4)])
def test_one_token_or_one_chunk_has_no_tpot_and_meets_its_target(record: RequestRecord) -> None:
    assert record.tpot_s is None
    assert meets(record, Targets(tpot=Target(90, 0.001)))


def test_a_request_must_meet_every_target() -> None:
    record = record_of((1.0, 1.5, 2.0))
    assert meets(record, Targets(Target(90, 1.0), Target(90, 0.5), Target(90, 2.0)))
    assert not meets(record, Targets(Target(90, 0.9), Target(90, 0.5), Target(90, 2.0)))
    assert not meets(record, Targets(Target(90, 1.0), Target(90, 0.4), Target(90, 2.0)))
    assert not meets(record, Targets(Target(90, 1.0), Target(90, 0.5), Target(90, 1.9)))


def test_failures_are_misses_and_interrupted_requests_are_not_judged() -> None:
    records = [
        record_of(),
        record_of(failure=FailureKind.TRUNCATED),
        record_of((), failure=FailureKind.THROTTLED),
        record_of(failure=FailureKind.INTERRUPTED),
    ]
    figures = measure(records, TTFT_1S, WHOLE)
    assert (figures.num_sent, figures.num_finished, figures.num_failed) == (4, 1, 3)
    assert figures.attainment is not None
    assert (figures.attainment.num_met, figures.attainment.num_judged) == (1, 3)
    assert figures.goodput_per_s == 0.1
    assert figures.failures == {
        "stream ended early": 1, "429 too many requests": 1, "interrupted by the user": 1
    }  # fmt: skip


def test_only_whole_answers_have_latencies() -> None:
    figures = measure([record_of((5.0,), failure=FailureKind.TRUNCATED)], TTFT_1S, WHOLE)
    assert (figures.ttft_s, figures.tpot_s, figures.gap_s, figures.e2e_s) == (None,) * 4


def test_warm_up_is_in_no_figure() -> None:
    figures = measure([record_of(is_warm_up=True)], TTFT_1S, WHOLE)
    assert figures.num_sent == 0
    assert figures.output_tokens_per_s == 0
    assert figures.attainment is None


def test_rates_count_what_happened_inside_the_window() -> None:
    early = record_of((0.5, 2.5), planned_s=0.0)
    late = record_of((3.0, 9.0), planned_s=2.0, output_tokens=8)
    figures = measure([early, late], Targets(), Window(2.0, 4.0))
    assert figures.num_sent == 1  # planned inside
    assert figures.requests_per_s == 0.5  # `early` ended inside
    assert figures.output_tokens_per_s == 2.5  # one of its two tokens, and half of eight
    assert figures.input_tokens_per_s == 5.0  # the prompt of `late`
    assert figures.goodput_per_s is None


def test_the_whole_run_lasts_from_the_first_measured_request_to_the_last_end() -> None:
    plan = plan_of([0.0, 1.0, 2.0], num_warm_up=1)
    records = [record_of(ended_s=9.0, is_warm_up=True), record_of(ended_s=5.0), record_of()]
    assert whole_run(plan, records) == Window(1.0, 5.0)


@given(st.lists(st.sampled_from([None, *FailureKind]), max_size=30))
def test_every_request_is_finished_or_failed_for_a_reason(
    failures: list[FailureKind | None],
) -> None:
    figures: Figures = measure([record_of(failure=failure) for failure in failures], TTFT_1S, WHOLE)
    assert figures.num_sent == len(failures) == figures.num_finished + figures.num_failed
    assert sum(figures.failures.values()) == figures.num_failed
