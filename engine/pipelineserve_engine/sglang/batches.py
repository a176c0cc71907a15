"""SGLang's batches of decodes, split and joined at the moment when nothing of them is in flight.

That moment is a slot's turn, after its last result was processed: KV and rows stay allocated, and
the next input token of a row is kept by its row, not by its place in a batch.
"""

import copy
from collections.abc import Callable, Collection
from typing import Any


def take_out(
    batch: Any, request_ids: Collection[str], own_sampling: Callable[[Any], object]
) -> Any | None:
    """Take these requests out of a batch, which keeps the rest; None if it has none of them.

    Not for a batch with penalties, whose bookkeeping both halves would share.

    Args:
        batch: of decodes.
        request_ids: whom to take.
        own_sampling: makes a batch's sampling settings; see `sampling_of`.
    """
    taken = [index for index, request in enumerate(batch.reqs) if request.rid in request_ids]
    if not taken:
        return None
    kept = [index for index, request in enumerate(batch.reqs) if request.rid not in request_ids]
    part = copy.copy(batch)
    part.sampling_info = copy.copy(batch.sampling_info)
    part.filter_batch(keep_indices=taken)
    part.sampling_info = own_sampling(part)
    part.batch_is_full = False
    batch.filter_batch(keep_indices=kept)
    # Only a request that leaves clears it elsewhere.
    batch.batch_is_full = False
    return part


def joined(batch: Any | None, part: Any | None) -> Any | None:
    """Both in one; an empty batch lacks tensors to append to, so the other one replaces it."""
    if part is None or part.is_empty():
        return batch
    if batch is None or batch.is_empty():
        return part
    batch.merge_batch(part)
    return batch


def has_penalties(batch: Any) -> bool:
    """Whether penalties are kept for the whole batch."""
    return not batch.is_empty() and bool(batch.sampling_info.penalizer_orchestrator.is_required)


def sampling_of(batch: Any) -> object:
    """SGLang's settings for sampling, made from the requests as for a new batch.

    What is copied instead would be shared.
    """
    from sglang.srt.sampling.sampling_batch_info import (  # noqa: PLC0415 - tests have no SGLang
        SamplingBatchInfo,
    )

    return SamplingBatchInfo.from_schedule_batch(batch, batch.model_config.vocab_size)
