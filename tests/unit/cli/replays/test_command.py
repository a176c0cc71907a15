"""`pserve replay`: decisions and runs again, side by side, and clear words for what cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from control_turns import Course, make_request
from pipelineserve.errors import InvalidInputError
from pipelineserve_cli.commands import pserve
from pipelineserve_cli.replays.comparison import compare
from pipelineserve_controller.journal import Entry, Journal, journal_files
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.stage_messages import StepCommand
from pipelineserve_engine.tracing import TracedSetup, TraceRecorder
from pipelineserve_simulator.hardware.catalogue import load_profile
from scripted_engine import a_scripted_engine
from scripted_executor import report_of
from simulated_runs import request_outcome, run_of

PROFILE = load_profile("a100-40gb-pcie/qwen2.5-14b")


def replay(*arguments: str) -> Result:
    return CliRunner().invoke(pserve, ["replay", *arguments], catch_exceptions=True)


def refusal(*arguments: str) -> str:
    """What a person is told."""
    error = replay(*arguments).exception
    assert isinstance(error, InvalidInputError), error
    return str(error)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Three requests through an engine that answers at once."""
    path = tmp_path / "record.jsonl"
    now_s = 10.0
    engine = a_scripted_engine(chunk_tokens=16)
    core = engine.core
    setup = TracedSetup((48,), core.scheduler.settings, "continuous", 16)
    with TraceRecorder(path, setup, 10_000, lambda: now_s) as recorder:
        engine.observer.add(recorder)
        for index in range(3):
            core.submit(GenerationRequest(f"r{index}", (index,) * 20, 4), now_s)
        while core.scheduler.has_work:
            core.fill_slots(now_s)
            command: StepCommand = engine.executor.sent.get()
            now_s += 0.125
            tokens = [1 for piece in command.pieces if piece.samples]
            core.absorb(report_of(command, tokens, start_s=now_s - 0.1, end_s=now_s), now_s)
            while not engine.executor.sent.empty():
                command = engine.executor.sent.get()
                now_s += 0.125
                tokens = [1 for piece in command.pieces if piece.samples]
                core.absorb(report_of(command, tokens, start_s=now_s - 0.1, end_s=now_s), now_s)
    return path


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.yaml"
    path.write_text(PROFILE.model_dump_json(), encoding="utf-8")
    return path


def changed(record: Path, change: dict[str, Any], kind: str) -> Path:
    """The record with a field of its first line of a kind changed."""
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    next(line for line in lines if line["type"] == kind).update(change)
    record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return record


def test_a_run_without_a_profile_is_composed_again(record: Path) -> None:
    result = replay("run", str(record))
    assert result.exit_code == 0, result.output
    assert "micro-batches composed again, all as recorded" in result.output


def test_a_run_that_comes_out_differently_is_shown_and_ends_with_1(record: Path) -> None:
    result = replay("run", str(changed(record, {"static_chunk_tokens": 4}, "header")))
    assert result.exit_code == 1
    assert "recorded  #0 slot 0, chunk of 16: r0 prefill 0+16" in result.output
    assert "composed  #0 slot 0, chunk of 4: r0 prefill 0+4" in result.output


def test_recorded_simulated_and_another_stand_side_by_side(record: Path, profile: Path) -> None:
    given = ("run", str(record), f"--profile={profile}", "--scheduler=FastppStatic", "--json")
    result = replay(*given, "--chunk-tokens=8")
    assert result.exit_code == 0, result.output
    comparison = json.loads(result.output)["comparison"]
    assert comparison["runs"] == ["recorded", "twin, as recorded", "twin, FastppStatic"]
    rows = {row["name"]: row["values"] for row in comparison["rows"]}
    assert rows["requests finished"] == [3.0] * 3
    assert rows["step, slowest stage P50"][0] == pytest.approx(100.0)
    assert rows["TTFT P50"][0] >= 125.0
    assert rows["micro-batches"][2] > rows["micro-batches"][1]
    assert "twin, as recorded" in replay("run", str(record), f"--profile={profile}").output


def test_another_scheduler_needs_a_profile(record: Path) -> None:
    assert "--scheduler: needs step times; name a profile" in refusal(
        "run", str(record), "--scheduler=Static"
    )


def test_a_profile_of_another_model_is_refused(record: Path, profile: Path) -> None:
    path = changed(record, {"layers_per_stage": [4]}, "header")
    assert "expected a model of 4 layers as recorded, got 48" in refusal(
        "run", str(path), f"--profile={profile}"
    )


@pytest.mark.parametrize("text", ["", "{}\n", '{"type":"header","version":2}\n'])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    assert "the trace record" in refusal("run", str(path))


def test_a_record_without_requests_is_refused(record: Path) -> None:
    record.write_text(record.read_text().splitlines()[0] + "\n")
    assert "expected at least one request, got none" in refusal("run", str(record))


def test_a_folder_without_a_journal_is_refused(tmp_path: Path) -> None:
    assert "expected at least one turn, got none" in refusal("journal", str(tmp_path))


def test_a_file_that_is_no_journal_is_refused(record: Path) -> None:
    assert "name a journal that a controller of this release wrote" in refusal(
        "journal", str(record)
    )


def test_differences_are_relative_to_the_first_run() -> None:
    slow = run_of([request_outcome(ttft_s=1.5)])
    comparison = compare({"a": run_of([request_outcome(ttft_s=1.0)]), "b": slow})
    (row,) = [row for row in comparison.rows if row.name == "TTFT P50"]
    assert row.values == (1000.0, 1500.0)
    assert row.differences == (0.0, 0.5)


def a_journal(folder: Path) -> Path:
    """Five turns of a controller; the file that holds them."""
    course, journal = Course(), Journal(folder, 1_000_000, max_files=10)
    for _ in range(5):
        before = course.memory
        turn, _ = course.turn(steps=course.steps([4, 64, 256]), requests=[make_request()])
        assert course.heard is not None
        journal.write(before, Entry(course.now_s, course.heard, course.objectives, turn))
    journal.close()
    (path,) = journal_files(folder)
    return path


def test_a_journal_is_decided_again(tmp_path: Path) -> None:
    a_journal(tmp_path)
    result = replay("journal", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "5 turns, 0 of them decided differently" in result.output


def test_a_turn_that_comes_out_differently_is_shown_and_ends_with_1(tmp_path: Path) -> None:
    path = a_journal(tmp_path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    next(line for line in lines if "turn" in line)["turn"]["lease_s"] = 77.0
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = replay("journal", str(path))
    assert result.exit_code == 1
    assert "5 turns, 1 of them decided differently" in result.output
    assert "lease_s: 77.0" in result.output
    assert json.loads(replay("journal", str(path), "--json").output)["num_different"] == 1
