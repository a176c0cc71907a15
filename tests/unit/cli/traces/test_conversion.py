"""The trace: valid events, slices apart from each other, everything in it once, bounded."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_cli.traces.conversion import slice_name, trace_events
from pipelineserve_cli.traces.record import TraceRecord
from pipelineserve_cli.traces.timeline import total_s, work_spans
from trace_records import START_S, a_record, records, two_pieces_at_once

REQUIRED_FIELDS = {
    "X": {"name", "pid", "tid", "ts", "dur", "args"},
    "M": {"name", "pid", "tid", "args"},
    "C": {"name", "pid", "tid", "ts", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}

Event = dict[str, Any]


def events_of(record: TraceRecord, max_requests: int = 200) -> list[Event]:
    """As they are after a trip through JSON."""
    events: list[Event] = json.loads(json.dumps(trace_events(record, max_requests)))["traceEvents"]
    return events


def named(events: list[Event], kind: str) -> dict[Any, str]:
    """Names of processes or threads by their ids."""
    return {
        event["pid"] if kind == "process_name" else (event["pid"], event["tid"]): event["args"][
            "name"
        ]
        for event in events
        if event["ph"] == "M" and event["name"] == kind
    }


def slices(events: list[Event], process: str, thread: str | None = None) -> list[Event]:
    """In the processes and threads of these names; each carries its thread's name."""
    processes, threads = named(events, "process_name"), named(events, "thread_name")
    return [
        event
        for event in events
        if event["ph"] == "X"
        and processes[event["pid"]] == process
        and thread in (None, threads[event["pid"], event["tid"]])
    ]


def bounds_ns(event: Event) -> tuple[int, int]:
    start_ns = round(event["ts"] * 1000)
    return start_ns, start_ns + round(event["dur"] * 1000)


@given(records())
def test_every_event_has_what_the_format_asks_for(record: TraceRecord) -> None:
    for event in events_of(record):
        assert event.keys() >= REQUIRED_FIELDS[event["ph"]]
        assert event.get("dur", 0) >= 0


@given(records())
def test_slices_of_one_track_never_overlap(record: TraceRecord) -> None:
    tracks = defaultdict(list)
    for event in events_of(record):
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(bounds_ns(event))
    for bounds in tracks.values():
        for (_, end_ns), (start_ns, _) in pairwise(sorted(bounds)):
            assert end_ns <= start_ns


@given(records())
def test_bubbles_and_slices_fill_the_time_with_work(record: TraceRecord) -> None:
    events = events_of(record)
    for stage_index in range(record.num_stages):
        found = slices(events, f"stage {stage_index}")
        filled_ns = sum(end_ns - start_ns for start_ns, end_ns in map(bounds_ns, found))
        assert filled_ns == total_s(work_spans(record)) * 1e9


@given(records())
def test_each_stage_shows_every_piece_that_it_ran_once(record: TraceRecord) -> None:
    events = events_of(record)
    for stage_index in range(record.num_stages):
        shown = [
            (piece["request"], piece["start"], piece["tokens"], piece["kind"] == "decode")
            for event in slices(events, f"stage {stage_index}", "micro-batches")
            for piece in event["args"]["pieces"]
        ]
        assert shown == [
            (piece.request_id, piece.start, piece.num_tokens, piece.is_decode)
            for batch in record.micro_batches
            if any(step.stage_index == stage_index for step in batch.steps)
            for piece in batch.pieces
        ]


@given(records())
def test_each_request_shows_every_prefill_piece_that_ran_once(record: TraceRecord) -> None:
    shown = sorted(
        (event["args"]["micro-batch"], event["args"]["start"], event["args"]["tokens"])
        for event in slices(events_of(record), "requests")
        if event["name"].startswith("prefill")
    )
    assert shown == sorted(
        (batch.sequence, piece.start, piece.num_tokens)
        for batch in record.micro_batches
        if batch.steps
        for piece in batch.prefill_pieces
    )


@given(records(), st.integers(0, 3))
def test_no_more_requests_get_a_track_than_asked_for(
    record: TraceRecord, max_requests: int
) -> None:
    events = events_of(record, max_requests)
    requests_pid = next(p for p, n in named(events, "process_name").items() if n == "requests")
    names = {n for (pid, _), n in named(events, "thread_name").items() if pid == requests_pid}
    assert len(names) <= max_requests


@given(records())
def test_every_arrow_leads_from_one_slice_to_a_later_one(record: TraceRecord) -> None:
    events = events_of(record)
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == sum(max(0, len(batch.steps) - 1) for batch in record.micro_batches)
    for flow_id, start in starts.items():
        assert ends[flow_id]["ts"] >= start["ts"]
        assert ends[flow_id]["pid"] == start["pid"] + 1


@given(records())
def test_in_flight_begins_and_ends_with_nothing_and_never_exceeds_the_stages(
    record: TraceRecord,
) -> None:
    counts = [e["args"]["micro-batches"] for e in events_of(record) if e["name"] == "in flight"]
    assert all(0 <= count <= record.num_stages for count in counts)
    assert counts[-1:] in ([], [0])


def test_a_restart_of_the_stages_is_marked() -> None:
    events = events_of(a_record({"type": "restart", "at_s": START_S + 2.0}))
    marks = [(event["s"], event["ts"]) for event in events if event["ph"] == "i"]
    assert marks == [("g", 2_000_000.0)]


def test_a_slice_says_what_its_micro_batch_carries() -> None:
    names = [slice_name(batch) for batch in a_record(*two_pieces_at_once()).micro_batches]
    assert names == [
        "#0 slot 0: 1 decode + 60 prefill",
        "#1 slot 1: 40 prefill",
        "#2 slot 0: 2 decodes",
    ]


def test_a_request_waits_is_prefilled_in_pieces_and_decodes() -> None:
    found = slices(events_of(a_record(*two_pieces_at_once())), "requests", "r")
    shown = {event["name"]: bounds_ns(event) for event in found}
    assert {name: (a / 1e9, b / 1e9) for name, (a, b) in shown.items()} == {
        "queue wait": (-0.5, 0.0),
        "prefill 0 to 60": (0.0, 2.0),
        "prefill 60 to 100": (1.0, 3.0),
        "decode, 1 token": (3.0, 4.0),
    }
