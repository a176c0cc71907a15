"""Events happen in one order, whatever order they were pushed in."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_simulator.kernel.events import EventHeap

MOMENTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40)


def note_in(happened: list[tuple[int, int, int]], rank: int, index: int) -> Callable[[int], None]:
    def note(now_ticks: int) -> None:
        happened.append((now_ticks, rank, index))

    return note


@given(MOMENTS)
def test_events_happen_by_tick_then_rank_then_order_of_pushing(
    moments: list[tuple[int, int]],
) -> None:
    heap, happened = EventHeap(), list[tuple[int, int, int]]()
    for index, (tick, rank) in enumerate(moments):
        heap.push(tick, rank, note_in(happened, rank, index))
    instants = []
    while heap:
        instants.append(heap.run_instant())
    assert happened == sorted((tick, rank, index) for index, (tick, rank) in enumerate(moments))
    assert instants == sorted({tick for tick, _ in moments})


@given(MOMENTS)
def test_time_never_runs_backwards_when_events_push_events(moments: list[tuple[int, int]]) -> None:
    heap, ticks = EventHeap(), list[int]()
    left = list(moments)

    def push_next(now_ticks: int) -> None:
        ticks.append(now_ticks)
        if left:
            later, rank = left.pop()
            heap.push(now_ticks + later, rank, push_next)

    heap.push(0, 0, push_next)
    while heap:
        heap.run_instant()
        assert heap.now_ticks == ticks[-1]
    assert ticks == sorted(ticks)
    assert len(ticks) == len(moments) + 1


def test_what_an_event_pushes_for_now_happens_in_its_turn_within_the_instant() -> None:
    heap, happened = EventHeap(), list[tuple[int, int, int]]()
    for rank in (0, 2):
        heap.push(5, rank, note_in(happened, rank, 0))
    late = note_in(happened, 1, 1)
    heap.push(5, 0, lambda now_ticks: heap.push(now_ticks, 1, late))
    assert heap.run_instant() == 5
    assert happened == [(5, 0, 0), (5, 1, 1), (5, 2, 0)]
    assert not heap


def test_nothing_can_be_pushed_into_the_past() -> None:
    heap = EventHeap()
    heap.push(5, 0, lambda _: None)
    heap.run_instant()
    with pytest.raises(ValueError, match="expected a tick from 5 on, got 4"):
        heap.push(4, 0, lambda _: None)
