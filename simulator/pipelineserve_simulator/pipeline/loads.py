"""What a micro-batch asks of the machine, as sums over its pieces."""

from dataclasses import dataclass

from pipelineserve.scheduler.messages import MicroBatch


@dataclass(frozen=True, slots=True)
class StepLoad:
    """One micro-batch.

    Attributes:
        num_tokens: of all pieces.
        num_requests: pieces.
        num_decodes: pieces that decode.
        num_samples: pieces that a token comes back for.
        decode_context_tokens: contexts of its decodes, each decode's own token included.
        squared_prefill_tokens: Σ L_pre² over its prefill pieces.
        past_prefill_product: Σ L_past · L_pre, with the tokens before each piece.
    """

    num_tokens: int
    num_requests: int
    num_decodes: int
    num_samples: int
    decode_context_tokens: int
    squared_prefill_tokens: int
    past_prefill_product: int

    @property
    def has_prefill(self) -> bool:
        """Whether any piece prefills."""
        return self.num_requests > self.num_decodes


def load_of(micro_batch: MicroBatch) -> StepLoad:
    """Sum up a micro-batch."""
    num_decodes = micro_batch.num_decodes
    num_samples = tokens = squares = products = 0
    for piece in micro_batch.prefills:
        length = len(piece.token_ids)
        tokens += length
        squares += length * length
        products += piece.start * length
        num_samples += piece.samples
    return StepLoad(
        num_tokens=tokens + num_decodes,
        num_requests=len(micro_batch.prefills) + num_decodes,
        num_decodes=num_decodes,
        num_samples=num_samples + num_decodes,
        decode_context_tokens=micro_batch.decodes.context_tokens,
        squared_prefill_tokens=squares,
        past_prefill_product=products,
    )


def fresh_prompt(num_tokens: int) -> StepLoad:
    """One prompt that is prefilled whole."""
    return StepLoad(
        num_tokens=num_tokens,
        num_requests=1,
        num_decodes=0,
        num_samples=1,
        decode_context_tokens=0,
        squared_prefill_tokens=num_tokens * num_tokens,
        past_prefill_product=0,
    )
