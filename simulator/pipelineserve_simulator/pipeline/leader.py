"""The leader: the scheduler, what is in flight, and what is written down of it."""

from collections import deque

from pipelineserve.scheduler.messages import Rejected, StepResult
from pipelineserve.scheduler.requests import NewRequest
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve_simulator.kernel.ticks import to_seconds
from pipelineserve_simulator.pipeline.costs import PipelineCosts
from pipelineserve_simulator.pipeline.loads import load_of
from pipelineserve_simulator.pipeline.options import PipelineOptions
from pipelineserve_simulator.pipeline.passage import Passage
from pipelineserve_simulator.pipeline.records import RunRecords
from pipelineserve_simulator.workloads.requests import SimulatedRequest

# What every token is whose content nobody knows; only lengths matter then.
_TOKEN_ID = 0


class Leader:
    """Composes micro-batches and takes them back; every time is the caller's.

    Attributes:
        work_since_ticks: when the first of the requests that are live came to an empty pipeline.
    """

    def __init__(
        self, scheduler: Scheduler, costs: PipelineCosts, options: PipelineOptions
    ) -> None:
        self.scheduler = scheduler
        self.costs = costs
        self.records = RunRecords(options.step_stride)
        self.work_since_ticks = 0
        self._noise = options.noise
        self._observe = options.observe
        self._control = options.control
        self._in_flight: deque[Passage] = deque()

    def submit(self, request: SimulatedRequest, now_ticks: int) -> None:
        """A request arrives."""
        if not self.scheduler.has_work:
            self.work_since_ticks = now_ticks
        new = NewRequest(
            request_id=str(request.index),
            prompt_token_ids=request.prompt_token_ids or (_TOKEN_ID,) * request.prompt_tokens,
            max_output_tokens=request.output_tokens,
            client_id=request.client_id,
            priority=request.priority,
        )
        now_s, control = to_seconds(now_ticks), self._control
        is_rejected = isinstance(self.scheduler.submit(new, now_s), Rejected)
        if is_rejected:
            self.records.note_rejected(request, now_ticks)
        if control is not None and is_rejected:
            control.on_rejected(request.prompt_tokens, now_s)
        elif control is not None:
            control.on_accepted(new, now_s)

    def compose(self, slot_index: int, now_ticks: int) -> Passage | None:
        """Compose a micro-batch for an empty slot, if there is anything to run."""
        micro_batch = self.scheduler.next_micro_batch(slot_index, to_seconds(now_ticks))
        if micro_batch is None:
            return None
        load = load_of(micro_batch)
        passage = Passage(
            micro_batch,
            load,
            now_ticks,
            self.costs.stage_times_s(load),
            self._noise.factor(),
            self._noise.stall(self.costs.num_stages),
        )
        self._in_flight.append(passage)
        if self._control is not None:
            self._control.on_sent(micro_batch, to_seconds(now_ticks))
        self.records.note_kv(self.scheduler.kv_used_ratio, now_ticks)
        return passage

    def take_back(self, passage: Passage, now_ticks: int) -> None:
        """The tokens of the oldest micro-batch in flight are there."""
        self._in_flight.popleft()
        micro_batch = passage.micro_batch
        result = StepResult(micro_batch.sequence, (_TOKEN_ID,) * passage.load.num_samples)
        slot_index = micro_batch.slot_index
        emissions = self.scheduler.complete(slot_index, result, to_seconds(now_ticks))
        for record in emissions.records.values():
            self.records.note_end(int(record.request_id), record, now_ticks)
        self.records.note_step(passage)
        self.records.note_kv(self.scheduler.kv_used_ratio, now_ticks)
        if self._observe is not None:
            self._observe(passage, emissions)
        if self._control is not None:
            self._control.on_back(passage, emissions, to_seconds(now_ticks))

    def lose_all(self) -> None:
        """All KV is gone, and what is in flight never comes back."""
        for passage in self._in_flight:
            passage.is_lost = True
        self._in_flight.clear()
        self.scheduler.recall_all()
        if self._control is not None:
            self._control.on_stages_lost()
