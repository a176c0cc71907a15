"""For vLLM's `--scheduler-cls`: makes its own scheduler, with control laid over it."""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from pipelineserve_engine.vllm.controlled import Controlled


class ControlledScheduler(Controlled, Scheduler):  # type: ignore[misc] # vLLM is not there to check
    """The one for micro-batches that are composed of tokens which are there."""


class UncontrolledAsyncScheduler(Controlled, AsyncScheduler):  # type: ignore[misc] # as above
    """The one that vLLM needs where it schedules asynchronously: control says it is inactive."""


def make_scheduler(vllm_config: Any, **others: Any) -> Any:
    """What vLLM would make of this configuration, controlled where that can be.

    Args:
        vllm_config: decides which of vLLM's own it is.
        others: go on to it.
    """
    is_async = vllm_config.scheduler_config.async_scheduling
    made = UncontrolledAsyncScheduler if is_async else ControlledScheduler
    return made(vllm_config=vllm_config, **others)
