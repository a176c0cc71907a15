"""A real sidecar beside an engine: from an edit in its file to a micro-batch, and its CPU time."""

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from bench.control.watching import SeenStep, steps_of
from bench.server_processes import cpu_s_of_tree, free_port, serving

from pipelineserve.policy.reasons import Reason

# With the first no step of any machine is fast enough, with the second every step is.
STRICT_MS, LOOSE_MS = 1, 600_000
_STRICT = frozenset({Reason.NO_CHUNK_IS_SAFE.value})
# What a step says where prompts wait; without any it says nothing of the target.
_LOOSE = frozenset(
    {Reason.DEMAND_MET.value, Reason.BACKLOG_FITS.value, Reason.LARGEST_SAFE_CHUNK.value}
)
_DEADLINE_S = 300.0
_POLL_S = 0.005
# Longer than a look at the file and a turn, so that edits fall on all phases of both.
_MOST_PAUSE_S = 0.6
_MANIFEST = """
apiVersion: pipelineserve.dev/v1alpha1
kind: PipelineServe
metadata: {{name: bench}}
spec:
  model: {{uri: "file:///model"}}
  parallelism: {{stages: {stages}}}
  slo: {{ttft: {{milliseconds: 600000}}, tpot: {{milliseconds: {tpot_ms}}}}}
  chunking: {{policy: Predictive, minTokens: 16, staticTokens: 64, maxTokens: 128}}
"""


@dataclass(frozen=True)
class Sidecar:
    """A supervisor with its controller that runs."""

    pid: int
    url: str
    manifest: Path
    stages: int

    def edit(self, tpot_ms: int) -> None:
        """Set the target, all of the file at once."""
        written = self.manifest.with_suffix(".new")
        written.write_text(_MANIFEST.format(stages=self.stages, tpot_ms=tpot_ms))
        written.replace(self.manifest)

    def is_predicting(self) -> bool:
        """Whether a fitted model is in force, with which a target acts on each micro-batch."""
        state = httpx.get(f"{self.url}/api/state").json()
        return bool(state["control"]["is_effective"] and state["chunk"]["in_use"] == "Predictive")


@contextmanager
def steering(address: str, stages: int, work: Path) -> Iterator[Sidecar]:
    """Start supervisor and controller on the engine at this address."""
    port = free_port()
    url, manifest = f"http://127.0.0.1:{port}", work / "manifest.yaml"
    Sidecar(0, url, manifest, stages).edit(LOOSE_MS)
    command = [
        *(sys.executable, "-m", "pipelineserve_controller.supervisor", f"--port={port}"),
        *(f"--engine-address={address}", f"--objectives-file={manifest}"),
    ]
    with serving(command, os.environ, f"{url}/readyz", work / "sidecar.log") as pid:
        yield Sidecar(pid, url, manifest, stages)


def edit_times_s(sidecar: Sidecar, address: str, number: int) -> list[float]:
    """Seconds from so many edits of a target to the first micro-batch composed under each.

    Prompts must wait all the time, since only what is chosen for them shows the target. A record's
    arrival less its span is when it was composed, up to the 20 ms that records may wait: these
    count as if they were the edit's.
    """
    chance = random.Random(0)
    _wait_until(sidecar.is_predicting, "a fitted model in force")
    times_s = []
    with steps_of(address) as steps:
        _first(steps, 0, _LOOSE)
        for index in range(number):
            tpot_ms, shown = (STRICT_MS, _STRICT) if index % 2 == 0 else (LOOSE_MS, _LOOSE)
            num_before = len(steps)
            sidecar.edit(tpot_ms)
            edited_s = time.monotonic()
            times_s.append(_first(steps, num_before, shown).at_s - edited_s)
            time.sleep(_MOST_PAUSE_S * chance.random())
    return times_s


def cpu_ratios(sidecar: Sidecar, engine_pid: int, rounds: int, window_s: float) -> list[float]:
    """CPU time of supervisor and controller as a share of the engine's, once per window."""
    ratios = []
    for _ in range(rounds):
        sidecar_s, engine_s = cpu_s_of_tree(sidecar.pid), cpu_s_of_tree(engine_pid)
        time.sleep(window_s)
        sidecar_s = cpu_s_of_tree(sidecar.pid) - sidecar_s
        ratios.append(sidecar_s / (cpu_s_of_tree(engine_pid) - engine_s))
    return ratios


def _first(steps: list[SeenStep], num_before: int, reasons: frozenset[str]) -> SeenStep:
    """The first of the later steps whose chunk was chosen for one of these reasons."""

    def found() -> Iterator[SeenStep]:
        return (step for step in steps[num_before:] if step.record.chunk_reason in reasons)

    _wait_until(lambda: any(found()), f"a micro-batch with one of {sorted(reasons)}")
    return next(found())


def _wait_until(is_reached: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _DEADLINE_S
    while not is_reached():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"expected {what} within {_DEADLINE_S:g} s")
        time.sleep(_POLL_S)
