"""Which micro-batches are measured; pure, so that the time which it takes can be told before."""

from collections.abc import Iterator
from dataclasses import dataclass

_SHORT_CONTEXT_TOKENS = 16
_MOST_DECODES = 32
_CONTEXT_DECODES = 4
_PAST_PIECE_TOKENS = 64
_DENSE_UP_TO = 8


@dataclass(frozen=True, slots=True, order=True)
class Composition:
    """One micro-batch: equal decodes, or one piece of a prompt.

    Attributes:
        num_decodes: pieces of one token.
        context_tokens: what each of them attends to, its own token included.
        prefill_tokens: length of the piece.
        past_tokens: tokens of its prompt before it.
        samples: whether the decodes' tokens pass the head; without it only the layers are timed.
    """

    num_decodes: int = 0
    context_tokens: int = 0
    prefill_tokens: int = 0
    past_tokens: int = 0
    samples: bool = False

    @property
    def num_tokens(self) -> int:
        """Of all pieces."""
        return self.num_decodes + self.prefill_tokens


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a profile reaches.

    Attributes:
        chunk_tokens: the largest micro-batch.
        context_tokens: the longest context.
    """

    chunk_tokens: int
    context_tokens: int


def compositions_of(extent: Extent) -> tuple[Composition, ...]:
    """Everything that is measured, each once."""
    return tuple(dict.fromkeys(_each(extent)))


def fresh_pieces(extent: Extent) -> tuple[Composition, ...]:
    """Whole prompts of rising length."""
    return tuple(Composition(prefill_tokens=tokens) for tokens in token_ladder(extent.chunk_tokens))


def token_ladder(most: int) -> tuple[int, ...]:
    """1 to 8, then four steps per doubling, and the token behind each multiple of 128."""
    tokens = set(range(1, min(most, _DENSE_UP_TO) + 1))
    start = _DENSE_UP_TO
    while start < most:
        tokens |= {start + start * quarter // 4 for quarter in (1, 2, 3, 4)}
        start *= 2
    # Kernels of GPUs compute tiles of 128: there the time jumps.
    tokens |= {edge + 1 for edge in range(128, most, 128)}
    return tuple(sorted(token for token in tokens | {most} if token <= most))


def decode_ladder(chunk_tokens: int) -> tuple[int, ...]:
    """1, 2, 4, ... decodes."""
    most = min(_MOST_DECODES, chunk_tokens)
    return tuple(1 << power for power in range(most.bit_length()) if 1 << power <= most)


def contexts_of(extent: Extent) -> tuple[int, ...]:
    """For each request of the measurements, the longest context that it is given."""
    most_decodes = decode_ladder(extent.chunk_tokens)[-1]
    long = max(extent.context_tokens, extent.chunk_tokens)
    short = max(1, most_decodes - _CONTEXT_DECODES)
    return (long,) * min(_CONTEXT_DECODES, extent.chunk_tokens) + (_SHORT_CONTEXT_TOKENS,) * short


def _each(extent: Extent) -> Iterator[Composition]:
    yield from fresh_pieces(extent)
    for num_decodes in decode_ladder(extent.chunk_tokens):
        for samples in (False, True):
            yield Composition(num_decodes, _SHORT_CONTEXT_TOKENS, samples=samples)
    decodes = min(_CONTEXT_DECODES, extent.chunk_tokens)
    for context in (_SHORT_CONTEXT_TOKENS, *_quarters(extent.context_tokens)):
        yield Composition(decodes, context)
    piece = min(_PAST_PIECE_TOKENS, extent.chunk_tokens)
    for past in (0, *_quarters(extent.context_tokens - piece)):
        yield Composition(prefill_tokens=piece, past_tokens=past)


def _quarters(most: int) -> tuple[int, ...]:
    return tuple(max(1, most * quarter // 4) for quarter in (1, 2, 3, 4))
