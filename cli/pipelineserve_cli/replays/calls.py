"""The engine's trace record as the calls that its scheduler got."""

from pathlib import Path
from typing import Any

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.journal_format import from_json
from pipelineserve.policy.preemption import KvCosts
from pipelineserve.policy.schedule import Continuous, FillDrain, Schedule
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_cli.traces.record import invalid_line, read_entries
from pipelineserve_simulator.replay.recorded import (
    Adopted,
    Call,
    Completed,
    CostsKnown,
    Ended,
    Queued,
    RecordedPiece,
    RecordedRun,
    Restarted,
    Sent,
    Tried,
)

_SCHEDULES: dict[str, Schedule] = {"continuous": Continuous(), "fill_drain": FillDrain()}


def read_recorded_run(path: Path) -> RecordedRun:
    """Read what `--trace-file` wrote; of a record that was cut off, what it holds.

    Raises:
        InvalidInputError: it is not such a file; names the line.
    """
    entries, _ = read_entries(path.read_text(encoding="utf-8", errors="replace"), str(path))
    header = entries[0]
    try:
        calls = [call for entry in entries[1:] if (call := _call(entry)) is not None]
        return RecordedRun(
            layers_per_stage=tuple(header["layers_per_stage"]),
            sizes=from_json(SchedulerSettings, header["sizes"]),
            schedule=_SCHEDULES[header["schedule"]],
            policy=SchedulingPolicy(Static(int(header["static_chunk_tokens"]))),
            calls=tuple(calls),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise invalid_line(str(path), error) from error


def require_calls(run: RecordedRun, path: Path) -> None:
    """Refuse a record in which nothing was served.

    Raises:
        InvalidInputError: there is no request in it.
    """
    if not any(isinstance(call, Queued) for call in run.calls):
        text = "expected at least one request, got none; record a run under load"
        raise InvalidInputError("the trace record", [Fault(str(path), text)])


def _call(entry: dict[str, Any]) -> Call | None:  # noqa: PLR0911 # one case per line
    match entry["type"]:
        case "queued":
            return Queued(
                at_s=entry["at_s"],
                request_id=entry["request_id"],
                prompt_tokens=entry["num_prompt_tokens"],
                max_output_tokens=entry["max_output_tokens"],
                client_id=entry["client_id"],
                priority=entry["priority"],
            )
        case "adopted":
            return Adopted(from_json(SchedulingPolicy, entry["policy"]))
        case "costs":
            return CostsKnown(KvCosts(entry["recompute_s_per_token"], entry["copy_s_per_block"]))
        case "tried":
            return Tried(entry["at_s"], entry["slot_index"])
        case "sent":
            return Sent(
                at_s=entry["at_s"],
                sequence=entry["sequence"],
                slot_index=entry["slot_index"],
                chunk_tokens=entry["chunk_tokens"],
                pieces=tuple(RecordedPiece(*piece) for piece in entry["pieces"]),
            )
        case "completed":
            return Completed(entry["at_s"], entry["sequence"])
        case "ended":
            return Ended(
                at_s=entry["end_s"],
                request_id=entry["request_id"],
                finish=FinishReason(entry["finish"]),
                is_early=entry["is_early"],
                output_tokens=entry["num_output_tokens"],
                block_numbers=tuple(entry["block_numbers"]),
            )
        case "restart":
            return Restarted()
        case _:
            return None  # steps of stages, and the end of a record that is full
