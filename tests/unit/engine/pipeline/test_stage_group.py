"""What a group makes of its stages' reports, without any process of a stage."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from pipelineserve.errors import StagesFailedError
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import ReadyReport, StageReport
from real_pipeline import a_plan
from zmq_sockets import KeptSockets

PATIENCE_S = 60.0


@pytest.fixture
def sockets() -> Iterator[KeptSockets]:
    with KeptSockets.opened() as opened:
        yield opened


@contextmanager
def a_group(num_stages: int = 2) -> Iterator[StageGroup]:
    with StageGroup(a_plan(Path("model"), (1,) * num_stages)) as group:
        yield group


def a_stage(group: StageGroup, sockets: KeptSockets) -> zmq.Socket[bytes]:
    """Where a stage's reports go in."""
    reports = sockets.socket(zmq.PUSH)
    reports.connect(group._site.reports.get_string(zmq.LAST_ENDPOINT))
    return reports


def say(stage: zmq.Socket[bytes], report: StageReport) -> None:
    stage.send(msgspec.msgpack.encode(report))


def test_a_stage_that_is_ready_for_a_second_time_is_a_failure(sockets: KeptSockets) -> None:
    ready = ReadyReport(1, 0, 0, 0)
    with a_group() as group:
        stage = a_stage(group, sockets)
        say(stage, ready)
        assert group.receive(PATIENCE_S) == [ready]
        say(stage, ready)
        with pytest.raises(StagesFailedError, match="stage 1 was started a second time"):
            group.receive(PATIENCE_S)
