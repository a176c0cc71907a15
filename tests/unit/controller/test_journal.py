"""The journal: bounded, replayable from any file, and no reason to stop when the disk is full."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from control_turns import Course, make_objectives, make_request
from pipelineserve.policy.control.objectives import ChunkLaw
from pipelineserve.policy.control.turns import take_turn
from pipelineserve.policy.reasons import Reason
from pipelineserve_controller.journal import Entry, Journal, Start, journal_files, read_journal
from pipelineserve_controller.replay import main, replay


class Recorder(Course):
    """A course whose turns are also written down."""

    def record(self, journal: Journal, num: int) -> None:
        """Take so many turns."""
        for _ in range(num):
            before = self.memory
            turn, _ = self.turn(steps=self.steps([4, 64, 256]), requests=[make_request()])
            assert self.heard is not None
            journal.write(before, Entry(self.now_s, self.heard, self.objectives, turn))


def entries(folder: Path) -> Iterator[Entry]:
    for file in journal_files(folder):
        yield from (line for line in read_journal(file) if isinstance(line, Entry))


def recorded(folder: Path, num: int = 30, max_bytes: int = 1_000_000) -> Recorder:
    journal = Journal(folder, max_bytes, max_files=1000)
    course = Recorder()
    course.record(journal, num)
    journal.close()
    return course


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    recorded(tmp_path)
    read = list(entries(tmp_path))
    assert len(read) == 30
    course = Recorder()
    for entry in read:
        turn, _ = course.turn(steps=course.steps([4, 64, 256]), requests=[make_request()])
        assert (entry.heard, entry.turn) == (course.heard, turn)


def test_an_edit_of_the_objectives_is_read_with_the_turns_after_it(tmp_path: Path) -> None:
    journal, course = Journal(tmp_path, 1_000_000, 10), Recorder()
    course.record(journal, 2)
    course.objectives = make_objectives(chunk_law=ChunkLaw.GREEDY, generation=2)
    course.record(journal, 2)
    journal.close()
    assert [entry.objectives.generation for entry in entries(tmp_path)] == [1, 1, 2, 2]


def test_files_are_rotated_at_their_size_and_the_oldest_removed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, max_bytes=60_000, max_files=3)
    Recorder().record(journal, 200)
    journal.close()
    files = journal_files(tmp_path)
    assert len(files) == 3
    assert files[0].name != "turns-00000001.jsonl"
    # A file ends with the entry that fills it.
    assert all(file.stat().st_size < 2 * 60_000 for file in files)


def test_a_later_run_goes_on_counting_and_keeps_the_bound(tmp_path: Path) -> None:
    for _ in range(5):
        journal = Journal(tmp_path, 1_000_000, max_files=2)
        Recorder().record(journal, 1)
        journal.close()
    assert [file.name for file in journal_files(tmp_path)] == [
        "turns-00000004.jsonl",
        "turns-00000005.jsonl",
    ]


def test_every_file_replays_by_itself(tmp_path: Path) -> None:
    recorded(tmp_path, num=200, max_bytes=60_000)
    files = journal_files(tmp_path)
    assert len(files) > 3
    for file in files:
        result = replay(file)
        assert result.num_turns > 0
        assert result.differences == ()


def test_a_journal_begins_with_the_memory_of_its_first_turn(tmp_path: Path) -> None:
    recorded(tmp_path, num=200, max_bytes=60_000)
    lines = list(read_journal(journal_files(tmp_path)[-1]))
    start, first = lines[0], lines[1]
    assert isinstance(start, Start)
    assert isinstance(first, Entry)
    assert take_turn(start.memory, first.heard, first.objectives)[0] == first.turn


def test_each_minute_can_be_replayed_without_those_before(tmp_path: Path) -> None:
    recorded(tmp_path, num=700, max_bytes=100_000_000)
    (file,) = journal_files(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    starts = [index for index, line in enumerate(lines) if line.startswith(b'{"format":')]
    assert len(starts) == 3  # 140 s
    for start in starts:
        file.write_bytes(b"".join(lines[start:]))
        result = replay(file)
        assert result.num_turns > 0
        assert result.differences == ()


def test_a_run_that_ends_before_its_first_turn_has_left_a_file(tmp_path: Path) -> None:
    journal, course = Journal(tmp_path, 1_000_000, 10), Recorder()
    journal.begin(course.memory)
    assert len(journal_files(tmp_path)) == 1
    course.record(journal, 3)
    journal.close()
    (file,) = journal_files(tmp_path)
    kinds = [type(line) for line in read_journal(file)]
    assert kinds == [Start, Entry, Entry, Entry]


def test_a_changed_turn_is_a_difference_and_exit_code_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path)
    file = journal_files(tmp_path)[0]
    text = file.read_text()
    assert f'"reason":"{Reason.MODEL_READY.value}"' in text
    changed = text.replace(f'"reason":"{Reason.MODEL_READY.value}"', '"reason":"late"', 1)
    file.write_text(changed)
    assert main([str(file)]) == 1
    assert "1 of them different" in capsys.readouterr().out


def test_an_equal_journal_is_exit_code_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path)
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "30 turns, 0 of them different\n"


@pytest.mark.parametrize("arguments", [[], ["a", "b"], ["/nonexistent/journal"]])
def test_no_journal_is_exit_code_two(arguments: list[str]) -> None:
    assert main(arguments) == 2


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    recorded(tmp_path)
    file = journal_files(tmp_path)[0]
    file.write_bytes(file.read_bytes()[:-20])
    assert replay(file).num_turns == 29


def test_a_line_of_something_else_is_named(tmp_path: Path) -> None:
    file = tmp_path / "turns-00000001.jsonl"
    file.write_text('{"format":"other/9","start":{}}\n')
    with pytest.raises(ValueError, match=r"turns-00000001.jsonl, line 1: expected the format"):
        list(read_journal(file))


def test_a_disk_that_fails_costs_entries_and_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    journal = Journal(blocked, 1_000_000, 10)
    course = Recorder()
    course.record(journal, 3)
    assert journal.num_lost == 3
    blocked.unlink()
    course.record(journal, 3)
    journal.close()
    assert journal.num_lost == 3
    assert replay(blocked).num_turns == 3
