"""What a person is told of a record in a few lines."""

from dataclasses import dataclass

from rich.table import Table

from pipelineserve_cli.traces.record import TracedMicroBatch, TraceRecord
from pipelineserve_cli.traces.timeline import (
    busy_spans,
    num_consecutive,
    overlapping_pieces,
    steps_of,
    total_s,
    work_spans,
)


@dataclass(frozen=True, slots=True)
class StageSummary:
    """One stage; shares are of the time with work in the pipeline, 0 without any.

    Attributes:
        longest: the micro-batch of its longest step, None if it ran nothing.
    """

    busy_ratio: float
    bubble_ratio: float
    longest_s: float
    longest: TracedMicroBatch | None


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A whole record.

    Attributes:
        num_consecutive: micro-batches with a piece of the prompt that the one before carries too.
        num_overlaps: pairs of pieces of one prompt that ran on two stages at once.
    """

    num_micro_batches: int
    work_s: float
    stages: tuple[StageSummary, ...]
    num_consecutive: int
    num_overlaps: int
    is_cut: bool


def summarise_record(record: TraceRecord) -> TraceSummary:
    """Figures of the whole record."""
    work_s = total_s(work_spans(record))
    return TraceSummary(
        num_micro_batches=len(record.micro_batches),
        work_s=work_s,
        stages=tuple(_stage(record, index, work_s) for index in range(record.num_stages)),
        num_consecutive=num_consecutive(record),
        num_overlaps=len(overlapping_pieces(record)),
        is_cut=record.is_cut,
    )


def summary_table(summary: TraceSummary) -> Table:
    """For a terminal."""
    table = Table(
        title=f"{summary.num_micro_batches} micro-batches, {summary.work_s:.1f} s with work",
        caption=_caption(summary),
        caption_justify="left",
    )
    for column in ("stage", "busy", "bubble", "longest step", "which carried"):
        table.add_column(column, justify="left" if column == "which carried" else "right")
    for index, stage in enumerate(summary.stages):
        table.add_row(
            str(index),
            f"{stage.busy_ratio:.0%}",
            f"{stage.bubble_ratio:.0%}",
            f"{stage.longest_s * 1000:.1f} ms",
            "-" if stage.longest is None else _content(stage.longest),
        )
    return table


def _stage(record: TraceRecord, stage_index: int, work_s: float) -> StageSummary:
    busy_ratio = total_s(busy_spans(record, stage_index)) / work_s if work_s else 0.0
    longest_s, longest = 0.0, None
    for batch, step in steps_of(record, stage_index):
        if longest is None or step.end_s - step.start_s > longest_s:
            longest_s, longest = step.end_s - step.start_s, batch
    return StageSummary(busy_ratio, 1.0 - busy_ratio if work_s else 0.0, longest_s, longest)


def _content(batch: TracedMicroBatch) -> str:
    return f"#{batch.sequence}: {batch.num_decodes} decodes, {batch.num_prefill_tokens} prefill"


def _caption(summary: TraceSummary) -> str:
    lines = [
        f"{summary.num_consecutive} micro-batches carry on the prompt of the one before them.",
        f"{summary.num_overlaps} times two pieces of one prompt ran on two stages at once.",
    ]
    if summary.is_cut:
        lines.append("The record ends early: the server was killed, or --trace-max-events reached.")
    return "\n".join(lines)
