"""What a simulated run leaves behind: one record per request, one per micro-batch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What became of one request; times since the run's start.

    Attributes:
        first_token_s, last_token_s: None if there was no token.
        end_s: when it left the scheduler, finished or not.
        output_tokens: those that came.
        longest_gap_s: the longest time between two consecutive tokens; 0 below two.
        held_s: time for which delay scheduling kept it out of its micro-batch.
        num_requeues: how often it was preempted.
        is_success: whether all of its tokens came.
    """

    index: int
    arrival_s: float
    first_token_s: float | None
    last_token_s: float | None
    end_s: float
    prompt_tokens: int
    output_tokens: int
    longest_gap_s: float
    held_s: float
    num_requeues: int
    is_success: bool

    @property
    def ttft_s(self) -> float | None:
        """Arrival to first token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """(Last - first token) ÷ (output tokens - 1); None below two tokens."""
        if self.first_token_s is None or self.last_token_s is None or self.output_tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def e2e_s(self) -> float | None:
        """Arrival to last token."""
        return None if self.last_token_s is None else self.last_token_s - self.arrival_s


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """One micro-batch on its way through all stages.

    Attributes:
        start_s: when the first stage began with it.
        span_s: from there to the end of its last stage.
        num_tokens: prefilled and decoded together.
        chunk_tokens: the budget that it was composed for.
        stage_times_s: computation on each stage.
        bubbles_s: for each stage, how long it had idled before this micro-batch while there was
            work in the pipeline.
        lock_step_s: in lock step, the step in which the first stage computed it: from its
            composition until the slowest stage had handed on, the leader's work included. None
            where stages run free.
    """

    start_s: float
    span_s: float
    slot_index: int
    num_tokens: int
    num_decodes: int
    chunk_tokens: int
    stage_times_s: tuple[float, ...]
    bubbles_s: tuple[float, ...]
    lock_step_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A whole run.

    Attributes:
        requests: every one that arrived, in order of arrival.
        steps: in order of time; an executor may keep only some of them.
        duration_s: from 0 to the last event.
        kv_used_ratio_max, kv_used_ratio_mean: of the KV blocks; the mean is over time.
    """

    requests: tuple[RequestOutcome, ...]
    steps: tuple[StepOutcome, ...]
    duration_s: float
    kv_used_ratio_max: float
    kv_used_ratio_mean: float
    num_preemptions: int
