"""Bounds of a scheduler."""

from dataclasses import replace
from typing import Any

import pytest

from pipelineserve.scheduler.settings import SchedulerSettings
from scheduling import make_settings


@pytest.mark.parametrize(
    "name", sorted(set(SchedulerSettings.__slots__) - {"num_host_blocks", "shares_prefixes"})
)
def test_names_the_size_that_is_below_one(name: str) -> None:
    changes: dict[str, Any] = {name: 0}
    with pytest.raises(ValueError, match=f"{name}: expected at least 1, got 0"):
        replace(make_settings(), **changes)


def test_there_may_be_no_host_block_but_not_less() -> None:
    assert make_settings(num_host_blocks=0).num_host_blocks == 0
    with pytest.raises(ValueError, match="num_host_blocks: expected at least 0, got -1"):
        make_settings(num_host_blocks=-1)


def test_a_request_may_fill_the_context_where_the_pool_is_larger() -> None:
    settings = make_settings(max_context_tokens=100, num_blocks=64, block_tokens=4)
    assert settings.max_request_tokens == 100


def test_a_request_may_fill_the_pool_where_the_context_is_larger() -> None:
    settings = make_settings(max_context_tokens=100, num_blocks=3, block_tokens=4)
    assert settings.max_request_tokens == 12
