"""FastPP's guess of what the next micro-batches will carry with a given chunk."""

from pipelineserve.policy.fastpp.views import ChunkedPrompt, FastppView
from pipelineserve.policy.step_time import StepFeatures


def mean_features(view: FastppView, chunk_tokens: int) -> StepFeatures:
    """Features of the next micro-batch of each slot, averaged over the slots, as released.

    Slots are filled from the current one on: decodes of the slot's last micro-batch, then the
    prompt that it or the slot before it has cut, then the queue. A prompt that the chunk cuts goes
    on in the next slot. The time of a cycle is set by its slowest micro-batch, so that the average
    predicts too little.
    """
    num_slots = view.num_slots
    queue = list(view.waiting_prompts)
    head_past = 0
    contexts = squares = products = 0.0
    for offset in range(num_slots):
        index = (view.slot_index + offset) % num_slots
        slot = view.slots[index]
        contexts += slot.decode_context_tokens
        room = max(0, chunk_tokens - slot.num_decodes)
        cut = _cut_in(view, index)
        if cut is not None and room > 0:
            piece = min(cut.remaining_tokens, room)
            squares += piece * piece
            products += piece * cut.past_tokens
            room -= piece
            if piece < cut.remaining_tokens:
                continue
        while room > 0 and queue:
            piece = min(queue[0], room)
            squares += piece * piece
            products += piece * head_past
            room -= piece
            if piece < queue[0]:
                queue[0] -= piece
                head_past += piece
            else:
                queue.pop(0)
                head_past = 0
    return StepFeatures(contexts / num_slots, squares / num_slots, products / num_slots)


def _cut_in(view: FastppView, index: int) -> ChunkedPrompt | None:
    """The prompt that this slot would go on with: its own, or that of the slot before it."""
    own = view.slots[index].chunked
    if own is not None or view.num_slots == 1:
        return own
    return view.slots[index - 1].chunked
