"""How busy a PipelineServe server's stages were, from its `/metrics` before and after."""

import re
from dataclasses import dataclass

import httpx

from pipelineserve import metrics

_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Since the server's start: seconds with work in the pipeline, and each stage's busy ones."""

    work_s: float
    busy_s: tuple[float, ...]


def read_stage_times(url: str) -> StageTimes | None:
    """None where no PipelineServe server answers: other servers have no such metrics."""
    try:
        response = httpx.get(f"{url}/metrics", timeout=_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError:
        return None
    return parse_stage_times(response.text) if response.is_success else None


def parse_stage_times(text: str) -> StageTimes | None:
    """From Prometheus' text format."""
    work = re.findall(rf"^{metrics.WORK.name} (\S+)$", text, re.MULTILINE)
    if not work:
        return None
    pattern = rf'^{metrics.STAGE_BUSY.name}{{stage="(\d+)"}} (\S+)$'
    busy_s = {int(stage): float(value) for stage, value in re.findall(pattern, text, re.MULTILINE)}
    return StageTimes(sum(map(float, work)), tuple(busy_s[stage] for stage in sorted(busy_s)))


def bubble_ratios(before: StageTimes | None, after: StageTimes | None) -> tuple[float, ...]:
    """Each stage's idle share of the time with work in between; empty if that is not known."""
    if before is None or after is None or after.work_s <= before.work_s:
        return ()
    span_s = after.work_s - before.work_s
    earlier = before.busy_s or (0.0,) * len(after.busy_s)
    if len(earlier) != len(after.busy_s):
        return ()  # another server than before answers there
    return tuple(
        1.0 - (late - early) / span_s for early, late in zip(earlier, after.busy_s, strict=True)
    )
