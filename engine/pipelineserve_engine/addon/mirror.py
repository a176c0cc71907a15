"""Another engine's scheduler as policies and records see it, and what is decided for a turn."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pipelineserve.policy.chunking import ChunkDecision, Static
from pipelineserve.policy.holding import HoldEnd, HoldNothing, HoldPlan, HoldView
from pipelineserve.policy.predictive import DEFAULT_ARRIVAL_WINDOW_S, Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.views import DecodeLoad, LoadView, PromptLoad, SchedulerView
from pipelineserve.scheduler.arrivals import ArrivalWindow
from pipelineserve.scheduler.holds import HoldPlanner
from pipelineserve.scheduler.load_views import load_view
from pipelineserve.scheduler.messages import Census
from pipelineserve_engine.addon.tracked_requests import RequestBook, TrackedRequest

# Below this share of free KV, or below a page for every decode, which is what a cycle may need,
# nobody stays held, whatever the policy says: SGLang takes KV back from the requests of one slot
# only, and must find those that have it; and in every engine who is held finishes later and keeps
# its KV from the others for longer.
LEAST_KV_FREE_RATIO = 0.05


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """What does not change while the engine runs.

    Attributes:
        max_chunk_tokens: what it was started with, for which its buffers were sized.
        least_piece_tokens: by how much a prompt that has started must go on at each turn.
        is_mixed: whether decodes travel with prompts.
        can_hold: whether decodes may be kept out at all.
        ends_lone_decodes: whether a decode that needs a page when none is free is ended, and its
            request with it, unless another one of its slot has KV to give up.
    """

    num_stages: int
    num_slots: int
    max_chunk_tokens: int
    page_tokens: int
    least_piece_tokens: int
    kv_tokens: int
    is_mixed: bool
    can_hold: bool
    ends_lone_decodes: bool


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """How the engine stands before one turn.

    Attributes:
        slot_index: the slot that is filled.
        decodes: ids of those that its micro-batch would decode, and how many tokens they have.
        holdable: asked for the ids of those that may be held, if anybody is to be.
        ending: ids of held requests that were aborted and end only when they run.
        started: the prompts with pieces issued and pieces to issue.
        arriving: prompts that enter the queue at this very turn.
        kv_free_ratio: share of KV that could be taken now.
        is_paused: whether the engine was told to pause.
    """

    slot_index: int
    decodes: tuple[tuple[str, int], ...]
    holdable: Callable[[], Collection[str]]
    ending: frozenset[str]
    started: PromptLoad
    arriving: PromptLoad
    kv_free_ratio: float
    is_paused: bool


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """What was decided for one turn; ids of requests."""

    chunk: ChunkDecision
    held: tuple[str, ...]
    released: tuple[str, ...]


class SchedulerMirror:
    """Follows the engine's scheduler; decides by the policy in force.

    Args:
        sizes: of the engine.
        book: its requests.
        policy: in force at first.
        next_turn: the turn that is decided next.
    """

    def __init__(
        self,
        sizes: EngineSizes,
        book: RequestBook,
        policy: SchedulingPolicy,
        next_turn: Callable[[], int],
    ) -> None:
        self._sizes = sizes
        self._book = book
        self._next_turn = next_turn
        self._chunking: Static | Predictive = policy.chunking
        self._planner = HoldPlanner()
        self._arrivals = ArrivalWindow(DEFAULT_ARRIVAL_WINDOW_S)
        self._started = self._arriving = PromptLoad(0, 0, 0, 0)
        self._kv_free_ratio = 1.0
        self._visited_s = [0.0] * sizes.num_slots

    # What controllers change

    def adopt(self, policy: SchedulingPolicy) -> int:
        """Decide by it from the next turn on, and return that; the queue's order stays as it is."""
        self._chunking = policy.chunking
        if isinstance(policy.chunking, Predictive):
            self._arrivals.resize(policy.chunking.arrival_window_s)
        self._planner.adopt(policy.holding if self._sizes.can_hold else HoldNothing())
        return self._next_turn()

    # What those who watch are told

    @property
    def num_stages(self) -> int:
        """Of the pipeline."""
        return self._sizes.num_stages

    @property
    def num_held(self) -> int:
        """Decodes kept out for now."""
        return self._book.held.num

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that wait, of the started prompt as well."""
        return self._book.waiting.tokens + self._started.tokens

    @property
    def chunk_policy(self) -> Static | Predictive:
        """In force."""
        return self._chunking

    def view(self, slot_index: int, now_s: float) -> SchedulerView:
        """How things stand; of a turn, also what arrives with it."""
        waiting = self._waiting
        return SchedulerView(
            now_s=now_s,
            slot_index=slot_index,
            num_slots=self._sizes.num_slots,
            max_chunk_tokens=self._sizes.max_chunk_tokens,
            num_waiting=waiting.num,
            waiting_tokens=waiting.tokens,
            num_prefilling=self._started.num,
            num_decoding=self._book.num_decoding,
            num_ready_decodes=0,
            kv_free_ratio=self._kv_free_ratio,
        )

    def census(self) -> Census:
        """Every request that arrived, counted once."""
        return self._book.census()

    def arrived_tokens(self, now_s: float) -> tuple[int, float]:
        """Prompt tokens that arrived lately, and the seconds that lately means."""
        return self._arrivals.at(now_s)

    # What happens and is decided

    def accept(self, request_id: str, num_prompt_tokens: int, now_s: float) -> None:
        """A request has entered the queue."""
        self._book.accept(request_id, num_prompt_tokens, now_s)
        self._arrivals.add(num_prompt_tokens, now_s)

    def plan(self, facts: TurnFacts, now_s: float) -> TurnPlan:
        """Decide for one turn: who is held and released first, then the chunk for the rest."""
        self._started, self._arriving = facts.started, facts.arriving
        self._kv_free_ratio = facts.kv_free_ratio
        cycle_s = now_s - self._visited_s[facts.slot_index]
        self._visited_s[facts.slot_index] = now_s
        held, released = self._plan_holds(facts, cycle_s, now_s)
        if self._would_lose_one(facts, len(facts.decodes) - len(held) + len(released)):
            held, released = self._spare_the_last(facts, held, released)
        for request in released:
            self._book.release(request, now_s)
        for request in held:
            self._book.hold(request, facts.slot_index, now_s)
        chunk = self._decide_chunk(facts, _assigned(facts, held, released), now_s)
        self._arriving = PromptLoad(0, 0, 0, 0)  # from here on they wait
        return TurnPlan(chunk, _ids(held), _ids(released))

    def _plan_holds(
        self, facts: TurnFacts, cycle_s: float, now_s: float
    ) -> tuple[list[TrackedRequest], list[TrackedRequest]]:
        """Who leaves this slot, and who joins it."""
        held = list(self._book.each_held())
        if isinstance(self._planner.policy, HoldNothing) and not held:
            return [], []
        if facts.is_paused or self._is_kv_short(facts):
            # All at once into this slot: what has KV to give up must be where KV runs out.
            return [], held
        holdable = self._holdable(facts, cycle_s, now_s)
        ending = [request for request in held if request.request_id in facts.ending]
        overdue = [r for r in held if r not in ending and not self._may_stay(r, cycle_s, now_s)]
        others = [r for r in held if r not in ending and r not in overdue]
        plan = self._hold_plan(facts, len(holdable), len(overdue))
        if plan.num_release >= len(held):
            # Each to its own slot, at that slot's next turn: together they would crowd this one.
            at_home = [r for r in (*overdue, *others) if r.home_slot == facts.slot_index]
            released = [*ending, *at_home]
        else:
            released = [*ending, *(*overdue, *others)[: plan.num_release]]
        is_newest = plan.end is HoldEnd.NEWEST
        by_arrival = sorted(holdable, key=lambda r: (r.arrival_s, r.index), reverse=is_newest)
        return by_arrival[: plan.num_hold], released

    def _hold_plan(self, facts: TurnFacts, num_holdable: int, num_overdue: int) -> HoldPlan:
        return self._planner.decide(
            HoldView(
                num_slots=self._sizes.num_slots,
                due=_assigned(facts, (), ()),
                live=self._book.decoding,
                held=self._book.held,
                num_holdable=num_holdable,
                num_overdue=num_overdue,
                prefill_tokens=self._waiting.tokens + facts.started.tokens,
                kv_free_ratio=facts.kv_free_ratio,
            )
        )

    def _is_kv_short(self, facts: TurnFacts) -> bool:
        needed_tokens = self._book.num_decoding * self._sizes.page_tokens
        return (
            facts.kv_free_ratio < LEAST_KV_FREE_RATIO or self._kv_free_tokens(facts) < needed_tokens
        )

    def _would_lose_one(self, facts: TurnFacts, num_decodes: int) -> bool:
        """Whether the only decode of this micro-batch would be ended for want of a page.

        Where nobody else runs there is nobody to wait for: then it has filled the KV by itself.
        """
        sizes = self._sizes
        return (
            sizes.can_hold
            and sizes.ends_lone_decodes
            and num_decodes == 1
            and self._kv_free_tokens(facts) < sizes.page_tokens
            and self._book.num_running > 1
            and not facts.is_paused
        )

    def _spare_the_last(
        self, facts: TurnFacts, held: list[TrackedRequest], released: list[TrackedRequest]
    ) -> tuple[list[TrackedRequest], list[TrackedRequest]]:
        """Keep it out, so that it joins others at a turn that comes; where it may be held."""
        if released:
            return held, [request for request in released if request.request_id in facts.ending]
        held_ids = _ids(held)
        (last_id,) = (request_id for request_id, _ in facts.decodes if request_id not in held_ids)
        last = self._book.get(last_id)
        if last is None or last_id not in facts.holdable():
            return held, released
        return [*held, last], released

    def _kv_free_tokens(self, facts: TurnFacts) -> int:
        return round(facts.kv_free_ratio * self._sizes.kv_tokens)

    def _holdable(self, facts: TurnFacts, cycle_s: float, now_s: float) -> list[TrackedRequest]:
        if isinstance(self._planner.policy, HoldNothing):
            return []
        allowed = facts.holdable()
        tracked = (self._book.get(request_id) for request_id, _ in facts.decodes)
        return [
            request
            for request in tracked
            if request is not None
            and request.request_id in allowed
            and request.has_token_since_release
            and self._may_stay(request, cycle_s, now_s)
        ]

    def _may_stay(self, request: TrackedRequest, cycle_s: float, now_s: float) -> bool:
        return self._planner.may_stay_held(
            gap_s=request.gap_s(now_s), held_s=request.held_for_s(now_s), cycle_s=cycle_s
        )

    def _decide_chunk(self, facts: TurnFacts, decodes: DecodeLoad, now_s: float) -> ChunkDecision:
        is_pure_prefill = (
            self.prefill_tokens + facts.arriving.tokens > 0 and not self._sizes.is_mixed
        )
        assigned = DecodeLoad(0, 0) if is_pure_prefill else decodes
        decision = self._chunking.decide(self._load_view(facts, assigned, now_s))
        goes_on = facts.started.num > 0
        least = max(1, assigned.num + self._sizes.least_piece_tokens * goes_on)
        if decision.chunk_tokens < least:
            return ChunkDecision(least, Reason.DECODES_FILL_CHUNK)
        return decision

    def _load_view(self, facts: TurnFacts, assigned: DecodeLoad, now_s: float) -> LoadView:
        return load_view(
            self.view(facts.slot_index, now_s),
            num_ready=len(facts.decodes),
            assigned=assigned,
            started=facts.started,
            waiting_squared_tokens=self._waiting.squared_tokens,
            arrived=self._arrivals.at(now_s),
        )

    @property
    def _waiting(self) -> PromptLoad:
        queue, arriving = self._book.waiting, self._arriving
        return PromptLoad(
            queue.num + arriving.num,
            queue.tokens + arriving.tokens,
            queue.squared_tokens + arriving.squared_tokens,
            0,
        )


def _assigned(
    facts: TurnFacts, held: Sequence[TrackedRequest], released: Sequence[TrackedRequest]
) -> DecodeLoad:
    """The slot's decodes after holding and releasing."""
    num = len(facts.decodes) - len(held) + len(released)
    context_tokens = sum(num_tokens for _, num_tokens in facts.decodes)
    context_tokens += sum(request.num_tokens for request in released)
    context_tokens -= sum(request.num_tokens for request in held)
    return DecodeLoad(num, max(0, context_tokens))


def _ids(requests: Sequence[TrackedRequest]) -> tuple[str, ...]:
    return tuple(request.request_id for request in requests)
