"""A vLLM that cannot be controlled as it was started is told to be so, with the reason."""

from typing import Any

import pytest

from pipelineserve_engine.addon.settings import AddOnSettings
from pipelineserve_engine.vllm.suitability import reasons_against
from vllm_fakes import FakeScheduler, a_config

SETTINGS = AddOnSettings(static_chunk_tokens=64, control_address="unix:/control.sock")


def reasons(scheduler: Any, settings: AddOnSettings = SETTINGS, *, loaded: bool = True) -> str:
    return "; ".join(reasons_against(scheduler, settings, is_plugin_loaded=loaded))


def test_two_stages_on_one_host_are_suitable() -> None:
    assert reasons(FakeScheduler()) == ""


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("connector", object(), "outputs come from elsewhere"),
        ("ec_connector", object(), "outputs come from elsewhere"),
        ("num_spec_tokens", 2, "it speculates"),
        ("need_mamba_block_aligned_split", True, "minimal length"),
        ("is_encoder_decoder", True, "an encoder and a decoder"),
        ("num_sampled_tokens_per_step", 0, "token by token"),
    ],
)
def test_says_why_a_scheduler_is_not(name: str, value: object, expected: str) -> None:
    scheduler = FakeScheduler()
    setattr(scheduler, name, value)
    assert expected in reasons(scheduler)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("pipeline_parallel_size", 1, "one stage"),
        ("data_parallel_size", 2, "data parallelism"),
        ("nnodes", 2, "several hosts"),
        ("distributed_executor_backend", "ray", "several hosts"),
    ],
)
def test_says_why_a_layout_is_not(name: str, value: object, expected: str) -> None:
    config = a_config()
    setattr(config.parallel_config, name, value)
    assert expected in reasons(FakeScheduler(vllm_config=config))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("async_scheduling", True, "--no-async-scheduling"),
        ("enable_chunked_prefill", False, "chunked prefill is off"),
    ],
)
def test_says_why_a_way_of_scheduling_is_not(name: str, value: object, expected: str) -> None:
    scheduler = FakeScheduler()
    setattr(scheduler.scheduler_config, name, value)
    assert expected in reasons(scheduler)


def test_without_the_plugin_no_stage_is_timed() -> None:
    assert "plugin 'pipelineserve'" in reasons(FakeScheduler(), loaded=False)


def test_what_the_scheduler_lacks_is_named() -> None:
    assert reasons(object()).startswith("vLLM's scheduler has no block_size, connector")


def test_a_static_chunk_above_the_ceiling_is_refused() -> None:
    text = reasons(FakeScheduler(), AddOnSettings(257, "unix:/control.sock"))
    assert text.endswith("expected at most vLLM's batched tokens 256, got 257")
