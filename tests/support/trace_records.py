"""Records of made-up runs: any order of stages' times that a pipeline can have."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from pipelineserve_cli.traces.record import TraceRecord, parse_record

Line = dict[str, Any]

START_S = 1000.0
# Sixteenths of a second, so that sums of times are exact.
TICK_S = 1.0 / 16


def header(num_stages: int = 2) -> Line:
    """The first line."""
    return {"type": "header", "version": 2, "num_stages": num_stages, "start_s": START_S}


def sent(
    sequence: int, at_s: float, pieces: Sequence[tuple[str, int, int, bool]], slot: int = 0
) -> Line:
    """A micro-batch; pieces are request, start, tokens and whether it is a decode."""
    return {
        "type": "sent",
        "at_s": START_S + at_s,
        "sequence": sequence,
        "slot_index": slot,
        "chunk_tokens": 64,
        "pieces": [list(piece) for piece in pieces],
    }


def step(sequence: int, stage_index: int, start_s: float, end_s: float) -> Line:
    """A stage has run it."""
    return {
        "type": "step",
        "sequence": sequence,
        "stage_index": stage_index,
        "start_s": START_S + start_s,
        "end_s": START_S + end_s,
    }


def ended(request_id: str, arrival_s: float, first_issue_s: float | None) -> Line:
    """A request ended."""
    return {
        "type": "ended",
        "request_id": request_id,
        "finish": "stop",
        "arrival_s": START_S + arrival_s,
        "first_issue_s": None if first_issue_s is None else START_S + first_issue_s,
        "first_token_s": None,
        "end_s": START_S + 100.0,
        "num_prompt_tokens": 10,
        "num_cached_tokens": 0,
        "num_output_tokens": 3,
    }


def text_of(lines: Sequence[Line]) -> str:
    """As the engine writes them."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def a_record(*lines: Line, num_stages: int = 2) -> TraceRecord:
    """Read from these lines."""
    return parse_record(text_of([header(num_stages), *lines]), "record")


def two_pieces_at_once() -> list[Line]:
    """Request r's prompt in two pieces: the second is on stage 0 while the first is on stage 1."""
    return [
        sent(0, 0.0, [("d", 9, 1, True), ("r", 0, 60, False)], slot=0),
        sent(1, 0.0, [("r", 60, 40, False)], slot=1),
        step(0, 0, 0.0, 1.0),
        step(0, 1, 1.0, 2.0),
        step(1, 0, 1.0, 1.75),
        step(1, 1, 2.0, 3.0),
        sent(2, 3.0, [("r", 100, 1, True), ("d", 10, 1, True)], slot=0),
        step(2, 0, 3.0, 3.25),
        step(2, 1, 3.5, 4.0),
        ended("r", -0.5, 0.0),
    ]


@st.composite
def records(draw: st.DrawFn) -> TraceRecord:
    """Micro-batches in order through every stage, with pauses; the last may not come back."""
    num_stages = draw(st.integers(1, 4))
    ticks = st.integers(0, 5)
    free = [0] * num_stages  # when each stage can start its next step
    lines: list[Line] = []
    now = 0
    backs: list[int] = []  # of the micro-batches in flight, oldest first
    num_sent = draw(st.integers(0, 10))
    num_steps_of_last = draw(st.integers(0, num_stages))
    for sequence in range(num_sent):
        if len(backs) == num_stages:
            now = max(now, backs.pop(0))
        now += draw(ticks)
        pieces = draw(_pieces(sequence))
        lines.append(sent(sequence, now * TICK_S, pieces, slot=sequence % num_stages))
        ready = now
        is_last = sequence == num_sent - 1
        for stage_index in range(num_steps_of_last if is_last else num_stages):
            start = max(ready, free[stage_index]) + draw(ticks)
            ready = free[stage_index] = start + draw(ticks)
            lines.append(step(sequence, stage_index, start * TICK_S, ready * TICK_S))
        backs.append(ready)
    return a_record(*lines, num_stages=num_stages)


@st.composite
def _pieces(draw: st.DrawFn, sequence: int) -> list[tuple[str, int, int, bool]]:
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True))
    pieces = []
    for name in names:
        is_decode = draw(st.booleans())
        num_tokens = 1 if is_decode else draw(st.integers(1, 40))
        pieces.append((name, 50 * sequence, num_tokens, is_decode))
    return pieces
