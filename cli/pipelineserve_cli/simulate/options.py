"""The command line's options, and the fields of a description that they stand for."""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

import click

from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw, OrderLaw
from pipelineserve_cli.option_types import EXISTING_FILE
from pipelineserve_simulator.described.description import FaultKind, PolicyName, TimingName

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class _FaultType(click.ParamType[dict[str, Any]]):
    name = "fault"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        kind, _, rest = str(value).partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",") if pair]
        kinds = [known.value for known in FaultKind]
        if kind not in kinds or any(not sign for _, sign, _ in pairs):
            expected = f"KIND:field=value,... with KIND one of {', '.join(kinds)}"
            self.fail(f'got "{value}", expected {expected}', param, ctx)
        return {"kind": kind, **{name.strip(): _plain(text) for name, _, text in pairs}}


def _plain(text: str) -> Any:
    """A number or a truth value if it is one."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _one_of(values: type[Enum]) -> Any:
    return click.Choice([value.value for value in values], case_sensitive=False)


# By the option's own name: the path of its field in a description.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "profile": ("profile",),
    "stages": ("stages",),
    "tensor_parallel": ("tensor_parallel",),
    "workload": ("workload",),
    "rate": ("rate_per_s",),
    "rate_scale": ("rate_scale",),
    "requests": ("requests",),
    "trace_file": ("trace_file",),
    "policy": ("policy",),
    "chunk_law": ("control", "chunk_law"),
    "chunk": ("chunks", "static_tokens"),
    "min_chunk": ("chunks", "min_tokens"),
    "max_chunk": ("chunks", "max_tokens"),
    "order": ("order",),
    "holding": ("holding",),
    "ttft_ms": ("targets", "ttft_ms"),
    "tpot_ms": ("targets", "tpot_ms"),
    "e2e_ms": ("targets", "e2e_ms"),
    "timing": ("timing",),
    "workers": ("workers",),
    "slots": ("slots",),
    "seed": ("seeds",),
    "noise": ("noise",),
    "fault": ("faults",),
}

_OPTIONS = (
    click.option(
        "-f", "--filename", type=EXISTING_FILE, help="Description of the simulation, YAML."
    ),
    click.option(
        "--profile", help="Hardware: a name, or a file.  [default: a100-40gb-pcie/qwen2.5-32b]"
    ),
    click.option("--stages", type=int, help="Stages of the pipeline.  [default: 4]"),
    click.option("--tensor-parallel", type=int, help="Devices of each stage.  [default: 1]"),
    click.option("--workload", help="What is asked, as azure-4000; see docs/workloads.md."),
    click.option("--rate", type=float, help="Mean arrivals per second.  [default: the workload's]"),
    click.option(
        "--rate-scale", type=float, help="How many times as fast a trace's own times pass."
    ),
    click.option("-n", "--requests", type=int, help="How many.  [default: the workload's]"),
    click.option(
        "--trace-file", help="Trace of the workload; without --workload its rows are the workload."
    ),
    click.option(
        "--policy",
        type=_one_of(PolicyName),
        help="What schedules; Controlled is the product with its controller in the loop."
        "  [default: Predictive]",
    ),
    click.option(
        "--chunk-law", type=_one_of(ChunkLaw), help="The controller's.  [default: Predictive]"
    ),
    click.option("--chunk", type=int, help="The static chunk, in tokens.  [default: 512]"),
    click.option("--min-chunk", type=int, help="The smallest one.  [default: 128]"),
    click.option("--max-chunk", type=int, help="The largest one.  [default: 2048]"),
    click.option("--order", type=_one_of(OrderLaw), help="Of the queue.  [default: the policy's]"),
    click.option("--holding", type=_one_of(HoldLaw), help="Who yields.  [default: the policy's]"),
    click.option("--ttft-ms", type=float, help="Target of TTFT.  [default: 2000]"),
    click.option("--tpot-ms", type=float, help="Target of TPOT.  [default: 200]"),
    click.option("--e2e-ms", type=float, help="Target of E2E.  [default: none]"),
    click.option(
        "--timing", type=_one_of(TimingName), help="How micro-batches move.  [default: Continuous]"
    ),
    click.option("--workers", type=int, help="Interleaved: workers that share the stages."),
    click.option(
        "--slots", type=int, help="Micro-batches in flight.  [default: one for each stage]"
    ),
    click.option("--seed", type=int, multiple=True, help="Of all chance; may be given again."),
    click.option("--noise/--no-noise", default=None, help="The machine's noise.  [default: on]"),
    click.option(
        "--fault",
        type=_FaultType(),
        multiple=True,
        metavar="KIND:FIELD=VALUE,...",
        help="What goes wrong, as ControllerGone:start_s=20,end_s=60; may be given again.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON."),
)


def simulate_options(command: CommandT) -> CommandT:
    """Add them all."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def flag_of(path: str) -> str | None:
    """The flag that sets the field at this path; None if there is none."""
    plain = tuple(part.partition("[")[0] for part in path.split("."))
    names = [name for name, field in FIELDS.items() if plain[: len(field)] == field]
    return f"--{names[0].replace('_', '-')}" if names else None


def with_flags(document: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A document with what the flags say in place of what it says itself."""
    merged = {
        name: dict(part) if isinstance(part, dict) else part for name, part in document.items()
    }
    for name, value in given.items():
        if value is None or value == ():
            continue
        *parents, last = FIELDS[name]
        part = merged
        for parent in parents:
            # What is no mapping there is refused with all the rest, whatever the flag says.
            inner = part.setdefault(parent, {})
            part = inner if isinstance(inner, dict) else {}
        part[last] = list(value) if isinstance(value, tuple) else value
    return merged
