"""What stages tell arrives in the scheduler's process, or is missed there, and never waits."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelineserve_engine.addon.ledger import StageReport
from pipelineserve_engine.vllm.reports import Reporter, Reports

REPORT = StageReport(1, 7, 3, 64, 1.0, 1.5)


@pytest.fixture
def reports() -> Iterator[Reports]:
    receiving = Reports()
    yield receiving
    receiving.close()


def test_what_is_told_arrives_in_order(reports: Reports) -> None:
    reporter = Reporter()
    reporter.send(reports.path, [REPORT, REPORT._replace(turn=8)])
    reporter.send(reports.path, [REPORT._replace(turn=9)])
    assert [report.turn for report in reports.take()] == [7, 8, 9]
    assert reports.take() == []


def test_what_finds_no_room_is_told_with_what_comes_next(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    # More than any machine lets wait, while the scheduler's process does not look.
    reporter, num_turns = Reporter(), 600
    for turn in range(num_turns):
        reporter.send(reports.path, [REPORT._replace(turn=turn)])
    taken = reports.take()
    assert len(taken) < num_turns
    reporter.send(reports.path, [])
    taken += reports.take()
    assert [report.turn for report in taken] == list(range(num_turns))
    assert not caplog.text


def test_nobody_else_can_tell_anything(reports: Reports) -> None:
    folder = Path(reports.path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_is_left_behind(reports: Reports) -> None:
    reports.close()
    assert not Path(reports.path).parent.exists()


def test_what_cannot_be_told_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    reporter = Reporter()
    for _ in range(2):
        reporter.send("/nowhere/steps", [REPORT])
    assert caplog.text.count("cannot be told") == 1
