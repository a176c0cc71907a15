"""Counts the CPU time of the add-on's hooks inside SGLang; a plugin that only `bench.sglang` loads.

A hook's own time is the CPU time of its thread while it runs, less that of the function of SGLang's
within it; what other processes take of the core is no part. The clock itself costs about half a
microsecond a hook, which counts. Totals lie in one file per rank that is mapped into memory, so
nothing is sent while something is measured. The hooks are wrapped when this module is imported:
SGLang imports all plugins before it calls the first one.
"""

import mmap
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "BENCH_SGLANG_PROBE"
# As the hooks are called, each with what it does and whether SGLang's function is within it.
HOOKS = {
    "after_pull_requests": "decide",
    "around_process_requests": "relay",
    "after_add_request": "records",
    "after_make_abort": "records",
    "around_new_prefill": "obey",
    "around_next_batch": "records",
    "around_run_batch": "step times",
    "around_process_result": "records",
    "after_is_drained": "obey",
    "after_in_flight": "obey",
}
_NAMES = tuple(HOOKS)
# Two numbers of eight bytes for each: calls, nanoseconds.
_BYTES = 16 * len(_NAMES)
_MICRO_BATCHES = "around_run_batch"


@dataclass(frozen=True)
class Costs:
    """Of one rank since its start.

    Attributes:
        calls: of each hook.
        cpu_s: of each hook.
    """

    calls: Mapping[str, int]
    cpu_s: Mapping[str, float]

    @property
    def num_micro_batches(self) -> int:
        """That the rank has run."""
        return self.calls[_MICRO_BATCHES]

    def since(self, earlier: "Costs") -> "Costs":
        """What came after an earlier reading."""
        return Costs(
            {name: self.calls[name] - earlier.calls[name] for name in _NAMES},
            {name: self.cpu_s[name] - earlier.cpu_s[name] for name in _NAMES},
        )


def read_costs(folder: Path) -> dict[int, Costs]:
    """By rank; the first leads."""
    return {int(path.name): _costs(path.read_bytes()) for path in folder.glob("[0-9]*")}


def load() -> None:
    """The entry point; all is done already."""


def _costs(content: bytes) -> Costs:
    numbers = memoryview(content).cast("Q")
    return Costs(
        {name: numbers[2 * index] for index, name in enumerate(_NAMES)},
        {name: numbers[2 * index + 1] / 1e9 for index, name in enumerate(_NAMES)},
    )


class _Totals:
    """Of this process, from the moment at which its rank is known."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = memoryview(bytearray(_BYTES)).cast("Q")

    def open(self, rank: int) -> None:
        """Show them as this rank's."""
        path = self._folder / str(rank)
        path.write_bytes(bytes(_BYTES))
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("Q")

    def add(self, index: int, cpu_ns: int) -> None:
        """One more call."""
        self._numbers[2 * index] += 1
        self._numbers[2 * index + 1] += cpu_ns


def _timed_around(hook: Callable[..., Any], index: int, totals: _Totals) -> Callable[..., Any]:
    def timed(hooks: object, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        within_ns = 0

        def clocked(*args: Any, **named: Any) -> Any:
            nonlocal within_ns
            begin_ns = time.thread_time_ns()
            try:
                return original(*args, **named)
            finally:
                within_ns += time.thread_time_ns() - begin_ns

        begin_ns = time.thread_time_ns()
        try:
            return hook(hooks, clocked, *args, **named)
        finally:
            totals.add(index, time.thread_time_ns() - begin_ns - within_ns)

    return timed


def _timed_after(hook: Callable[..., Any], index: int, totals: _Totals) -> Callable[..., Any]:
    def timed(hooks: object, *args: Any, **named: Any) -> Any:
        begin_ns = time.thread_time_ns()
        try:
            return hook(hooks, *args, **named)
        finally:
            totals.add(index, time.thread_time_ns() - begin_ns)

    return timed


def _wrap(folder: Path) -> None:
    from pipelineserve_engine.sglang.hooks import (  # noqa: PLC0415 - only inside SGLang
        Hooks,
        place_of_process,
    )

    totals = _Totals(folder)
    for index, name in enumerate(_NAMES):
        timed = _timed_around if name.startswith("around_") else _timed_after
        setattr(Hooks, name, timed(getattr(Hooks, name), index, totals))
    run_event_loop = Hooks.around_run_event_loop

    def around_run_event_loop(hooks: Hooks, original: Any, scheduler: Any) -> Any:
        totals.open(place_of_process().rank)
        return run_event_loop(hooks, original, scheduler)

    setattr(Hooks, "around_run_event_loop", around_run_event_loop)  # noqa: B010 - as above


if _folder := os.environ.get(FOLDER_VARIABLE):
    _wrap(Path(_folder))
