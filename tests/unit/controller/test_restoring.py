"""A restarted controller begins with the model of the run before, or with nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from control_turns import VARIED_SIZES, Course, make_engine, make_objectives
from pipelineserve.policy.control.learning import Learning
from pipelineserve.policy.control.turns import ControlMemory
from pipelineserve.policy.predictive import Predictive
from pipelineserve_controller.journal import Entry, Journal, journal_files
from pipelineserve_controller.replay import replay
from pipelineserve_controller.restoring import LEAST_TURNS, MOST_AGE_S, restored_memory

NUM_TURNS = 2 * LEAST_TURNS


def write_run(folder: Path, num_turns: int = NUM_TURNS, first: Course | None = None) -> Course:
    """A run that learns from varied steps; its wall clock is its own."""
    course = first or Course()
    journal = Journal(folder, 10_000_000, 10)
    journal.begin(course.memory)
    for _ in range(num_turns):
        before = course.memory
        turn, _ = course.turn(steps=course.steps(VARIED_SIZES))
        assert course.heard is not None
        journal.write(before, Entry(course.now_s, course.heard, course.objectives, turn))
    journal.close()
    return course


def restored(folder: Path, course: Course, after_s: float = 1.0) -> ControlMemory:
    return restored_memory(folder, now_s=7.0, unix_s=course.now_s + after_s)


def test_the_model_is_that_of_the_last_turn(tmp_path: Path) -> None:
    course = write_run(tmp_path)
    memory = restored(tmp_path, course)
    assert memory.learning.is_ready
    assert memory.learning == replace(course.memory.learning, refitted_at_s=7.0)
    assert memory == ControlMemory(
        observation=replace(ControlMemory().observation, engine=make_engine()),
        learning=memory.learning,
    )


def test_a_long_run_is_read_from_its_latest_start_only(tmp_path: Path) -> None:
    course = write_run(tmp_path, num_turns=400)
    file = journal_files(tmp_path)[0]
    lines = file.read_bytes().splitlines(keepends=True)
    starts = [index for index, line in enumerate(lines) if line.startswith(b'{"format":')]
    assert len(starts) == 2
    spoilt = [b"spoilt\n"] * starts[-1] + lines[starts[-1] :]
    file.write_bytes(b"".join(spoilt))
    assert restored(tmp_path, course).learning.sizes == course.memory.learning.sizes


def test_predicts_as_soon_as_input_is_fresh(tmp_path: Path) -> None:
    before = write_run(tmp_path)
    course = Course(memory=restored(tmp_path, before))
    turn, _ = course.last(3.0)
    assert turn.policy is not None
    assert isinstance(turn.policy.chunking, Predictive)


def test_an_engine_of_other_facts_gets_nothing_of_it(tmp_path: Path) -> None:
    before = write_run(tmp_path)
    course = Course(memory=restored(tmp_path, before), engine=make_engine(num_slots=3))
    course.turn()
    assert course.memory.learning == Learning()


def test_another_session_of_the_same_engine_keeps_it(tmp_path: Path) -> None:
    before = write_run(tmp_path)
    course = Course(memory=restored(tmp_path, before), engine=make_engine(epoch=9))
    course.turn()
    assert course.memory.learning.is_ready


def test_a_run_that_ended_soon_after_it_restored_leaves_nothing(tmp_path: Path) -> None:
    first = write_run(tmp_path)
    again = Course(memory=restored(tmp_path, first))
    write_run(tmp_path, LEAST_TURNS - 1, again)
    assert restored(tmp_path, again) == ControlMemory()


def test_a_run_that_ended_before_its_first_turn_leaves_nothing(tmp_path: Path) -> None:
    first = write_run(tmp_path)
    journal = Journal(tmp_path, 10_000_000, 10)
    journal.begin(restored(tmp_path, first))
    journal.close()
    assert restored(tmp_path, first) == ControlMemory()


@pytest.mark.parametrize(("after_s", "is_kept"), [(MOST_AGE_S - 1, True), (MOST_AGE_S + 1, False)])
def test_what_is_too_old_is_not_restored(tmp_path: Path, after_s: float, is_kept: bool) -> None:
    course = write_run(tmp_path)
    assert restored(tmp_path, course, after_s).learning.is_ready is is_kept


def test_a_file_of_something_else_and_no_file_at_all_are_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert restored_memory(tmp_path / "missing", 0.0, 0.0) == ControlMemory()
    other = b'{"format":"other","start":{}}\n' + NUM_TURNS * b'{"at_unix_s":1}\n'
    (tmp_path / "turns-00000001.jsonl").write_bytes(other)
    assert restored_memory(tmp_path, 0.0, 0.0) == ControlMemory()
    assert "expected the format" in caplog.text


def test_the_last_line_that_was_cut_off_costs_that_turn_only(tmp_path: Path) -> None:
    course = write_run(tmp_path)
    file = journal_files(tmp_path)[0]
    file.write_bytes(file.read_bytes()[:-20])
    memory = restored(tmp_path, course)
    missing = course.memory.learning.num_samples - memory.learning.num_samples
    assert missing == len(VARIED_SIZES)


def test_the_run_that_restored_replays(tmp_path: Path) -> None:
    first = write_run(tmp_path)
    write_run(
        tmp_path, first=Course(memory=restored(tmp_path, first), objectives=make_objectives())
    )
    result = replay(tmp_path)
    assert (result.num_turns, result.differences) == (2 * NUM_TURNS, ())
