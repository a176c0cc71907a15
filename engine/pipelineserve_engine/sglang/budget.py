"""Our chunk size as SGLang's option, which it reads anew at each turn.

Ours counts every token of a micro-batch. SGLang's counts prefill: where decodes travel with
prompts (mixed chunk) it takes their number off first, and elsewhere a micro-batch with prompts has
no decodes at all. So the number is the same in both; what differs is the least: a prompt that has
started must go on by at least a page, or SGLang would cut it at a length below 1.
"""


def least_chunk_tokens(*, num_decodes: int, page_tokens: int, is_prompt_started: bool) -> int:
    """The smallest chunk that SGLang can obey at a turn.

    Args:
        num_decodes: of this turn's slot that travel with prompts.
        page_tokens: tokens of a KV page.
        is_prompt_started: whether a prompt has pieces issued and pieces to issue.
    """
    return max(1, num_decodes + page_tokens * is_prompt_started)


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
