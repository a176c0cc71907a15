"""The engine's heart without its thread: scheduler, executor and what is told of both."""

import secrets
from collections.abc import Callable
from dataclasses import replace

from pipelineserve.errors import StagesFailedError
from pipelineserve.scheduler.messages import Accepted, Emission, Rejected, StepResult
from pipelineserve.scheduler.requests import NewRequest, RequestRecord
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_engine.executor import Executor, command_of
from pipelineserve_engine.generation import GenerationRequest, SamplingParameters
from pipelineserve_engine.observation import Observer
from pipelineserve_engine.stage_messages import (
    FailureReport,
    HeartbeatReport,
    ReadyReport,
    StageReport,
    StepReport,
)

_SEED_BITS = 63


def random_seed() -> int:
    """A seed for a request that brought none."""
    return secrets.randbits(_SEED_BITS)


class EngineCore:
    """Feeds empty slots, takes reports in, and keeps what the stages need of each request.

    Not thread-safe; the loop calls it from one thread, tests call it directly.

    Args:
        scheduler: empty.
        executor: its stages are ready.
        observer: told of everything that metrics are made of.
        draw_seed: gives a seed to sampling requests without one, so that a replay draws the same.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        observer: Observer,
        draw_seed: Callable[[], int] = random_seed,
    ) -> None:
        self.scheduler = scheduler
        self._executor = executor
        self._observer = observer
        self._draw_seed = draw_seed
        self._sampling: dict[str, SamplingParameters] = {}

    def submit(self, request: GenerationRequest, now_s: float) -> Accepted | Rejected:
        """Queue a request or say why not."""
        outcome = self.scheduler.submit(_new_request(request), now_s)
        match outcome:
            case Accepted():
                self._sampling[request.request_id] = self._with_seed(request.sampling)
                self._observer.on_accepted(len(request.prompt_token_ids))
            case Rejected():
                self._observer.on_rejected()
        return outcome

    def cancel(self, request_id: str, now_s: float) -> None:
        """End a request that its client no longer wants; unknown ones have ended already."""
        self._note_end(self.scheduler.cancel(request_id, now_s))

    def finish(self, request_id: str, now_s: float) -> None:
        """End a request whose text is complete; unknown ones have ended already."""
        self._note_end(self.scheduler.finish(request_id, now_s))

    def fail_all(self, now_s: float) -> list[RequestRecord]:
        """End every request because the stages are gone."""
        records = self.scheduler.fail_all(now_s)
        for record in records:
            self._note_end(record)
        return records

    def recall_all(self) -> int:
        """Let every running request start over, since the stages are new; return how many."""
        self._observer.on_recovery()
        return self.scheduler.recall_all()

    def fill_slots(self, now_s: float) -> None:
        """Compose and send a micro-batch for every empty slot that there is work for."""
        for slot_index in range(self.scheduler.settings.num_slots):
            if self.scheduler.is_slot_in_flight(slot_index):
                continue
            micro_batch = self.scheduler.next_micro_batch(slot_index, now_s)
            if micro_batch is None:
                break  # what one slot finds nothing to do in, the next does not either
            self._executor.send(command_of(micro_batch, self._sampling))
            self._observer.on_sent(micro_batch, now_s)

    def absorb(self, report: StageReport, now_s: float) -> list[Emission]:
        """Take one report in; the last stage's completes its micro-batch.

        Raises:
            StagesFailedError: the stage says that it failed.
        """
        match report:
            case FailureReport():
                raise StagesFailedError(report.text)
            case ReadyReport() | HeartbeatReport():
                return []
            case StepReport():
                return self._absorb_step(report, now_s)

    def observe_levels(self) -> None:
        """Tell the observer how many requests wait and run, and how full the pool is."""
        self._observer.on_levels(
            self.scheduler.census(), self.scheduler.kv_used_ratio, self.scheduler.tally
        )

    def _absorb_step(self, report: StepReport, now_s: float) -> list[Emission]:
        self._observer.on_step(report)
        if report.token_ids is None:
            return []
        result = StepResult(report.sequence, report.token_ids)
        emissions = self.scheduler.complete(report.slot_index, result, now_s)
        self._observer.on_completed(report.end_s, self.scheduler.num_in_flight)
        for emission in emissions:
            self._observer.on_emission(emission)
            self._note_end(emission.record)
        return emissions

    def _note_end(self, record: RequestRecord | None) -> None:
        if record is not None:
            del self._sampling[record.request_id]
            self._observer.on_ended(record)

    def _with_seed(self, sampling: SamplingParameters) -> SamplingParameters:
        if sampling.temperature <= 0.0 or sampling.seed is not None:
            return sampling
        return replace(sampling, seed=self._draw_seed())


def _new_request(request: GenerationRequest) -> NewRequest:
    return NewRequest(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        max_output_tokens=request.max_output_tokens,
        stop_token_ids=request.stop_token_ids,
        client_id=request.client_id,
        priority=request.priority,
    )
