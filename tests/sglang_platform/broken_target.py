"""Changes a method that the add-on hooks, as another version of SGLang might, when a test says so.

It does so when it is imported: SGLang imports all plugins before it calls the first one.
"""

import os
from collections.abc import Callable
from typing import Any


def load() -> None:
    """The entry point; all is done already."""


def _break_target() -> None:
    from sglang.srt.managers.scheduler import Scheduler  # noqa: PLC0415 - only when asked for

    original: Callable[..., Any] = Scheduler.get_new_batch_prefill

    def get_new_batch_prefill(self: object, running_batch: object, *, novel: bool = True) -> Any:
        del novel
        return original(self, running_batch)

    Scheduler.get_new_batch_prefill = get_new_batch_prefill


if os.environ.get("BREAK_ADDON_TARGET"):
    _break_target()
