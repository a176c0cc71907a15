"""Times micro-batches on the engine's own stages: real processes, links and kernels.

Imports the engine, so it is imported only when something is measured.
"""

from collections.abc import Iterator
from itertools import count, pairwise
from struct import pack

from pipelineserve_cli.profiles.compositions import Composition, Extent, contexts_of
from pipelineserve_cli.profiles.timings import Timings
from pipelineserve_engine.plan import PipelinePlan
from pipelineserve_engine.stage_group import StageGroup
from pipelineserve_engine.stage_messages import PieceCommand, StepCommand, StepReport

_TOKEN_ID = 11
_WAIT_S = 1.0


class StageTimer:
    """Sends compositions to idle stages, and takes down what they report.

    Args:
        group: the stages, ready and idle.
        plan: theirs; its pool must hold `Rows(extent).num_tokens`.
        extent: of what will be measured.
        timings: where samples go.
    """

    def __init__(
        self, group: StageGroup, plan: PipelinePlan, extent: Extent, timings: Timings
    ) -> None:
        self._group = group
        self._num_slots = plan.num_slots
        self._num_stages = plan.num_stages
        self._timings = timings
        self._rows = _rows(extent, plan.block_tokens)
        self._extent = extent
        self._sequences = count()

    def fill_contexts(self) -> None:
        """Compute all keys and values once: pages that were never written cost nothing to read."""
        for row_index, context_tokens in enumerate(contexts_of(self._extent)):
            for start in range(0, context_tokens, self._extent.chunk_tokens):
                length = min(self._extent.chunk_tokens, context_tokens - start)
                self._run([(self._piece(row_index, start, length, samples=False),)])

    def time_together(self, composition: Composition, num_steps: int) -> None:
        """While every stage computes: as many in flight as slots; the first ones are left out."""
        num_warm_up = self._num_slots
        commands = [self._pieces(composition)] * (num_steps + 2 * num_warm_up)
        reports = self._run(commands, self._num_slots)
        first = min(report.sequence for report in reports) + num_warm_up
        for report in reports:
            if first <= report.sequence < first + num_steps:
                step_s = report.end_s - report.start_s
                self._timings.note(composition, report.stage_index, step_s, is_alone=False)

    def time_alone(self, composition: Composition, num_steps: int) -> None:
        """One in flight: steps while the other stages wait, and the way from stage to stage."""
        reports = self._run([self._pieces(composition)] * (num_steps + 1), 1)
        first = min(report.sequence for report in reports) + 1
        kept = [report for report in reports if report.sequence >= first]
        for report in kept:
            step_s = report.end_s - report.start_s
            self._timings.note(composition, report.stage_index, step_s, is_alone=True)
        for earlier, later in pairwise(sorted(kept, key=lambda r: (r.sequence, r.stage_index))):
            if earlier.sequence == later.sequence:
                hop_s = max(0.0, later.start_s - earlier.end_s)
                self._timings.hops_s.setdefault(composition.num_tokens, []).append(hop_s)

    def _run(
        self, micro_batches: list[tuple[PieceCommand, ...]], num_in_flight: int = 1
    ) -> list[StepReport]:
        """Send them all, never more in flight than that; every stage's reports."""
        reports: list[StepReport] = []
        num_sent = num_back = 0
        while num_back < len(micro_batches):
            while num_sent < len(micro_batches) and num_sent - num_back < num_in_flight:
                sequence = next(self._sequences)
                slot_index = sequence % self._num_slots
                self._group.send(StepCommand(sequence, slot_index, micro_batches[num_sent]))
                num_sent += 1
            for report in self._group.receive(_WAIT_S):
                if isinstance(report, StepReport):
                    reports.append(report)
                    num_back += report.stage_index == self._num_stages - 1
        return reports

    def _pieces(self, composition: Composition) -> tuple[PieceCommand, ...]:
        if composition.prefill_tokens:
            length, past = composition.prefill_tokens, composition.past_tokens
            return (self._piece(0, past, length, samples=False),)
        start = composition.context_tokens - 1
        return tuple(
            self._piece(row_index, start, 1, samples=composition.samples)
            for row_index in range(composition.num_decodes)
        )

    def _piece(self, row_index: int, start: int, length: int, *, samples: bool) -> PieceCommand:
        blocks, block_tokens = self._rows[row_index]
        used = blocks[: -(-(start + length) // block_tokens)]
        return PieceCommand(
            start=start,
            token_ids=(_TOKEN_ID,) * length,
            block_ids=pack(f"<{len(used)}i", *used),
            samples=samples,
            sampling=None,
        )


def num_tokens_needed(extent: Extent, block_tokens: int) -> int:
    """KV that the measurements take."""
    return sum(len(blocks) for blocks, _ in _rows(extent, block_tokens)) * block_tokens


def _rows(extent: Extent, block_tokens: int) -> list[tuple[range, int]]:
    """Each request's blocks, one row behind the other."""
    return list(_each_row(extent, block_tokens))


def _each_row(extent: Extent, block_tokens: int) -> Iterator[tuple[range, int]]:
    first = 0
    for context_tokens in contexts_of(extent):
        last = first + -(-max(context_tokens, 1) // block_tokens)
        yield range(first, last), block_tokens
        first = last
