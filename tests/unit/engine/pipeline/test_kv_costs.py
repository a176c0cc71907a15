"""What a token of a prompt and a block's copy cost, from scripted reports."""

import pytest

from micro_batches import micro_batch_of
from pipelineserve.policy.preemption import KvCosts
from pipelineserve.scheduler.messages import BlockCopy, CopyDirection, MicroBatch, Piece
from pipelineserve_engine.kv_costs import KvCostMeter
from pipelineserve_engine.stage_messages import ReadyReport, StepReport


def a_micro_batch(
    sequence: int = 0, *, num_prefill: int = 10, num_decodes: int = 0, num_copies: int = 0
) -> MicroBatch:
    pieces = [a_piece(1, is_decode=True)] * num_decodes
    if num_prefill:
        pieces.append(a_piece(num_prefill, is_decode=False))
    copies = (BlockCopy(CopyDirection.OUT, 0, 0),) * num_copies
    return micro_batch_of(pieces, sequence=sequence, copies=copies)


def a_piece(num_tokens: int, *, is_decode: bool) -> Piece:
    return Piece(
        "r", 0, tuple(range(num_tokens)), (0,), is_decode=is_decode, samples=True, output_index=0
    )


def run_step(
    meter: KvCostMeter, micro_batch: MicroBatch, step_times_s: tuple[float, ...] = (1.0,)
) -> None:
    """Send one micro-batch and let each stage take its time."""
    meter.on_sent(micro_batch)
    for stage_index, step_time_s in enumerate(step_times_s):
        is_last = stage_index == len(step_times_s) - 1
        meter.on_step(
            StepReport(
                stage_index,
                micro_batch.sequence,
                0,
                5.0,
                5.0 + step_time_s,
                () if is_last else None,
            )
        )


def test_nothing_is_known_at_first() -> None:
    assert KvCostMeter().costs == KvCosts(None, None)


def test_the_slowest_stage_counts_for_both() -> None:
    meter = KvCostMeter()
    meter.on_ready(ReadyReport(0, 1, 2, 3, 0.25))
    meter.on_ready(ReadyReport(1, 1, 2, 3, 0.5))
    run_step(meter, a_micro_batch(num_prefill=10), (3.0, 1.0))
    assert meter.costs.recompute_s_per_token == pytest.approx(0.3)
    assert meter.costs.copy_s_per_block == 0.5


def test_a_stage_without_host_blocks_has_measured_no_copy() -> None:
    meter = KvCostMeter()
    meter.on_ready(ReadyReport(0, 1, 2, 3, 0.0))
    assert meter.costs.copy_s_per_block is None


@pytest.mark.parametrize(
    "other",
    [
        a_micro_batch(num_prefill=0, num_decodes=9),
        a_micro_batch(num_prefill=8, num_decodes=9),
        a_micro_batch(num_prefill=7),
        a_micro_batch(num_prefill=10, num_copies=1),
    ],
    ids=["only decodes", "mostly decodes", "too few tokens", "with copies"],
)
def test_steps_that_do_not_tell_what_prefilling_costs_are_left_out(other: MicroBatch) -> None:
    meter = KvCostMeter()
    run_step(meter, other)
    assert meter.costs.recompute_s_per_token is None


def test_a_slow_step_now_and_then_does_not_count_but_a_lasting_change_does() -> None:
    meter = KvCostMeter()
    for sequence in range(9):
        slow = sequence in (0, 5)
        run_step(meter, a_micro_batch(sequence), (100.0 if slow else 1.0,))
    assert meter.costs.recompute_s_per_token == pytest.approx(0.1)
    for sequence in range(10, 20):
        run_step(meter, a_micro_batch(sequence), (4.0,))
    assert meter.costs.recompute_s_per_token == pytest.approx(0.4)


def test_reports_of_what_was_abandoned_are_not_counted() -> None:
    meter = KvCostMeter()
    meter.on_sent(a_micro_batch(3))
    meter.abandon()
    meter.on_step(StepReport(0, 3, 0, 0.0, 1.0, ()))
    assert meter.costs.recompute_s_per_token is None
