"""The engine's heart without its thread: scheduler, executor and what is told of both."""

import logging
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pipelineserve.errors import StagesFailedError
from pipelineserve.policy.preemption import UNMEASURED
from pipelineserve.scheduler.messages import (
    Accepted,
    Emission,
    MicroBatch,
    Rejected,
    StepResult,
)
from pipelineserve.scheduler.requests import FinishReason, NewRequest, RequestRecord
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_engine.accounting import Account
from pipelineserve_engine.executor import Executor, command_of
from pipelineserve_engine.generation import GenerationRequest, TokenEvent, TokenLogprobs
from pipelineserve_engine.kv_costs import KvCostMeter
from pipelineserve_engine.observation import Observer, levels_of
from pipelineserve_engine.request_sampling import RequestSampling
from pipelineserve_engine.stage_messages import (
    FailureReport,
    HeartbeatReport,
    ReadyReport,
    SampleExtras,
    StageReport,
    StepReport,
)

_SEED_BITS = 63

logger = logging.getLogger(__name__)


def random_seed() -> int:
    """A seed for a request that brought none."""
    return secrets.randbits(_SEED_BITS)


@dataclass(frozen=True, slots=True)
class Output:
    """One step of a request's output, with what the stages said about its token."""

    emission: Emission
    logprobs: TokenLogprobs | None = None
    detail: str = ""

    @property
    def request_id(self) -> str:
        """Whose output it is."""
        return self.emission.request_id

    @property
    def token_id(self) -> int | None:
        """The token, or None when the request ended without a further one."""
        return self.emission.token_id

    @property
    def finish(self) -> FinishReason | None:
        """Why the request ended, if it did."""
        return self.emission.finish

    @property
    def event(self) -> TokenEvent:
        """What the request's client is told."""
        return TokenEvent(
            self.token_id,
            self.finish,
            self.emission.num_cached_tokens,
            None if self.token_id is None else self.logprobs,
            self.detail,
        )


@dataclass(frozen=True, slots=True)
class _Sampled:
    """Who gets the tokens of a micro-batch in flight, in the order of its sampling pieces.

    The request's sampling stands beside its id, since the id may be another request's by the time
    the tokens come back.
    """

    sequence: int
    requests: tuple[tuple[str, RequestSampling], ...]


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
        self._sampling: dict[str, RequestSampling] = {}
        self._sampled: deque[_Sampled] = deque()
        self._kv_costs = KvCostMeter()
        self._told_costs = UNMEASURED
        self._is_idle = False
        self._was_sound = True

    def submit(self, request: GenerationRequest, now_s: float) -> Accepted | Rejected:
        """Queue a request or say why not."""
        new = _new_request(request)
        outcome = self.scheduler.submit(new, now_s)
        match outcome:
            case Accepted():
                self._sampling[request.request_id] = RequestSampling(request, self._draw_seed)
                self._observer.on_accepted(new, now_s)
            case Rejected():
                self._observer.on_rejected(len(request.prompt_token_ids), now_s)
        return outcome

    def cancel(self, request_id: str, now_s: float) -> None:
        """End a request that its client no longer wants; unknown ones have ended already."""
        self._note_end(self.scheduler.cancel(request_id, now_s))

    def finish(self, request_id: str, now_s: float) -> None:
        """End a request whose text is complete; unknown ones have ended already."""
        self._note_end(self.scheduler.finish(request_id, now_s))

    def fail(self, request_id: str, now_s: float) -> None:
        """End a request that the server cannot go on with; unknown ones have ended already."""
        self._note_end(self.scheduler.fail(request_id, now_s))

    def fail_all(self, now_s: float) -> list[RequestRecord]:
        """End every request because the stages are gone."""
        records = self.scheduler.fail_all(now_s)
        self._sampled.clear()
        for record in records:
            self._note_end(record)
        return records

    def recall_all(self) -> int:
        """Let every running request start over, since the stages are new; return how many."""
        self._observer.on_recovery()
        self._sampled.clear()
        self._kv_costs.abandon()
        self._is_idle = False
        return self.scheduler.recall_all()

    def fill_slots(self, now_s: float) -> None:
        """Compose and send a micro-batch for every empty slot that there is work for."""
        if not self.scheduler.has_work:
            self._is_idle = False
            return
        self._tell_costs()
        for slot_index in range(self.scheduler.settings.num_slots):
            if self.scheduler.is_slot_in_flight(slot_index):
                continue
            micro_batch = self.scheduler.next_micro_batch(slot_index, now_s, self._told_costs)
            if micro_batch is None:
                self._observer.on_nothing_to_send(slot_index, now_s)
                if self.scheduler.assignment.is_slot_bound:
                    continue
                break  # what one slot finds nothing to do in, the next does not either
            self._note_sampled(micro_batch)
            self._kv_costs.on_sent(micro_batch)
            self._executor.send(command_of(micro_batch, self._sampling))
            self._observer.on_sent(micro_batch, now_s)
        self._is_idle = not self.scheduler.num_in_flight

    def absorb(self, report: StageReport, now_s: float) -> list[Output]:
        """Take one report in; the last stage's completes its micro-batch.

        Raises:
            StagesFailedError: the stage says that it failed.
        """
        match report:
            case FailureReport():
                raise StagesFailedError(report.text)
            case ReadyReport():
                self._kv_costs.on_ready(report)
                return []
            case HeartbeatReport():
                return []
            case StepReport():
                return self._absorb_step(report, now_s)

    def observe_levels(self) -> None:
        """Tell the observer how many requests wait and run, and how full the pool is."""
        self._observer.on_levels(levels_of(self.scheduler))

    def audit(self, num_clients: int, now_s: float) -> list[Output]:
        """Check that no request has got lost, and end those that have rather than let them wait.

        Args:
            num_clients: that wait for an answer, after everything was obeyed and delivered.
            now_s: the time.
        """
        lost = self.scheduler.lost()
        account = Account(
            census=self.scheduler.census(),
            num_lost=len(lost),
            num_sampled=len(self._sampling),
            num_clients=num_clients,
            is_idle=self._is_idle and self.scheduler.has_work,
        )
        if account.fault:
            self._observer.on_accounting_fault()
        if account.fault and self._was_sound:
            logger.error("requests do not add up: %s", account.fault)
        self._was_sound = not account.fault
        return [self._end_lost(request_id, now_s) for request_id in lost]

    def _end_lost(self, request_id: str, now_s: float) -> Output:
        record = self.scheduler.fail(request_id, now_s)
        self._note_end(record)
        return Output(Emission(request_id, None, record), detail="the engine has lost the request")

    def _absorb_step(self, report: StepReport, now_s: float) -> list[Output]:
        self._observer.on_step(report)
        self._kv_costs.on_step(report)
        if report.token_ids is None:
            return []
        sampled = self._take_sampled(report.sequence)
        extras = report.extras or SampleExtras()
        failed = self._fail_samples(sampled, extras, now_s)
        result = StepResult(report.sequence, report.token_ids)
        emissions = tuple(self.scheduler.complete(report.slot_index, result, now_s))
        self._observer.on_completed(report, now_s, self.scheduler.num_in_flight)
        logprobs = dict(zip((name for name, _ in sampled), extras.logprobs, strict=False))
        for emission in emissions:
            self._observer.on_emission(emission, now_s)
            if emission.token_id is not None:
                self._sampling[emission.request_id].append(emission.token_id)
            self._note_end(emission.record)
        return failed + [Output(e, logprobs.get(e.request_id)) for e in emissions]

    def _tell_costs(self) -> None:
        if self._kv_costs.costs != self._told_costs:
            self._told_costs = self._kv_costs.costs
            self._observer.on_kv_costs(self._told_costs)

    def _note_sampled(self, micro_batch: MicroBatch) -> None:
        requests = tuple(
            (piece.request_id, self._sampling[piece.request_id])
            for piece in micro_batch.pieces
            if piece.samples
        )
        self._sampled.append(_Sampled(micro_batch.sequence, requests))

    def _take_sampled(self, sequence: int) -> tuple[tuple[str, RequestSampling], ...]:
        """Who gets the tokens of this micro-batch; what was sent before it never comes back."""
        while self._sampled and self._sampled[0].sequence <= sequence:
            sampled = self._sampled.popleft()
            if sampled.sequence == sequence:
                return sampled.requests
        return ()  # the scheduler refuses the result

    def _fail_samples(
        self,
        sampled: tuple[tuple[str, RequestSampling], ...],
        extras: SampleExtras,
        now_s: float,
    ) -> list[Output]:
        """End the requests whose token could not be chosen; the scheduler drops their token."""
        outputs = []
        for failure in extras.failures:
            request_id, sampling = sampled[failure.sample_index]
            if self._sampling.get(request_id) is not sampling:
                continue  # it has ended meanwhile
            record = self.scheduler.fail(request_id, now_s)
            self._note_end(record)
            outputs.append(Output(Emission(request_id, None, record), detail=failure.reason))
        return outputs

    def _note_end(self, record: RequestRecord | None) -> None:
        if record is not None:
            del self._sampling[record.request_id]
            self._observer.on_ended(record)


def _new_request(request: GenerationRequest) -> NewRequest:
    return NewRequest(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        max_output_tokens=request.max_output_tokens,
        stop_token_ids=request.stop_token_ids,
        client_id=request.client_id,
        priority=request.priority,
    )
