"""KV that runs out in an engine that takes it back from one slot only: no request is ever lost."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.step_time import StepTimeModel, StepTimeTable
from pipelineserve.policy.views import PromptLoad
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.addon.mirror import (
    LEAST_KV_FREE_RATIO,
    EngineSizes,
    SchedulerMirror,
    TurnFacts,
    TurnPlan,
)
from pipelineserve_engine.addon.tracked_requests import RequestBook

PAGE_TOKENS = 4
NUM_PAGES = 16
NUM_SLOTS = 4
SIZES = EngineSizes(
    num_stages=3,
    num_slots=NUM_SLOTS,
    max_chunk_tokens=64,
    page_tokens=PAGE_TOKENS,
    least_piece_tokens=PAGE_TOKENS,
    kv_tokens=NUM_PAGES * PAGE_TOKENS,
    is_mixed=False,
    can_hold=True,
    ends_lone_decodes=True,
)
NOTHING = PromptLoad(0, 0, 0, 0)
# Two decodes cost more than twice as much as one.
STAIRS = StepTimeModel(StepTimeTable((1, 2, 64), (0.01, 0.03, 0.04)))
# Its own bound of free KV is off, so that the mirror's shows.
HOLDING = Rebalance(
    HoldMode.TPOT_FIRST,
    STAIRS,
    (1,),
    max_gap_s=5.0,
    hold_budget_s=50.0,
    least_kv_free_ratio=0.0,
    relaxed_kv_free_ratio=0.0,
)
PLAIN = SchedulingPolicy(Static(64))
POLICIES = (PLAIN, SchedulingPolicy(Static(64), holding=HOLDING))
MOST_TURNS = 4_000
# Prompts and answers of twelve requests; each fits into the pool alone.
LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(2, 48)), min_size=1, max_size=12)


@dataclass(eq=False)
class Row:
    """A request; its last token is not in the KV yet."""

    request_id: str
    num_prompt_tokens: int
    most_output_tokens: int
    num_output_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """Prompt and output."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def num_pages(self) -> int:
        """That it has while it decodes."""
        return -(-(self.num_tokens - 1) // PAGE_TOKENS)

    @property
    def needs_page(self) -> bool:
        """To go on."""
        return (self.num_tokens - 1) % PAGE_TOKENS == 0


@dataclass
class Engine:
    """SGLang's rules: prompts travel alone, and who is short of KV takes it from its own slot."""

    rows: list[Row]
    policy: SchedulingPolicy = PLAIN
    sizes: EngineSizes = SIZES
    waiting: list[Row] = field(default_factory=list)
    slots: list[list[Row]] = field(default_factory=lambda: [[] for _ in range(NUM_SLOTS)])
    held: list[Row] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    num_ended: int = 0
    num_taken_back: int = 0
    most_held: int = 0
    turn: int = 0

    def __post_init__(self) -> None:
        self.book = RequestBook()
        self.mirror = SchedulerMirror(
            self.sizes, self.book, SchedulingPolicy(Static(64)), lambda: self.turn
        )
        self.mirror.adopt(self.policy)
        self.waiting = list(self.rows)
        for row in self.rows:
            self.mirror.accept(row.request_id, row.num_prompt_tokens, 0.0)

    @property
    def num_free_pages(self) -> int:
        """Of the pool."""
        return NUM_PAGES - sum(row.num_pages for rows in (*self.slots, self.held) for row in rows)

    def take_turn(self) -> tuple[TurnFacts, TurnPlan]:
        """Plan one, and do what SGLang does then."""
        slot_index = self.turn % NUM_SLOTS
        rows = self.slots[slot_index]
        facts = TurnFacts(
            slot_index=slot_index,
            decodes=tuple((row.request_id, row.num_tokens) for row in rows),
            holdable=lambda: [row.request_id for row in rows],
            ending=frozenset(),
            started=NOTHING,
            arriving=NOTHING,
            kv_free_ratio=self.num_free_pages / NUM_PAGES,
            is_paused=False,
        )
        plan = self.mirror.plan(facts, 0.1 * self.turn)
        self.slots[slot_index] = [r for r in rows if r.request_id not in plan.held]
        self.slots[slot_index] += [r for r in self.held if r.request_id in plan.released]
        self.held = [r for r in self.held if r.request_id not in plan.released]
        self.held += [r for r in rows if r.request_id in plan.held]
        self.most_held = max(self.most_held, len(self.held))
        if not self._prefill(slot_index):
            self._decode(slot_index)
        self.turn += 1
        return facts, plan

    def run(self) -> None:
        """Until nobody is left."""
        while self.num_ended + len(self.lost) < len(self.rows):
            assert self.turn < MOST_TURNS, "nothing goes on"
            self.take_turn()

    def _prefill(self, slot_index: int) -> bool:
        """Admit one whose prompt and one page more have room."""
        if not self.waiting:
            return False
        row = self.waiting[0]
        if -(-row.num_tokens // PAGE_TOKENS) + 1 > self.num_free_pages:
            return False
        self.waiting.pop(0)
        self.book.start(row.request_id, 0, 0.1 * self.turn)
        self.slots[slot_index].append(row)
        self._advance(row, slot_index)
        return True

    def _decode(self, slot_index: int) -> None:
        rows = self.slots[slot_index]
        rows.sort(key=lambda row: row.num_output_tokens, reverse=True)
        while len(rows) > 1 and self.num_free_pages < sum(row.needs_page for row in rows):
            taken = rows.pop()
            self.num_taken_back += 1
            self.waiting.append(taken)
            self.book.requeue(taken.request_id)
        if self.num_free_pages < sum(row.needs_page for row in rows):
            self.lost.append(rows.pop().request_id)
        for row in list(rows):
            self._advance(row, slot_index)

    def _advance(self, row: Row, slot_index: int) -> None:
        row.num_output_tokens += 1
        self.book.advance(row.request_id, row.num_output_tokens, 0.1 * self.turn)
        if row.num_output_tokens == row.most_output_tokens:
            self.slots[slot_index].remove(row)
            self.book.end(row.request_id, FinishReason.LENGTH, 0.1 * self.turn)
            self.num_ended += 1


def rows_of(lengths: list[tuple[int, int]]) -> list[Row]:
    return [Row(str(index), *each) for index, each in enumerate(lengths)]


@pytest.mark.parametrize("policy", POLICIES, ids=["no holding", "holding"])
@settings(max_examples=50, deadline=None)
@given(lengths=LENGTHS)
def test_no_request_is_lost(policy: SchedulingPolicy, lengths: list[tuple[int, int]]) -> None:
    engine = Engine(rows_of(lengths), policy)
    engine.run()
    assert engine.lost == []
    assert engine.mirror.num_held == 0
    assert engine.num_free_pages == NUM_PAGES


FOUR_ALONE = [(16, 8)] * 4


def test_an_engine_that_does_not_spare_its_last_ones_loses_them() -> None:
    engine = Engine(rows_of(FOUR_ALONE), sizes=replace(SIZES, ends_lone_decodes=False))
    engine.run()
    assert engine.lost


@pytest.mark.parametrize("policy", POLICIES, ids=["no holding", "holding"])
@settings(max_examples=50, deadline=None)
@given(lengths=LENGTHS)
def test_while_kv_is_short_nobody_is_held_but_one_that_would_be_lost(
    policy: SchedulingPolicy, lengths: list[tuple[int, int]]
) -> None:
    engine = Engine(rows_of(lengths), policy)
    while engine.num_ended < len(lengths):
        num_decodes = engine.book.num_decoding
        facts, plan = engine.take_turn()
        free_tokens = round(facts.kv_free_ratio * SIZES.kv_tokens)
        least_tokens = max(num_decodes * PAGE_TOKENS, LEAST_KV_FREE_RATIO * SIZES.kv_tokens)
        if free_tokens >= least_tokens:
            continue
        if engine.held:
            assert free_tokens < PAGE_TOKENS
            assert len(engine.held) == 1
            assert len(facts.decodes) == len(plan.held), "its slot has nobody else"
