"""The entry point that vLLM calls in each of its processes: stages are timed from here.

The rest of the add-on is vLLM's scheduler class (`pipelineserve_engine.vllm.scheduler`).
"""

import functools
import logging
import os
import sys
from typing import Any

from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.addon.settings import read_settings
from pipelineserve_engine.addon.targets import mismatched_targets
from pipelineserve_engine.vllm.targets import INIT_DEVICE, VERSIONS, installed_version

logger = logging.getLogger(__name__)


class _State:
    """Of this process."""

    is_loaded = False


def is_loaded() -> bool:
    """Whether vLLM has called the entry point, here and so in the workers, which inherit this."""
    return _State.is_loaded


def load() -> None:
    """Time stages if there are settings and vLLM is as expected.

    Raises:
        SystemExit: the settings are wrong.
    """
    try:
        settings = read_settings(os.environ)
    except InvalidInputError as error:
        sys.exit(str(error))
    if settings is None or _State.is_loaded:
        return
    _State.is_loaded = True
    # What is wrong the scheduler class says, in one process instead of each.
    if installed_version() in VERSIONS and not mismatched_targets((INIT_DEVICE,)):
        _hook()


def _hook() -> None:
    from vllm.v1.worker.worker_base import (  # noqa: PLC0415 - tests have no vLLM
        WorkerWrapperBase,
    )

    from pipelineserve_engine.vllm.stages import time_stage  # noqa: PLC0415 - only workers need it

    original = WorkerWrapperBase.init_device

    @functools.wraps(original)  # for the scheduler class, which looks at it too
    def init_device(wrapper: Any) -> None:
        original(wrapper)
        try:
            time_stage(wrapper.worker)
        except Exception:
            logger.exception("step times of this stage cannot be told")

    WorkerWrapperBase.init_device = init_device
