"""Whether the add-on can control an SGLang as it was started; where not, it says why."""

from typing import Any

from pipelineserve_engine.addon.settings import AddOnSettings, variable
from pipelineserve_engine.sglang.addon import Place
from pipelineserve_engine.sglang.reading import ATTRIBUTES


def reasons_against(scheduler: Any, place: Place, settings: AddOnSettings) -> list[str]:
    """Empty if it can."""
    missing = [name for name in ATTRIBUTES if not hasattr(scheduler, name)]
    if missing:
        return [f"SGLang's scheduler has no {', '.join(missing)}"]
    unsuitable = {
        "it has one stage, expected at least 2": place.num_stages == 1,
        "prefill and decode are disaggregated": scheduler.disaggregation_mode.value != "null",
        "it speculates": not scheduler.spec_algorithm.is_none(),
        "it has data parallelism": scheduler.server_args.dp_size > 1,
        "chunked prefill is off": scheduler.chunked_prefill_size is None,
        "SGLang's own dynamic chunking is on": scheduler.dynamic_chunk_sizer is not None,
        "it multiplexes prefill and decode": scheduler.enable_pdmux,
        "it is a diffusion model": scheduler.dllm_config is not None,
        "it has hierarchical sparse attention": scheduler.enable_hisparse,
    }
    reasons = [reason for reason, holds in unsuitable.items() if holds]
    if reasons:
        return reasons
    static, ceiling = settings.static_chunk_tokens, scheduler.chunked_prefill_size
    if static > ceiling:
        name = variable("static_chunk_tokens")
        return [f"{name}: expected at most SGLang's chunked prefill size {ceiling}, got {static}"]
    if place.leads and not settings.control_address:
        return [f"{variable('control_address')}: expected an address on the first rank, got none"]
    return []
