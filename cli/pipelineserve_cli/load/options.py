"""The command line's options, one field each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from pipelineserve.load.arrivals import ArrivalKind
from pipelineserve.load.lengths import Lengths, parse_lengths
from pipelineserve_cli.load.bodies import Endpoint
from pipelineserve_cli.option_types import EXISTING_FILE, POSITIVE

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_MOST_REQUESTS = 1_000_000


class LengthsType(click.ParamType[Lengths]):
    """`--input-tokens` and the like: see `parse_lengths`."""

    name = "lengths"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Lengths:
        """See `click.ParamType`."""
        try:
            return parse_lengths(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _RowsType(click.ParamType[tuple[int, int | None]]):
    name = "rows"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int | None]:
        first, colon, end = str(value).partition(":")
        try:
            bounds = int(first or 0), int(end) if end else None
        except ValueError:
            bounds = -1, None
        if not colon or bounds[0] < 0 or (bounds[1] is not None and bounds[1] <= bounds[0]):
            self.fail(f'got "{value}", expected FIRST:END like 0:400, END not included', param, ctx)
        return bounds


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the user asked for; None where nothing was said and the default depends on the rest."""

    url: str
    model: str | None
    endpoint: Endpoint | None
    api_key_file: Path | None
    arrivals: ArrivalKind | None
    rate: float | None
    cv: float
    burst_on: float
    burst_off: float
    rate_scale: float
    requests: int | None
    duration: float | None
    warm_up: int
    input_tokens: Lengths
    output_tokens: Lengths
    dataset: Path | None
    rows: tuple[int, int | None] | None
    shuffle: bool
    input_scale: float
    longest_tokens: int | None
    vocabulary: int
    ignore_eos: bool | None
    temperature: float
    seed: int
    timeout: float
    drain: float
    max_connections: int
    retries: int
    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None
    percentile: int
    filename: Path | None
    dry_run: bool
    as_json: bool
    output: Path | None


_OPTIONS = (
    # The server
    click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The server."),
    click.option("--model", help="Model to ask for.  [default: the only one that is served]"),
    click.option(
        "--endpoint",
        type=click.Choice(Endpoint, case_sensitive=False),
        help="completions or chat.  [default: chat for conversations, else completions]",
    ),
    click.option(
        "--api-key-file",
        type=EXISTING_FILE,
        help="File with the API key.  [default: the variable OPENAI_API_KEY, if set]",
    ),
    # Arrivals
    click.option(
        "--arrivals",
        type=click.Choice(ArrivalKind, case_sensitive=False),
        help="How requests arrive.  [default: timestamps for a file that has them, else poisson]",
    ),
    click.option("--rate", type=POSITIVE, help="Mean arrivals per second.  [default: 1]"),
    click.option("--cv", type=click.FloatRange(0.01, 100), default=2.0, show_default=True,
                 help="gamma: standard deviation of the gaps over their mean."),
    click.option("--burst-on", type=POSITIVE, default=10.0, show_default=True,
                 help="bursts: seconds with arrivals."),
    click.option("--burst-off", type=POSITIVE, default=10.0, show_default=True,
                 help="bursts: seconds without."),
    click.option("--rate-scale", type=POSITIVE, default=1.0, show_default=True,
                 help="timestamps: how many times as fast as in the file."),
    click.option("-n", "--requests", type=click.IntRange(1, _MOST_REQUESTS),
                 help="Requests to measure.  [default: 100; all rows with timestamps; as many as "
                 "fit if only --duration is given]"),
    click.option("--duration", type=POSITIVE,
                 help="Seconds in which requests may arrive.  [default: 3600]"),
    click.option("--warm-up", type=click.IntRange(0, _MOST_REQUESTS), default=0, show_default=True,
                 help="Further requests at the start that are left out of every figure."),
    click.option("--seed", type=int, default=1, show_default=True,
                 help="Same seed, same plan."),
    # Prompts and lengths
    click.option("--input-tokens", type=LengthsType(), default="256", show_default=True,
                 help="Length of made-up prompts: 512, uniform:32,64, lognormal:mean=880,cv=0.5 or "
                 "lognormal:median=814,sigma=0.5,max=2048."),
    click.option("--output-tokens", type=LengthsType(), default="64", show_default=True,
                 help="Output length, in the same forms, where the file has none."),
    click.option("--dataset", type=EXISTING_FILE,
                 help="Trace (Azure CSV, Mooncake JSON lines), lengths (CSV with prompt_tokens, "
                 "output_tokens), or JSON lines with prompt or messages; .gz as well."),
    click.option("--rows", type=_RowsType(), help="Rows FIRST:END of the file only, END excluded."),
    click.option("--shuffle", is_flag=True, help="Rows in random order; not with timestamps."),
    click.option("--input-scale", type=POSITIVE, default=1.0, show_default=True,
                 help="Factor on the file's prompt lengths."),
    click.option("--longest-tokens", type=click.IntRange(min=2),
                 help="Leave out rows whose prompt and output are longer together."),
    click.option("--vocabulary", type=click.IntRange(1, 2**31 - 1), default=1000, show_default=True,
                 help="Made-up token ids are below this; at most the model's vocabulary."),
    click.option("--ignore-eos/--no-ignore-eos", default=None,
                 help="Ask the server to generate all output tokens (an extension of OpenAI's "
                 "API).  [default: on for made-up prompts]"),
    click.option("--temperature", type=click.FloatRange(0, 2), default=0.0, show_default=True,
                 help="0 is greedy."),
    # Sending
    click.option("--timeout", type=POSITIVE, default=300.0, show_default=True,
                 help="Seconds that one request may take."),
    click.option("--drain", type=POSITIVE, default=300.0, show_default=True,
                 help="Seconds that requests may still run after the last arrival."),
    click.option("--max-connections", type=click.IntRange(1, 10_000), default=512,
                 show_default=True, help="Requests at once; waiting for one is generator lag."),
    click.option("--retries", type=click.IntRange(0, 100), default=0, show_default=True,
                 help="Tries after an answer of 429, each after its Retry-After."),
    # Judging
    click.option("--ttft-ms", type=POSITIVE, help="Target: send to first token."),
    click.option("--tpot-ms", type=POSITIVE, help="Target: per output token after the first."),
    click.option("--e2e-ms", type=POSITIVE, help="Target: send to last token."),
    click.option("--percentile", type=click.IntRange(50, 99), default=90, show_default=True,
                 help="Percentile that the table shows beside these targets."),
    click.option("-f", "--filename", type=EXISTING_FILE,
                 help="Manifest of a PipelineServe whose slo gives the targets."),
    # Output
    click.option("--dry-run", is_flag=True, help="Show the plan and send nothing."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables."),
    click.option("-o", "--output", type=click.Path(dir_okay=False, writable=True, path_type=Path),
                 help="Also write JSON with every single request."),
)  # fmt: skip


def load_options(command: CommandT) -> CommandT:
    """Decorator: a command with all of these options, which are the fields of `LoadOptions`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
