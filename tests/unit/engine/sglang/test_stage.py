"""Every rank obeys orders at their turn, and rows of batches stay in step."""

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_engine.sglang.orders import TurnOrder
from pipelineserve_engine.sglang.stage import StageSide
from sglang_fakes import FakeBatch, FakeSampling, FakeScheduler, a_batch


def a_stage(num_slots: int = 2, page_tokens: int = 1) -> StageSide:
    return StageSide(
        page_tokens=page_tokens,
        max_chunk_tokens=256,
        num_slots=num_slots,
        own_sampling=lambda batch: FakeSampling(batch.rids),
    )


def turn(stage: StageSide, batch: FakeBatch, *received: object) -> tuple[FakeBatch, int]:
    """One turn; the decodes that go on, and what SGLang's option was set to."""
    scheduler = FakeScheduler()
    stage.begin_turn(received)
    composed: FakeBatch = stage.compose(scheduler, batch)
    return composed, scheduler.chunked_prefill_size


def test_before_the_first_order_sglang_decides() -> None:
    stage, batch = a_stage(), a_batch("a", "b")
    assert turn(stage, batch) == (batch, 256)
    assert batch.rids == ["a", "b"]


def test_sglang_never_sees_an_order() -> None:
    assert a_stage().begin_turn(["request", TurnOrder(0, 64), "abort"]) == ["request", "abort"]


def test_a_chunk_holds_until_the_next_order() -> None:
    stage = a_stage()
    sizes = [turn(stage, a_batch())[1] for _ in range(1)]
    sizes.append(turn(stage, a_batch(), TurnOrder(1, 64))[1])
    sizes.append(turn(stage, a_batch("a"))[1])
    sizes.append(turn(stage, a_batch(), TurnOrder(3, 32))[1])
    assert sizes == [256, 64, 64, 32]


def test_decodes_count_only_where_they_travel_with_prompts() -> None:
    stage = a_stage(page_tokens=16)
    stage.begin_turn([TurnOrder(0, 64)])
    mixed, pure = FakeScheduler(), FakeScheduler(is_mixed_chunk=False)
    for scheduler in (mixed, pure):
        stage.compose(scheduler, a_batch("a", "b", "c"))
    assert (mixed.chunked_prefill_size, pure.chunked_prefill_size) == (51, 64)


def test_who_is_held_leaves_its_batch_and_comes_back_to_another() -> None:
    stage, batch = a_stage(), a_batch("a", "b", "c")
    composed, _ = turn(stage, batch, TurnOrder(0, 64, held=("b",)))
    assert composed.rids == composed.sampling_info.rids == ["a", "c"]
    assert [request.rid for request in stage.held_requests] == ["b"]
    assert stage.is_holding
    assert not composed.batch_is_full
    other, _ = turn(stage, a_batch("d"), TurnOrder(1, 64, released=("b",)))
    assert other.rids == other.sampling_info.rids == ["d", "b"]
    assert not stage.is_holding


def test_who_comes_back_to_an_empty_slot_replaces_its_batch() -> None:
    stage = a_stage()
    composed, _ = turn(stage, a_batch("a", "b"), TurnOrder(0, 64, held=("a", "b")))
    assert composed.is_empty()
    composed, _ = turn(stage, a_batch(), TurnOrder(1, 64, released=("b",)))
    assert composed.rids == composed.sampling_info.rids == ["b"]
    assert [request.rid for request in stage.held_requests] == ["a"]


def test_an_order_counts_for_its_own_turn_only() -> None:
    stage = a_stage()
    turn(stage, a_batch("a"), TurnOrder(0, 64, held=("a",)))
    composed, _ = turn(stage, a_batch("a2", "b"))
    assert composed.rids == ["a2", "b"]


def test_slots_are_visited_in_turn() -> None:
    stage, seen = a_stage(num_slots=3), []
    for _ in range(4):
        upcoming = stage.next_slot
        stage.begin_turn([])
        seen.append((upcoming, stage.slot_index))
    assert seen == [(0, 0), (1, 1), (2, 2), (0, 0)]


MOVES = st.lists(st.tuples(st.sets(st.integers(0, 7)), st.sets(st.integers(0, 7))), max_size=12)


@given(MOVES)
def test_no_request_is_lost_or_doubled_whatever_is_ordered(
    moves: list[tuple[set[int], set[int]]],
) -> None:
    stage = a_stage()
    slots = [a_batch("0", "1", "2", "3"), a_batch("4", "5", "6", "7")]
    for number, (held, released) in enumerate(moves):
        slot = number % 2
        order = TurnOrder(number, 64, tuple(map(str, held)), tuple(map(str, released)))
        slots[slot], _ = turn(stage, slots[slot], order)
        everybody = [*slots[0].rids, *slots[1].rids, *(r.rid for r in stage.held_requests)]
        assert sorted(everybody) == list("01234567")
        assert all(batch.is_empty() or batch.sampling_info.rids == batch.rids for batch in slots)
