"""Writes what the engine sends and what the stages report as JSON lines, for `pserve trace`.

A record holds times, sizes and our own request ids; never a token or a text. Times are those of the
monotonic clock that the stages report in.

The lines stand in the order in which the scheduler was called, and hold all that it was told, so
that `pserve replay` gets the same micro-batches out of it. Of contents they tell only what prefix
sharing looks at: which blocks are equal.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.policy.control.journal_format import to_json
from pipelineserve.policy.preemption import KvCosts
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.messages import Emission, MicroBatch
from pipelineserve.scheduler.requests import NewRequest, RequestRecord
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_engine.block_contents import BlockContents
from pipelineserve_engine.observation import Levels, Listener
from pipelineserve_engine.stage_messages import StepReport

VERSION = 2
_FLUSH_PERIOD_S = 1.0

logger = logging.getLogger(__name__)


class HeaderLine(msgspec.Struct, frozen=True, tag="header"):
    """The first line."""

    version: int
    num_stages: int
    layers_per_stage: tuple[int, ...]
    start_s: float
    schedule: str
    static_chunk_tokens: int
    sizes: SchedulerSettings


class QueuedLine(msgspec.Struct, frozen=True, tag="queued"):
    """A request entered the waiting queue."""

    at_s: float
    request_id: str
    num_prompt_tokens: int
    max_output_tokens: int | None
    client_id: str
    priority: int


class AdoptedLine(msgspec.Struct, frozen=True, tag="adopted"):
    """Another policy holds from the next micro-batch on; as a controller's journal has it."""

    policy: Any


class CostsLine(msgspec.Struct, frozen=True, tag="costs"):
    """What recomputing and copying KV takes, from the next micro-batch on."""

    recompute_s_per_token: float | None
    copy_s_per_block: float | None


class TriedLine(msgspec.Struct, frozen=True, tag="tried"):
    """Nothing could be composed for an empty slot although a request was live."""

    at_s: float
    slot_index: int


class PieceLine(msgspec.Struct, frozen=True, array_like=True):
    """A piece inside a sent micro-batch, as an array."""

    request_id: str
    start: int
    num_tokens: int
    is_decode: bool


class SentLine(msgspec.Struct, frozen=True, tag="sent"):
    """A micro-batch entered the pipeline."""

    at_s: float
    sequence: int
    slot_index: int
    chunk_tokens: int
    pieces: tuple[PieceLine, ...]


class CompletedLine(msgspec.Struct, frozen=True, tag="completed"):
    """The tokens of a micro-batch were taken in."""

    at_s: float
    sequence: int


class StepLine(msgspec.Struct, frozen=True, tag="step"):
    """A stage has run a micro-batch."""

    sequence: int
    stage_index: int
    start_s: float
    end_s: float


class EndedLine(msgspec.Struct, frozen=True, tag="ended"):
    """A request ended, however.

    Attributes:
        is_early: it was ended from outside, not by its last token.
        block_numbers: of each full block of prompt and output the number of its content, that of
            the blocks before it included.
    """

    request_id: str
    finish: str
    arrival_s: float
    first_issue_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    end_s: float
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    is_early: bool
    block_numbers: tuple[int, ...]


class RestartLine(msgspec.Struct, frozen=True, tag="restart"):
    """The stages failed; what was in flight never comes back."""

    at_s: float


class FullLine(msgspec.Struct, frozen=True, tag="full"):
    """The record has reached its bound and says nothing of what came later."""

    at_s: float


_Line = (
    HeaderLine
    | QueuedLine
    | AdoptedLine
    | CostsLine
    | TriedLine
    | SentLine
    | CompletedLine
    | StepLine
    | EndedLine
    | RestartLine
    | FullLine
)


@dataclass(frozen=True, slots=True)
class TracedSetup:
    """What a record says of the engine before anything happens.

    Attributes:
        layers_per_stage: of the pipeline.
        sizes: of the scheduler.
        schedule: its name among the settings.
        static_chunk_tokens: of each micro-batch, until a controller says otherwise.
    """

    layers_per_stage: tuple[int, ...]
    sizes: SchedulerSettings
    schedule: str
    static_chunk_tokens: int


class TraceRecorder(Listener):
    """One record; a file that cannot be written any more ends the record, not the engine.

    Args:
        path: written anew.
        setup: of the engine.
        max_events: pieces, steps and what else the scheduler was told; more are left out.
        clock: seconds, of the clock that the stages report in.

    Raises:
        InvalidInputError: the file cannot be written.
    """

    def __init__(
        self, path: Path, setup: TracedSetup, max_events: int, clock: Callable[[], float]
    ) -> None:
        self._file: BinaryIO | None = _open(path)
        self._path = path
        self._max_events = max_events
        self._clock = clock
        self._num_events = 0
        self._encoder = msgspec.json.Encoder()
        self._next_flush_s = 0.0
        self._contents = BlockContents(setup.sizes.block_tokens)
        # Whose last token has just come.
        self._completing_id: str | None = None
        header = HeaderLine(
            version=VERSION,
            num_stages=len(setup.layers_per_stage),
            layers_per_stage=setup.layers_per_stage,
            start_s=clock(),
            schedule=setup.schedule,
            static_chunk_tokens=setup.static_chunk_tokens,
            sizes=setup.sizes,
        )
        self._write(header, num_events=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write what is still buffered."""
        self._close()

    def on_accepted(self, request: NewRequest, now_s: float) -> None:
        """A request entered the waiting queue."""
        if self._file is None:
            return
        self._contents.begin(request.request_id, request.prompt_token_ids)
        line = QueuedLine(
            at_s=now_s,
            request_id=request.request_id,
            num_prompt_tokens=len(request.prompt_token_ids),
            max_output_tokens=request.max_output_tokens,
            client_id=self._contents.number_of_client(request.client_id),
            priority=request.priority,
        )
        self._write(line)

    def on_adopted(self, policy: SchedulingPolicy) -> None:
        """Another policy holds from the next micro-batch on."""
        if self._file is not None:
            self._write(AdoptedLine(to_json(policy)))

    def on_kv_costs(self, costs: KvCosts) -> None:
        """Other costs hold from the next micro-batch on."""
        self._write(CostsLine(costs.recompute_s_per_token, costs.copy_s_per_block))

    def on_nothing_to_send(self, slot_index: int, now_s: float) -> None:
        """Nothing could be composed for an empty slot."""
        self._write(TriedLine(now_s, slot_index))

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """A micro-batch entered the pipeline."""
        if self._file is None:
            return
        pieces = tuple(
            PieceLine(piece.request_id, piece.start, len(piece.token_ids), piece.is_decode)
            for piece in micro_batch.pieces
        )
        line = SentLine(
            at_s=now_s,
            sequence=micro_batch.sequence,
            slot_index=micro_batch.slot_index,
            chunk_tokens=micro_batch.chunk.chunk_tokens,
            pieces=pieces,
        )
        self._write(line, num_events=len(pieces))

    def on_step(self, report: StepReport) -> None:
        """A stage has run a micro-batch."""
        line = StepLine(report.sequence, report.stage_index, report.start_s, report.end_s)
        self._write(line)

    def on_completed(self, report: StepReport, now_s: float, num_in_flight: int) -> None:
        """The tokens of a micro-batch were taken in."""
        del num_in_flight
        self._write(CompletedLine(now_s, report.sequence))

    def on_emission(self, emission: Emission, now_s: float) -> None:
        """A request has a token more, or its last one."""
        del now_s
        if emission.token_id is not None:
            self._contents.append(emission.request_id, emission.token_id)
        if emission.record is not None:
            self._completing_id = emission.request_id

    def on_ended(self, record: RequestRecord) -> None:
        """A request ended."""
        is_early = record.request_id != self._completing_id
        self._completing_id = None
        line = EndedLine(
            request_id=record.request_id,
            finish=record.finish.value,
            arrival_s=record.arrival_s,
            first_issue_s=record.first_issue_s,
            first_token_s=record.first_token_s,
            last_token_s=record.last_token_s,
            end_s=record.end_s,
            num_prompt_tokens=record.num_prompt_tokens,
            num_cached_tokens=record.num_cached_tokens,
            num_output_tokens=record.num_output_tokens,
            is_early=is_early,
            block_numbers=self._contents.end(record.request_id),
        )
        self._write(line)

    def on_recovery(self) -> None:
        """The stages failed and start anew."""
        self._write(RestartLine(self._clock()))

    def on_levels(self, levels: Levels) -> None:
        """Called several times a second, with or without work."""
        del levels
        self.flush_if_due()

    def flush_if_due(self) -> None:
        """Hand lines to the system about once a second, so that a killed server loses little."""
        now_s = self._clock()
        if self._file is None or now_s < self._next_flush_s:
            return
        self._next_flush_s = now_s + _FLUSH_PERIOD_S
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _write(self, line: _Line, num_events: int = 1) -> None:
        if self._file is None:
            return
        is_full = self._num_events + num_events > self._max_events
        try:
            self._file.write(self._encoder.encode(FullLine(self._clock()) if is_full else line))
            self._file.write(b"\n")
        except OSError as error:
            self._give_up(error)
            return
        self._num_events += num_events
        if is_full:
            text = "%s has %d events, its bound; the rest is not recorded: raise --trace-max-events"
            logger.warning(text, self._path, self._max_events)
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        self._contents.clear()
        if file is None:
            return
        try:
            file.close()
        except OSError as error:
            self._warn(error)

    def _give_up(self, error: OSError) -> None:
        file, self._file = self._file, None
        self._contents.clear()
        if file is not None:
            with suppress(OSError):  # the reason is known already
                file.close()
        self._warn(error)

    def _warn(self, error: OSError) -> None:
        logger.warning("cannot write %s any more: %s; the trace ends here", self._path, error)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        text = f'cannot write "{path}": {error.strerror}; name a file in a folder that is writable'
        raise InvalidInputError(
            "the engine's configuration", [Fault("--trace-file", text)]
        ) from error
