"""What happened to each request: its wait, the pieces of its prompt, its decodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from pipelineserve_cli.traces.record import Piece, TracedMicroBatch, TracedRequest, TraceRecord
from pipelineserve_cli.traces.timeline import Span


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a request's life; prefill pieces may overlap, since stages work at once."""

    name: str
    span: Span
    details: Mapping[str, object] = field(default_factory=dict)


def phases_by_request(record: TraceRecord, max_requests: int) -> dict[str, list[Phase]]:
    """Of the requests that were sent first, at most that many, in that order."""
    parts: dict[str, list[tuple[TracedMicroBatch, Piece]]] = {}
    for batch in record.micro_batches:
        for piece in batch.pieces:
            parts.setdefault(piece.request_id, []).append((batch, piece))
    return {
        request_id: [*_wait(record.ended.get(request_id)), *_phases(of_request)]
        for request_id, of_request in islice(parts.items(), max_requests)
    }


def lanes(phases: Iterable[Phase]) -> list[list[Phase]]:
    """Phases onto as few lines as possible, so that none overlaps another on its line."""
    found: list[list[Phase]] = []
    for phase in sorted(phases, key=lambda phase: phase.span.start_s):
        for lane in found:
            if lane[-1].span.end_s <= phase.span.start_s:
                lane.append(phase)
                break
        else:
            found.append([phase])
    return found


def _wait(request: TracedRequest | None) -> list[Phase]:
    if request is None or request.first_issue_s is None:
        return []
    span = Span(request.arrival_s, max(request.arrival_s, request.first_issue_s))
    return [Phase("queue wait", span, {"prompt tokens": request.num_prompt_tokens})]


def _phases(parts: Iterable[tuple[TracedMicroBatch, Piece]]) -> list[Phase]:
    phases: list[Phase] = []
    decode_since_s: float | None = None
    num_decodes = 0
    ready_s: float | None = None  # end of the prefill that the decodes follow
    for batch, piece in parts:
        if not batch.steps:
            continue  # it never ran
        begin_s, end_s = batch.steps[0].start_s, batch.back_s
        if not piece.is_decode:
            decode_since_s, num_decodes, ready_s = None, 0, end_s
            phases.append(_prefill(batch, piece, Span(begin_s, end_s)))
            continue
        if decode_since_s is None:
            decode_since_s = begin_s if ready_s is None else min(begin_s, ready_s)
        else:
            phases.pop()  # the span grows by this decode
        num_decodes += 1
        name = f"decode, {num_decodes} tokens" if num_decodes > 1 else "decode, 1 token"
        phases.append(Phase(name, Span(decode_since_s, end_s)))
    return phases


def _prefill(batch: TracedMicroBatch, piece: Piece, span: Span) -> Phase:
    name = f"prefill {piece.start} to {piece.start + piece.num_tokens}"
    details = {"micro-batch": batch.sequence, "start": piece.start, "tokens": piece.num_tokens}
    return Phase(name, span, details)
