"""The engine's trace record as frozen types, times counted from the record's start."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelineserve.errors import Fault, InvalidInputError

_VERSION = 2
_KNOWN_TYPES = (
    *("header", "queued", "adopted", "costs", "tried", "sent", "completed", "step", "ended"),
    *("restart", "full"),
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens of one request inside a micro-batch."""

    request_id: str
    start: int
    num_tokens: int
    is_decode: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One micro-batch on one stage."""

    stage_index: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TracedMicroBatch:
    """A micro-batch and its steps in order of stages.

    Some steps are missing if it never came back or the record ends before.
    """

    sequence: int
    slot_index: int
    sent_s: float
    chunk_tokens: int
    pieces: tuple[Piece, ...]
    steps: tuple[Step, ...]

    @property
    def num_decodes(self) -> int:
        """Decodes among the pieces."""
        return sum(piece.is_decode for piece in self.pieces)

    @property
    def num_prefill_tokens(self) -> int:
        """Tokens of the prefill pieces."""
        return sum(piece.num_tokens for piece in self.prefill_pieces)

    @property
    def num_tokens(self) -> int:
        """Tokens of all pieces."""
        return self.num_decodes + self.num_prefill_tokens

    @property
    def prefill_pieces(self) -> tuple[Piece, ...]:
        """The pieces of prompts."""
        return tuple(piece for piece in self.pieces if not piece.is_decode)

    @property
    def back_s(self) -> float:
        """End of its last step; when it was sent if there is none."""
        return max((step.end_s for step in self.steps), default=self.sent_s)

    @property
    def entry_s(self) -> float:
        """When it was sent, or its first step if the clocks' order says that this was earlier."""
        return min((step.start_s for step in self.steps), default=self.sent_s)


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A request that ended while the record ran."""

    request_id: str
    finish: str
    arrival_s: float
    first_issue_s: float | None
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """A whole record.

    Attributes:
        micro_batches: in the order in which they were sent.
        ended: by request id.
        restarts_s: when the stages had failed and were started anew.
        is_cut: the engine reached the record's bound, or was killed in the middle of a line.
    """

    num_stages: int
    micro_batches: tuple[TracedMicroBatch, ...]
    ended: dict[str, TracedRequest]
    restarts_s: tuple[float, ...]
    is_cut: bool


def read_record(path: Path) -> TraceRecord:
    """Read what `--trace-file` wrote.

    Raises:
        InvalidInputError: it is not such a file; names the line.
    """
    return parse_record(path.read_text(encoding="utf-8", errors="replace"), str(path))


def parse_record(text: str, name: str) -> TraceRecord:
    """See `read_record`; `name` is for messages."""
    entries, is_cut = read_entries(text, name)
    try:
        return _record(entries, is_cut=is_cut)
    except (KeyError, TypeError, ValueError) as error:
        raise invalid_line(name, error) from error


def read_entries(text: str, name: str) -> tuple[list[dict[str, Any]], bool]:
    """A record's lines, the header first, and whether it is cut off.

    Raises:
        InvalidInputError: it is not a record of this version; names the line.
    """
    lines = text.split("\n")
    # The engine ends each line as it writes it, so what follows the last end is half a line.
    lines, rest = lines[:-1], lines[-1]
    entries = [_entry(line, index, name) for index, line in enumerate(lines, 1)]
    if not entries or entries[0]["type"] != "header":
        raise _invalid(name, 1, "expected a header; name the file that --trace-file wrote")
    header = entries[0]
    if header.get("version") != _VERSION:
        text = f"got version {header.get('version')}, expected {_VERSION}"
        raise _invalid(name, 1, f"{text}; record it anew with the engine of this release")
    return entries, bool(rest) or entries[-1]["type"] == "full"


def invalid_line(name: str, error: Exception) -> InvalidInputError:
    """What to say of a record that has all its lines, but a field is missing or wrong."""
    text = f"a line lacks a field or holds a wrong one ({error}); record it anew"
    return InvalidInputError("the trace record", [Fault(name, text)])


def _entry(line: str, index: int, name: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise _invalid(name, index, "expected a JSON object; record it anew") from error
    if not isinstance(entry, dict) or entry.get("type") not in _KNOWN_TYPES:
        expected = f'expected an object whose "type" is one of {", ".join(_KNOWN_TYPES)}'
        raise _invalid(name, index, f"{expected}; record it anew")
    return entry


def _invalid(name: str, line_index: int, text: str) -> InvalidInputError:
    return InvalidInputError("the trace record", [Fault(f"{name}, line {line_index}", text)])


def _record(entries: Iterable[dict[str, Any]], *, is_cut: bool) -> TraceRecord:
    header, *rest = entries
    zero_s = float(header["start_s"])
    steps: dict[int, list[Step]] = {}
    for entry in rest:
        if entry["type"] == "step":
            step = Step(entry["stage_index"], entry["start_s"] - zero_s, entry["end_s"] - zero_s)
            steps.setdefault(entry["sequence"], []).append(step)
    return TraceRecord(
        num_stages=int(header["num_stages"]),
        micro_batches=tuple(
            _micro_batch(entry, steps.get(entry["sequence"], []), zero_s)
            for entry in rest
            if entry["type"] == "sent"
        ),
        ended={
            entry["request_id"]: _request(entry, zero_s)
            for entry in rest
            if entry["type"] == "ended"
        },
        restarts_s=tuple(e["at_s"] - zero_s for e in rest if e["type"] == "restart"),
        is_cut=is_cut,
    )


def _micro_batch(entry: dict[str, Any], steps: list[Step], zero_s: float) -> TracedMicroBatch:
    return TracedMicroBatch(
        sequence=entry["sequence"],
        slot_index=entry["slot_index"],
        sent_s=entry["at_s"] - zero_s,
        chunk_tokens=entry["chunk_tokens"],
        pieces=tuple(Piece(*piece) for piece in entry["pieces"]),
        steps=tuple(sorted(steps, key=lambda step: step.stage_index)),
    )


def _request(entry: dict[str, Any], zero_s: float) -> TracedRequest:
    issue_s = entry["first_issue_s"]
    return TracedRequest(
        request_id=entry["request_id"],
        finish=entry["finish"],
        arrival_s=entry["arrival_s"] - zero_s,
        first_issue_s=None if issue_s is None else issue_s - zero_s,
        num_prompt_tokens=entry["num_prompt_tokens"],
        num_cached_tokens=entry["num_cached_tokens"],
        num_output_tokens=entry["num_output_tokens"],
    )
