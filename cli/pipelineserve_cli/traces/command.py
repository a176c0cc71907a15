"""`pserve trace`: record a run, convert a record, draw a part of it."""

import json
from pathlib import Path

import click
from rich.console import Console

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.manifests import read_resource
from pipelineserve_cli.option_types import AT_LEAST_ONE, EXISTING_FILE, NEW_FILE, POSITIVE
from pipelineserve_cli.traces.conversion import DEFAULT_MAX_REQUESTS, trace_events
from pipelineserve_cli.traces.picture import picture as draw_picture
from pipelineserve_cli.traces.record import TraceRecord, read_record
from pipelineserve_cli.traces.recording import record_demo
from pipelineserve_cli.traces.summary import summarise_record, summary_table


@click.group()
def trace() -> None:
    """See micro-batches, pieces of prompts and bubbles, in Perfetto or as a picture."""


@trace.command()
@click.argument("record_file", metavar="RECORD.jsonl", type=EXISTING_FILE)
@click.option("-o", "--output", required=True, type=NEW_FILE, help="Trace to write, JSON.")
@click.option(
    "--max-requests",
    default=DEFAULT_MAX_REQUESTS,
    show_default=True,
    type=click.IntRange(min=0),
    help="Requests that get a track of their own, those sent first.",
)
def convert(*, record_file: Path, output: Path, max_requests: int) -> None:
    """Turn what the engine's --trace-file recorded into a trace for Perfetto."""
    _require_folder(output)
    _write_and_report(read_record(record_file), output, max_requests)


@trace.command()
@click.argument("record_file", metavar="RECORD.jsonl", type=EXISTING_FILE)
@click.option("-o", "--output", required=True, type=NEW_FILE, help="Picture to write, SVG.")
@click.option("--from-s", type=float, help="Begin here, in seconds since the record's start.")
@click.option("--to-s", type=float, help="End here; by default around the longest prompt.")
def picture(*, record_file: Path, output: Path, from_s: float | None, to_s: float | None) -> None:
    """Draw a part of a record: stages as rows, the longest prompt highlighted."""
    _require_folder(output)
    output.write_text(draw_picture(read_record(record_file), from_s, to_s), encoding="utf-8")


@trace.command()
@click.option(
    "-f", "--filename", required=True, type=EXISTING_FILE, help="Manifest of one PipelineServe."
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=NEW_FILE,
    help="Trace to write, JSON; the engine's own record stays beside it as .jsonl.",
)
@click.option("--port", default=8000, show_default=True, help="Port of the API on loopback.")
@click.option("--seed", default=1, show_default=True, help="Seed of the load's arrivals.")
@click.option("--requests", "num_requests", default=18, show_default=True, type=AT_LEAST_ONE)
@click.option(
    "--rate",
    "rate_per_s",
    default=2.0,
    show_default=True,
    type=POSITIVE,
    help="Requests per second; every third has a long prompt.",
)
def run(
    *, filename: Path, output: Path, port: int, seed: int, num_requests: int, rate_per_s: float
) -> None:
    """Serve a manifest's model, send it the demo's mixed load, and write the trace."""
    _require_folder(output)
    record_file = output.with_suffix(".jsonl")
    if record_file == output:
        text = f'got "{output}", the name of the record; expected one like {output.stem}.json'
        raise InvalidInputError("the trace", [Fault("--output", text)])
    resource = read_resource(filename)
    record_demo(
        resource,
        record_file,
        port=port,
        seed=seed,
        num_requests=num_requests,
        rate_per_s=rate_per_s,
        console=Console(stderr=True),
    )
    _write_and_report(read_record(record_file), output, DEFAULT_MAX_REQUESTS)
    Console(stderr=True).print(
        f"The record is {record_file}; draw a part: pserve trace picture {record_file} -o part.svg",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _write_and_report(record: TraceRecord, output: Path, max_requests: int) -> None:
    events = trace_events(record, max_requests)
    output.write_text(json.dumps(events, separators=(",", ":")) + "\n", encoding="utf-8")
    Console().print(summary_table(summarise_record(record)))
    Console(stderr=True).print(
        f"Open {output} at https://ui.perfetto.dev (it stays in your browser) "
        "or in chrome://tracing.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _require_folder(output: Path) -> None:
    """Better now than after the run."""
    if not output.parent.is_dir():
        text = f'the folder of "{output}" does not exist; make it first'
        raise InvalidInputError("the trace", [Fault("--output", text)])
