"""What a micro-batch asks of the machine."""

from micro_batches import micro_batch_of
from pipelineserve.scheduler.messages import Piece
from pipelineserve_simulator.pipeline.loads import StepLoad, load_of


def decode(start: int) -> Piece:
    return Piece("d", start, (0,), (0,), is_decode=True, samples=True, output_index=1)


def prefill(start: int, length: int, *, samples: bool) -> Piece:
    return Piece("p", start, (0,) * length, (0,), False, samples, 0)


def test_sums_over_decodes_and_prefill_pieces() -> None:
    load = load_of(
        micro_batch_of(
            [decode(9), decode(30), prefill(7, 5, samples=True), prefill(0, 3, samples=False)]
        )
    )
    assert load == StepLoad(
        num_tokens=10,
        num_requests=4,
        num_decodes=2,
        num_samples=3,
        decode_context_tokens=10 + 31,  # a decode's own token is part of what it attends to
        squared_prefill_tokens=25 + 9,
        past_prefill_product=35,
    )


def test_decodes_alone_and_prefills_alone() -> None:
    alone = load_of(micro_batch_of([decode(4)]))
    assert (alone.num_tokens, alone.num_decodes, alone.num_samples) == (1, 1, 1)
    assert (alone.squared_prefill_tokens, alone.past_prefill_product) == (0, 0)
    prompt = load_of(micro_batch_of([prefill(0, 8, samples=False)]))
    assert (prompt.num_tokens, prompt.num_decodes, prompt.num_samples) == (8, 0, 0)
    assert prompt.decode_context_tokens == 0
