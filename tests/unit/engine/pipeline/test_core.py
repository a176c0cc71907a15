"""Scheduler, executor and observer together, without the thread: what is sent, kept and counted."""

import queue
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve import metrics
from pipelineserve.errors import EngineUnavailableError
from pipelineserve.policy.assignment import SlotBound
from pipelineserve.scheduler.messages import Accepted, Rejected
from pipelineserve.scheduler.requests import FinishReason
from pipelineserve_engine.core import Output
from pipelineserve_engine.generation import (
    GenerationRequest,
    SamplingParameters,
    TokenEvent,
    TokenLogprobs,
)
from pipelineserve_engine.stage_messages import (
    FailureReport,
    ReadyReport,
    SampleExtras,
    SampleFailure,
    SamplingSpec,
    StepCommand,
)
from scripted_engine import ScriptedEngine, a_request, a_scripted_engine
from scripted_executor import num_samples, report_of


def sent(engine: ScriptedEngine) -> list[StepCommand]:
    """What was sent since the last call."""
    commands = []
    while True:
        try:
            commands.append(engine.executor.sent.get_nowait())
        except queue.Empty:
            return commands


def complete(
    engine: ScriptedEngine,
    command: StepCommand,
    now_s: float = 0.0,
    extras: SampleExtras | None = None,
) -> list[Output]:
    report = report_of(command, [1] * num_samples(command), extras=extras)
    return engine.core.absorb(report, now_s)


def run(engine: ScriptedEngine, see: Callable[[StepCommand], None] = lambda _: None) -> None:
    """Step until no request is live."""
    while engine.core.scheduler.has_work:
        engine.core.fill_slots(0.0)
        for command in sent(engine):
            see(command)
            complete(engine, command)


def specs_of(engine: ScriptedEngine) -> list[SamplingSpec | None]:
    """How each token of the live requests is drawn, in order."""
    specs: list[SamplingSpec | None] = []
    run(
        engine,
        lambda command: specs.extend(piece.sampling for piece in command.pieces if piece.samples),
    )
    return specs


# Slots


def test_fills_every_slot_that_there_is_work_for() -> None:
    engine = a_scripted_engine(num_slots=3, chunk_tokens=4)
    engine.core.submit(a_request(num_prompt_tokens=10), 0.0)
    engine.core.fill_slots(0.0)
    commands = sent(engine)
    assert [command.num_tokens for command in commands] == [4, 4, 2]
    assert [num_samples(command) for command in commands] == [0, 0, 1]


def test_a_slot_in_flight_is_left_alone_until_its_last_stage_reports() -> None:
    engine = a_scripted_engine(num_slots=1)
    engine.core.submit(a_request(), 0.0)
    engine.core.fill_slots(0.0)
    (command,) = sent(engine)
    engine.core.fill_slots(0.0)
    assert engine.core.absorb(report_of(command, None), 0.0) == []
    engine.core.fill_slots(0.0)
    assert sent(engine) == []
    assert len(complete(engine, command)) == 1
    engine.core.fill_slots(0.0)
    assert len(sent(engine)) == 1


def test_with_decodes_bound_to_slots_an_empty_one_does_not_keep_the_others_from_filling() -> None:
    engine = a_scripted_engine(num_slots=2, chunk_tokens=4, assignment=SlotBound())
    for request_id in "ab":
        engine.core.submit(a_request(request_id, num_prompt_tokens=4), 0.0)
    engine.core.fill_slots(0.0)
    for command in sent(engine):
        complete(engine, command)
    engine.core.cancel("a", 0.0)
    engine.core.fill_slots(0.0)
    assert [command.slot_index for command in sent(engine)] == [1]


def test_nothing_is_sent_without_work() -> None:
    engine = a_scripted_engine()
    engine.core.fill_slots(0.0)
    assert sent(engine) == []


# Seeds


def test_unseeded_sampling_draws_one_seed_and_keeps_it_for_every_token() -> None:
    seeds = count(100)
    engine = a_scripted_engine(draw_seed=lambda: next(seeds))
    engine.core.submit(a_request("a", sampling=SamplingParameters(0.7, 5, 0.9)), 0.0)
    assert specs_of(engine) == [SamplingSpec(0.7, 5, 0.9, 100, index) for index in range(3)]
    engine.core.submit(a_request("b", sampling=SamplingParameters(0.7)), 0.0)
    assert {spec.seed for spec in specs_of(engine) if spec} == {101}


def test_a_given_seed_is_kept_even_if_it_is_zero() -> None:
    engine = a_scripted_engine()
    engine.core.submit(a_request(sampling=SamplingParameters(1.0, seed=0)), 0.0)
    assert {spec.seed for spec in specs_of(engine) if spec} == {0}


def test_greedy_requests_draw_nothing() -> None:
    def draw() -> int:
        raise AssertionError("a greedy request needs no seed")

    engine = a_scripted_engine(draw_seed=draw)
    engine.core.submit(a_request(), 0.0)
    assert specs_of(engine) == [None, None, None]


# What comes back with the tokens

BROKEN_SECOND = SampleExtras(failures=(SampleFailure(1, "its logits are broken"),))


def test_a_sample_that_failed_ends_its_request_alone_and_says_why() -> None:
    engine = a_scripted_engine(num_slots=1)
    for name in ("a", "b", "c"):
        engine.core.submit(a_request(name), 0.0)
    engine.core.fill_slots(0.0)
    (command,) = sent(engine)
    events = {o.request_id: o.event for o in complete(engine, command, extras=BROKEN_SECOND)}
    assert events == {
        "a": TokenEvent(1),
        "b": TokenEvent(None, FinishReason.ERROR, detail="its logits are broken"),
        "c": TokenEvent(1),
    }
    run(engine)
    assert engine.metric(metrics.REQUESTS, outcome="error") == 1
    assert engine.metric(metrics.REQUESTS, outcome="length") == 2
    assert engine.metric(metrics.OUTPUT_TOKENS) == 6
    assert engine.core.scheduler.kv_used_ratio == 0.0


def test_a_sample_that_failed_does_not_end_the_next_request_of_that_id() -> None:
    engine = a_scripted_engine(num_slots=1)
    for name in ("a", "b"):
        engine.core.submit(a_request(name), 0.0)
    engine.core.fill_slots(0.0)
    (command,) = sent(engine)
    engine.core.cancel("b", 0.0)
    engine.core.submit(a_request("b"), 0.0)
    assert [output.request_id for output in complete(engine, command, extras=BROKEN_SECOND)] == [
        "a"
    ]
    run(engine)
    assert engine.metric(metrics.REQUESTS, outcome="error") == 0
    assert engine.metric(metrics.REQUESTS, outcome="length") == 2


def test_logprobs_reach_the_request_that_asked() -> None:
    engine = a_scripted_engine(num_slots=1)
    for name in ("a", "b"):
        engine.core.submit(a_request(name), 0.0)
    engine.core.fill_slots(0.0)
    (command,) = sent(engine)
    entry = TokenLogprobs(-0.5, (1,), (-0.5,))
    outputs = complete(engine, command, extras=SampleExtras((None, entry)))
    assert {o.request_id: o.event.logprobs for o in outputs} == {"a": None, "b": entry}


def test_a_stop_token_has_no_logprobs_since_it_is_no_output() -> None:
    engine = a_scripted_engine(num_slots=1)
    engine.core.submit(a_request("a", stop_token_ids=frozenset({1})), 0.0)
    engine.core.fill_slots(0.0)
    (command,) = sent(engine)
    (output,) = complete(engine, command, extras=SampleExtras((TokenLogprobs(-0.5, (), ()),)))
    assert output.event == TokenEvent(None, FinishReason.STOP)


def test_a_penalised_request_carries_its_history_and_others_carry_nothing() -> None:
    engine = a_scripted_engine(num_slots=1)
    penalised = SamplingParameters(0.0, frequency_penalty=1.0)
    engine.core.submit(a_request("a", sampling=penalised), 0.0)
    counts = [
        spec.adjustments.output_counts for spec in specs_of(engine) if spec and spec.adjustments
    ]
    assert counts == [b"", b"\x01\0\0\0", b"\x02\0\0\0"]
    engine.core.submit(a_request("b", sampling=SamplingParameters(0.5)), 0.0)
    assert {spec.adjustments for spec in specs_of(engine) if spec} == {None}


# Reports


def test_a_stage_that_says_it_failed_is_an_error_with_its_words() -> None:
    engine = a_scripted_engine()
    with pytest.raises(EngineUnavailableError, match="stage 1 failed: RuntimeError: no memory"):
        engine.core.absorb(FailureReport(1, "RuntimeError: no memory\n"), 0.0)


def test_a_late_ready_report_means_nothing() -> None:
    assert a_scripted_engine().core.absorb(ReadyReport(0, 1, 2, 3), 0.0) == []


def test_a_report_of_another_micro_batch_is_refused() -> None:
    engine = a_scripted_engine(num_slots=1)
    engine.core.submit(a_request(), 0.0)
    engine.core.fill_slots(0.0)
    (command,) = sent(engine)
    complete(engine, command)
    with pytest.raises(ValueError, match="does not hold micro-batch 0"):
        complete(engine, command)


# What is counted


def test_a_request_is_counted_once_in_every_figure() -> None:
    engine = a_scripted_engine(num_slots=1)
    engine.core.submit(a_request(num_prompt_tokens=5, max_output_tokens=3), 10.0)
    for now_s in (11.0, 13.0, 17.0):
        engine.core.fill_slots(now_s)
        (command,) = sent(engine)
        complete(engine, command, now_s + 1.0)
    engine.core.observe_levels()
    assert engine.metric(metrics.PROMPT_TOKENS) == 5
    assert engine.metric(metrics.OUTPUT_TOKENS) == 3
    assert engine.metric(metrics.REQUESTS, outcome="length") == 1
    assert engine.metric(metrics.QUEUE_WAIT, "_sum") == 1.0
    assert engine.metric(metrics.TTFT, "_sum") == 2.0
    assert engine.metric(metrics.TOKEN_GAP, "_sum") == 6.0
    assert engine.metric(metrics.TOKEN_GAP, "_count") == 2
    assert engine.metric(metrics.TPOT, "_sum") == 3.0
    assert engine.metric(metrics.E2E, "_sum") == 8.0
    for metric in (metrics.QUEUE_WAIT, metrics.TTFT, metrics.TPOT, metrics.E2E):
        assert engine.metric(metric, "_count") == 1
    assert engine.metric(metrics.KV_USED) == 0


def test_a_request_that_ends_with_its_first_token_has_a_ttft_and_no_tpot() -> None:
    engine = a_scripted_engine()
    engine.core.submit(a_request("one", max_output_tokens=1), 0.0)
    engine.core.submit(a_request("stop", stop_token_ids=frozenset({1})), 0.0)
    run(engine)
    assert engine.metric(metrics.TTFT, "_count") == 2
    assert engine.metric(metrics.TPOT, "_count") == 0
    assert engine.metric(metrics.OUTPUT_TOKENS) == 1


def test_a_cancelled_request_without_output_has_no_latency() -> None:
    engine = a_scripted_engine()
    engine.core.submit(a_request(), 0.0)
    engine.core.cancel("a", 5.0)
    engine.core.cancel("a", 6.0)
    assert engine.metric(metrics.REQUESTS, outcome="cancelled") == 1
    for metric in (metrics.TTFT, metrics.TPOT, metrics.E2E, metrics.QUEUE_WAIT):
        assert engine.metric(metric, "_count") == 0


def test_prefix_hits_are_counted_when_levels_are_observed_and_only_once() -> None:
    engine = a_scripted_engine()
    engine.core.submit(a_request(num_prompt_tokens=9), 0.0)
    run(engine)
    engine.core.submit(a_request(num_prompt_tokens=9), 0.0)
    run(engine)
    engine.core.observe_levels()
    engine.core.observe_levels()
    assert engine.metric(metrics.CACHED_TOKENS) == 8


def test_fail_all_ends_every_request_as_an_error() -> None:
    engine = a_scripted_engine(max_running_requests=1)
    for name in ("a", "b"):
        engine.core.submit(a_request(name), 0.0)
    engine.core.fill_slots(0.0)
    records = engine.core.fail_all(1.0)
    assert {record.finish for record in records} == {FinishReason.ERROR}
    engine.core.observe_levels()
    assert engine.metric(metrics.REQUESTS, outcome="error") == 2
    assert engine.metric(metrics.REQUESTS_WAITING) == 0
    assert engine.metric(metrics.REQUESTS_RUNNING) == 0
    assert engine.metric(metrics.KV_USED) == 0


# Conservation, whatever is done

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["submit", "cancel", "finish", "fill", "complete", "break", "fail", "levels"]
        ),
        st.integers(0, 9),
    ),
    max_size=60,
)


class Script:
    """Does what it is told to a small engine, and keeps what is in flight."""

    def __init__(self) -> None:
        self.engine = a_scripted_engine(chunk_tokens=6, num_blocks=12, max_waiting_requests=4)
        self.in_flight: list[StepCommand] = []
        self.num_accepted = 0
        self.num_rejected = 0

    def do(self, step: str, number: int, now_s: float) -> None:
        """One step; `number` chooses request and sizes."""
        core, name = self.engine.core, f"r{number}"
        match step:
            case "submit":
                self._submit(a_request(name, number, 1 + number % 4), now_s)
            case "cancel":
                core.cancel(name, now_s)
            case "finish":
                core.finish(name, now_s)
            case "fill":
                core.fill_slots(now_s)
                self.in_flight += sent(self.engine)
            case "complete" if self.in_flight:
                complete(self.engine, self.in_flight.pop(0), now_s)
            case "break" if self.in_flight:
                command = self.in_flight.pop(0)
                broken = range(number % 2, num_samples(command), 2)
                failures = tuple(SampleFailure(index, "broken") for index in broken)
                complete(self.engine, command, now_s, SampleExtras(failures=failures))
            case "fail" if number == 0:
                core.fail_all(now_s)
                self.in_flight.clear()
            case _:
                core.observe_levels()

    def do_the_rest(self) -> None:
        """Bring every request to its end."""
        for command in self.in_flight:
            complete(self.engine, command)
        run(self.engine)
        self.engine.core.observe_levels()

    def _submit(self, request: GenerationRequest, now_s: float) -> None:
        match self.engine.core.submit(request, now_s):
            case Accepted():
                self.num_accepted += 1
            case Rejected():
                self.num_rejected += 1


@given(STEPS)
def test_every_request_ends_once_and_leaves_nothing_behind(steps: list[Step]) -> None:
    script = Script()
    core = script.engine.core
    for now_s, (step, number) in enumerate(steps):
        script.do(step, number, now_s)
        assert core.scheduler.census().is_conserved
        assert set(core._sampling) == set(core.scheduler._live)
    script.do_the_rest()
    ended = {
        outcome: script.engine.metric(metrics.REQUESTS, outcome=outcome)
        for outcome in ("stop", "length", "cancelled", "error", "rejected")
    }
    assert ended.pop("rejected") == script.num_rejected
    assert sum(ended.values()) == script.num_accepted
    assert core._sampling == {}
    assert script.engine.metric(metrics.KV_USED) == 0
