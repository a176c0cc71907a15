"""The demo: one answer to read, a short mixed load, a table of what it measured."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from pipelineserve.api import LatencyTarget, PipelineServe
from pipelineserve.errors import EngineUnavailableError
from pipelineserve.load.summaries import percentile
from pipelineserve_cli.demo_plan import mixed_plan, one_question
from pipelineserve_cli.load.bodies import BodySettings, Endpoint
from pipelineserve_cli.load.client import ClientSettings
from pipelineserve_cli.load.figures import targets_of
from pipelineserve_cli.load.plan import LoadPlan
from pipelineserve_cli.load.records import RequestRecord
from pipelineserve_cli.load.report import LoadReport
from pipelineserve_cli.load.session import LoadSession

_NUM_REQUESTS = 18
_RATE_PER_S = 0.8
_QUESTION = "What is the capital of France?"
_DRAIN_S = 600.0  # a slow machine takes as long as it takes


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
        KeyboardInterrupt: Ctrl-C.
    """

    def run(plan: LoadPlan) -> tuple[LoadReport, Sequence[RequestRecord]]:
        return run_plan(plan, url, resource, console)

    greeting = run(one_question(_QUESTION, max_tokens=32))[1][0]
    console.print(f"[bold]> {_QUESTION}[/bold]\n{greeting.text}", highlight=False)
    figures = _figures(*run(mixed_plan(seed, _NUM_REQUESTS, _RATE_PER_S)))
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


def run_plan(
    plan: LoadPlan, url: str, resource: PipelineServe, console: Console
) -> tuple[LoadReport, Sequence[RequestRecord]]:
    """Send a plan's chats to the resource's server, progress on the console.

    Raises:
        EngineUnavailableError: a request failed.
        KeyboardInterrupt: Ctrl-C.
    """
    session = LoadSession(
        plan,
        BodySettings(resource.served_name, Endpoint.CHAT, ignores_eos=False),
        ClientSettings(url, Endpoint.CHAT.path, timeout_s=_DRAIN_S, keeps_text=True),
        targets_of(resource.spec.slo),
        _DRAIN_S,
    )
    report, result = session.execute(console)
    if report.is_interrupted:
        raise KeyboardInterrupt
    for record in result.records:
        if record.failure is not None:
            raise EngineUnavailableError(
                f"the demo's load failed: {record.failure.kind.value}: {record.failure.message}"
            )
    return report, result.records


def _figures(report: LoadReport, records: Sequence[RequestRecord]) -> DemoFigures:
    return DemoFigures(
        num_requests=len(records),
        duration_s=report.whole_run.window.duration_s,
        output_tokens_per_s=report.whole_run.output_tokens_per_s,
        ttft_s=_known(records, lambda record: record.ttft_s),
        tpot_s=_known(records, lambda record: record.tpot_s),
        bubble_ratios=report.bubble_ratios,
    )


def _known(
    records: Sequence[RequestRecord], read: Callable[[RequestRecord], float | None]
) -> tuple[float, ...]:
    values_s = map(read, records)
    return tuple(sorted(value_s for value_s in values_s if value_s is not None))


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


def _percentiles(ordered_s: Sequence[float]) -> list[str]:
    if not ordered_s:
        return ["-"] * 3
    return [f"{percentile(ordered_s, percent) * 1000:.0f} ms" for percent in (50, 90, 99)]


def _target(target: LatencyTarget | None) -> str:
    return "" if target is None else f"P{target.percentile} {target.milliseconds} ms"
