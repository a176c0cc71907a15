"""Outcomes of simulated runs that are valid by default."""

from collections.abc import Iterable

from pipelineserve_simulator.measures.runs import RequestOutcome, RunOutcome, StepOutcome


def request_outcome(
    *,
    index: int = 0,
    arrival_s: float = 0.0,
    ttft_s: float | None = 1.0,
    tpot_s: float = 0.1,
    output_tokens: int = 11,
    longest_gap_s: float = 0.2,
    num_requeues: int = 0,
    is_success: bool = True,
) -> RequestOutcome:
    """Eleven tokens, the first after one second, the last after two."""
    first_token_s = None if ttft_s is None else arrival_s + ttft_s
    last_token_s = None if first_token_s is None else first_token_s + tpot_s * (output_tokens - 1)
    return RequestOutcome(
        index=index,
        arrival_s=arrival_s,
        first_token_s=first_token_s,
        last_token_s=last_token_s,
        end_s=arrival_s if last_token_s is None else last_token_s,
        prompt_tokens=100,
        output_tokens=output_tokens,
        longest_gap_s=longest_gap_s,
        held_s=0.0,
        num_requeues=num_requeues,
        is_success=is_success,
    )


def step_outcome(
    *,
    start_s: float = 0.0,
    stage_times_s: tuple[float, ...] = (0.02, 0.03),
    bubbles_s: tuple[float, ...] = (0.0, 0.0),
) -> StepOutcome:
    """A micro-batch of 128 tokens on two stages."""
    return StepOutcome(start_s, sum(stage_times_s), 0, 128, 28, 128, stage_times_s, bubbles_s)


def run_of(
    requests: Iterable[RequestOutcome],
    steps: Iterable[StepOutcome] = (),
    *,
    num_preemptions: int = 0,
) -> RunOutcome:
    """A run of these requests, in order of arrival."""
    ordered = tuple(sorted(requests, key=lambda request: request.arrival_s))
    duration_s = max((request.end_s for request in ordered), default=0.0)
    return RunOutcome(ordered, tuple(steps), duration_s, 0.5, 0.25, num_preemptions)
