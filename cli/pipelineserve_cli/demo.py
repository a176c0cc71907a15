"""The demo: one answer to read, a short mixed load, a table of what it measured."""

import json
import re
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import httpx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from pipelineserve import metrics
from pipelineserve.api import LatencyTarget, PipelineServe
from pipelineserve.errors import EngineUnavailableError
from pipelineserve_cli.demo_load import Outcome, PlannedRequest, plan_load, send_load

_NUM_REQUESTS = 18
_RATE_PER_S = 0.8
_GREETING = PlannedRequest(at_s=0.0, content="What is the capital of France?", max_tokens=32)


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """What the demo measured, as clients saw it, and each stage's bubble as the engine did."""

    num_requests: int
    duration_s: float
    output_tokens_per_s: float
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    bubble_ratios: tuple[float, ...]


def run_demo(
    url: str, resource: PipelineServe, *, seed: int, console: Console, as_json: bool
) -> None:
    """Ask one question, send the load, print the figures on stdout.

    Raises:
        EngineUnavailableError: a request failed.
    """
    model = resource.served_name
    try:
        greeting = send_load(url, model, [_GREETING], lambda: None)[0]
        console.print(f"[bold]> {greeting.content}[/bold]\n{greeting.answer}", highlight=False)
        figures = _measure(url, model, seed, console)
    except httpx.HTTPError as error:
        raise EngineUnavailableError(f"the demo's load failed: {error!r}") from error
    if as_json:
        sys.stdout.write(json.dumps(asdict(figures), indent=2) + "\n")
    else:
        Console().print(_table(figures, resource))


def print_commands(url: str, model: str, console: Console) -> None:
    """What to do next with the running server."""
    console.print(
        f"""
Ask it something:
  curl {url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Name three colours."}}]}}'
With the openai client:
  OpenAI(base_url="{url}/v1", api_key="none").chat.completions.create(
      model="{model}", messages=[{{"role": "user", "content": "Name three colours."}}])
Metrics: {url}/metrics    End: Ctrl-C""",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _measure(url: str, model: str, seed: int, console: Console) -> DemoFigures:
    load = plan_load(seed, _NUM_REQUESTS, _RATE_PER_S)
    before = _stage_seconds(url)
    begin_s = time.monotonic()
    with Progress(console=console, transient=True) as bars:
        task = bars.add_task("Mixed load", total=len(load))
        outcomes = send_load(url, model, load, lambda: bars.advance(task))
    duration_s = time.monotonic() - begin_s
    return DemoFigures(
        num_requests=len(outcomes),
        duration_s=duration_s,
        output_tokens_per_s=sum(o.num_output_tokens for o in outcomes) / duration_s,
        ttft_s=tuple(sorted(outcome.ttft_s for outcome in outcomes)),
        tpot_s=tuple(sorted(_tpots(outcomes))),
        bubble_ratios=_bubbles(before, _stage_seconds(url)),
    )


def _tpots(outcomes: Sequence[Outcome]) -> list[float]:
    return [outcome.tpot_s for outcome in outcomes if outcome.tpot_s is not None]


def _stage_seconds(url: str) -> tuple[float, tuple[float, ...]]:
    """Seconds with work in the pipeline, and busy seconds of each stage, since the start."""
    text = httpx.get(f"{url}/metrics").raise_for_status().text
    work_s = sum(float(v) for v in re.findall(rf"^{metrics.WORK.name} (\S+)$", text, re.MULTILINE))
    pattern = rf'^{metrics.STAGE_BUSY.name}{{stage="(\d+)"}} (\S+)$'
    busy_s = {int(stage): float(v) for stage, v in re.findall(pattern, text, re.MULTILINE)}
    return work_s, tuple(busy_s[stage] for stage in sorted(busy_s))


def _bubbles(
    before: tuple[float, tuple[float, ...]], after: tuple[float, tuple[float, ...]]
) -> tuple[float, ...]:
    span_s = after[0] - before[0]
    earlier = before[1] or (0.0,) * len(after[1])
    return tuple(
        1.0 - (late - early) / span_s for early, late in zip(earlier, after[1], strict=True)
    )


def _table(figures: DemoFigures, resource: PipelineServe) -> Table:
    targets = resource.spec.slo
    table = Table(title=f"{figures.num_requests} requests in {figures.duration_s:.0f} s")
    for column in ("", "P50", "P90", "P99", "target"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("TTFT", *_percentiles(figures.ttft_s), _target(targets.ttft))
    table.add_row("TPOT", *_percentiles(figures.tpot_s), _target(targets.tpot))
    table.add_section()
    table.add_row("throughput", f"{figures.output_tokens_per_s:.1f} tokens/s")
    for stage_index, ratio in enumerate(figures.bubble_ratios):
        table.add_row(f"bubble, stage {stage_index}", f"{ratio:.0%}")
    return table


def _percentiles(values_s: Sequence[float]) -> list[str]:
    cuts = statistics.quantiles(values_s, n=100, method="inclusive")
    return [f"{cuts[percentile - 1] * 1000:.0f} ms" for percentile in (50, 90, 99)]


def _target(target: LatencyTarget | None) -> str:
    return "" if target is None else f"P{target.percentile} {target.milliseconds} ms"
