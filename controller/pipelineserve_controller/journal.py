"""The journal: every turn with what it was decided from, as JSON lines in files of bounded size.

A file begins with the memory and the objectives of its first turn, so that each can be replayed
without those before it. They are written again every minute, so that what was learned last is found
without replaying all of a file.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from pipelineserve.policy.control.heard import Heard
from pipelineserve.policy.control.journal_format import from_json, to_json
from pipelineserve.policy.control.objectives import Objectives
from pipelineserve.policy.control.turns import ControlMemory, Turn

logger = logging.getLogger(__name__)

FORMAT = "pipelineserve-journal/2"
START_PERIOD_S = 60.0
_PATTERN = "turns-*.jsonl"
_START_PREFIX, _TURN_PREFIX = b'{"format":', b'{"at_unix_s":'
# Some minutes of turns at the highest rate.
_MOST_LATEST_BYTES = 1 << 24
# In place of a policy: the one of the turn before.
_SAME = "same"


@dataclass(frozen=True, slots=True)
class Start:
    """The first line of a file, and some later ones: from here it can be replayed."""

    memory: ControlMemory


@dataclass(frozen=True, slots=True)
class Entry:
    """One turn: its inputs, but for the memory, and what came of it."""

    at_unix_s: float
    heard: Heard
    objectives: Objectives
    turn: Turn


class Journal:
    """Writes entries; a disk that fails costs entries, counted, and nothing else.

    Args:
        folder: made if it is not there; files of earlier runs count towards the bound.
        max_bytes: of one file; a single line may go beyond.
        max_files: the oldest ones beyond are removed.
    """

    def __init__(self, folder: Path, max_bytes: int, max_files: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._file: FileIO | None = None
        self._num_bytes = 0
        self._objectives: Objectives | None = None
        self._policy: object = _SAME
        # Of the first turn since the latest start; None before it.
        self._started_at_s: float | None = None
        self.num_lost = 0

    def begin(self, memory: ControlMemory) -> None:
        """Begin a file before the first turn, so that a run which ends before it leaves a trace."""
        try:
            self._rotate(memory)
        except OSError as error:
            self._lose(error)

    def write(self, memory: ControlMemory, entry: Entry) -> None:
        """Append one turn; `memory` is the one that it began with."""
        now_s = entry.heard.now_s
        try:
            if self._file is None or self._num_bytes >= self._max_bytes:
                self._rotate(memory)
            elif self._started_at_s is not None and now_s - self._started_at_s >= START_PERIOD_S:
                self._start(memory)
            if self._started_at_s is None:
                self._started_at_s = now_s
            if entry.objectives != self._objectives:
                self._line({"objectives": to_json(entry.objectives)})
                self._objectives = entry.objectives
            self._line(
                {
                    "at_unix_s": entry.at_unix_s,
                    "heard": to_json(entry.heard),
                    "turn": self._turn_document(entry.turn),
                }
            )
        except OSError as error:
            self._lose(error)

    def close(self) -> None:
        """End the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _turn_document(self, turn: Turn) -> dict[str, Any]:
        """A policy is written when it changes, not with each turn that leaves it as it is."""
        document: dict[str, Any] = to_json(turn)
        policy, self._policy = self._policy, document["policy"]
        return {**document, "policy": _SAME} if policy == self._policy else document

    def _rotate(self, memory: ControlMemory) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        files = journal_files(self._folder)
        last = int(files[-1].stem.partition("-")[2]) if files else 0
        for old in files[: max(0, len(files) + 1 - self._max_files)]:
            old.unlink(missing_ok=True)
        self._file = (self._folder / f"turns-{last + 1:08d}.jsonl").open("xb", buffering=0)
        self._num_bytes = 0
        self._start(memory)

    def _start(self, memory: ControlMemory) -> None:
        """What follows can be read without what is before."""
        self._line({"format": FORMAT, "start": to_json(Start(memory))})
        self._objectives, self._policy, self._started_at_s = None, _SAME, None

    def _line(self, document: dict[str, Any]) -> None:
        if self._file is None:
            raise OSError("no journal file is open")
        line = json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if self._file.write(line) != len(line):
            raise OSError("the line was cut off; is the disk full?")
        self._num_bytes += len(line)

    def _lose(self, error: OSError) -> None:
        """The next entry tries a new file, which begins with its own memory."""
        if self.num_lost == 0:
            logger.warning("journal cannot be written: %s", error)
        self.num_lost += 1
        self.close()


def journal_files(folder: Path) -> list[Path]:
    """The journal's files, oldest first."""
    return sorted(folder.glob(_PATTERN))


def read_journal(path: Path) -> Iterator[Start | Entry]:
    """What one file holds, in order; a last line that was cut off is left out.

    Raises:
        ValueError: a line is not of this format; names it.
    """
    return _parsed(path.name, path.read_bytes().splitlines(keepends=True))


def read_latest(path: Path, least_turns: int) -> Iterator[Start | Entry]:
    """What one file holds from its latest start on that has so many turns after it.

    Only the end of a large file is looked at. Nothing if there is no such start.

    Raises:
        ValueError: a line is not of this format; names it, counted from that start.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_LATEST_BYTES))
        lines = file.read(_MOST_LATEST_BYTES).splitlines(keepends=True)
    num_turns = 0
    for index in range(len(lines) - 1, -1, -1):
        num_turns += lines[index].startswith(_TURN_PREFIX)
        if num_turns >= least_turns and lines[index].startswith(_START_PREFIX):
            return _parsed(path.name, lines[index:])
    return iter(())


def _parsed(name: str, lines: list[bytes]) -> Iterator[Start | Entry]:
    objectives: Objectives | None = None
    policy: object = None
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            return  # written when the process ended
        try:
            document = json.loads(line)
            if "start" in document:
                _check_format(document)
                yield from_json(Start, document["start"])
            elif "objectives" in document:
                objectives = from_json(Objectives, document["objectives"])
            else:
                turn = document["turn"]
                policy = policy if turn["policy"] == _SAME else turn["policy"]
                yield _entry({**document, "turn": {**turn, "policy": policy}}, objectives)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{name}, line {number}: {error}") from error


def _check_format(document: dict[str, Any]) -> None:
    if document.get("format") != FORMAT:
        raise ValueError(f"expected the format {FORMAT}, got {document.get('format')}")


def _entry(document: dict[str, Any], objectives: Objectives | None) -> Entry:
    if objectives is None:
        raise ValueError("expected objectives before the first turn, got none")
    return Entry(
        at_unix_s=float(document["at_unix_s"]),
        heard=from_json(Heard, document["heard"]),
        objectives=objectives,
        turn=from_json(Turn, document["turn"]),
    )
