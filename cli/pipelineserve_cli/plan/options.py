"""The command line's options, one field each."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import click

from pipelineserve.load.lengths import Lengths
from pipelineserve_cli.load.options import LengthsType
from pipelineserve_cli.option_types import POSITIVE
from pipelineserve_simulator.workloads.registry import WorkloadName

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_WORKLOADS = [name.value for name in WorkloadName]
_MILLISECONDS = click.FloatRange(min=1, max=3_600_000)


class OutputForm(Enum):
    """What `-o` may say."""

    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the user asked for."""

    model: str
    gpu: str
    gpus: int
    link: str | None
    workload: str | None
    input_tokens: Lengths | None
    output_tokens: Lengths | None
    rate: float | None
    rate_scale: float | None
    requests: int
    ttft_ms: float | None
    tpot_ms: float | None
    percentile: int
    stages: int | None
    tensor_parallel: int | None
    max_chunk_tokens: int
    layouts: int
    seeds: int
    budget_s: float
    explain: bool
    as_json: bool
    output: OutputForm | None


_OPTIONS = (
    # The machine
    click.option("--model", required=True,
                 help="Qwen2.5-32B, Qwen2.5-14B, or the path of a config.json or its folder."),
    click.option("--gpu", required=True, help="Kind of GPU, like a100-40gb-pcie."),
    click.option("--gpus", type=click.IntRange(1, 64), required=True, help="How many at most."),
    click.option("--link", help="Between the GPUs: pcie3 to pcie6, nvlink3 to nvlink5, "
                 "ethernet:GBITS.  [default: what this kind of GPU has]"),
    # The load
    click.option("--workload", type=click.Choice(_WORKLOADS, case_sensitive=False),
                 help="One of the workloads that the product is evaluated with."),
    click.option("--input-tokens", type=LengthsType(),
                 help="Prompt lengths instead: 512, uniform:32,64, lognormal:mean=880,cv=0.5 or "
                 "lognormal:median=814,sigma=0.5,max=2048."),
    click.option("--output-tokens", type=LengthsType(),
                 help="Output lengths, in the same forms."),
    click.option("--rate", type=POSITIVE, help="Mean arrivals per second, all replicas together."),
    click.option("--rate-scale", type=POSITIVE,
                 help="How many times as fast a workload with times of its own passes."),
    click.option("-n", "--requests", type=click.IntRange(20, 100_000), default=500,
                 show_default=True, help="Requests in each simulation."),
    # What it is judged by
    click.option("--ttft-ms", type=_MILLISECONDS, help="Target: arrival to first token."),
    click.option("--tpot-ms", type=_MILLISECONDS,
                 help="Target: per output token after the first."),
    click.option("--percentile", type=click.IntRange(50, 99), default=90, show_default=True,
                 help="Percentile that is held to the targets."),
    # The search
    click.option("--stages", type=click.IntRange(1, 64), help="Only layouts with so many stages."),
    click.option("--tensor-parallel", type=click.IntRange(1, 8),
                 help="Only layouts whose stages are shared by so many GPUs."),
    click.option("--max-chunk-tokens", type=click.IntRange(1, 16_384), default=2048,
                 show_default=True, help="Most tokens of one micro-batch."),
    click.option("--layouts", type=click.IntRange(1, 50), default=4, show_default=True,
                 help="How many layouts are simulated."),
    click.option("--seeds", type=click.IntRange(1, 50), default=3, show_default=True,
                 help="How often each, with other chance."),
    click.option("--budget-s", type=POSITIVE, default=120.0, show_default=True,
                 help="Seconds after which no further simulation begins."),
    # Output
    click.option("--explain", is_flag=True,
                 help="Also show the closed formulas with the best layout's numbers."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables."),
    click.option("-o", "--output", type=click.Choice(OutputForm, case_sensitive=False),
                 help="yaml: print the best layout as a part of a manifest instead of tables."),
)  # fmt: skip


def plan_options(command: CommandT) -> CommandT:
    """Decorator: a command with all of these options, which are the fields of `PlanOptions`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
