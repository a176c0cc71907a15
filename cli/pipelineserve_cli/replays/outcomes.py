"""A recorded run as the twin's measures take it: what became of each request and micro-batch."""

from pathlib import Path
from typing import Any

from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_cli.traces.record import (
    TracedMicroBatch,
    invalid_line,
    parse_record,
    read_entries,
)
from pipelineserve_simulator.measures.runs import RequestOutcome, RunOutcome, StepOutcome


def recorded_outcome(path: Path) -> RunOutcome:
    """What the engine measured, times since the first arrival; KV and preemptions are not recorded.

    Requests that got no token are left out, as where they are simulated again.

    Raises:
        InvalidInputError: it is no trace record; names the line.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    entries, _ = read_entries(text, str(path))
    record = parse_record(text, str(path))
    try:
        begin_s = min((e["at_s"] for e in entries if e["type"] == "queued"), default=0.0)
        ended = [e for e in entries if e["type"] == "ended" and e["num_output_tokens"] > 0]
        ended.sort(key=lambda entry: entry["arrival_s"])
        requests = tuple(_request(index, e, begin_s) for index, e in enumerate(ended))
        shift_s = float(entries[0]["start_s"]) - begin_s
    except (KeyError, TypeError, ValueError) as error:
        raise invalid_line(str(path), error) from error
    whole = [batch for batch in record.micro_batches if len(batch.steps) == record.num_stages]
    return RunOutcome(
        requests=requests,
        steps=tuple(_step(batch, shift_s) for batch in whole),
        duration_s=max((request.end_s for request in requests), default=0.0),
        kv_used_ratio_max=0.0,
        kv_used_ratio_mean=0.0,
        num_preemptions=0,
    )


def _request(index: int, entry: dict[str, Any], begin_s: float) -> RequestOutcome:
    return RequestOutcome(
        index=index,
        arrival_s=entry["arrival_s"] - begin_s,
        first_token_s=entry["first_token_s"] - begin_s,
        last_token_s=entry["last_token_s"] - begin_s,
        end_s=entry["end_s"] - begin_s,
        prompt_tokens=entry["num_prompt_tokens"],
        output_tokens=entry["num_output_tokens"],
        longest_gap_s=0.0,
        held_s=0.0,
        num_requeues=0,
        # Cancelled ones are simulated as if they had asked for no more.
        is_success=FinishReason(entry["finish"]) is not FinishReason.ERROR,
    )


def _step(batch: TracedMicroBatch, shift_s: float) -> StepOutcome:
    return StepOutcome(
        start_s=batch.steps[0].start_s + shift_s,
        span_s=batch.steps[-1].end_s - batch.steps[0].start_s,
        slot_index=batch.slot_index,
        num_tokens=batch.num_tokens,
        num_decodes=batch.num_decodes,
        chunk_tokens=batch.chunk_tokens,
        stage_times_s=tuple(step.end_s - step.start_s for step in batch.steps),
        bubbles_s=(0.0,) * len(batch.steps),
    )
