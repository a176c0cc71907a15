"""A plan as JSON, for `--dry-run --json`."""

from dataclasses import asdict
from typing import Any

from pipelineserve.load.prompts import ChatPrompt, SyntheticPrompt, TextPrompt
from pipelineserve_cli.load.plan import LoadPlan, PlannedRequest

SCHEMA = "pipelineserve.load-plan/v1"


def plan_as_json(plan: LoadPlan) -> dict[str, Any]:
    """Everything that decides about the run; synthetic prompts by the names of their blocks."""
    return {
        "schema": SCHEMA,
        "seed": plan.seed,
        "arrivals": plan.arrivals,
        "lengths": plan.lengths,
        "rows": plan.rows,
        "planned_until": plan.bound.value,
        "num_warm_up": plan.num_warm_up,
        "requests": [_request(request) for request in plan.requests],
    }


def _request(request: PlannedRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "index": request.index,
        "at_s": request.at_s,
        "is_warm_up": request.is_warm_up,
        "max_tokens": request.max_tokens,
    }
    match request.prompt:
        case SyntheticPrompt(blocks) as prompt:
            shown = [asdict(block) for block in blocks]
            return {**fields, "prompt_tokens": prompt.num_tokens, "blocks": shown}
        case TextPrompt(text):
            return {**fields, "prompt": text}
        case ChatPrompt(messages):
            return {**fields, "messages": list(messages)}
