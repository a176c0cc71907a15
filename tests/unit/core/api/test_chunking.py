"""Chunk sizes in effect keep what was given and never contradict."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelineserve.api import ChunkingSpec, EffectiveChunking, PipelineServe, effective_chunking
from pipelineserve.api.rules import broken_rules


def sizes(effective: EffectiveChunking) -> tuple[int, ...]:
    return (
        effective.min_tokens,
        effective.static_tokens,
        effective.max_tokens,
        effective.step_tokens,
        effective.ceiling_tokens,
    )


@pytest.mark.parametrize(
    ("given_sizes", "ceiling", "derived"),
    [
        ({}, None, (128, 512, 2048, 128, 2048)),
        ({}, 8192, (128, 512, 2048, 128, 8192)),
        ({}, 256, (128, 256, 256, 128, 256)),
        ({}, 64, (64, 64, 64, 1, 64)),
        ({"max_tokens": 4096}, None, (128, 512, 4096, 128, 4096)),
        ({"max_tokens": 128, "min_tokens": 16}, None, (16, 128, 128, 16, 2048)),
        ({"static_tokens": 64}, None, (64, 64, 2048, 64, 2048)),
        ({"min_tokens": 4096}, None, (4096, 4096, 4096, 1, 4096)),
        ({"min_tokens": 1}, None, (1, 512, 2048, 32, 2048)),
        ({"step_tokens": 4096}, None, (128, 512, 4096, 4096, 4096)),
    ],
)
def test_derives_what_was_not_given(
    given_sizes: dict[str, int], ceiling: int | None, derived: tuple[int, ...]
) -> None:
    chunking = ChunkingSpec.model_validate(given_sizes)
    assert sizes(effective_chunking(chunking, ceiling)) == derived


def test_a_resource_takes_its_ceiling_from_the_engine(
    resource_with: Callable[[dict[str, Any]], PipelineServe],
) -> None:
    spec = resource_with({"spec.engine.maxChunkTokens": 256}).spec
    assert spec.effective_chunking() == effective_chunking(ChunkingSpec(), 256)


SIZE = st.none() | st.integers(1, 300) | st.integers(1, 131072)


@given(least=SIZE, static=SIZE, most=SIZE, step=SIZE, ceiling=SIZE)
def test_sizes_in_effect_keep_what_was_given_and_never_contradict(
    least: int | None, static: int | None, most: int | None, step: int | None, ceiling: int | None
) -> None:
    chunking = ChunkingSpec(
        min_tokens=least, static_tokens=static, max_tokens=most, step_tokens=step
    )
    document = {
        "chunking": chunking.model_dump(mode="json", by_alias=True, exclude_none=True),
        "engine": {"maxChunkTokens": ceiling},
    }
    assume(not broken_rules({"spec": document}))
    effective = effective_chunking(chunking, ceiling)
    in_effect = sizes(effective)
    for wanted, got in zip((least, static, most, step, ceiling), in_effect, strict=True):
        assert wanted is None or wanted == got
    assert (
        1
        <= effective.min_tokens
        <= effective.static_tokens
        <= effective.max_tokens
        <= effective.ceiling_tokens
    )
    assert 1 <= effective.step_tokens <= effective.max_tokens
