"""Decides a journal's turns again: `python -m pipelineserve_controller.replay JOURNAL`."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelineserve.policy.control.turns import ControlMemory, Turn, take_turn
from pipelineserve_controller.journal import Entry, Start, journal_files, read_journal

_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Difference:
    """A turn that comes out differently now; `index` counts the file's turns from 0."""

    file: str
    index: int
    recorded: Turn
    decided: Turn


@dataclass(frozen=True, slots=True)
class Replay:
    """How a replay went."""

    num_turns: int
    differences: tuple[Difference, ...]


def replay(path: Path) -> Replay:
    """Decide again what one file, or each file of a folder, holds.

    Raises:
        ValueError: a line is not a journal's.
        OSError: the journal cannot be read.
    """
    files = journal_files(path) if path.is_dir() else [path]
    results = [result for file in files for result in _replayed(file)]
    found = tuple(result for result in results if result.recorded != result.decided)
    return Replay(len(results), found)


def main(arguments: Sequence[str]) -> int:
    """0: every turn came out as it is recorded; 1: some did not; 2: there is no such journal."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m pipelineserve_controller.replay JOURNAL\n")
        return 2
    try:
        result = replay(Path(arguments[0]))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for difference in result.differences[:_MAX_SHOWN]:
        sys.stdout.write(
            f"{difference.file}, turn {difference.index}:\n"
            f"  recorded {difference.recorded}\n  decided  {difference.decided}\n"
        )
    num_different = len(result.differences)
    sys.stdout.write(f"{result.num_turns} turns, {num_different} of them different\n")
    return 1 if num_different or not result.num_turns else 0


def _replayed(path: Path) -> Iterator[Difference]:
    memory: ControlMemory | None = None
    index = 0
    for line in read_journal(path):
        match line:
            case Start(memory=start):
                memory = start
            case Entry():
                if memory is None:
                    raise ValueError(f"{path.name}: expected a memory to start from, got a turn")
                decided, _, memory = take_turn(memory, line.heard, line.objectives)
                yield Difference(path.name, index, line.turn, decided)
                index += 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
