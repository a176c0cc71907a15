"""A report states its conditions, says what weakens its figures, and is the same as JSON."""

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

from rich.console import Console

from load_builders import plan_of, record_of
from pipelineserve.load.targets import Target, Targets
from pipelineserve_cli.load.bodies import BodySettings, Endpoint
from pipelineserve_cli.load.client import ClientSettings
from pipelineserve_cli.load.records import Failure, FailureKind, RequestRecord
from pipelineserve_cli.load.report import LoadReport, make_report, request_as_json
from pipelineserve_cli.load.run import RunResult
from pipelineserve_cli.load.tables import report_tables

TARGETS = Targets(ttft=Target(90, 2.0), tpot=Target(90, 0.5))


def report_on(
    records: Sequence[RequestRecord],
    *,
    num_planned: int | None = None,
    is_interrupted: bool = False,
    bubbles: tuple[float, ...] = (),
) -> LoadReport:
    plan = plan_of([float(at_s) for at_s in range(num_planned or len(records))])
    return make_report(
        plan,
        RunResult(tuple(records), is_interrupted),
        targets=TARGETS,
        bodies=BodySettings("org/m", Endpoint.COMPLETIONS, ignores_eos=True),
        client=ClientSettings("http://server", "/v1/completions", api_key="secret"),
        drain_s=300.0,
        bubble_ratios=bubbles,
    )


def timely(count: int) -> list[RequestRecord]:
    return [
        record_of((i + 1.0, i + 1.5, i + 2.0), index=i, planned_s=float(i)) for i in range(count)
    ]


def shown(report: LoadReport) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(report_tables(report))
    return console.export_text()


def test_a_clean_run_has_no_notes() -> None:
    report = report_on(timely(20))
    assert report.notes == ()
    assert report.whole_run.attainment is not None
    assert report.whole_run.attainment.ratio == 1.0
    assert report.steady_window is not None
    assert report.steady_window.num_sent < 20


def test_a_late_generator_is_named_with_its_lag() -> None:
    late = [replace(record, sent_s=record.sent_s + 0.02) for record in timely(20)]
    report = report_on(late)
    assert report.lag_s is not None
    assert "the generator was late: P99 of its lag is 20.00 ms" in report.notes[0]
    in_time = [replace(record, sent_s=record.sent_s + 0.005) for record in timely(20)]
    assert report_on(in_time).notes == ()


def test_failures_are_named_with_the_first_message_of_their_kind() -> None:
    refused = Failure(FailureKind.REFUSED, "Unrecognized request argument supplied: ignore_eos")
    records = [*timely(3), replace(record_of((), index=3), failure=refused)]
    notes = report_on(records).notes
    assert notes[0].startswith("1 failed, 4xx refused; the first: Unrecognized request argument")
    assert notes[1] == "the server refuses ignore_eos; run again with --no-ignore-eos"


def test_answers_that_are_no_good_measure_are_named() -> None:
    records = [
        replace(record_of(index=0), has_usage=False),
        record_of(index=1, output_tokens=5),
        record_of((1.0, 1.5), index=2),
    ]
    notes = " ".join(report_on(records).notes)
    assert "1 answers came without usage" in notes
    assert "10 output tokens came in 8 chunks" in notes
    assert "1 answers are shorter than asked for" in notes


def test_an_interrupted_run_says_what_was_not_sent() -> None:
    report = report_on(timely(3), num_planned=10, is_interrupted=True)
    assert report.notes[0] == "interrupted: 7 requests of the plan were never sent"
    assert (report.conditions.num_sent, report.conditions.num_planned) == (3, 10)


def test_a_run_without_any_answer_is_reported_as_well() -> None:
    report = report_on([record_of((), failure=FailureKind.CONNECT)])
    assert report.whole_run.ttft_s is None
    assert "no connection" in shown(report)


def test_the_table_states_conditions_figures_and_bubbles() -> None:
    text = shown(report_on(timely(20), bubbles=(0.25, 0.5)))
    for part in (
        "open loop; as told; gaps not rescaled; seed 1", "20 sent of 20 planned", "policy",
        "unknown to the client", "generator lag", "Whole run", "Steady window", "P90 2000",
        "attainment 100.0% (20 of 20; 95 % interval 83.9% to 100.0%)", "bubble, stage 1", "50%",
    ):  # fmt: skip
        assert part in text


def test_json_holds_the_same_and_no_key() -> None:
    report = report_on(timely(20), bubbles=(0.25,))
    text = json.dumps(report.as_json())
    assert "secret" not in text
    fields = json.loads(text)
    assert fields["schema"] == "pipelineserve.load/v1"
    assert fields["whole_run"]["ttft_s"]["p90"] == 1.0
    assert fields["whole_run"]["attainment"]["num_met"] == 20
    assert fields["targets"]["e2e"] is None
    assert fields["bubble_ratios"] == [0.25]


def test_a_request_as_json_has_derived_latencies_and_its_failure() -> None:
    fields = json.loads(json.dumps(request_as_json(record_of(failure=FailureKind.TIMEOUT))))
    assert (fields["ttft_s"], fields["tpot_s"], fields["e2e_s"]) == (1.0, 0.5, 2.0)
    assert fields["failure"]["kind"] == "timeout"
    assert request_as_json(record_of())["failure"] is None
