"""Parts of a load that are valid by default."""

from collections.abc import Sequence

from pipelineserve.load.arrivals import Arrivals, Constant
from pipelineserve.load.lengths import Fixed, Lengths
from pipelineserve.load.prompts import TextPrompt
from pipelineserve.load.selection import RowChoice
from pipelineserve_cli.load.plan import Bound, LoadPlan, PlannedRequest
from pipelineserve_cli.load.planner import PlanSettings
from pipelineserve_cli.load.records import Failure, FailureKind, RequestRecord


def plan_of(
    times_s: Sequence[float], *, num_warm_up: int = 0, max_tokens: int = 3, seed: int = 1
) -> LoadPlan:
    """A plan of short texts at these times."""
    requests = tuple(
        PlannedRequest(index, at_s, TextPrompt(f"{index}"), max_tokens, index < num_warm_up)
        for index, at_s in enumerate(times_s)
    )
    return LoadPlan(requests, seed, "as told", "texts", "none", Bound.REQUESTS)


def settings_of(
    *,
    seed: int = 1,
    arrivals: Arrivals = Constant(2.0),  # noqa: B008 - frozen
    input_lengths: Lengths = Fixed(16),  # noqa: B008 - frozen
    output_lengths: Lengths = Fixed(8),  # noqa: B008 - frozen
    num_requests: int = 10,
    duration_s: float = 3600.0,
    num_warm_up: int = 0,
    first_row: int = 0,
    end_row: int | None = None,
    is_shuffled: bool = False,
    input_scale: float = 1.0,
    longest_tokens: int | None = None,
) -> PlanSettings:
    """Ten requests, two a second."""
    return PlanSettings(
        seed, arrivals, input_lengths, output_lengths, num_requests, duration_s, num_warm_up,
        RowChoice(first_row, end_row, is_shuffled, input_scale, longest_tokens),
    )  # fmt: skip


def record_of(
    chunk_times_s: Sequence[float] = (1.0, 1.5, 2.0),
    *,
    index: int = 0,
    planned_s: float = 0.0,
    sent_s: float | None = None,
    ended_s: float | None = None,
    output_tokens: int | None = None,
    failure: FailureKind | None = None,
    is_warm_up: bool = False,
) -> RequestRecord:
    """A whole answer, sent in time, with a token per chunk."""
    last_s = chunk_times_s[-1] if chunk_times_s else planned_s
    return RequestRecord(
        index=index,
        is_warm_up=is_warm_up,
        planned_s=planned_s,
        sent_s=planned_s if sent_s is None else sent_s,
        ended_s=last_s if ended_s is None else ended_s,
        chunk_times_s=tuple(chunk_times_s),
        prompt_tokens=10,
        output_tokens=len(chunk_times_s) if output_tokens is None else output_tokens,
        has_usage=True,
        finish_reason="length",
        failure=None if failure is None else Failure(failure, "as told"),
    )
