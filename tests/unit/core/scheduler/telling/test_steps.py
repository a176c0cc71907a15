"""Step records from scripted times, to the digit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_parts import a_decode, a_micro_batch, a_piece
from pipelineserve.policy.chunking import ChunkDecision
from pipelineserve.policy.control.heard import StepSeen
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.scheduler.messages import Piece
from pipelineserve.scheduler.session import NO_POLICY, PolicyId
from pipelineserve.scheduler.telling.steps import StepAssembler, StepRecord


def run_batch(
    assembler: StepAssembler,
    sequence: int,
    sent_s: float,
    *steps_s: tuple[float, float],
    num_in_flight: int = 0,
) -> StepRecord:
    """One micro-batch through all stages; taken back as soon as its last step has ended."""
    assembler.sent(a_micro_batch(sequence), NO_POLICY, sent_s)
    for stage_index, (start_s, end_s) in enumerate(steps_s):
        assert assembler.stepped(sequence, stage_index, start_s, end_s) is None
    end_s = steps_s[-1][1]
    record = assembler.completed(sequence, end_s, num_in_flight)
    assert record is not None
    return record


def test_holds_what_was_composed_and_what_became_of_it() -> None:
    assembler = StepAssembler(2)
    pieces = (a_decode(100), a_decode(30), a_piece(start=20, num_tokens=8), a_piece(num_tokens=3))
    micro_batch = a_micro_batch(7, pieces, slot_index=1, chunk_tokens=64, reason=Reason.DEMAND_MET)
    assembler.sent(micro_batch, PolicyId(3, 5), 10.0)
    assembler.stepped(7, 0, 10.5, 11.5)
    assembler.stepped(7, 1, 12.0, 12.25)
    record = assembler.completed(7, 12.5, 0)
    assert record == StepRecord(
        sequence=7,
        slot_index=1,
        chunk=ChunkDecision(64, Reason.DEMAND_MET),
        num_tokens=13,
        num_decodes=2,
        features=StepFeatures(130, 8 * 8 + 3 * 3, 20 * 8, 2),
        policy=PolicyId(3, 5),
        span_s=2.5,
        step_time_s=(1.0, 0.25),
        bubble_s=(0.0, 0.0),
    )
    assert record.seen == StepSeen(
        sequence=7,
        chunk_tokens=64,
        chunk_reason="demand_met",
        num_tokens=13,
        num_decodes=2,
        features=StepFeatures(130, 8 * 8 + 3 * 3, 20 * 8, 2),
        span_s=2.5,
        step_time_s=(1.0, 0.25),
        bubble_s=(0.0, 0.0),
        policy_sequence=5,
    )


PIECES = st.lists(
    st.one_of(
        st.integers(1, 5000).map(a_decode),
        st.builds(a_piece, st.integers(0, 5000), st.integers(1, 300)),
    ),
    min_size=1,
    max_size=20,
).map(lambda pieces: sorted(pieces, key=lambda piece: not piece.is_decode))


@given(PIECES)
def test_the_sums_are_those_over_its_pieces(pieces: list[Piece]) -> None:
    assembler = StepAssembler(1)
    assembler.sent(a_micro_batch(0, pieces), NO_POLICY, 0.0)
    assembler.stepped(0, 0, 1.0, 2.0)
    record = assembler.completed(0, 2.0, 0)
    assert record is not None
    prompts = [(p.start, len(p.token_ids)) for p in pieces if not p.is_decode]
    assert record.num_tokens == sum(len(piece.token_ids) for piece in pieces)
    assert record.num_decodes == len(pieces) - len(prompts)
    assert record.features == StepFeatures(
        decode_context_tokens=sum(p.start + 1 for p in pieces if p.is_decode),
        squared_prefill_tokens=sum(length**2 for _, length in prompts),
        past_prefill_product=sum(past * length for past, length in prompts),
        num_decodes=len(pieces) - len(prompts),
    )


def test_waits_for_the_reports_of_all_stages_in_whatever_order_they_come() -> None:
    assembler = StepAssembler(3)
    assembler.sent(a_micro_batch(), NO_POLICY, 0.0)
    assert assembler.stepped(0, 2, 2.0, 3.0) is None
    assert assembler.completed(0, 3.5, 0) is None
    assert assembler.stepped(0, 0, 0.0, 1.0) is None
    record = assembler.stepped(0, 1, 1.0, 1.5)
    assert record is not None
    assert record.step_time_s == (1.0, 0.5, 1.0)
    assert record.span_s == 3.5
    assert assembler.stepped(0, 1, 1.0, 2.0) is None


def test_the_bubble_is_the_idle_time_before_a_step_while_there_was_work() -> None:
    assembler = StepAssembler(2)
    run_batch(assembler, 0, 0.0, (0.0, 1.0), (1.0, 4.0), num_in_flight=1)
    record = run_batch(assembler, 1, 0.5, (1.25, 2.0), (4.5, 5.0))
    assert record.bubble_s == (0.25, 0.5)


def test_an_empty_pipeline_is_no_bubble_but_filling_and_draining_it_is() -> None:
    assembler = StepAssembler(2)
    run_batch(assembler, 0, 0.0, (0.0, 1.0), (1.0, 4.0))
    # Empty from 4 to 100: stage 0 was idle from 1 to 4 and from 100 to 100.5.
    record = run_batch(assembler, 1, 100.0, (100.5, 101.0), (101.0, 102.0))
    assert record.bubble_s == (3.5, 1.0)


def test_what_was_sent_before_it_listened_is_not_recorded_and_the_next_is() -> None:
    assembler = StepAssembler(1)
    assert assembler.stepped(3, 0, 1.0, 2.0) is None
    assert assembler.completed(3, 2.0, 1) is None
    record = run_batch(assembler, 4, 1.5, (2.5, 3.0))
    assert record.bubble_s == (0.5,)


def test_after_a_recovery_no_step_has_one_before_it() -> None:
    assembler = StepAssembler(1)
    run_batch(assembler, 0, 0.0, (0.0, 1.0), num_in_flight=1)
    assembler.sent(a_micro_batch(1), NO_POLICY, 1.0)
    assembler.forget()
    record = run_batch(assembler, 2, 50.0, (51.0, 52.0))
    assert record.bubble_s == (0.0,)


def test_knows_the_most_decodes_in_flight_and_what_the_latest_chunk_can_serve() -> None:
    assembler = StepAssembler(2)
    assembler.sent(a_micro_batch(0, [a_decode(5)] * 3, chunk_tokens=23), NO_POLICY, 0.0)
    assembler.sent(a_micro_batch(1, [a_decode(5)]), NO_POLICY, 0.0)
    assert assembler.most_decodes == 3
    assembler.stepped(0, 0, 0.0, 0.25)
    assembler.stepped(0, 1, 1.0, 1.5)
    assembler.completed(0, 2.0, 1)
    assert assembler.most_decodes == 1
    assert assembler.capacity_tokens_per_s == pytest.approx((23 - 3) / 0.5)
