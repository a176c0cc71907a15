"""What is told of the scheduler, as messages of the wire."""

from pipelineserve.policy.control.heard import Standing
from pipelineserve.scheduler.requests import FinishReason, RequestRecord
from pipelineserve.scheduler.telling.collecting import Batch, RejectedRecord
from pipelineserve.scheduler.telling.steps import StepRecord
from pipelineserve.wire.v1 import scheduler_pb2 as pb

_OUTCOMES = {
    FinishReason.STOP: pb.OUTCOME_STOP,
    FinishReason.LENGTH: pb.OUTCOME_LENGTH,
    FinishReason.CANCELLED: pb.OUTCOME_CANCELLED,
    FinishReason.ERROR: pb.OUTCOME_ERROR,
}


def records_message(batch: Batch) -> pb.Records:
    """The message of a batch."""
    return pb.Records(
        now_s=batch.now_s,
        steps=[step_message(step) for step in batch.steps],
        requests=[request_message(record) for record in batch.requests],
        snapshot=snapshot_message(batch.standing),
    )


def step_message(step: StepRecord) -> pb.StepRecord:
    """The message of a micro-batch that has passed all stages."""
    return pb.StepRecord(
        sequence=step.sequence,
        slot_index=step.slot_index,
        chunk_tokens=step.chunk.chunk_tokens,
        chunk_reason=step.chunk.reason.value,
        num_tokens=step.num_tokens,
        num_decodes=step.num_decodes,
        decode_context_tokens=step.features.decode_context_tokens,
        squared_prefill_tokens=step.features.squared_prefill_tokens,
        past_prefill_product=step.features.past_prefill_product,
        span_s=step.span_s,
        step_time_s=step.step_time_s,
        bubble_s=step.bubble_s,
        policy_epoch=step.policy.epoch,
        policy_sequence=step.policy.sequence,
    )


def request_message(record: RequestRecord | RejectedRecord) -> pb.RequestRecord:
    """The message of a request that has ended; what does not apply stays unset."""
    match record:
        case RejectedRecord(num_prompt_tokens, at_s):
            return pb.RequestRecord(
                outcome=pb.OUTCOME_REJECTED,
                arrival_s=at_s,
                end_s=at_s,
                num_prompt_tokens=num_prompt_tokens,
            )
        case RequestRecord():
            return _ended_message(record)


def snapshot_message(standing: Standing) -> pb.Snapshot:
    """The message of how things stand; its time travels beside it."""
    return pb.Snapshot(
        num_waiting=standing.num_waiting,
        waiting_tokens=standing.waiting_tokens,
        num_running=standing.num_running,
        num_decoding=standing.num_decoding,
        num_held=standing.num_held,
        kv_free_ratio=standing.kv_free_ratio,
        oldest_wait_s=standing.oldest_wait_s,
        running_tpot_s=standing.running_tpot_s,
        policy_epoch=standing.policy_epoch,
        policy_sequence=standing.policy_sequence,
        lease_left_s=standing.lease_left_s,
        demand_tokens_per_s=standing.demand_tokens_per_s,
        capacity_tokens_per_s=standing.capacity_tokens_per_s,
        most_decodes=standing.most_decodes,
    )


def _ended_message(record: RequestRecord) -> pb.RequestRecord:
    message = pb.RequestRecord(
        outcome=_OUTCOMES[record.finish],
        arrival_s=record.arrival_s,
        end_s=record.end_s,
        num_prompt_tokens=record.num_prompt_tokens,
        num_output_tokens=record.num_output_tokens,
        ttft_s=record.ttft_s,
        tpot_s=record.tpot_s,
        held_s=record.held_s,
        longest_gap_s=record.longest_gap_s,
        num_requeues=record.num_requeues,
    )
    if record.first_issue_s is not None:
        message.queue_wait_s = record.first_issue_s - record.arrival_s
    return message
