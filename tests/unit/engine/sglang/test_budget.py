"""Our chunk counts decodes; what SGLang is set to leaves the same number of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_engine.sglang.budget import engine_chunk_tokens

PAGES = st.sampled_from([1, 16, 64])


def engine_chunk(chunk_tokens: int, num_decodes: int = 0, page_tokens: int = 1) -> int:
    return engine_chunk_tokens(
        chunk_tokens, num_decodes=num_decodes, page_tokens=page_tokens, max_chunk_tokens=512
    )


@pytest.mark.parametrize(
    ("chunk_tokens", "num_decodes", "page_tokens", "expected"),
    [
        (100, 0, 1, 100),
        (100, 7, 1, 100),
        (100, 0, 16, 96),
        (100, 7, 16, 87),  # 5 pages beside 7 decodes
        (600, 0, 1, 512),
        (5, 9, 1, 9),  # decodes go whatever the chunk is
        (15, 0, 16, 0),
    ],
)
def test_whole_pages_beside_the_decodes(
    chunk_tokens: int, num_decodes: int, page_tokens: int, expected: int
) -> None:
    assert engine_chunk(chunk_tokens, num_decodes, page_tokens) == expected


@given(st.integers(1, 600), st.integers(0, 100), PAGES)
def test_prefill_is_never_more_than_the_chunk_leaves(
    chunk_tokens: int, num_decodes: int, page_tokens: int
) -> None:
    prefill = engine_chunk(chunk_tokens, num_decodes, page_tokens) - num_decodes
    assert prefill >= 0
    assert prefill % page_tokens == 0
    left = max(0, min(chunk_tokens, 512) - num_decodes)
    assert left - page_tokens < prefill <= left


@given(st.integers(0, 100), PAGES)
def test_a_started_prompt_goes_on_by_a_page_beside_the_decodes(
    num_decodes: int, page_tokens: int
) -> None:
    least = num_decodes + page_tokens
    assert engine_chunk(least, num_decodes, page_tokens) == least
