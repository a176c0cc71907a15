"""What the engine tells of itself, and the metrics that are made of it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pipelineserve import metrics
from pipelineserve.policy.preemption import KvCosts
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.messages import Census, Emission, MicroBatch
from pipelineserve.scheduler.requests import FinishReason, NewRequest, RequestRecord
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.tally import Tally
from pipelineserve_engine.stage_messages import StepReport
from pipelineserve_engine.telemetry import Telemetry

_BUBBLE_WINDOW_S = 10.0
_REJECTED = "rejected"


class BusyMeter:
    """How long the pipeline had work, and how long each stage computed.

    The pipeline has work while a micro-batch is in flight. Times are of the monotonic clock that
    the stages report in.
    """

    def __init__(self, num_stages: int) -> None:
        self.work_s = 0.0
        self.busy_s = [0.0] * num_stages
        self._work_since_s: float | None = None
        self._marks: deque[tuple[float, list[float]]] = deque([(0.0, [0.0] * num_stages)])

    def start_work(self, now_s: float) -> None:
        """A micro-batch was sent."""
        if self._work_since_s is None:
            self._work_since_s = now_s

    def advance(self, now_s: float, num_in_flight: int) -> None:
        """A micro-batch has come back; the work ends if it was the last one."""
        if self._work_since_s is not None:
            self.work_s += max(0.0, now_s - self._work_since_s)
            self._work_since_s = now_s if num_in_flight else None

    def abandon(self) -> None:
        """What is in flight never comes back; time since the last that did is not counted."""
        self._work_since_s = None

    def add_busy(self, stage_index: int, busy_s: float) -> None:
        """A stage has computed for this long."""
        self.busy_s[stage_index] += busy_s

    def bubble_ratios(self) -> list[float]:
        """Idle share of each stage over about the last 10 s of work; 0 before any work."""
        while len(self._marks) > 1 and self.work_s - self._marks[1][0] >= _BUBBLE_WINDOW_S:
            self._marks.popleft()
        if self.work_s - self._marks[-1][0] >= _BUBBLE_WINDOW_S / 10:
            self._marks.append((self.work_s, list(self.busy_s)))
        since_s, busy_since_s = self._marks[0]
        span_s = self.work_s - since_s
        if span_s <= 0.0:
            return [0.0] * len(self.busy_s)
        return [
            min(1.0, max(0.0, 1.0 - (busy_s - before_s) / span_s))
            for busy_s, before_s in zip(self.busy_s, busy_since_s, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Levels:
    """The scheduler's state now, as far as metrics show it."""

    census: Census
    kv_used_ratio: float
    num_swapped_blocks: int
    num_held: int
    tally: Tally


def levels_of(scheduler: Scheduler) -> Levels:
    """Read the levels off a scheduler."""
    return Levels(
        census=scheduler.census(),
        kv_used_ratio=scheduler.kv_used_ratio,
        num_swapped_blocks=scheduler.kv.host.num_taken,
        num_held=scheduler.num_held,
        tally=scheduler.tally,
    )


class Listener:
    """Hears what the observer hears, in the engine's thread; each kind overrides what it needs."""

    def on_accepted(self, request: NewRequest, now_s: float) -> None:
        """See `Observer.on_accepted`."""

    def on_rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """See `Observer.on_rejected`."""

    def on_recovery(self) -> None:
        """See `Observer.on_recovery`."""

    def on_adopted(self, policy: SchedulingPolicy) -> None:
        """See `Observer.on_adopted`."""

    def on_kv_costs(self, costs: KvCosts) -> None:
        """See `Observer.on_kv_costs`."""

    def on_nothing_to_send(self, slot_index: int, now_s: float) -> None:
        """See `Observer.on_nothing_to_send`."""

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """See `Observer.on_sent`."""

    def on_step(self, report: StepReport) -> None:
        """See `Observer.on_step`."""

    def on_completed(self, report: StepReport, now_s: float, num_in_flight: int) -> None:
        """See `Observer.on_completed`."""

    def on_emission(self, emission: Emission, now_s: float) -> None:
        """See `Observer.on_emission`."""

    def on_ended(self, record: RequestRecord) -> None:
        """See `Observer.on_ended`."""

    def on_levels(self, levels: Levels) -> None:
        """See `Observer.on_levels`; several times a second, with or without work."""


class Observer:
    """Turns what happens in the engine into the catalogue's metrics, and tells its listeners.

    Raises:
        KeyError: a metric is not of the kind that the catalogue says; a mistake in this module.
    """

    def __init__(
        self, telemetry: Telemetry, num_stages: int, listeners: Sequence[Listener] = ()
    ) -> None:
        self._telemetry = telemetry
        self._meter = BusyMeter(num_stages)
        self._reported = Tally()
        self._listeners = list(listeners)
        # From the start, or the first error would not show as a rise.
        for outcome in (*(finish.value for finish in FinishReason), _REJECTED):
            telemetry.counter(metrics.REQUESTS).labels(outcome=outcome)

    def add(self, listener: Listener) -> None:
        """Tell this one as well from now on."""
        self._listeners.append(listener)

    def on_accepted(self, request: NewRequest, now_s: float) -> None:
        """A request entered the waiting queue."""
        self._telemetry.counter(metrics.PROMPT_TOKENS).inc(len(request.prompt_token_ids))
        for listener in self._listeners:
            listener.on_accepted(request, now_s)

    def on_rejected(self, num_prompt_tokens: int, now_s: float) -> None:
        """A request was refused."""
        self._telemetry.counter(metrics.REQUESTS).labels(outcome=_REJECTED).inc()
        for listener in self._listeners:
            listener.on_rejected(num_prompt_tokens, now_s)

    def on_accounting_fault(self) -> None:
        """The requests in the engine do not add up."""
        self._telemetry.counter(metrics.ACCOUNTING_FAULTS).inc()

    def on_recovery(self) -> None:
        """The stages failed and start anew; what was in the pipeline is gone."""
        self._telemetry.counter(metrics.RECOVERIES).inc()
        self._meter.abandon()
        for listener in self._listeners:
            listener.on_recovery()

    def on_adopted(self, policy: SchedulingPolicy) -> None:
        """The scheduler follows this policy from the next micro-batch on."""
        for listener in self._listeners:
            listener.on_adopted(policy)

    def on_kv_costs(self, costs: KvCosts) -> None:
        """The scheduler knows these costs from the next micro-batch on."""
        for listener in self._listeners:
            listener.on_kv_costs(costs)

    def on_nothing_to_send(self, slot_index: int, now_s: float) -> None:
        """The scheduler found nothing for an empty slot although a request is live."""
        for listener in self._listeners:
            listener.on_nothing_to_send(slot_index, now_s)

    def on_sent(self, micro_batch: MicroBatch, now_s: float) -> None:
        """A micro-batch entered the pipeline."""
        self._telemetry.histogram(metrics.MICRO_BATCH_TOKENS).observe(micro_batch.num_tokens)
        self._telemetry.gauge(metrics.CHUNK_TOKENS).set(micro_batch.chunk.chunk_tokens)
        self._meter.start_work(now_s)
        for listener in self._listeners:
            listener.on_sent(micro_batch, now_s)

    def on_step(self, report: StepReport) -> None:
        """A stage has run a micro-batch."""
        step_time_s = report.end_s - report.start_s
        stage = str(report.stage_index)
        self._telemetry.histogram(metrics.STEP_TIME).labels(stage=stage).observe(step_time_s)
        self._telemetry.counter(metrics.STAGE_BUSY).labels(stage=stage).inc(step_time_s)
        self._meter.add_busy(report.stage_index, step_time_s)
        for listener in self._listeners:
            listener.on_step(report)

    def on_completed(self, report: StepReport, now_s: float, num_in_flight: int) -> None:
        """A micro-batch left the pipeline: the last stage's report of it was taken in now."""
        before_s = self._meter.work_s
        self._meter.advance(report.end_s, num_in_flight)
        self._telemetry.counter(metrics.WORK).inc(self._meter.work_s - before_s)
        for listener in self._listeners:
            listener.on_completed(report, now_s, num_in_flight)

    def on_emission(self, emission: Emission, now_s: float) -> None:
        """A request got a token, or ended."""
        if emission.ttft_s is not None:
            self._telemetry.histogram(metrics.TTFT).observe(emission.ttft_s)
        if emission.gap_s is not None:
            self._telemetry.histogram(metrics.TOKEN_GAP).observe(emission.gap_s)
        if emission.token_id is not None:
            self._telemetry.counter(metrics.OUTPUT_TOKENS).inc()
        for listener in self._listeners:
            listener.on_emission(emission, now_s)

    def on_ended(self, record: RequestRecord) -> None:
        """A request ended, however."""
        for listener in self._listeners:
            listener.on_ended(record)
        self._telemetry.counter(metrics.REQUESTS).labels(outcome=record.finish.value).inc()
        if record.first_issue_s is not None:
            wait_s = record.first_issue_s - record.arrival_s
            self._telemetry.histogram(metrics.QUEUE_WAIT).observe(wait_s)
        if not record.finish.is_success:
            return
        self._telemetry.histogram(metrics.E2E).observe(record.end_s - record.arrival_s)
        if record.tpot_s is not None:
            self._telemetry.histogram(metrics.TPOT).observe(record.tpot_s)

    def on_levels(self, levels: Levels) -> None:
        """How things stand now."""
        census, tally = levels.census, levels.tally
        self._telemetry.gauge(metrics.REQUESTS_WAITING).set(census.waiting)
        self._telemetry.gauge(metrics.REQUESTS_RUNNING).set(census.running)
        self._telemetry.gauge(metrics.KV_USED).set(levels.kv_used_ratio)
        self._telemetry.gauge(metrics.KV_SWAPPED).set(levels.num_swapped_blocks)
        self._telemetry.gauge(metrics.REQUESTS_HELD).set(levels.num_held)
        self._count_preemptions(tally)
        self._rise(metrics.CACHED_TOKENS, tally.cached_tokens, self._reported.cached_tokens)
        self._reported.cached_tokens = tally.cached_tokens
        for stage_index, ratio in enumerate(self._meter.bubble_ratios()):
            self._telemetry.gauge(metrics.BUBBLE).labels(stage=str(stage_index)).set(ratio)
        for listener in self._listeners:
            listener.on_levels(levels)

    def _count_preemptions(self, tally: Tally) -> None:
        new = tally.preemption_decisions - self._reported.preemption_decisions
        for decision, number in new.items():
            labels = {"kind": decision.preemption.value, "reason": decision.reason.value}
            self._telemetry.counter(metrics.PREEMPTIONS).labels(**labels).inc(number)
        self._reported.preemption_decisions = tally.preemption_decisions.copy()

    def _rise(self, metric: metrics.Metric, total: int, reported: int) -> None:
        if total > reported:
            self._telemetry.counter(metric).inc(total - reported)
