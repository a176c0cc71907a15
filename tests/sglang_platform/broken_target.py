"""Changes a method that the add-on hooks, as another version of SGLang might, when a test says so."""

import os
from collections.abc import Callable
from typing import Any


def load() -> None:
    """See the module; does nothing unless BREAK_ADDON_TARGET is set."""
    if not os.environ.get("BREAK_ADDON_TARGET"):
        return
    from sglang.srt.managers.scheduler import Scheduler  # noqa: PLC0415 - only when asked for

    original: Callable[..., Any] = Scheduler.get_new_batch_prefill

    def get_new_batch_prefill(self: object, running_batch: object, *, novel: bool = True) -> Any:
        del novel
        return original(self, running_batch)

    Scheduler.get_new_batch_prefill = get_new_batch_prefill
