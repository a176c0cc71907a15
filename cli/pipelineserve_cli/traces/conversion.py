"""A record as a trace in Chrome's JSON trace-event format, which Perfetto reads."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pipelineserve_cli.traces.phases import lanes, phases_by_request
from pipelineserve_cli.traces.record import Step, TracedMicroBatch, TraceRecord
from pipelineserve_cli.traces.timeline import Span, bubbles, steps_of

DEFAULT_MAX_REQUESTS = 200

# Processes of the trace, in the order in which viewers show them; stages are 1, 2, ...
_COUNTERS_PID = 1_000
_REQUESTS_PID = 1_001
_STEPS_TID = 1
_BUBBLES_TID = 2

_Event = dict[str, Any]


def trace_events(record: TraceRecord, max_requests: int = DEFAULT_MAX_REQUESTS) -> _Event:
    """The whole trace, ready for `json.dump`.

    Args:
        record: as read.
        max_requests: how many requests get a track; those sent first.
    """
    events: list[_Event] = []
    for stage_index in range(record.num_stages):
        events += _stage(record, stage_index)
    events += _flows(record)
    events += _pipeline(record)
    events += _requests(record, max_requests)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def slice_name(batch: TracedMicroBatch) -> str:
    """Like `#12 slot 1: 4 decodes + 60 prefill`."""
    parts = []
    if batch.num_decodes:
        parts.append(f"{batch.num_decodes} decode{'s' if batch.num_decodes > 1 else ''}")
    if batch.num_prefill_tokens:
        parts.append(f"{batch.num_prefill_tokens} prefill")
    return f"#{batch.sequence} slot {batch.slot_index}: {' + '.join(parts)}"


def _stage(record: TraceRecord, stage_index: int) -> Iterator[_Event]:
    pid = _pid(stage_index)
    yield from _process(pid, f"stage {stage_index}")
    yield _metadata("thread_name", pid, _STEPS_TID, name="micro-batches")
    yield _metadata("thread_name", pid, _BUBBLES_TID, name="bubbles")
    for batch, step in steps_of(record, stage_index):
        span = Span(step.start_s, step.end_s)
        yield _slice(pid, _STEPS_TID, slice_name(batch), span, _arguments(batch))
    for bubble in bubbles(record, stage_index):
        yield _slice(pid, _BUBBLES_TID, "bubble", bubble, {})


def _arguments(batch: TracedMicroBatch) -> _Event:
    return {
        "tokens": batch.num_tokens,
        "chunk tokens": batch.chunk_tokens,
        "pieces": [
            {
                "request": piece.request_id,
                "start": piece.start,
                "tokens": piece.num_tokens,
                "kind": "decode" if piece.is_decode else "prefill",
            }
            for piece in batch.pieces
        ],
    }


def _flows(record: TraceRecord) -> Iterator[_Event]:
    """An arrow from each step of a micro-batch to its next one."""
    for batch in record.micro_batches:
        for step, following in zip(batch.steps, batch.steps[1:], strict=False):
            flow_id = batch.sequence * record.num_stages + step.stage_index
            # An arrow belongs to the slice around its end, so it leaves just before the slice ends.
            yield _flow("s", flow_id, step, max(_ns(step.start_s), _ns(step.end_s) - 1))
            yield {**_flow("f", flow_id, following, _ns(following.start_s)), "bp": "e"}


def _flow(phase: str, flow_id: int, step: Step, at_ns: int) -> _Event:
    return {
        "ph": phase,
        "id": flow_id,
        "cat": "flow",
        "name": "activations",
        "pid": _pid(step.stage_index),
        "tid": _STEPS_TID,
        "ts": at_ns / 1000,
    }


def _pipeline(record: TraceRecord) -> Iterator[_Event]:
    yield from _process(_COUNTERS_PID, "pipeline")
    for batch in record.micro_batches:
        tokens = {"decode": batch.num_decodes, "prefill": batch.num_prefill_tokens}
        yield _counter("micro-batch tokens", batch.entry_s, tokens)
    changes: Counter[float] = Counter()
    for batch in record.micro_batches:
        changes[batch.entry_s] += 1
        changes[batch.back_s] -= 1
    num_in_flight = 0
    for at_s in sorted(changes):
        num_in_flight += changes[at_s]
        yield _counter("in flight", at_s, {"micro-batches": num_in_flight})
    for at_s in record.restarts_s:
        yield {
            "ph": "i",
            "s": "g",
            "name": "stages failed, started anew",
            "pid": _COUNTERS_PID,
            "tid": 0,
            "ts": _ns(at_s) / 1000,
        }


def _counter(name: str, at_s: float, values: dict[str, int]) -> _Event:
    return {
        "ph": "C",
        "name": name,
        "pid": _COUNTERS_PID,
        "tid": 0,
        "ts": _ns(at_s) / 1000,
        "args": values,
    }


def _requests(record: TraceRecord, max_requests: int) -> Iterator[_Event]:
    yield from _process(_REQUESTS_PID, "requests")
    tid = 0
    for request_id, phases in phases_by_request(record, max_requests).items():
        for lane in lanes(phases):
            tid += 1
            yield _metadata("thread_name", _REQUESTS_PID, tid, name=request_id)
            yield _metadata("thread_sort_index", _REQUESTS_PID, tid, sort_index=tid)
            for phase in lane:
                yield _slice(_REQUESTS_PID, tid, phase.name, phase.span, dict(phase.details))


def _process(pid: int, name: str) -> Iterator[_Event]:
    yield _metadata("process_name", pid, 0, name=name)
    yield _metadata("process_sort_index", pid, 0, sort_index=pid)


def _metadata(kind: str, pid: int, tid: int, **arguments: object) -> _Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": arguments}


def _slice(pid: int, tid: int, name: str, span: Span, arguments: _Event) -> _Event:
    start_ns = _ns(span.start_s)
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start_ns / 1000,
        "dur": (_ns(span.end_s) - start_ns) / 1000,
        "args": arguments,
    }


def _pid(stage_index: int) -> int:
    return stage_index + 1


def _ns(time_s: float) -> int:
    """Whole nanoseconds: ends and starts that are equal in the record stay so in the trace."""
    return round(time_s * 1e9)
