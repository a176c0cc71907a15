"""Keeps what a run leaves behind."""

from pipelineserve.scheduler.requests import RequestRecord
from pipelineserve_simulator.kernel.ticks import TICKS_PER_S, to_seconds
from pipelineserve_simulator.measures.runs import RequestOutcome, RunOutcome, StepOutcome
from pipelineserve_simulator.pipeline.passage import Passage
from pipelineserve_simulator.workloads.requests import SimulatedRequest


class RunRecords:
    """Outcomes as they come; memory is bounded by what is asked to be kept.

    Args:
        step_stride: every so many-th step is kept; 0 for none.
    """

    def __init__(self, step_stride: int) -> None:
        self._step_stride = step_stride
        self._num_steps = 0
        self._requests: list[RequestOutcome] = []
        self._steps: list[StepOutcome] = []
        self._last_end_ticks = 0
        self._kv_at_ticks = 0
        self._kv_ratio = 0.0
        self._kv_ratio_ticks = 0.0
        self._kv_ratio_max = 0.0

    def note_kv(self, used_ratio: float, now_ticks: int) -> None:
        """So much is used from now on."""
        self._kv_ratio_ticks += self._kv_ratio * (now_ticks - self._kv_at_ticks)
        self._kv_at_ticks, self._kv_ratio = now_ticks, used_ratio
        self._kv_ratio_max = max(self._kv_ratio_max, used_ratio)

    def note_step(self, passage: Passage) -> None:
        """A micro-batch came back."""
        if self._step_stride and self._num_steps % self._step_stride == 0:
            self._steps.append(passage.outcome())
        self._num_steps += 1

    def note_end(self, index: int, record: RequestRecord, now_ticks: int) -> None:
        """A request ended."""
        self._last_end_ticks = now_ticks
        self._requests.append(
            RequestOutcome(
                index=index,
                arrival_s=record.arrival_s,
                first_token_s=record.first_token_s,
                last_token_s=record.last_token_s,
                end_s=record.end_s,
                prompt_tokens=record.num_prompt_tokens,
                output_tokens=record.num_output_tokens,
                longest_gap_s=record.longest_gap_s,
                held_s=record.held_s,
                num_requeues=record.num_requeues,
                is_success=record.finish.is_success,
            )
        )

    def note_rejected(self, request: SimulatedRequest, now_ticks: int) -> None:
        """A request was not accepted."""
        now_s = to_seconds(now_ticks)
        self._last_end_ticks = now_ticks
        self._requests.append(
            RequestOutcome(
                index=request.index,
                arrival_s=now_s,
                first_token_s=None,
                last_token_s=None,
                end_s=now_s,
                prompt_tokens=request.prompt_tokens,
                output_tokens=0,
                longest_gap_s=0.0,
                held_s=0.0,
                num_requeues=0,
                is_success=False,
            )
        )

    def outcome(self, num_preemptions: int) -> RunOutcome:
        """Everything, once the last request has ended."""
        end_ticks = self._last_end_ticks
        self.note_kv(self._kv_ratio, max(end_ticks, self._kv_at_ticks))
        return RunOutcome(
            requests=tuple(sorted(self._requests, key=lambda outcome: outcome.index)),
            steps=tuple(self._steps),
            duration_s=end_ticks / TICKS_PER_S,
            kv_used_ratio_max=self._kv_ratio_max,
            kv_used_ratio_mean=self._kv_ratio_ticks / end_ticks if end_ticks else 0.0,
            num_preemptions=num_preemptions,
        )
