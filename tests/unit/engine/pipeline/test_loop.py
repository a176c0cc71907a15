"""The engine's thread: every request gets its end exactly once, whatever happens around it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from control_parts import STATIC_CHUNK_TOKENS, a_desk, a_leased
from pipelineserve import metrics
from pipelineserve.errors import (
    EngineUnavailableError,
    InvalidInputError,
    QueueFullError,
    StagesFailedError,
)
from pipelineserve.policy.recovery import RecoveryBudget
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.control.desk import Applied, ControlDesk
from pipelineserve_engine.generation import GenerationRequest, SamplingParameters, TokenEvent
from pipelineserve_engine.loop import EngineLoop, _Stream, _Submit
from pipelineserve_engine.recovery import Recovery
from pipelineserve_engine.stage_messages import (
    FailureReport,
    ReadyReport,
    SampleExtras,
    SampleFailure,
    StepCommand,
)
from scripted_engine import ScriptedEngine, a_request, a_scripted_engine
from scripted_executor import PATIENCE_S, ScriptedExecutor, report_of

pytestmark = pytest.mark.anyio

VOCABULARY_SIZE = 1 << 40
KILLED = EngineUnavailableError("stage 1 ended with signal 9")
RECOVERABLE = StagesFailedError("stage 1 ended with signal 9")
NO_RECOVERY = RecoveryBudget(max_restarts=0, window_s=100.0)
TWO_RESTARTS = RecoveryBudget(max_restarts=2, window_s=100.0, first_pause_s=0.0)
READY = (ReadyReport(0, 0, 0, 0), ReadyReport(1, 0, 0, 0))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class RunningLoop:
    """An engine loop in its thread, with a clock that the test sets."""

    engine: ScriptedEngine
    budget: RecoveryBudget = NO_RECOVERY
    desk: ControlDesk | None = None
    loop: EngineLoop = field(init=False)
    failures: list[str] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.loop = EngineLoop(
            self.engine.core,
            self.engine.executor,
            Recovery(self.budget, self.engine.core.scheduler.settings.num_slots),
            self.failures.append,
            vocabulary_size=VOCABULARY_SIZE,
            desk=self.desk,
            clock=lambda: self.now_s,
        )

    @property
    def executor(self) -> ScriptedExecutor:
        """What the test answers through."""
        return self.engine.executor

    async def next_command(self) -> StepCommand:
        """Wait for the next micro-batch."""
        return await asyncio.to_thread(self.executor.next_command)

    async def answer_until_done(self, num_commands: int) -> None:
        """Answer so many micro-batches with tokens 10, 20, ..."""
        for index in range(num_commands):
            self.executor.answer(await self.next_command(), first_token_id=10 * (index + 1))

    async def stop(self) -> None:
        """Stop the loop without blocking this one."""
        await asyncio.to_thread(self.loop.stop)


@asynccontextmanager
async def running(
    engine: ScriptedEngine | None = None,
    budget: RecoveryBudget = NO_RECOVERY,
    desk: ControlDesk | None = None,
) -> AsyncIterator[RunningLoop]:
    """Run until the block ends; then no request may be unaccounted for."""
    running_loop = RunningLoop(engine or a_scripted_engine(), budget, desk)
    running_loop.loop.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield running_loop
    finally:
        running_loop.executor.release()
        await running_loop.stop()
    census = running_loop.engine.core.scheduler.census()
    assert census.is_conserved
    assert (census.waiting, census.running) == (0, 0)
    assert running_loop.engine.core._sampling == {}


async def collect(loop: EngineLoop, request: GenerationRequest) -> list[TokenEvent]:
    async with aclosing(loop.generate(request)) as events:
        return [event async for event in events]


async def settled(run: RunningLoop) -> None:
    """Return once the loop has obeyed everything that was posted before: it answers in order."""
    with pytest.raises(InvalidInputError):
        await collect(run.loop, a_request("probe", num_prompt_tokens=0))


async def turned(run: RunningLoop) -> None:
    """Return once a turn has begun since the clock was set."""
    while run.loop._turned_at_s != run.now_s:
        await settled(run)


# Ordinary ends


async def test_tokens_come_in_order_and_the_last_one_says_why_it_is_the_last() -> None:
    async with running() as run:
        events, _ = await asyncio.gather(
            collect(run.loop, a_request(max_output_tokens=3)), run.answer_until_done(3)
        )
    assert [(event.token_id, event.finish) for event in events] == [
        (10, None),
        (20, None),
        (30, FinishReason.LENGTH),
    ]


async def test_finished_requests_send_no_cancel() -> None:
    async with running() as run:
        await asyncio.gather(collect(run.loop, a_request()), run.answer_until_done(3))
        await settled(run)
        assert run.engine.core.cancelled == []


async def test_a_stop_token_ends_the_stream_without_being_shown() -> None:
    async with running() as run:
        request = a_request(max_output_tokens=9, stop_token_ids=frozenset({20}))
        events, _ = await asyncio.gather(collect(run.loop, request), run.answer_until_done(2))
    assert events[-1] == TokenEvent(None, FinishReason.STOP)
    assert [event.token_id for event in events] == [10, None]


async def test_finish_ends_the_stream_as_stopped_while_its_work_is_in_flight() -> None:
    async with running() as run:
        events = asyncio.create_task(collect(run.loop, a_request(max_output_tokens=9)))
        command = await run.next_command()
        run.loop.finish("a")
        assert await events == [TokenEvent(None, FinishReason.STOP)]
        run.executor.answer(command)
        await settled(run)
        assert run.executor.sent.empty()
    assert run.engine.metric(metrics.REQUESTS, outcome="stop") == 1


async def test_finishing_a_request_that_has_ended_does_nothing() -> None:
    async with running() as run:
        await asyncio.gather(collect(run.loop, a_request()), run.answer_until_done(3))
        run.loop.finish("a")
        run.loop.finish("never-seen")
        await settled(run)
    assert run.engine.metric(metrics.REQUESTS, outcome="length") == 1
    assert run.engine.metric(metrics.REQUESTS, outcome="stop") == 0


# Clients that go away


async def test_closing_in_the_middle_cancels_once_and_nothing_more_is_sent() -> None:
    async with running() as run:
        events = run.loop.generate(a_request(max_output_tokens=20))
        first = asyncio.create_task(anext(events))
        run.executor.answer(await run.next_command())
        assert (await first).token_id == 1
        command = await run.next_command()
        await events.aclose()
        await settled(run)
        run.executor.answer(command)
        # Twice: the first probe may be answered in the turn that then takes the report in.
        await settled(run)
        await settled(run)
        assert run.engine.core.cancelled == ["a"]
        assert run.executor.sent.empty()
        assert run.engine.core.scheduler.kv_used_ratio == 0.0
    assert run.engine.metric(metrics.REQUESTS, outcome="cancelled") == 1


async def test_leaving_before_the_first_token_cancels_once() -> None:
    async with running() as run:
        waiting = asyncio.create_task(collect(run.loop, a_request()))
        command = await run.next_command()
        waiting.cancel()
        await asyncio.wait([waiting])
        await settled(run)
        run.executor.answer(command)
        await settled(run)
        assert run.engine.core.cancelled == ["a"]
        assert run.executor.sent.empty()
    assert run.engine.metric(metrics.TTFT, "_count") == 0


async def test_leaving_the_queue_cancels_a_request_that_never_started() -> None:
    async with running(a_scripted_engine(max_running_requests=1)) as run:
        first = asyncio.create_task(collect(run.loop, a_request("a", max_output_tokens=1)))
        command = await run.next_command()
        queued = asyncio.create_task(collect(run.loop, a_request("b")))
        await settled(run)
        queued.cancel()
        await asyncio.wait([queued])
        await settled(run)
        run.executor.answer(command)
        assert len(await first) == 1
        await settled(run)
        assert run.executor.sent.empty()
    assert run.engine.metric(metrics.QUEUE_WAIT, "_count") == 1


async def test_a_generator_that_was_never_begun_asks_nothing_of_the_engine() -> None:
    async with running() as run:
        events = run.loop.generate(a_request())
        await events.aclose()
        await settled(run)
        assert run.engine.core.cancelled == []
    assert run.engine.core.scheduler.tally.arrived == 1  # the probe


async def test_leaving_just_as_the_request_ends_counts_it_once() -> None:
    async with running() as run:
        events = run.loop.generate(a_request(max_output_tokens=2))
        first = asyncio.create_task(anext(events))
        run.executor.answer(await run.next_command())
        await first
        run.executor.answer(await run.next_command())
        await settled(run)  # its last event is there, unread
        await events.aclose()
        await settled(run)
    assert run.engine.metric(metrics.REQUESTS, outcome="length") == 1
    assert run.engine.metric(metrics.REQUESTS, outcome="cancelled") == 0


# Refusals


async def test_a_full_queue_refuses_and_serves_on() -> None:
    engine = a_scripted_engine(max_waiting_requests=1, max_running_requests=1)
    async with running(engine) as run:
        first = asyncio.create_task(collect(run.loop, a_request("a", max_output_tokens=1)))
        command = await run.next_command()
        second = asyncio.create_task(collect(run.loop, a_request("b", max_output_tokens=1)))
        await settled(run)
        with pytest.raises(QueueFullError, match=r"full \(1 requests\); try again later"):
            await collect(run.loop, a_request("c"))
        run.executor.answer(command)
        run.executor.answer(await run.next_command())
        assert len(await first) == len(await second) == 1
    assert run.engine.core.cancelled == []


@pytest.mark.parametrize(
    ("gaps_s", "expected_s"),
    [((), 1.0), ((0.01, 0.01), 1.0), ((9.0, 12.0), 7.0), ((500.0, 100.0), 60.0)],
    ids=["nothing known", "faster than the floor", "as measured", "slower than the ceiling"],
)
async def test_retry_after_follows_recent_ends_within_bounds(
    gaps_s: tuple[float, ...], expected_s: float
) -> None:
    engine = a_scripted_engine(num_slots=1, max_waiting_requests=1)
    async with running(engine) as run:
        occupant = asyncio.create_task(collect(run.loop, a_request("long", max_output_tokens=20)))
        command = await run.next_command()
        for index, gap_s in enumerate([0.0, *gaps_s] if gaps_s else []):
            passer = asyncio.create_task(
                collect(run.loop, a_request(f"p{index}", max_output_tokens=1))
            )
            await asyncio.sleep(0)
            await settled(run)
            run.executor.answer(command)
            command = await run.next_command()
            run.now_s += gap_s
            run.executor.answer(command)
            await passer
            command = await run.next_command()
        queued = asyncio.create_task(collect(run.loop, a_request("q", max_output_tokens=1)))
        await asyncio.sleep(0)
        await settled(run)
        with pytest.raises(QueueFullError) as refused:
            await collect(run.loop, a_request("r"))
        for task in (queued, occupant):
            task.cancel()
        await asyncio.wait([queued, occupant])
    assert refused.value.retry_after_s == pytest.approx(expected_s)


async def test_idle_time_does_not_lengthen_retry_after() -> None:
    engine = a_scripted_engine(max_waiting_requests=1, max_running_requests=1)
    async with running(engine) as run:
        for name in ("a", "b", "c"):
            request = a_request(name, max_output_tokens=1)
            await asyncio.gather(collect(run.loop, request), run.answer_until_done(1))
        run.now_s = 3600.0
        tasks = [asyncio.create_task(collect(run.loop, a_request("d")))]
        await run.next_command()
        tasks.append(asyncio.create_task(collect(run.loop, a_request("e"))))
        await settled(run)
        with pytest.raises(QueueFullError) as refused:
            await collect(run.loop, a_request("f"))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert refused.value.retry_after_s == 1.0


async def test_a_second_request_of_the_same_id_is_refused_and_the_first_goes_on() -> None:
    async with running() as run:
        first = asyncio.create_task(collect(run.loop, a_request(max_output_tokens=1)))
        command = await run.next_command()
        with pytest.raises(InvalidInputError, match="request_id: a is in use"):
            await collect(run.loop, a_request())
        run.executor.answer(command)
        assert len(await first) == 1
        assert run.engine.core.cancelled == []


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (a_request(num_prompt_tokens=64), "prompt: expected at most 63 tokens"),
        (a_request(num_prompt_tokens=0), "prompt: expected at least one token"),
        (a_request(max_output_tokens=0), "max_tokens: expected at least 1"),
    ],
    ids=["too long", "empty", "no output"],
)
async def test_a_refusal_names_the_field(request_: GenerationRequest, message: str) -> None:
    async with running() as run:
        with pytest.raises(InvalidInputError, match=message):
            await collect(run.loop, request_)
    assert run.engine.metric(metrics.REQUESTS, outcome="rejected") == 1


async def test_a_token_that_the_model_does_not_know_never_reaches_the_stages() -> None:
    async with running() as run:
        with pytest.raises(InvalidInputError, match="prompt: expected token ids below"):
            await collect(run.loop, GenerationRequest("a", (1, VOCABULARY_SIZE), 2))
        await settled(run)
        assert run.executor.sent.empty()
        last = GenerationRequest("b", (1, VOCABULARY_SIZE - 1), 1)
        events, _ = await asyncio.gather(collect(run.loop, last), run.answer_until_done(1))
        assert len(events) == 1


# The engine's own end


async def test_a_failure_ends_every_live_request_visibly_and_is_told_once() -> None:
    async with running(a_scripted_engine(max_running_requests=2)) as run:
        tasks = [asyncio.create_task(collect(run.loop, a_request(name))) for name in "abcd"]
        await run.next_command()
        await settled(run)
        run.executor.fail(KILLED)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(outcome) for outcome in outcomes] == [str(KILLED)] * 4
        assert {type(outcome) for outcome in outcomes} == {EngineUnavailableError}
        await asyncio.to_thread(run.loop._thread.join)
        assert run.failures == [str(KILLED)]
        status = run.loop.status()
        assert (status.is_live, status.is_ready, status.detail) == (False, False, str(KILLED))
    assert run.engine.metric(metrics.REQUESTS, outcome="error") == 4
    assert run.engine.metric(metrics.REQUESTS_RUNNING) == 0
    assert run.engine.metric(metrics.KV_USED) == 0


async def test_tokens_that_came_before_the_failure_are_delivered_before_it() -> None:
    async with running() as run:
        events = run.loop.generate(a_request())
        first = asyncio.create_task(anext(events))
        command = await run.next_command()
        run.executor.answer(command)
        assert (await first).token_id == 1
        run.executor.report(FailureReport(0, "ValueError: odd"))
        with pytest.raises(EngineUnavailableError, match="stage 0 failed: ValueError: odd"):
            await anext(events)


async def test_when_the_stages_are_started_anew_a_request_goes_on_from_its_tokens() -> None:
    async with running(budget=TWO_RESTARTS) as run:
        task = asyncio.create_task(collect(run.loop, a_request(max_output_tokens=3)))
        run.executor.answer(await run.next_command(), first_token_id=10)
        await run.next_command()
        run.executor.fail(RECOVERABLE)
        await asyncio.to_thread(run.executor.wait_restarted, 1)
        assert (run.loop.status().is_live, run.loop.status().is_ready) == (True, False)
        run.executor.report(READY[0])
        await settled(run)
        assert run.executor.sent.empty()  # half a pipeline gets no work
        run.executor.report(READY[1])
        replay = await run.next_command()
        assert [len(piece.token_ids) for piece in replay.pieces] == [6]  # prompt and first token
        run.executor.answer(replay, first_token_id=20)
        run.executor.answer(await run.next_command(), first_token_id=30)
        assert [event.token_id for event in await task] == [10, 20, 30]
        assert run.loop.status().is_ready
        assert run.failures == []
    assert run.engine.metric(metrics.RECOVERIES) == 1
    assert run.engine.metric(metrics.TTFT, "_count") == 1


async def test_requests_may_come_and_go_while_the_stages_start_anew() -> None:
    async with running(budget=TWO_RESTARTS) as run:
        leaving = asyncio.create_task(collect(run.loop, a_request("a")))
        await run.next_command()
        run.executor.fail(RECOVERABLE)
        await asyncio.to_thread(run.executor.wait_restarted, 1)
        coming = asyncio.create_task(collect(run.loop, a_request("b", max_output_tokens=1)))
        leaving.cancel()
        await settled(run)
        run.executor.report(*READY)
        run.executor.answer(await run.next_command())
        assert [event.token_id for event in await coming] == [1]
    assert run.engine.core.cancelled == ["a"]


async def test_a_restart_that_fails_costs_one_more_and_the_request_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(budget=TWO_RESTARTS) as run:
        failures = iter([StagesFailedError("stage 0 has no process")])
        restart = run.executor.restart

        def restart_at_second() -> None:
            if (failure := next(failures, None)) is not None:
                raise failure
            restart()

        monkeypatch.setattr(run.executor, "restart", restart_at_second)
        task = asyncio.create_task(collect(run.loop, a_request(max_output_tokens=1)))
        await run.next_command()
        run.executor.fail(RECOVERABLE)
        await asyncio.to_thread(run.executor.wait_restarted, 1)
        run.executor.report(*READY)
        run.executor.answer(await run.next_command())
        assert [event.token_id for event in await task] == [1]
    assert run.engine.metric(metrics.RECOVERIES) == 2
    assert run.failures == []


async def test_when_the_budget_is_spent_everybody_is_told_why() -> None:
    async with running(budget=TWO_RESTARTS) as run:
        task = asyncio.create_task(collect(run.loop, a_request()))
        for num_restarts in (1, 2):
            await run.next_command()
            run.executor.fail(RECOVERABLE)
            await asyncio.to_thread(run.executor.wait_restarted, num_restarts)
            run.executor.report(*READY)
        await run.next_command()
        run.executor.fail(RECOVERABLE)
        with pytest.raises(EngineUnavailableError, match="gave up: recovery_budget_spent"):
            await task
        await asyncio.to_thread(run.loop._thread.join)
        assert len(run.failures) == 1


async def test_after_a_failure_requests_are_refused_at_once_and_nothing_piles_up() -> None:
    async with running() as run:
        run.executor.fail(KILLED)
        await asyncio.to_thread(run.loop._thread.join)
        for _ in range(3):
            with pytest.raises(EngineUnavailableError, match="stage 1 ended"):
                await collect(run.loop, a_request())
        run.loop.finish("a")
        assert not run.loop._commands


@pytest.mark.parametrize("seed", range(20))
async def test_no_request_hangs_when_the_loop_fails_while_they_are_posted(seed: int) -> None:
    """Threads post as fast as they can; the failure falls anywhere among them."""
    num_threads, num_requests = 4, 25
    run = RunningLoop(a_scripted_engine())
    run.loop.start()
    barrier = threading.Barrier(num_threads + 1, timeout=PATIENCE_S)
    outcomes: list[BaseException | list[TokenEvent]] = []

    async def post_all(thread_index: int) -> None:
        tasks = []
        for index in range(num_requests):
            request = a_request(f"{thread_index}-{index}")
            tasks.append(asyncio.create_task(collect(run.loop, request)))
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_S):
            outcomes.extend(await asyncio.gather(*tasks, return_exceptions=True))

    def post(thread_index: int) -> None:
        barrier.wait()
        asyncio.run(post_all(thread_index))

    threads = [threading.Thread(target=post, args=(index,)) for index in range(num_threads)]
    for thread in threads:
        thread.start()
    barrier.wait()
    for _ in range(seed):
        run.executor.wake()
        run.loop.status()
    run.executor.fail(KILLED)
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert {str(outcome) for outcome in outcomes} == {str(KILLED)}
    assert len(outcomes) == num_threads * num_requests
    assert run.engine.core.scheduler.census().is_conserved


async def test_a_bias_for_a_token_beyond_the_models_vocabulary_is_refused() -> None:
    biased = SamplingParameters(0.0, logit_bias=((VOCABULARY_SIZE, 1.0),))
    async with running() as run:
        with pytest.raises(InvalidInputError) as refused:
            await collect(run.loop, a_request(sampling=biased))
    assert refused.value.faults[0].field == "logit_bias"
    assert run.engine.core.scheduler.tally.arrived == 0


async def test_a_request_that_fails_alone_is_told_why_and_the_loop_goes_on() -> None:
    extras = SampleExtras(failures=(SampleFailure(0, "bad logits"),))
    async with running() as run:
        failing = asyncio.create_task(collect(run.loop, a_request("a")))
        run.executor.report(report_of(await run.next_command(), [0], extras=extras))
        assert await failing == [TokenEvent(None, FinishReason.ERROR, detail="bad logits")]
        events, _ = await asyncio.gather(
            collect(run.loop, a_request("b")), run.answer_until_done(3)
        )
        assert events[-1].finish is FinishReason.LENGTH
    assert run.failures == []
    assert run.engine.metric(metrics.REQUESTS, outcome="error") == 1


async def test_a_mistake_in_the_core_still_answers_the_request_that_hit_it_and_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quoted = "quoted prompt"
    async with running() as run:
        live = asyncio.create_task(collect(run.loop, a_request("a")))
        await run.next_command()

        def fail(*_: object) -> None:
            raise ZeroDivisionError(quoted)

        monkeypatch.setattr(run.engine.core, "submit", fail)
        outcomes = await asyncio.gather(
            live, collect(run.loop, a_request("b")), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [EngineUnavailableError] * 2
        await asyncio.to_thread(run.loop._thread.join)
    text = "internal error in the engine; the server's log has more"
    assert run.failures == [text]
    assert {str(outcome) for outcome in outcomes} == {text}
    assert "ZeroDivisionError" in caplog.text
    assert "quoted prompt" not in caplog.text


async def test_a_core_too_broken_to_clean_up_still_answers_and_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = RunningLoop(a_scripted_engine())
    run.loop.start()
    live = asyncio.create_task(collect(run.loop, a_request("a")))
    await run.next_command()

    def fail(*_: object) -> None:
        raise KeyError("a")

    monkeypatch.setattr(run.engine.core, "fail_all", fail)
    run.executor.fail(KILLED)
    with pytest.raises(EngineUnavailableError, match="stage 1 ended"):
        await live
    await asyncio.to_thread(run.loop._thread.join)
    assert run.failures == [str(KILLED)]


async def test_stopping_ends_live_requests_and_is_no_failure() -> None:
    async with running() as run:
        tasks = [asyncio.create_task(collect(run.loop, a_request(name))) for name in "ab"]
        await run.next_command()
        await run.stop()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert {str(outcome) for outcome in outcomes} == {"the engine is stopping; try again later"}
        assert run.failures == []
        assert not run.loop.status().is_live
        with pytest.raises(EngineUnavailableError, match="stopping"):
            await collect(run.loop, a_request("c"))


async def test_status_goes_from_serving_over_stopping_to_ended() -> None:
    async with running() as run:
        serving = run.loop.status()
        await asyncio.to_thread(run.executor.hold)
        stop = asyncio.create_task(run.stop())
        await asyncio.to_thread(run.executor.wait_woken)
        stopping = run.loop.status()
        run.executor.release()
        await stop
        ended = run.loop.status()
    assert (serving.is_live, serving.is_ready) == (True, True)
    assert (stopping.is_live, stopping.is_ready) == (True, False)
    assert (ended.is_live, ended.is_ready) == (False, False)


async def test_a_client_whose_event_loop_is_gone_disturbs_nobody() -> None:
    closed = asyncio.new_event_loop()
    closed.close()
    async with running() as run:
        gone = a_request("gone", max_output_tokens=1)
        run.loop._post(_Submit(gone, _Stream(closed, asyncio.Queue())))
        await run.answer_until_done(1)
        stays, _ = await asyncio.gather(
            collect(run.loop, a_request("stays", max_output_tokens=1)), run.answer_until_done(1)
        )
        assert len(stays) == 1
    assert run.engine.metric(metrics.REQUESTS, outcome="length") == 2


# Signs of life, and requests that add up


async def test_a_loop_that_stands_still_is_not_live_and_is_again_when_it_turns() -> None:
    async with running() as run:
        run.executor.hold()
        run.now_s = 30.0
        assert run.loop.status().is_live
        run.now_s = 31.0
        status = run.loop.status()
        assert (status.is_live, status.is_ready) == (False, False)
        assert status.detail == "the engine's loop has stood still for 31 s"
        run.executor.release()
        run.executor.wake()
        await turned(run)
        assert run.loop.status().is_ready


async def test_a_step_that_takes_minutes_is_no_sign_of_death() -> None:
    async with running() as run:
        events = asyncio.create_task(collect(run.loop, a_request()))
        command = await run.next_command()
        for minute in range(1, 5):
            run.now_s = 60.0 * minute
            run.executor.wake()
            await turned(run)
            assert run.loop.status().is_live
        run.executor.answer(command)
        await run.answer_until_done(2)
        assert len(await events) == 3


async def test_a_request_that_got_lost_ends_for_its_client_with_an_error() -> None:
    async with running() as run:
        events = asyncio.create_task(collect(run.loop, a_request("a")))
        command = await run.next_command()
        scheduler = run.engine.core.scheduler
        run.executor.hold()
        scheduler._live["a"].num_in_flight = 0
        run.now_s = 1.0
        run.executor.release()
        await settled(run)
        run.executor.wake()  # the turn that answered ends, and with it the audit comes
        (event,) = await events
        assert (event.token_id, event.finish) == (None, FinishReason.ERROR)
        assert event.detail == "the engine has lost the request"
        assert run.engine.metric(metrics.ACCOUNTING_FAULTS) > 0
        run.executor.answer(command)


async def test_a_request_whose_answer_cannot_be_made_counts_as_an_error_not_as_cancelled() -> None:
    async with running() as run:
        generator = run.loop.generate(a_request("a"))
        first = asyncio.create_task(anext(generator))
        run.executor.answer(await run.next_command())
        await first
        run.loop.fail("a")
        await generator.aclose()
        await settled(run)
        assert run.engine.metric(metrics.REQUESTS, outcome="error") == 1
        assert run.engine.metric(metrics.REQUESTS, outcome="cancelled") == 0
        assert run.engine.metric(metrics.ACCOUNTING_FAULTS) == 0


# Questions of a controller


async def test_a_question_is_answered_while_a_step_runs() -> None:
    async with running() as run:
        run.now_s = 7.0
        stream = asyncio.create_task(collect(run.loop, a_request(max_output_tokens=1)))
        command = await run.next_command()
        reply = run.loop.ask(lambda now_s: (now_s, run.engine.core.scheduler.num_in_flight))
        assert await asyncio.wrap_future(reply) == (7.0, 1)
        run.executor.answer(command)
        await stream


async def test_what_a_question_raises_is_its_askers_and_the_engine_goes_on() -> None:
    async with running() as run:
        reply = run.loop.ask(lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wrap_future(reply)
        events, _ = await asyncio.gather(
            collect(run.loop, a_request(max_output_tokens=1)), run.answer_until_done(1)
        )
        assert events[-1].finish is FinishReason.LENGTH


async def test_a_question_that_nobody_waits_for_is_not_put() -> None:
    put: list[float] = []
    async with running() as run:
        run.executor.hold()
        reply = run.loop.ask(put.append)
        assert reply.cancel()
        run.executor.release()
        await settled(run)
    assert put == []


async def test_questions_are_refused_once_the_engine_has_failed() -> None:
    async with running() as run:
        run.executor.hold()
        pending = run.loop.ask(lambda now_s: now_s)
        given_up = run.loop.ask(lambda now_s: now_s)
        assert given_up.cancel()
        run.executor.fail(KILLED)
        run.executor.release()
        with pytest.raises(EngineUnavailableError, match="signal 9"):
            await asyncio.wrap_future(pending)
        with pytest.raises(EngineUnavailableError, match="signal 9"):
            run.loop.ask(lambda now_s: now_s)


async def test_a_policy_is_taken_while_the_stages_are_away() -> None:
    engine = a_scripted_engine()
    desk = a_desk(engine)
    async with running(engine, TWO_RESTARTS, desk) as run:
        opened = await asyncio.wrap_future(run.loop.ask(lambda now_s: desk.open("c", now_s)))
        assert opened is not None
        stream = asyncio.create_task(
            collect(run.loop, a_request(num_prompt_tokens=40, max_output_tokens=1))
        )
        await run.next_command()
        lost = await run.next_command()
        run.executor.fail(RECOVERABLE)
        await asyncio.to_thread(run.executor.wait_restarted, 1)
        reply = run.loop.ask(lambda now_s: desk.apply(opened.epoch, 1, a_leased(40), now_s))
        assert await asyncio.wrap_future(reply) == Applied(lost.sequence + 1)
        run.executor.report(*READY)
        command = await run.next_command()
        assert (command.sequence, command.num_tokens) == (lost.sequence + 1, 40)
        run.executor.answer(command)
        await stream


async def test_a_lease_that_ends_while_the_engine_idles_has_no_effect_on_what_comes_next() -> None:
    engine = a_scripted_engine()
    desk = a_desk(engine)
    async with running(engine, desk=desk) as run:
        opened = await asyncio.wrap_future(run.loop.ask(lambda now_s: desk.open("c", now_s)))
        assert opened is not None
        leased = a_leased(40, lease_s=5.0)
        await asyncio.wrap_future(
            run.loop.ask(lambda now_s: desk.apply(opened.epoch, 1, leased, now_s))
        )
        run.now_s = 5.0
        stream = asyncio.create_task(
            collect(run.loop, a_request(num_prompt_tokens=40, max_output_tokens=1))
        )
        commands = [await run.next_command(), await run.next_command()]
        assert [command.num_tokens for command in commands] == [STATIC_CHUNK_TOKENS] * 2
        for command in commands:
            run.executor.answer(command)
        run.executor.answer(await run.next_command())
        await stream
