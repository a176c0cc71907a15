"""Our chunk size as SGLang's option, which it reads anew at each turn.

Ours counts every token of a micro-batch. SGLang's counts prefill: where decodes travel with
prompts (mixed chunk) it takes their number off first, and elsewhere a micro-batch with prompts has
no decodes at all. So the number is the same in both.
"""


def engine_chunk_tokens(
    chunk_tokens: int, *, num_decodes: int, page_tokens: int, max_chunk_tokens: int
) -> int:
    """What to set SGLang's `chunked_prefill_size` to.

    Whole pages of prefill, since a piece ends at a page's end, and at least one where any prefill
    is left; with none left, exactly the decodes.

    Args:
        chunk_tokens: what was decided, decodes included.
        num_decodes: that travel with the prompts.
        page_tokens: tokens of a KV page.
        max_chunk_tokens: what SGLang sized its buffers for.
    """
    prefill_tokens = min(chunk_tokens, max_chunk_tokens) - num_decodes
    pages = max(0, prefill_tokens) // page_tokens
    return num_decodes + pages * page_tokens
