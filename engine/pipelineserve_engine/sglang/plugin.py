"""The entry point that SGLang calls in each of its processes before it does anything else.

Only what finds mistakes is imported before the check; gRPC and metrics only where they are served.
"""

import logging
import os
import sys

from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.addon.settings import AddOnSettings, read_settings
from pipelineserve_engine.sglang import targets

logger = logging.getLogger(__name__)


def load() -> None:
    """Hook SGLang if there are settings; all of the hooks, or none but the one that says why.

    Raises:
        SystemExit: the settings are wrong; SGLang would only log any other exception.
    """
    try:
        settings = read_settings(os.environ)
    except InvalidInputError as error:
        sys.exit(str(error))
    if settings is None:
        return
    _hook(settings, targets.mismatches(targets.installed_version()))


def _hook(settings: AddOnSettings, mismatches: list[str]) -> None:
    # Not before: it is SGLang's own, and imports what it hooks.
    from sglang.srt.plugins.hook_registry import (  # noqa: PLC0415
        HookRegistry,
        HookType,
    )

    from pipelineserve_engine.sglang.hooks import Hooks  # noqa: PLC0415 - as above

    hooks = Hooks(settings, mismatches)
    around, after = HookType.AROUND, HookType.AFTER
    loop = (targets.RUN_EVENT_LOOP, hooks.around_run_event_loop, around)
    others = (
        (targets.PULL_REQUESTS, hooks.after_pull_requests, after),
        (targets.PROCESS_REQUESTS, hooks.around_process_requests, around),
        (targets.ADD_REQUEST, hooks.after_add_request, after),
        (targets.MAKE_ABORT, hooks.after_make_abort, after),
        (targets.NEXT_BATCH, hooks.around_next_batch, around),
        (targets.NEW_PREFILL, hooks.around_new_prefill, around),
        (targets.RUN_BATCH, hooks.around_run_batch, around),
        (targets.PROCESS_RESULT, hooks.around_process_result, around),
        (targets.IS_DRAINED, hooks.after_is_drained, after),
        (targets.IN_FLIGHT, hooks.after_in_flight, after),
    )
    for text in mismatches:
        logger.error("not as the add-on expects: %s", text)
    for target, hook, kind in (loop,) if mismatches else (loop, *others):
        HookRegistry.register(target.path, hook, kind)
