"""What an engine tells on the wire, as values of the policy package; the impossible is refused.

A record that holds a number that is none, or a negative one, is not passed on at all, and counted:
nothing in it can be trusted.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.policy.control.heard import (
    Capability,
    Ending,
    EngineFacts,
    RequestSeen,
    Standing,
    StepSeen,
    Told,
)
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.wire.v1 import scheduler_pb2 as pb

_MAX_TEXT = 253
_MAX_STAGES = 1024
# Far beyond any machine, and far within what arithmetic on floats can bear.
_MOST_NUMBER = 1e18
_CAPABILITIES = {
    pb.CAPABILITY_CHUNK: Capability.CHUNK,
    pb.CAPABILITY_PREDICTIVE: Capability.PREDICTIVE,
    pb.CAPABILITY_ORDER: Capability.ORDER,
    pb.CAPABILITY_HOLD: Capability.HOLD,
}
_ENDINGS = {
    pb.OUTCOME_STOP: Ending.STOP,
    pb.OUTCOME_LENGTH: Ending.LENGTH,
    pb.OUTCOME_CANCELLED: Ending.CANCELLED,
    pb.OUTCOME_ERROR: Ending.ERROR,
    pb.OUTCOME_REJECTED: Ending.REJECTED,
}
_MessageT = TypeVar("_MessageT")
_SeenT = TypeVar("_SeenT")


def decode_hello(message: pb.Hello) -> EngineFacts:
    """The engine of a session; capabilities that are not known here are left out.

    Raises:
        InvalidInputError: names every count that makes no engine.
    """
    counts = {
        "epoch": message.epoch,
        "num_stages": message.num_stages,
        "num_slots": message.num_slots,
        "max_chunk_tokens": message.max_chunk_tokens,
        "static_chunk_tokens": message.static_chunk_tokens,
    }
    faults = [
        Fault(name, f"expected at least 1, got {count}")
        for name, count in counts.items()
        if not count
    ]
    if faults:
        raise InvalidInputError("the engine's hello", faults)
    return EngineFacts(
        name=message.engine_name[:_MAX_TEXT],
        version=message.engine_version[:_MAX_TEXT],
        epoch=message.epoch,
        num_stages=message.num_stages,
        num_slots=message.num_slots,
        max_chunk_tokens=message.max_chunk_tokens,
        static_chunk_tokens=message.static_chunk_tokens,
        block_tokens=message.block_tokens,
        kv_tokens=message.kv_tokens,
        capabilities=tuple(
            capability
            for number, capability in _CAPABILITIES.items()
            if number in message.capabilities
        ),
        inactive_reason=message.inactive_reason[:_MAX_TEXT],
    )


def decode_records(message: pb.Records) -> Told:
    """Everything in one event that is possible."""
    steps = _possible(message.steps, _step)
    requests = _possible(message.requests, _request)
    standing = None
    num_refused = len(message.steps) - len(steps) + len(message.requests) - len(requests)
    if message.HasField("snapshot"):
        standing = _standing(message.snapshot, message.now_s)
        num_refused += standing is None
    return Told(steps, requests, standing, message.num_lost, num_refused)


def _possible(
    messages: Iterable[_MessageT], decode: Callable[[_MessageT], _SeenT | None]
) -> tuple[_SeenT, ...]:
    return tuple(seen for message in messages if (seen := decode(message)) is not None)


def _are_possible(*values: float) -> bool:
    # Of what is no number neither comparison is true.
    return all(0.0 <= value <= _MOST_NUMBER for value in values)


def _step(message: pb.StepRecord) -> StepSeen | None:
    features = StepFeatures(
        decode_context_tokens=message.decode_context_tokens,
        squared_prefill_tokens=message.squared_prefill_tokens,
        past_prefill_product=message.past_prefill_product,
        num_decodes=message.num_decodes,
    )
    numbers = (
        message.span_s,
        features.decode_context_tokens,
        features.squared_prefill_tokens,
        features.past_prefill_product,
        *message.step_time_s,
        *message.bubble_s,
    )
    num_stages = len(message.step_time_s)
    if not _are_possible(*numbers) or not 1 <= num_stages <= _MAX_STAGES:
        return None
    if len(message.bubble_s) != num_stages or message.num_tokens == 0:
        return None
    return StepSeen(
        sequence=message.sequence,
        chunk_tokens=message.chunk_tokens,
        chunk_reason=message.chunk_reason[:_MAX_TEXT],
        num_tokens=message.num_tokens,
        num_decodes=message.num_decodes,
        features=features,
        span_s=message.span_s,
        step_time_s=tuple(message.step_time_s),
        bubble_s=tuple(message.bubble_s),
        policy_sequence=message.policy_sequence,
    )


def _request(message: pb.RequestRecord) -> RequestSeen | None:
    ttft_s = message.ttft_s if message.HasField("ttft_s") else None
    tpot_s = message.tpot_s if message.HasField("tpot_s") else None
    ending = _ENDINGS.get(message.outcome)
    numbers = (ttft_s or 0.0, tpot_s or 0.0, message.held_s, message.longest_gap_s)
    if ending is None or not _are_possible(*numbers):
        return None
    return RequestSeen(
        ending=ending,
        num_prompt_tokens=message.num_prompt_tokens,
        num_output_tokens=message.num_output_tokens,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        held_s=message.held_s,
        longest_gap_s=message.longest_gap_s,
    )


def _standing(message: pb.Snapshot, now_s: float) -> Standing | None:
    numbers = (
        now_s,
        message.kv_free_ratio,
        message.oldest_wait_s,
        message.lease_left_s,
        message.demand_tokens_per_s,
        message.capacity_tokens_per_s,
        *message.running_tpot_s,
    )
    if not _are_possible(*numbers) or message.kv_free_ratio > 1.0:
        return None
    if len(message.running_tpot_s) not in (0, 3):
        return None
    return Standing(
        engine_now_s=now_s,
        num_waiting=message.num_waiting,
        waiting_tokens=message.waiting_tokens,
        num_running=message.num_running,
        num_decoding=message.num_decoding,
        num_held=message.num_held,
        kv_free_ratio=message.kv_free_ratio,
        oldest_wait_s=message.oldest_wait_s,
        running_tpot_s=tuple(message.running_tpot_s),
        policy_epoch=message.policy_epoch,
        policy_sequence=message.policy_sequence,
        lease_left_s=message.lease_left_s,
        demand_tokens_per_s=message.demand_tokens_per_s,
        capacity_tokens_per_s=message.capacity_tokens_per_s,
        most_decodes=message.most_decodes,
    )
