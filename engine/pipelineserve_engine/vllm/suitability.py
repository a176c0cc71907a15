"""Whether the add-on can control a vLLM as it was started; where not, it says why."""

from typing import Any

from pipelineserve_engine.addon.settings import AddOnSettings, variable
from pipelineserve_engine.vllm.reading import ATTRIBUTES


def reasons_against(
    scheduler: Any, settings: AddOnSettings, *, is_plugin_loaded: bool
) -> list[str]:
    """Empty if it can."""
    missing = [name for name in ATTRIBUTES if not hasattr(scheduler, name)]
    if missing:
        return [f"vLLM's scheduler has no {', '.join(missing)}"]
    parallel, scheduling = scheduler.vllm_config.parallel_config, scheduler.scheduler_config
    unsuitable = {
        "it has one stage, expected at least 2": parallel.pipeline_parallel_size == 1,
        "it schedules asynchronously; start it with --no-async-scheduling": bool(
            scheduling.async_scheduling
        ),
        "it has data parallelism": parallel.data_parallel_size > 1,
        "its stages are on several hosts, and times of steps come from this one only": (
            parallel.nnodes > 1 or parallel.distributed_executor_backend != "mp"
        ),
        "it speculates": scheduler.num_spec_tokens > 0,
        "chunked prefill is off": not scheduling.enable_chunked_prefill,
        "prompts have pieces of a minimal length": scheduler.need_mamba_block_aligned_split,
        "KV or encoder outputs come from elsewhere": (
            scheduler.connector is not None or scheduler.ec_connector is not None
        ),
        "its model has an encoder and a decoder": scheduler.is_encoder_decoder,
        "its model generates no text token by token": scheduler.num_sampled_tokens_per_step != 1,
        "vLLM has not loaded the plugin 'pipelineserve', which times the stages": (
            not is_plugin_loaded
        ),
    }
    reasons = [reason for reason, holds in unsuitable.items() if holds]
    if reasons:
        return reasons
    static, ceiling = settings.static_chunk_tokens, scheduler.max_num_scheduled_tokens
    if static > ceiling:
        name = variable("static_chunk_tokens")
        return [f"{name}: expected at most vLLM's batched tokens {ceiling}, got {static}"]
    return []
