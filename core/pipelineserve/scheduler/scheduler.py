"""The scheduler: composes micro-batches from requests, slots and KV blocks.

Deterministic: the same calls with the same times give the same micro-batches. The caller carries a
micro-batch through the stages and hands the tokens back; in between, other slots may be composed.

Invariants (tests/unit/core/scheduler holds them against random scripts):

1. Every request that arrived is waiting, running or counted once under how it ended.
2. A micro-batch never has more tokens than its chunk, nor a request twice.
3. A KV block is released only when no micro-batch in flight touches it.
4. While a request is live, a slot is in flight or composing some slot gives a micro-batch: any
   slot where decodes are not bound to theirs.
5. A host block is free or owned by one waiting request; no request owns blocks on both sides.
"""

from collections.abc import Iterable

from pipelineserve.policy.admission import KnownLengths
from pipelineserve.policy.assignment import AssignmentDecision, DecodeAssignment, OnePool
from pipelineserve.policy.chunking import ChunkDecision, ChunkPolicy, Static
from pipelineserve.policy.ordering import Arrival, QueueOrder
from pipelineserve.policy.predictive import DEFAULT_ARRIVAL_WINDOW_S, Predictive
from pipelineserve.policy.preemption import UNMEASURED, ByCost, KvCosts, PreemptionPolicy
from pipelineserve.policy.schedule import Continuous, Schedule, SlotsView
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.views import LoadView, SchedulerView
from pipelineserve.scheduler.admission import rejection_of
from pipelineserve.scheduler.arrivals import ArrivalWindow
from pipelineserve.scheduler.decodes import DecodePool
from pipelineserve.scheduler.drafts import Draft
from pipelineserve.scheduler.emissions import Emissions
from pipelineserve.scheduler.fairness import FairnessLedger
from pipelineserve.scheduler.flights import Flight, flight_of
from pipelineserve.scheduler.holds import Holder, HoldKeeper
from pipelineserve.scheduler.kv import KvLedger
from pipelineserve.scheduler.load_views import load_of, load_view, share_of
from pipelineserve.scheduler.messages import (
    Accepted,
    Census,
    MicroBatch,
    Rejected,
    StepResult,
)
from pipelineserve.scheduler.preemption import Preemptor, most_junior
from pipelineserve.scheduler.receipts import Complete, Receipt
from pipelineserve.scheduler.requests import (
    FinishReason,
    NewRequest,
    Request,
    RequestRecord,
    RequestState,
)
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve.scheduler.starting import LengthWatch, free_blocks_beside
from pipelineserve.scheduler.tally import Tally
from pipelineserve.scheduler.waiting import WaitingQueue


class Scheduler:
    """Owns every request from submission to its end; not thread-safe, one caller at a time."""

    def __init__(
        self,
        settings: SchedulerSettings,
        chunk_policy: ChunkPolicy,
        order: QueueOrder | None = None,
        assignment: DecodeAssignment | None = None,
        schedule: Schedule | None = None,
        *,
        preemption: PreemptionPolicy | None = None,
        admission: KnownLengths | None = None,
    ) -> None:
        self.settings = settings
        self.chunk_policy = chunk_policy
        self.assignment = assignment or OnePool()
        self.schedule = schedule or Continuous()
        self.tally = Tally()
        self.kv = self._empty_kv()
        self._preemptor = Preemptor(preemption or ByCost())
        # None: whoever's prompt fits beside what decodes take next may start.
        self._lengths = None if admission is None else LengthWatch(admission)
        self._fairness = FairnessLedger()
        self._waiting = WaitingQueue(order or Arrival(), self._fairness)
        self._arrivals = ArrivalWindow(DEFAULT_ARRIVAL_WINDOW_S)
        self._live: dict[str, Request] = {}
        # Started requests with prompt tokens still to issue, in the order in which they started.
        self._prefilling: dict[str, Request] = {}
        self._decodes = DecodePool(settings.num_slots if self.assignment.is_slot_bound else 1)
        self._holds: Holder = HoldKeeper(self._decodes)
        self._in_flight: dict[int, Flight] = {}
        # When each slot was last filled.
        self._filled_at_s: dict[int, float] = {}
        self._next_sequence = 0
        # Micro-batches sent since none was in flight.
        self._num_sent = 0
        self._next_submit_index = 0

    # Requests in and out

    def submit(self, new: NewRequest, now_s: float) -> Accepted | Rejected:
        """Queue a request, or say why not; a rejected one leaves only a count."""
        self.tally.arrived += 1
        limit = self.settings.max_request_tokens
        rejection = rejection_of(
            new,
            self.settings,
            is_duplicate=new.request_id in self._live,
            num_waiting=self._waiting.num_new,
        )
        if rejection is not None:
            self.tally.rejected += 1
            return rejection
        room = limit - len(new.prompt_token_ids)
        asked = room if new.max_output_tokens is None else new.max_output_tokens
        request = Request(
            new=new,
            arrival_s=now_s,
            max_output_tokens=min(asked, room),
            submit_index=self._next_submit_index,
            token_ids=list(new.prompt_token_ids),
        )
        self._next_submit_index += 1
        self._live[new.request_id] = request
        self._fairness.join(new.client_id)
        self._waiting.push(request)
        self._arrivals.add(len(new.prompt_token_ids), now_s)
        self.tally.prompt_tokens += len(new.prompt_token_ids)
        return Accepted(new.request_id, request.max_output_tokens)

    def cancel(self, request_id: str, now_s: float) -> RequestRecord | None:
        """End a request that nobody wants any more, in whatever state; None if it is not live."""
        return self._end_early(request_id, FinishReason.CANCELLED, now_s)

    def finish(self, request_id: str, now_s: float) -> RequestRecord | None:
        """End a request whose text is complete (a stop string); None if it is not live."""
        return self._end_early(request_id, FinishReason.STOP, now_s)

    def fail(self, request_id: str, now_s: float) -> RequestRecord | None:
        """End a request that cannot go on, though the others can; None if it is not live."""
        return self._end_early(request_id, FinishReason.ERROR, now_s)

    def fail_all(self, now_s: float) -> list[RequestRecord]:
        """End every live request because the executor is gone; in-flight work never comes back."""
        records = [
            self._end(request, FinishReason.ERROR, now_s) for request in list(self._live.values())
        ]
        self._lose_flights()
        return records

    def recall_all(self) -> int:
        """Send every running request back to the queue because all KV is lost; return how many.

        What is in flight never comes back. Each request goes on from the tokens that it has. Host
        memory is the stages' own, so what was kept there is lost as well.
        """
        for swapped in [request for request in self._waiting if request.host_block_ids]:
            self._waiting.remove(swapped)
            swapped.host_block_ids = []
            swapped.num_issued = 0
            self._waiting.push(swapped)
        recalled = list(self._running())
        for request in recalled:
            request.block_ids = ()
            request.num_published = 0
            request.num_in_flight = 0
            request.num_issued = 0
            self._requeue(request)
        self._lose_flights()
        self.tally.recalls += len(recalled)
        return len(recalled)

    # What a controller may change

    def adopt(self, policy: SchedulingPolicy) -> int:
        """Schedule by this policy from the next micro-batch on, and return its sequence."""
        self.chunk_policy = policy.chunking
        self._waiting.reorder(policy.order)
        self._holds.adopt(policy.holding)
        match policy.chunking:
            case Predictive(arrival_window_s=window_s):
                self._arrivals.resize(window_s)
            case Static():
                self._arrivals.resize(DEFAULT_ARRIVAL_WINDOW_S)
        return self._next_sequence

    # Micro-batches out and back

    def next_micro_batch(
        self, slot_index: int, now_s: float, costs: KvCosts = UNMEASURED
    ) -> MicroBatch | None:
        """Compose the next micro-batch for an empty slot; None when there is nothing to run now.

        Args:
            slot_index: the slot to fill.
            now_s: the caller's time.
            costs: what recomputing and copying KV take, as far as the caller has measured it.

        Raises:
            ValueError: the slot does not exist or is in flight.
        """
        if slot_index in self._in_flight or not 0 <= slot_index < self.settings.num_slots:
            raise ValueError(
                f"slot {slot_index} is in flight or not below {self.settings.num_slots}"
            )
        if not self._may_fill():
            return None
        self._preemptor.costs = costs
        self._decodes.fill(slot_index)
        base = self.view(slot_index, now_s)
        assigned = self.assignment.decide(base)
        view = self._load_view(base, assigned.max_decodes)
        chunk = self.chunk_policy.decide(view)
        draft = self._first_draft(view, chunk, assigned, now_s)
        if not draft.requests:
            return None
        return self._launch(slot_index, draft, chunk, now_s)

    def complete(self, slot_index: int, result: StepResult, now_s: float) -> Emissions:
        """Take back the tokens of the micro-batch in flight in this slot.

        Tokens of requests that ended meanwhile are dropped.

        Raises:
            ValueError: the result is not of the slot's micro-batch, which must be the oldest one in
                flight, or has the wrong length.
        """
        micro_batch, requests = flight_of(self._in_flight, slot_index, result)
        del self._in_flight[slot_index]
        self._waiting.note_return(now_s - self._filled_at_s[slot_index])
        return self._settle(Receipt(micro_batch, requests, result.token_ids, now_s))

    # What can be asked

    def view(self, slot_index: int, now_s: float) -> SchedulerView:
        """The aggregates that policies decide on."""
        return SchedulerView(
            now_s=now_s,
            slot_index=slot_index,
            num_slots=self.settings.num_slots,
            max_chunk_tokens=self.settings.max_chunk_tokens,
            num_waiting=len(self._waiting),
            waiting_tokens=self._waiting.num_tokens,
            num_prefilling=len(self._prefilling),
            num_decoding=self._decodes.num,
            num_ready_decodes=self._decodes.num_ready_for(slot_index),
            kv_free_ratio=self.kv.pool.num_free / self.settings.num_blocks,
        )

    def arrived_tokens(self, now_s: float) -> tuple[int, float]:
        """Prompt tokens that arrived lately, and the seconds that lately means."""
        return self._arrivals.at(now_s)

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that could go with the next micro-batch, were there no budget."""
        return self._waiting.num_tokens + load_of(self._prefilling.values()).tokens

    @property
    def num_held(self) -> int:
        """Decodes that are kept out of micro-batches for now."""
        return self._decodes.held.num

    @property
    def num_in_flight(self) -> int:
        """Slots whose micro-batch has not come back."""
        return len(self._in_flight)

    @property
    def kv_used_ratio(self) -> float:
        """Share of KV blocks that requests hold; those kept only as prefix cache are free."""
        return 1.0 - self.kv.pool.num_free / self.settings.num_blocks

    @property
    def has_work(self) -> bool:
        """Whether any request is live."""
        return bool(self._live)

    def is_slot_in_flight(self, slot_index: int) -> bool:
        """Whether the slot's micro-batch has not come back."""
        return slot_index in self._in_flight

    def lost(self) -> tuple[str, ...]:
        """Live requests that nothing will ever bring on; a mistake in here if there are any."""
        waiting = {request.request_id for request in self._waiting}
        return tuple(
            request_id
            for request_id, request in self._live.items()
            if request.num_in_flight == 0
            and request_id not in waiting
            and request_id not in self._prefilling
            and request not in self._decodes
            and not self._decodes.is_held(request)
        )

    def census(self) -> Census:
        """Account for every request that ever arrived."""
        return Census(
            arrived=self.tally.arrived,
            rejected=self.tally.rejected,
            waiting=len(self._waiting),
            running=len(self._live) - len(self._waiting),
            finished=self.tally.finished,
            cancelled=self.tally.cancelled,
            failed=self.tally.failed,
        )

    # Composition

    def _load_view(self, base: SchedulerView, max_decodes: int) -> LoadView:
        """What the chunk policy sees, after decodes were held and released for this micro-batch."""
        started = load_of(self._prefilling.values())
        assigned = self._holds.apply(
            share_of(self._decodes.ready, max_decodes),
            base,
            prefill_tokens=started.tokens + base.waiting_tokens,
            cycle_s=base.now_s - self._filled_at_s.get(base.slot_index, base.now_s),
        )
        return load_view(
            base,
            num_ready=self._decodes.num_ready_for(base.slot_index),
            assigned=assigned,
            started=started,
            waiting_squared_tokens=self._waiting.squared_tokens,
            arrived=self._arrivals.at(base.now_s),
        )

    def _first_draft(
        self, view: LoadView, chunk: ChunkDecision, assigned: AssignmentDecision, now_s: float
    ) -> Draft:
        """Compose; where nothing can go on, release who is held, then preempt one by one."""
        self._put_first(view, assigned)
        max_decodes = min(view.assigned.num, chunk.chunk_tokens)
        draft = self._compose(view.slot_index, max_decodes, chunk, now_s)
        if draft.requests or self._in_flight or self._decodes.has_ready_elsewhere:
            return draft
        if self._decodes.has_held:
            # Nobody else is left to make room for.
            self._holds.release_all()
            max_decodes = chunk.chunk_tokens
            draft = self._compose(view.slot_index, max_decodes, chunk, now_s)
        # Each round gives pieces or leaves one running request less. Bounded all the same: a fault
        # in the count of blocks must not spin the caller's only thread for ever.
        for _ in range(len(self._live)):
            if draft.requests or not self._has_running():
                break
            self._preempt(most_junior(self._running()))
            draft = self._compose(view.slot_index, max_decodes, chunk, now_s)
        return draft

    def _put_first(self, view: LoadView, assigned: AssignmentDecision) -> None:
        """Bring decodes and prompts into the order in which they are to go."""
        if assigned.tpot_target_s is not None and view.num_ready_decodes > view.assigned.num:
            self._decodes.put_least_slack_first(assigned.tpot_target_s)
        self._waiting.sort_out(view, self.chunk_policy)

    def _compose(
        self, slot_index: int, max_decodes: int, chunk: ChunkDecision, now_s: float
    ) -> Draft:
        """Decodes first, then started prompts in their order, then waiting ones."""
        if self._lengths is not None:
            self._lengths.begin(slot_index, self._running, self._in_flight)
        draft = self._issue_decodes(max_decodes)
        budget = chunk.chunk_tokens - len(draft.requests)
        for request in list(self._prefilling.values()):
            budget -= self._issue_prefill(request, budget, draft)
        while budget > 0 and (waiting := self._waiting.head()) is not None:
            if not self._can_start(waiting):
                break  # nobody overtakes it, or a large prompt would wait for ever
            self._start(waiting, now_s)
            budget -= self._issue_prefill(waiting, budget, draft)
        return draft

    def _issue_decodes(self, max_decodes: int) -> Draft:
        """Issue decodes in the order in which they became ready, preempting juniors for blocks."""
        draft = Draft()
        first = self._decodes.first_ready(max_decodes)
        if self.kv.grow_decodes(first):
            draft.add_decodes(first)
        else:
            for request in self._decodes.first_ready(self._decodes.ready.num):
                if len(draft.requests) == max_decodes:
                    break
                # Else it was just preempted.
                if request in self._decodes and self._make_room(request):
                    draft.add_decodes([request])
        # Whoever is in the draft is in flight, so none of them was preempted for one after it.
        self._decodes.issue(draft.requests)
        return draft

    def _issue_prefill(self, request: Request, budget: int, draft: Draft) -> int:
        """Issue the request's next piece if budget and blocks allow; return its tokens."""
        num_tokens = min(budget, request.num_remaining)
        # Decodes may have taken its blocks: it goes on when they end or are preempted.
        if num_tokens < 1 or not self.kv.grow(request, request.num_issued + num_tokens):
            return 0
        if num_tokens == request.num_remaining:
            del self._prefilling[request.request_id]
        draft.add_prefill(request, num_tokens)
        if request.num_remaining == 0:
            request.state = RequestState.DECODING
            self._decodes.join(request)
        return num_tokens

    def _make_room(self, request: Request) -> bool:
        """Give a decode the block it needs; preempt those below it, never those above."""
        while not self.kv.grow(request, len(request.token_ids)):
            victim = most_junior(r for r in self._running() if r.num_in_flight == 0)
            if victim is request:
                return False
            self._preempt(victim)
        return True

    def _can_start(self, request: Request) -> bool:
        """Whether the whole prompt fits beside what started prompts and decodes will soon take."""
        num_running = len(self._live) - len(self._waiting)
        if num_running >= self.settings.max_running_requests:
            return False
        wanted = self.kv.num_wanted_to_start(request)
        free = free_blocks_beside(self.kv, self._prefilling.values()) - wanted
        if self._lengths is None or num_running == 0:
            return free >= num_running
        free_tokens = free * self.settings.block_tokens
        return free >= 0 and self._lengths.may_start(request, free_tokens)

    def _start(self, request: Request, now_s: float) -> None:
        if self._lengths is not None:
            self._lengths.note_start(request)
        self._waiting.start(request)
        request.num_issued = self.kv.start(request)
        request.state = RequestState.PREFILLING
        if request.first_issue_s is None:
            request.first_issue_s = now_s
            request.num_cached = request.num_issued
            self.tally.cached_tokens += request.num_issued
            self._fairness.charge(request.new.client_id, prompt_tokens=request.num_remaining)
        self._prefilling[request.request_id] = request

    def _launch(
        self, slot_index: int, draft: Draft, chunk: ChunkDecision, now_s: float
    ) -> MicroBatch:
        micro_batch = MicroBatch(
            sequence=self._next_sequence,
            slot_index=slot_index,
            decodes=draft.decodes(),
            prefills=tuple(draft.prefills),
            chunk=chunk,
            copies=self.kv.take_copies(),
        )
        self._filled_at_s[slot_index] = now_s
        self._next_sequence += 1
        self._num_sent += 1
        self._in_flight[slot_index] = (micro_batch, tuple(draft.requests))
        # Only now: a piece must not find blocks that are filled by the same micro-batch.
        self.kv.publish(draft.requests)
        self._waiting.note_launch(micro_batch, now_s, leaves_started=bool(self._prefilling))
        return micro_batch

    def _empty_kv(self) -> KvLedger:
        sizes = self.settings
        return KvLedger(
            sizes.num_blocks,
            sizes.block_tokens,
            sizes.num_host_blocks,
            shares_prefixes=sizes.shares_prefixes,
        )

    def _lose_flights(self) -> None:
        """What is in flight never comes back, and all KV is gone."""
        self._in_flight.clear()
        self.kv = self._empty_kv()
        self._waiting.forget_in_flight()

    def _may_fill(self) -> bool:
        if not self._in_flight:
            self._num_sent = 0
        view = SlotsView(
            num_slots=self.settings.num_slots,
            num_in_flight=len(self._in_flight),
            num_sent=self._num_sent,
        )
        return self.schedule.decide(view).may_fill

    # Preemption

    def _running(self) -> Iterable[Request]:
        return (r for r in self._live.values() if r.state is not RequestState.WAITING)

    def _has_running(self) -> bool:
        return len(self._live) > len(self._waiting)

    def _preempt(self, request: Request) -> None:
        """Send a request that is not in flight back to the queue, with its KV kept or not."""
        decision = self._preemptor.take_blocks(request, self.kv)
        self._requeue(request)
        self.tally.preemption_decisions[decision] += 1

    def _requeue(self, request: Request) -> None:
        """Put a running request that holds no device blocks into its old place of the queue."""
        self._leave_running(request)
        request.num_requeues += 1
        request.state = RequestState.WAITING
        self._waiting.push(request)

    def _leave_running(self, request: Request) -> None:
        self._prefilling.pop(request.request_id, None)
        if request.state is RequestState.DECODING:
            self._decodes.leave(request)

    # Ends

    def _settle(self, receipt: Receipt) -> Emissions:
        """Count what came back of one micro-batch, and end the requests that are complete."""
        self._decodes.count_tokens(receipt.num_tokens)
        self.tally.output_tokens += receipt.num_tokens
        self._fairness.charge_outputs(receipt.owners())
        self._decodes.make_ready(receipt.going_on)
        emissions = receipt.emissions
        for closing in receipt.closing:
            match closing:
                case Complete(request, finish, place):
                    record = self._end(request, finish, receipt.now_s)
                    emissions.records[place] = record
                case Request():
                    self._release_when_idle(closing)
        return emissions

    def _end_early(
        self, request_id: str, finish: FinishReason, now_s: float
    ) -> RequestRecord | None:
        request = self._live.get(request_id)
        return None if request is None else self._end(request, finish, now_s)

    def _end(self, request: Request, finish: FinishReason, now_s: float) -> RequestRecord:
        record = request.record(finish, now_s)
        if request.state is RequestState.WAITING:
            self._waiting.remove(request)
        self._leave_running(request)
        del self._live[request.request_id]
        request.state = RequestState.ENDED
        self._release_when_idle(request)
        self._fairness.leave(request.new.client_id)
        self.tally.count_end(finish)
        return record

    def _release_when_idle(self, request: Request) -> None:
        """Give blocks back once no micro-batch in flight touches them; else `complete` does it."""
        if request.num_in_flight == 0:
            self.kv.release(request)
