"""Micro-batches in flight: they come back in the order in which they went out."""

from collections.abc import Mapping

from pipelineserve.scheduler.messages import MicroBatch, StepResult
from pipelineserve.scheduler.requests import Request

Flight = tuple[MicroBatch, tuple[Request, ...]]
"""A micro-batch and the requests of its pieces, in their order."""


def flight_of(in_flight: Mapping[int, Flight], slot_index: int, result: StepResult) -> Flight:
    """What a result belongs to.

    Args:
        in_flight: by slot, in the order in which they went out.
        slot_index: the slot that it is said to be of.
        result: as it came back.

    Raises:
        ValueError: it is not of that slot's micro-batch, that one is not the oldest, or the number
            of tokens is wrong.
    """
    entry = in_flight.get(slot_index)
    if entry is None or entry[0].sequence != result.sequence:
        raise ValueError(f"slot {slot_index} does not hold micro-batch {result.sequence}")
    oldest, _ = next(iter(in_flight.values()))
    if result.sequence != oldest.sequence:
        raise ValueError(f"micro-batch {result.sequence} came back before {oldest.sequence}")
    num_expected = entry[0].num_samples
    if len(result.token_ids) != num_expected:
        raise ValueError(
            f"micro-batch {result.sequence}: expected {num_expected} tokens, "
            f"got {len(result.token_ids)}"
        )
    return entry
