"""What follows from a record: work, busy time, bubbles, and how prompts' pieces follow each other.

The pipeline has work from the moment that a micro-batch is sent until the last stage has run it; a
stage's bubble is the part of that time in which the stage runs nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pipelineserve_cli.traces.record import Step, TracedMicroBatch, TraceRecord


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


def work_spans(record: TraceRecord) -> tuple[Span, ...]:
    """When something was in flight; apart from each other, in order."""
    return _merged(Span(batch.entry_s, batch.back_s) for batch in record.micro_batches)


def busy_spans(record: TraceRecord, stage_index: int) -> tuple[Span, ...]:
    """When the stage computed; steps without a pause between them are one span."""
    return _merged(Span(step.start_s, step.end_s) for _, step in steps_of(record, stage_index))


def bubbles(record: TraceRecord, stage_index: int) -> tuple[Span, ...]:
    """When the stage idled although something was in flight."""
    busy = busy_spans(record, stage_index)
    return tuple(idle for work in work_spans(record) for idle in _gaps(work, busy))


def steps_of(record: TraceRecord, stage_index: int) -> list[tuple[TracedMicroBatch, Step]]:
    """What the stage ran, in order."""
    return [
        (batch, step)
        for batch in record.micro_batches
        for step in batch.steps
        if step.stage_index == stage_index
    ]


def total_s(spans: Iterable[Span]) -> float:
    """Their lengths together."""
    return sum(span.duration_s for span in spans)


def num_consecutive(record: TraceRecord) -> int:
    """Micro-batches with a piece of a prompt that the one sent just before also has a piece of.

    The two are in different slots, so the later did not wait for the earlier to come back.
    """
    return sum(
        earlier.slot_index != later.slot_index and bool(_prompts(earlier) & _prompts(later))
        for earlier, later in pairwise(record.micro_batches)
    )


def overlapping_pieces(record: TraceRecord) -> list[tuple[str, Span]]:
    """When pieces of one prompt ran on two stages at once, by request.

    One entry per pair of steps; the pieces are those of micro-batches sent one after the other.
    """
    found = []
    for earlier, later in pairwise(record.micro_batches):
        shared = _prompts(earlier) & _prompts(later)
        for first in earlier.steps:
            for second in later.steps:
                start_s = max(first.start_s, second.start_s)
                end_s = min(first.end_s, second.end_s)
                if first.stage_index != second.stage_index and start_s < end_s:
                    found += [(request_id, Span(start_s, end_s)) for request_id in sorted(shared)]
    return found


def _prompts(batch: TracedMicroBatch) -> set[str]:
    return {piece.request_id for piece in batch.prefill_pieces}


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start_s, span.end_s)):
        if merged and span.start_s <= merged[-1].end_s:
            merged[-1] = Span(merged[-1].start_s, max(merged[-1].end_s, span.end_s))
        else:
            merged.append(span)
    return tuple(span for span in merged if span.duration_s > 0.0)


def _gaps(whole: Span, taken: Sequence[Span]) -> Iterator[Span]:
    since_s = whole.start_s
    for span in taken:
        if span.end_s <= whole.start_s or span.start_s >= whole.end_s:
            continue  # it belongs to other work
        if span.start_s > since_s:
            yield Span(since_s, span.start_s)
        since_s = span.end_s
    if since_s < whole.end_s:
        yield Span(since_s, whole.end_s)
