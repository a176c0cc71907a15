"""The record says exactly what was sent and run, holds no more than its bound, and no text."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from inline_engine import InlineEngine, an_inline_engine
from micro_batches import micro_batch_of
from pipelineserve.errors import InvalidInputError
from pipelineserve.scheduler.messages import MicroBatch, Piece
from pipelineserve_cli.traces.record import read_record
from pipelineserve_cli.traces.timeline import num_consecutive
from pipelineserve_engine.model_config import ModelShape
from pipelineserve_engine.observation import Listener, Observer
from pipelineserve_engine.plan import Machine, make_plan
from pipelineserve_engine.server import _observing
from pipelineserve_engine.settings import parse_settings
from pipelineserve_engine.stage_messages import StepReport
from pipelineserve_engine.telemetry import Telemetry
from pipelineserve_engine.tracing import TracedSetup, TraceRecorder
from scheduling import make_settings
from tiny_models import TinyModel

PROMPT = tuple(range(20, 120))
MANY = 1_000_000
SMALL = ModelShape(
    num_layers=4,
    hidden_size=8,
    num_kv_heads=1,
    head_dim=8,
    vocabulary_size=64,
    intermediate_size=16,
    num_heads=1,
    max_context_tokens=64,
    has_tied_head=True,
)


class Heard(Listener):
    """Keeps what a recorder beside it is told."""

    def __init__(self) -> None:
        self.sent: list[MicroBatch] = []
        self.steps: list[StepReport] = []

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """See `Listener.on_sent`."""
        del now_s
        self.sent.append(micro_batch)

    def on_step(self, report: StepReport) -> None:
        """See `Listener.on_step`."""
        self.steps.append(report)


def a_setup() -> TracedSetup:
    return TracedSetup((2, 3), make_settings(num_slots=2), "continuous", 32)


def a_recorder(path: Path, max_events: int = MANY) -> TraceRecorder:
    return TraceRecorder(path, a_setup(), max_events, lambda: 0.0)


def a_micro_batch(sequence: int = 0) -> MicroBatch:
    piece = Piece("r", 0, (5, 6, 7), (0,), is_decode=False, samples=True, output_index=0)
    return micro_batch_of([piece], sequence=sequence, slot_index=1)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(engine: InlineEngine, recorder: TraceRecorder) -> Heard:
    """Two requests through a traced engine."""
    heard = Heard()
    engine.core._observer = Observer(Telemetry(CollectorRegistry()), 2, [recorder, heard])
    engine.submit("long", PROMPT, 4)
    engine.submit("short", PROMPT[:7], 6)
    engine.run()
    return heard


def test_the_record_holds_exactly_what_was_sent_and_run(llama: TinyModel, tmp_path: Path) -> None:
    engine = an_inline_engine(llama.folder, (2, 3), chunk_tokens=32)
    path = tmp_path / "record.jsonl"
    with a_recorder(path) as recorder:
        heard = run(engine, recorder)
    record = read_record(path)
    assert not record.is_cut
    assert [
        (batch.sequence, batch.slot_index, batch.chunk_tokens) for batch in record.micro_batches
    ] == [(batch.sequence, batch.slot_index, batch.chunk.chunk_tokens) for batch in heard.sent]
    assert [
        [(p.request_id, p.start, p.num_tokens, p.is_decode) for p in batch.pieces]
        for batch in record.micro_batches
    ] == [
        [(p.request_id, p.start, len(p.token_ids), p.is_decode) for p in batch.pieces]
        for batch in heard.sent
    ]
    assert sorted(
        (batch.sequence, step.stage_index, step.start_s, step.end_s)
        for batch in record.micro_batches
        for step in batch.steps
    ) == sorted((r.sequence, r.stage_index, r.start_s, r.end_s) for r in heard.steps)
    assert record.ended.keys() == {"long", "short"}
    assert record.ended["long"].num_prompt_tokens == len(PROMPT)
    assert record.ended["long"].num_output_tokens == 4
    assert num_consecutive(record) >= 2


def test_tracing_changes_no_token(llama: TinyModel, tmp_path: Path) -> None:
    plain = an_inline_engine(llama.folder, (2, 3), chunk_tokens=32)
    plain.submit("long", PROMPT, 4)
    plain.submit("short", PROMPT[:7], 6)
    traced = an_inline_engine(llama.folder, (2, 3), chunk_tokens=32)
    with a_recorder(tmp_path / "record.jsonl") as recorder:
        run(traced, recorder)
    assert traced.outputs == plain.run()


def test_the_record_holds_no_token(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    with a_recorder(path) as recorder:
        recorder.on_sent(a_micro_batch(), 0.5)
        recorder.on_step(StepReport(1, 0, 1, 1.0, 2.0, (4711,)))
    _, sent, step = lines_of(path)
    assert sent["pieces"] == [["r", 0, 3, False]]
    assert set(sent) == {"type", "at_s", "sequence", "slot_index", "chunk_tokens", "pieces"}
    assert set(step) == {"type", "sequence", "stage_index", "start_s", "end_s"}


def test_stops_at_its_bound_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "record.jsonl"
    with a_recorder(path, max_events=3) as recorder, caplog.at_level(logging.WARNING):
        for sequence in range(10):
            recorder.on_sent(a_micro_batch(sequence), 0.0)
        recorder.flush_if_due()
    assert [line["type"] for line in lines_of(path)] == ["header", "sent", "sent", "sent", "full"]
    assert len(caplog.messages) == 1
    assert "3 events, its bound" in caplog.text
    assert "--trace-max-events" in caplog.text
    assert read_record(path).is_cut


def test_what_is_flushed_is_there_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    now_s = 10.0
    with TraceRecorder(path, a_setup(), MANY, lambda: now_s) as recorder:
        recorder.flush_if_due()
        recorder.on_recovery()
        recorder.flush_if_due()
        assert len(lines_of(path)) == 1
        now_s = 11.0
        recorder.flush_if_due()
        assert [line["type"] for line in lines_of(path)] == ["header", "restart"]


def test_a_full_disk_ends_the_record_and_not_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    with a_recorder(Path("/dev/full")) as recorder, caplog.at_level(logging.WARNING):
        for sequence in range(2000):
            recorder.on_sent(a_micro_batch(sequence), 0.0)
    assert len(caplog.messages) == 1
    assert "cannot write /dev/full any more: " in caplog.text


def test_names_the_flag_when_the_file_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "record.jsonl"
    with pytest.raises(InvalidInputError, match=r"--trace-file: cannot write .*missing.*: No such"):
        a_recorder(path)


def test_nothing_is_recorded_unless_asked_for(tmp_path: Path) -> None:
    required = ("--model-folder=model", "--served-name=m", "--stages=2")
    plan = make_plan(parse_settings(required), SMALL, Machine(2, 1 << 30))
    with _observing(parse_settings(required), Telemetry(CollectorRegistry()), plan) as observer:
        assert observer._listeners == []
    path = tmp_path / "record.jsonl"
    settings = parse_settings([*required, f"--trace-file={path}"])
    with _observing(settings, Telemetry(CollectorRegistry()), plan) as observer:
        observer.on_recovery()
    assert [line["type"] for line in lines_of(path)] == ["header", "restart"]
