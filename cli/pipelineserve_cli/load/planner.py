"""From settings and a file's rows to the whole plan; pure, so the same inputs give the same plan.

Chance comes from named streams of one seed: other lengths leave the arrivals as they are.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_cli.load.arrivals import Arrivals, Timestamps, arrival_times_s
from pipelineserve_cli.load.lengths import Lengths, draw
from pipelineserve_cli.load.plan import (
    Bound,
    LoadPlan,
    PlannedRequest,
    SyntheticBlock,
    SyntheticPrompt,
)
from pipelineserve_cli.load.row_files import Row, RowFile

HASHED_BLOCK_TOKENS = 512  # of one entry of hash_ids


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How to make a plan.

    Attributes:
        num_requests: the most to measure; `num_warm_up` come before them, from the same process.
        duration_s: no request is planned later than this after the first.
        first_row, end_row: which rows of the file are used, `end_row` not included.
        is_shuffled: rows in random order instead of the file's; not with timestamps.
        input_scale: factor on the prompt lengths of rows.
        longest_tokens: rows whose prompt and output are longer together are left out.
    """

    seed: int
    arrivals: Arrivals
    input_lengths: Lengths
    output_lengths: Lengths
    num_requests: int
    duration_s: float
    num_warm_up: int = 0
    first_row: int = 0
    end_row: int | None = None
    is_shuffled: bool = False
    input_scale: float = 1.0
    longest_tokens: int | None = None


def make_plan(settings: PlanSettings, file: RowFile | None) -> LoadPlan:
    """Every request of the load.

    Raises:
        InvalidInputError: nothing would be measured, or the file has no times to follow.
    """
    selection = _Selection(settings, file)
    requests, bound = _requests(settings, selection)
    if not any(not request.is_warm_up for request in requests):
        raise _invalid(
            f"it has {len(requests)} requests and all are warm-up; raise --requests or "
            "--duration, or lower --warm-up"
        )
    return LoadPlan(
        requests,
        settings.seed,
        str(settings.arrivals),
        selection.describe_lengths(),
        selection.describe(len(requests)),
        bound,
    )


def stream_of(seed: int, name: str) -> random.Random:
    """An independent stream of chance."""
    return random.Random(f"{seed}/{name}")  # noqa: S311 - a load, not secrets


class _Selection:
    """The rows that the settings choose, in the order of their use."""

    def __init__(self, settings: PlanSettings, file: RowFile | None) -> None:
        self._settings = settings
        self._file = file
        self._num_chosen = 0

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Never empty; without a file one row that says nothing."""
        if self._file is None:
            return (Row(),)
        chosen = self._file.rows[self._settings.first_row : self._settings.end_row]
        self._num_chosen = len(chosen)
        kept = [row for row in chosen if not self._is_too_long(row)]
        if not kept:
            raise _invalid(
                f"none of the {len(self._file.rows)} rows of {self._file.name} is left; "
                "widen --rows or raise --longest-tokens"
            )
        if self._settings.is_shuffled:
            stream_of(self._settings.seed, "rows").shuffle(kept)
        return tuple(kept)

    def timed_rows(self) -> Iterator[tuple[float, Row]]:
        """Arrivals with their rows; ends only if the file decides about the arrivals."""
        arrivals = self._settings.arrivals
        if not isinstance(arrivals, Timestamps):
            times_s = arrival_times_s(arrivals, stream_of(self._settings.seed, "arrivals"))
            return zip(times_s, cycle(self.rows), strict=False)
        if self._file is None or not self._file.has_times:
            raise _invalid(
                "arrivals from timestamps need a file that has them; name one with --dataset or "
                "choose --arrivals poisson"
            )
        begin_s = self.rows[0].at_s or 0.0
        scale = arrivals.rate_scale
        return (((row.at_s or 0.0) / scale - begin_s / scale, row) for row in self.rows)

    def describe(self, num_used: int) -> str:
        """Which rows were used."""
        if self._file is None:
            return "none, all synthetic"
        settings, end = self._settings, self._settings.end_row or len(self._file.rows)
        order = ", shuffled" if settings.is_shuffled else ""
        left_out = self._num_chosen - len(self.rows)
        skipped = f", {left_out} longer than {settings.longest_tokens} tokens left out"
        again = f", used {num_used / len(self.rows):.2f} times" if num_used > len(self.rows) else ""
        return (
            f"{min(num_used, len(self.rows))} of rows {settings.first_row} to "
            f"{min(end, len(self._file.rows)) - 1} of {self._file.name}{order}"
            f"{skipped if left_out else ''}{again}"
        )

    def describe_lengths(self) -> str:
        """Where input and output lengths come from."""
        row, settings = self.rows[0], self._settings
        scale = f" x {settings.input_scale:g}" if settings.input_scale != 1.0 else ""
        if row.prompt is not None:
            prompt = "the file's texts"
        else:
            prompt = f"{settings.input_lengths}" if row.prompt_tokens is None else f"rows{scale}"
        has_output = all(row.output_tokens is not None for row in self.rows)
        output = "rows" if has_output else f"{settings.output_lengths}"
        return f"in: {prompt}; out: {output}"

    def _is_too_long(self, row: Row) -> bool:
        longest = self._settings.longest_tokens
        if longest is None or row.prompt_tokens is None:
            return False
        prompt_tokens = _scaled(row.prompt_tokens, self._settings)
        return prompt_tokens + max(1, row.output_tokens or 0) > longest


def _requests(
    settings: PlanSettings, selection: _Selection
) -> tuple[tuple[PlannedRequest, ...], Bound]:
    wanted = settings.num_warm_up + settings.num_requests
    writer = _RequestWriter(settings)
    requests: list[PlannedRequest] = []
    for at_s, row in islice(selection.timed_rows(), wanted):
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
            num_tokens = _scaled(row.prompt_tokens, settings)
        block_tokens = max(1, round(HASHED_BLOCK_TOKENS * settings.input_scale))
        blocks: list[SyntheticBlock] = []
        for hash_id in row.hash_ids:
            size = min(block_tokens, num_tokens - sum(block.num_tokens for block in blocks))
            if size > 0:
                blocks.append(SyntheticBlock(f"{settings.seed}/block/{hash_id}", size))
        rest = num_tokens - sum(block.num_tokens for block in blocks)
        if rest > 0:
            blocks.append(SyntheticBlock(f"{settings.seed}/request/{index}", rest))
        return SyntheticPrompt(tuple(blocks))


def _scaled(prompt_tokens: int, settings: PlanSettings) -> int:
    return max(1, round(prompt_tokens * settings.input_scale))


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError("the load's plan", [Fault("", message)])
