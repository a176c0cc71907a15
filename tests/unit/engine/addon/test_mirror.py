"""What is decided for a turn of another engine's scheduler, by the policies that ours obeys."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pipelineserve.policy.chunking import ChunkDecision, Static
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.step_time import StepTimeModel, StepTimeTable
from pipelineserve.policy.views import PromptLoad
from pipelineserve_engine.addon.mirror import EngineSizes, SchedulerMirror, TurnFacts, TurnPlan
from pipelineserve_engine.addon.tracked_requests import RequestBook
from policy_views import line_model

SIZES = EngineSizes(
    num_stages=2,
    num_slots=2,
    max_chunk_tokens=256,
    page_tokens=1,
    least_piece_tokens=1,
    kv_tokens=8192,
    is_mixed=True,
    can_hold=True,
    ends_lone_decodes=True,
)
NOTHING = PromptLoad(0, 0, 0, 0)
STAIRS = StepTimeModel(StepTimeTable((1, 4, 5, 8, 9, 64), (0.01, 0.01, 0.02, 0.02, 0.03, 0.04)))
# Its own bound of free KV is off, so that the mirror's shows.
HOLDING = Rebalance(
    HoldMode.TPOT_FIRST,
    STAIRS,
    (4, 8),
    max_gap_s=5.0,
    hold_budget_s=20.0,
    least_kv_free_ratio=0.0,
    relaxed_kv_free_ratio=0.0,
)


class Engine:
    """A mirror, its book, and ten decodes of which each of two slots has five."""

    def __init__(self, sizes: EngineSizes = SIZES) -> None:
        self.book = RequestBook()
        self.turn = 0
        self.mirror = SchedulerMirror(
            sizes, self.book, SchedulingPolicy(Static(64)), lambda: self.turn
        )
        self.slots: list[list[str]] = [[], []]
        self.now_s = 0.0

    def decode(self, *request_ids: str, slot: int = 0) -> None:
        """These were prefilled in this slot."""
        for request_id in request_ids:
            self.mirror.accept(request_id, 10, self.now_s)
            self.book.start(request_id, 0, self.now_s)
            self.book.advance(request_id, 1, self.now_s)
        self.slots[slot] += request_ids

    def facts(self, slot: int = 0, holdable: Sequence[str] | None = None) -> TurnFacts:
        """How a slot stands, with nothing but its decodes."""
        rows = self.slots[slot]
        allowed = rows if holdable is None else holdable
        return TurnFacts(
            slot_index=slot,
            decodes=tuple((rid, 11) for rid in rows),
            holdable=lambda: allowed,
            ending=frozenset(),
            started=NOTHING,
            arriving=NOTHING,
            kv_free_ratio=1.0,
            is_paused=False,
        )

    def plan(self, facts: TurnFacts) -> TurnPlan:
        """Decide, and move as decided."""
        self.now_s += 0.1
        plan = self.mirror.plan(facts, self.now_s)
        rows = self.slots[facts.slot_index]
        self.slots[facts.slot_index] = [r for r in rows if r not in plan.held] + [*plan.released]
        return plan


def an_engine_that_holds() -> Engine:
    engine = Engine()
    engine.decode("a", "b", "c", "d", "e")
    engine.decode("f", "g", "h", "i", "j", slot=1)
    engine.mirror.adopt(SchedulingPolicy(Static(64), holding=HOLDING))
    for slot in (0, 1):  # how long a cycle takes is known after the first
        engine.plan(engine.facts(slot, holdable=[]))
    assert engine.plan(engine.facts(0)).held == ("a",)
    assert engine.plan(engine.facts(1)).held == ("f",)
    return engine


def test_a_policy_is_in_force_from_the_next_turn() -> None:
    engine = Engine()
    engine.turn = 41
    assert engine.mirror.adopt(SchedulingPolicy(Static(32))) == 41
    assert engine.plan(engine.facts()).chunk == ChunkDecision(32, Reason.STATIC_CHUNK)


def test_decodes_that_fill_the_chunk_are_said_to() -> None:
    engine = Engine()
    engine.decode(*"abcde")
    engine.mirror.adopt(SchedulingPolicy(Static(3)))
    assert engine.plan(engine.facts()).chunk == ChunkDecision(5, Reason.DECODES_FILL_CHUNK)


@pytest.mark.parametrize(("least_piece_tokens", "expected"), [(0, 5), (1, 6), (16, 21)])
def test_a_started_prompt_goes_on_by_the_least_piece_beside_the_decodes(
    least_piece_tokens: int, expected: int
) -> None:
    engine = Engine(replace(SIZES, least_piece_tokens=least_piece_tokens))
    engine.decode(*"abcde")
    engine.mirror.adopt(SchedulingPolicy(Static(3)))
    started = replace(engine.facts(), started=PromptLoad(1, 100, 10_000, 0))
    assert engine.plan(started).chunk == ChunkDecision(expected, Reason.DECODES_FILL_CHUNK)


def test_decodes_do_not_count_where_prompts_travel_alone() -> None:
    engine = Engine(replace(SIZES, is_mixed=False))
    engine.decode(*"abcde")
    engine.mirror.adopt(SchedulingPolicy(Static(3)))
    started = replace(engine.facts(), started=PromptLoad(1, 100, 10_000, 0))
    assert engine.plan(started).chunk == ChunkDecision(3, Reason.STATIC_CHUNK)


def predictive(engine: Engine) -> None:
    model = line_model(seconds_per_token=1e-3, base_s=0.1)
    policy = Predictive(model, (8, 16, 24), tpot_target_s=5.0)
    engine.mirror.adopt(SchedulingPolicy(policy))


def test_a_prompt_that_arrives_with_the_turn_counts_for_it() -> None:
    engine = Engine()
    predictive(engine)
    assert engine.plan(engine.facts()).chunk.reason is Reason.NO_PROMPT_WAITS
    arriving = replace(engine.facts(), arriving=PromptLoad(1, 1000, 1_000_000, 0))
    assert engine.plan(arriving).chunk == ChunkDecision(24, Reason.LARGEST_SAFE_CHUNK)
    assert engine.mirror.prefill_tokens == 0, "it waits in the queue from then on"


def test_the_queue_and_the_started_prompt_count_together() -> None:
    engine = Engine()
    engine.mirror.accept("a", 100, 0.0)
    engine.plan(replace(engine.facts(), started=PromptLoad(1, 50, 2500, 500)))
    assert engine.mirror.prefill_tokens == 150
    assert engine.mirror.view(0, 1.0).waiting_tokens == 100
    assert engine.mirror.arrived_tokens(1.0) == (100, 1.0)


# Holding


def test_decodes_above_a_boundary_are_held() -> None:
    engine = an_engine_that_holds()
    assert [len(rows) for rows in engine.slots] == [4, 4]
    assert engine.mirror.num_held == 2


def test_who_may_not_be_held_is_not() -> None:
    engine = Engine()
    engine.decode("a", "b", "c", "d", "e")
    engine.decode("f", "g", "h", "i", "j", slot=1)
    engine.mirror.adopt(SchedulingPolicy(Static(64), holding=HOLDING))
    engine.plan(engine.facts(0, holdable=[]))
    assert engine.plan(engine.facts(0, holdable=["d"])).held == ("d",)


def test_nobody_is_held_where_holding_is_not_possible() -> None:
    engine = Engine(replace(SIZES, can_hold=False))
    engine.decode("a", "b", "c", "d", "e")
    engine.mirror.adopt(SchedulingPolicy(Static(64), holding=HOLDING))
    assert engine.plan(engine.facts()).held == ()


def test_when_holding_ends_each_goes_home() -> None:
    engine = an_engine_that_holds()
    engine.mirror.adopt(SchedulingPolicy(Static(64), holding=HoldNothing(Reason.LEASE_ENDED)))
    assert [engine.plan(engine.facts(slot)).released for slot in (1, 0)] == [("f",), ("a",)]
    assert engine.mirror.num_held == 0


@pytest.mark.parametrize("change", [{"kv_free_ratio": 0.04}, {"is_paused": True}])
def test_nobody_stays_held_while_kv_is_short_or_the_engine_pauses(change: dict[str, float]) -> None:
    engine = an_engine_that_holds()
    plans = [engine.plan(replace(engine.facts(slot), **change)) for slot in (0, 1)]  # type: ignore[arg-type]
    assert [plan.released for plan in plans] == [("a", "f"), ()]
    assert [plan.held for plan in plans] == [(), ()]


def test_who_was_aborted_is_released_at_once_to_whichever_slot_is_next() -> None:
    engine = an_engine_that_holds()
    plan = engine.plan(replace(engine.facts(1), ending=frozenset({"a"})))
    assert "a" in plan.released


def test_who_was_held_long_enough_comes_back() -> None:
    engine = an_engine_that_holds()
    engine.now_s += 5.0
    released = engine.plan(engine.facts(0)).released
    assert "a" in released


# KV that runs out


def an_engine_with_one_alone(sizes: EngineSizes = SIZES) -> Engine:
    """A slot has one decode, the other one two; each goes on only if it gets a page."""
    engine = Engine(sizes)
    engine.decode("alone")
    engine.decode("b", "c", slot=1)
    return engine


def without_kv(engine: Engine, slot: int) -> TurnFacts:
    return replace(engine.facts(slot), kv_free_ratio=0.0)


def test_who_is_alone_without_a_page_joins_the_next_slot_that_has_others() -> None:
    engine = an_engine_with_one_alone()
    assert engine.plan(without_kv(engine, 0)).held == ("alone",)
    assert engine.plan(without_kv(engine, 0)).released == (), "nobody is in it"
    assert engine.plan(without_kv(engine, 1)).released == ("alone",)
    assert engine.slots == [[], ["b", "c", "alone"]]


def test_who_is_spared_goes_home_if_a_page_was_found() -> None:
    engine = an_engine_with_one_alone()
    engine.plan(without_kv(engine, 0))
    assert engine.plan(engine.facts(1)).released == ()
    assert engine.plan(engine.facts(0)).released == ("alone",)


def test_who_has_filled_the_kv_by_itself_goes_on() -> None:
    engine = Engine()
    engine.decode("alone")
    engine.mirror.accept("waits", 10, 0.0)
    assert engine.plan(without_kv(engine, 0)).held == ()


@pytest.mark.parametrize(
    "change",
    [{"is_paused": True}, {"holdable": lambda: ()}, {"kv_free_ratio": 1 / SIZES.kv_tokens}],
    ids=["paused", "not holdable", "a page is free"],
)
def test_who_may_not_or_need_not_be_spared_goes_on(change: dict[str, Any]) -> None:
    engine = an_engine_with_one_alone()
    assert engine.plan(replace(without_kv(engine, 0), **change)).held == ()


@pytest.mark.parametrize("change", [{"can_hold": False}, {"ends_lone_decodes": False}])
def test_an_engine_that_cannot_hold_or_takes_kv_from_anybody_spares_nobody(
    change: dict[str, bool],
) -> None:
    engine = an_engine_with_one_alone(replace(SIZES, **change))
    assert engine.plan(without_kv(engine, 0)).held == ()


def test_who_was_spared_and_aborted_ends_though_it_is_alone() -> None:
    engine = an_engine_with_one_alone()
    engine.plan(without_kv(engine, 0))
    aborted = replace(without_kv(engine, 0), ending=frozenset({"alone"}))
    assert engine.plan(aborted).released == ("alone",)
