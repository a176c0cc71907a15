"""Keys are looked at once each, never twice at a time, and again after they failed."""

import asyncio
import pickle
import random
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelineserve_operator.work_queue import Agenda, Retrying, WorkQueue

_DEADLINE_S = 10.0


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now_s


class Looks:
    """Looks that wait until they are let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.free = asyncio.Event()
        self.free.set()
        self.num_now = 0
        self.most_now = 0
        self.answer: Callable[[str], float | None] = lambda _: None

    async def __call__(self, key: str) -> float | None:
        """Begin, wait, answer."""
        self.begun.append(key)
        self.num_now += 1
        self.most_now = max(self.most_now, self.num_now)
        try:
            await self.free.wait()
            return self.answer(key)
        finally:
            self.num_now -= 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not condition():  # noqa: ASYNC110 # of many kinds
            await asyncio.sleep(0)


def with_queue(
    test: Callable[["WorkQueue[str]", Looks, Clock, asyncio.Event], Coroutine[Any, Any, None]],
    max_at_once: int = 2,
) -> None:
    async def run() -> None:
        looks, clock, gate = Looks(), Clock(), asyncio.Event()
        gate.set()
        queue = WorkQueue(looks, gate, clock, random.Random(1), max_at_once=max_at_once)
        running = asyncio.create_task(queue.run())
        try:
            await test(queue, looks, clock, gate)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def test_a_key_that_is_added_often_is_looked_at_once() -> None:
    async def test(queue: WorkQueue[str], looks: Looks, clock: Clock, _: asyncio.Event) -> None:
        for _time in range(5):
            queue.add("a", 1.0)
        clock.now_s = 2.0
        queue.add("b")
        await until(lambda: len(looks.begun) == 2)
        assert sorted(looks.begun) == ["a", "b"]
        assert queue.num_due == 0

    with_queue(test)


def test_a_key_in_work_is_looked_at_again_afterwards_and_not_beside() -> None:
    async def test(queue: WorkQueue[str], looks: Looks, _: Clock, __: asyncio.Event) -> None:
        looks.free.clear()
        queue.add("a")
        await until(lambda: looks.begun == ["a"])
        queue.add("a")
        queue.add("b")
        await until(lambda: looks.begun == ["a", "b"])
        assert looks.begun == ["a", "b"]
        looks.free.set()
        await until(lambda: looks.begun == ["a", "b", "a"])

    with_queue(test, max_at_once=3)


def test_no_more_than_allowed_are_in_work_at_the_same_time() -> None:
    async def test(queue: WorkQueue[str], looks: Looks, _: Clock, __: asyncio.Event) -> None:
        looks.free.clear()
        for name in "abcde":
            queue.add(name)
        await until(lambda: looks.num_now == 2)
        assert queue.num_due == 3
        looks.free.set()
        await until(lambda: len(looks.begun) == 5)
        assert looks.most_now == 2

    with_queue(test)


def test_keys_wait_for_the_gate() -> None:
    async def test(queue: WorkQueue[str], looks: Looks, _: Clock, gate: asyncio.Event) -> None:
        gate.clear()
        queue.add("a")
        for _turn in range(20):
            await asyncio.sleep(0)
        assert looks.begun == []
        gate.set()
        await until(lambda: looks.begun == ["a"])

    async def closed_first() -> None:
        looks, clock, gate = Looks(), Clock(), asyncio.Event()
        queue = WorkQueue(looks, gate, clock, random.Random(1))
        running = asyncio.create_task(queue.run())
        await test(queue, looks, clock, gate)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(closed_first())


def test_a_key_is_looked_at_again_after_what_its_look_asked_for() -> None:
    async def test(queue: WorkQueue[str], looks: Looks, clock: Clock, _: asyncio.Event) -> None:
        looks.answer = lambda _key: 30.0 if len(looks.begun) == 1 else None
        queue.add("a")
        await until(lambda: looks.begun == ["a"] and looks.num_now == 0)
        clock.now_s = 29.0
        queue.add("b")
        await until(lambda: looks.begun == ["a", "b"])
        clock.now_s = 30.0
        queue.add("b")
        await until(lambda: len(looks.begun) == 4)
        assert looks.begun.count("a") == 2

    with_queue(test)


def test_a_key_that_failed_is_tried_again_and_the_others_go_on() -> None:
    async def test(queue: WorkQueue[str], looks: Looks, clock: Clock, _: asyncio.Event) -> None:
        def fail(key: str) -> float | None:
            if key == "a" and looks.begun.count("a") < 3:
                raise ValueError("no")
            return None

        looks.answer = fail
        queue.add("a")
        for number, moment_s in ((1, 2.0), (2, 5.0)):
            await until(lambda number=number: looks.begun.count("a") == number)  # type: ignore[misc]
            clock.now_s = moment_s
            queue.add("b")
            await until(lambda number=number: looks.begun.count("b") == number)  # type: ignore[misc]
        await until(lambda: looks.begun.count("a") == 3)

    with_queue(test)


def test_pauses_double_up_to_a_bound() -> None:
    retrying, chance = Retrying(1.0, 10.0, jitter_ratio=0.0), random.Random(1)
    pauses = [retrying.pause_s(number, chance) for number in (1, 2, 3, 4, 5, 5000)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


@given(st.integers(1, 10_000), st.integers(0, 2**32))
def test_chance_moves_a_pause_by_no_more_than_its_share(num_failures: int, seed: int) -> None:
    exact = Retrying(1.0, 300.0, 0.0).pause_s(num_failures, random.Random(0))
    spread = Retrying(1.0, 300.0, 0.2).pause_s(num_failures, random.Random(seed))
    assert 0.8 * exact <= spread <= 1.2 * exact


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(0, 20)),
        st.tuples(st.just("take"), st.just(""), st.integers(0, 20)),
        st.tuples(st.just("finish"), st.sampled_from("abc"), st.just(0)),
    )
)


@given(_STEPS)
def test_no_key_is_lost_and_none_is_given_out_twice(steps: list[tuple[str, str, int]]) -> None:
    agenda: Agenda[str] = Agenda()
    owed: set[str] = set()
    in_work: set[str] = set()
    for step, key, moment_s in steps:
        if step == "add":
            agenda.add(key, moment_s)
            owed.add(key)
        elif step == "finish":
            agenda.finish(key)
            in_work.discard(key)
        elif (taken := agenda.take(moment_s)) is not None:
            assert taken not in in_work
            owed.discard(taken)
            in_work.add(taken)
    for key in in_work:
        agenda.finish(key)
    left = set()
    while (taken := agenda.take(1e9)) is not None:
        left.add(taken)
    assert left == owed


@given(_STEPS)
def test_the_one_that_is_due_for_longest_comes_first(steps: list[tuple[str, str, int]]) -> None:
    agenda: Agenda[str] = Agenda()
    due_s: dict[str, int] = {}
    in_work: set[str] = set()
    for step, key, moment_s in steps:
        waiting = {one: at_s for one, at_s in due_s.items() if one not in in_work}
        assert agenda.next_due_s() == min(waiting.values(), default=None)
        assert agenda.num_due(moment_s) == sum(at_s <= moment_s for at_s in waiting.values())
        if step == "add":
            agenda.add(key, moment_s)
            due_s[key] = min(moment_s, due_s.get(key, moment_s))
        elif step == "finish":
            agenda.finish(key)
            in_work.discard(key)
        elif (taken := agenda.take(moment_s)) is not None:
            assert waiting[taken] == min(waiting.values()) <= moment_s
            del due_s[taken]
            in_work.add(taken)
        else:
            assert all(at_s > moment_s for at_s in waiting.values())


def test_a_key_that_is_looked_at_often_leaves_nothing_behind() -> None:
    def size_after(num_looks: int) -> int:
        agenda: Agenda[str] = Agenda()
        for number in range(num_looks):
            agenda.add("a", 600.0 + number)
            agenda.add("a", float(number))
            assert agenda.take(float(number)) == "a"
            agenda.finish("a")
        return sys.getsizeof(pickle.dumps(agenda))

    assert size_after(1000) < size_after(10) + 500
