"""From settings and a file's rows to the whole plan; pure, so the same inputs give the same plan.

Chance comes from named streams of one seed: other lengths leave the arrivals as they are.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.load.arrivals import Arrivals, Timestamps, arrival_times_s
from pipelineserve.load.lengths import Lengths, draw
from pipelineserve.load.prompts import SyntheticBlock, SyntheticPrompt
from pipelineserve.load.row_files import Row, RowFile
from pipelineserve.load.selection import ChosenRows, RowChoice, choose_rows
from pipelineserve_cli.load.plan import Bound, LoadPlan, PlannedRequest

HASHED_BLOCK_TOKENS = 512  # of one entry of hash_ids
_SAYS_NOTHING = Row()


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How to make a plan.

    Attributes:
        num_requests: the most to measure; `num_warm_up` come before them, from the same process.
        duration_s: no request is planned later than this after the first.
        rows: which rows of the file are used; shuffled ones do not go with timestamps.
    """

    seed: int
    arrivals: Arrivals
    input_lengths: Lengths
    output_lengths: Lengths
    num_requests: int
    duration_s: float
    num_warm_up: int = 0
    rows: RowChoice = field(default_factory=RowChoice)


def make_plan(settings: PlanSettings, file: RowFile | None) -> LoadPlan:
    """Every request of the load.

    Raises:
        InvalidInputError: nothing would be measured, or the file has no times to follow.
    """
    chance = stream_of(settings.seed, "rows")
    chosen = None if file is None else choose_rows(file, settings.rows, chance)
    requests, bound = _requests(settings, chosen)
    if not any(not request.is_warm_up for request in requests):
        raise _invalid(
            f"it has {len(requests)} requests and all are warm-up; raise --requests or "
            "--duration, or lower --warm-up"
        )
    return LoadPlan(
        requests,
        settings.seed,
        str(settings.arrivals),
        _describe_lengths(settings, chosen),
        "none, all synthetic" if chosen is None else chosen.describe(len(requests)),
        bound,
    )


def stream_of(seed: int, name: str) -> random.Random:
    """An independent stream of chance."""
    return random.Random(f"{seed}/{name}")  # noqa: S311 - a load, not secrets


def _timed_rows(settings: PlanSettings, chosen: ChosenRows | None) -> Iterator[tuple[float, Row]]:
    """Arrivals with their rows; ends only if the file decides about the arrivals."""
    arrivals = settings.arrivals
    rows = (_SAYS_NOTHING,) if chosen is None else chosen.rows
    if not isinstance(arrivals, Timestamps):
        times_s = arrival_times_s(arrivals, stream_of(settings.seed, "arrivals"))
        return zip(times_s, cycle(rows), strict=False)
    if chosen is None or not chosen.file.has_times:
        raise _invalid(
            "arrivals from timestamps need a file that has them; name one with --dataset or "
            "choose --arrivals poisson"
        )
    return zip(chosen.times_s(arrivals.rate_scale), rows, strict=True)


def _describe_lengths(settings: PlanSettings, chosen: ChosenRows | None) -> str:
    """Where input and output lengths come from."""
    rows = (_SAYS_NOTHING,) if chosen is None else chosen.rows
    input_scale = settings.rows.input_scale
    scale = f" x {input_scale:g}" if input_scale != 1.0 else ""
    if rows[0].prompt is not None:
        prompt = "the file's texts"
    else:
        prompt = f"{settings.input_lengths}" if rows[0].prompt_tokens is None else f"rows{scale}"
    has_output = all(row.output_tokens is not None for row in rows)
    output = "rows" if has_output else f"{settings.output_lengths}"
    return f"in: {prompt}; out: {output}"


def _requests(
    settings: PlanSettings, chosen: ChosenRows | None
) -> tuple[tuple[PlannedRequest, ...], Bound]:
    wanted = settings.num_warm_up + settings.num_requests
    writer = _RequestWriter(settings)
    requests: list[PlannedRequest] = []
    for at_s, row in islice(_timed_rows(settings, chosen), wanted):
        if at_s > settings.duration_s:
            return tuple(requests), Bound.DURATION
        requests.append(writer.request(len(requests), at_s, row))
    return tuple(requests), Bound.REQUESTS if len(requests) == wanted else Bound.ROWS


class _RequestWriter:
    """Fills in what rows do not say."""

    def __init__(self, settings: PlanSettings) -> None:
        self._settings = settings
        self._inputs = stream_of(settings.seed, "input lengths")
        self._outputs = stream_of(settings.seed, "output lengths")

    def request(self, index: int, at_s: float, row: Row) -> PlannedRequest:
        settings = self._settings
        output_tokens = row.output_tokens
        if output_tokens is None:
            output_tokens = draw(settings.output_lengths, self._outputs)
        return PlannedRequest(
            index=index,
            at_s=at_s,
            prompt=row.prompt or self._synthetic(index, row),
            # A trace's answer of no token still cost a prefill, and servers refuse a limit of 0.
            max_tokens=max(1, output_tokens),
            is_warm_up=index < settings.num_warm_up,
        )

    def _synthetic(self, index: int, row: Row) -> SyntheticPrompt:
        settings = self._settings
        if row.prompt_tokens is None:
            num_tokens = draw(settings.input_lengths, self._inputs)
        else:
            num_tokens = settings.rows.prompt_tokens(row.prompt_tokens)
        block_tokens = max(1, round(HASHED_BLOCK_TOKENS * settings.rows.input_scale))
        blocks: list[SyntheticBlock] = []
        for hash_id in row.hash_ids:
            size = min(block_tokens, num_tokens - sum(block.num_tokens for block in blocks))
            if size > 0:
                blocks.append(SyntheticBlock(f"{settings.seed}/block/{hash_id}", size))
        rest = num_tokens - sum(block.num_tokens for block in blocks)
        if rest > 0:
            blocks.append(SyntheticBlock(f"{settings.seed}/request/{index}", rest))
        return SyntheticPrompt(tuple(blocks))


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError("the load's plan", [Fault("", message)])
