"""Whatever an engine was asked, its record gives the same micro-batches in the twin."""

from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.policy.triage import Triage
from pipelineserve_cli.replays.calls import read_recorded_run
from pipelineserve_engine.control.assembly import _Told
from pipelineserve_engine.generation import GenerationRequest
from pipelineserve_engine.stage_messages import ReadyReport, StepCommand
from pipelineserve_engine.tracing import TracedSetup, TraceRecorder
from pipelineserve_simulator.replay.player import replay
from pipelineserve_simulator.replay.recorded import Completed, Queued, RecordedRun, Sent
from policy_views import line_model
from scripted_engine import a_scripted_engine
from scripted_executor import report_of

STOP_TOKEN_ID = 9
POLICIES = (
    SchedulingPolicy(Static(5)),
    SchedulingPolicy(Static(40), Ageing()),
    SchedulingPolicy(Static(16), Triage(ttft_target_s=0.5)),
    SchedulingPolicy(Predictive(line_model(), (8, 16, 32), tpot_target_s=0.2), Arrival()),
    SchedulingPolicy(
        Static(16),
        holding=Rebalance(HoldMode.E2E_FIRST, line_model(), (2, 4), least_gain_ratio=0.0),
    ),
)


class RandomRun:
    """An engine that is asked at random, and answers at random, while it records."""

    def __init__(self, chance: Random, path: Path) -> None:
        self._chance = chance
        self._num_requests = 0
        self._now_s = 100.0
        self._in_flight: list[StepCommand] = []
        # Few blocks, so that requests are preempted; host blocks for some of them.
        self.engine = a_scripted_engine(num_blocks=24, num_host_blocks=chance.choice([0, 12]))
        scheduler = self.engine.core.scheduler
        setup = TracedSetup((1,), scheduler.settings, "continuous", 16)
        self.recorder = TraceRecorder(path, setup, 1_000_000, lambda: self._now_s)
        self.engine.observer.add(self.recorder)
        self._told = _Told(scheduler, self.engine.observer)
        self.engine.core.absorb(ReadyReport(0, 1, 0, 0, 1e-4), self._now_s)

    def run(self, num_turns: int) -> None:
        """Turns of all kinds, and then to the end."""
        steps = [self._submit, self._submit, self._answer, self._answer, self._answer, self._end,
                 self._adopt]  # fmt: skip
        for _ in range(num_turns):
            self._chance.choice(steps)()
            self._fill()
        if self._chance.random() < 0.3:
            self._in_flight.clear()
            self.engine.core.recall_all()
        while self.engine.core.scheduler.has_work:
            self._fill()
            self._answer()
        self.recorder.__exit__(None, None, None)

    def _fill(self) -> None:
        self._now_s += self._chance.random()
        self.engine.core.fill_slots(self._now_s)
        while not self.engine.executor.sent.empty():
            self._in_flight.append(self.engine.executor.sent.get())

    def _submit(self) -> None:
        # Prompts of few kinds, so that many begin alike.
        kind, length = self._chance.randrange(3), self._chance.randint(1, 40)
        request = GenerationRequest(
            request_id=f"r{self._num_requests}",
            prompt_token_ids=tuple(1000 * kind + index // 12 for index in range(length)),
            max_output_tokens=self._chance.choice([None, 1, 6, 20]),
            stop_token_ids=frozenset({STOP_TOKEN_ID}),
            client_id=self._chance.choice(["", "one", "another"]),
            priority=self._chance.choice([0, 0, 1]),
        )
        self._num_requests += 1
        self.engine.core.submit(request, self._now_s)

    def _answer(self) -> None:
        if not self._in_flight:
            return
        self._now_s += self._chance.random()
        command = self._in_flight.pop(0)
        tokens = [
            self._chance.choice([1, 2, 3, 4, STOP_TOKEN_ID]) for p in command.pieces if p.samples
        ]
        report = report_of(command, tokens, start_s=self._now_s - 0.05, end_s=self._now_s)
        self.engine.core.absorb(report, self._now_s)

    def _end(self) -> None:
        core = self.engine.core
        if self._num_requests:
            request_id = f"r{self._chance.randrange(self._num_requests)}"
            self._chance.choice([core.cancel, core.finish, core.fail])(request_id, self._now_s)

    def _adopt(self) -> None:
        self._told.adopt(self._chance.choice(POLICIES))


def recorded(seed: int, num_turns: int = 60) -> RecordedRun:
    """The record of a run."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "record.jsonl"
        RandomRun(Random(seed), path).run(num_turns)
        return read_recorded_run(path)


@given(st.integers(0, 10**9))
def test_a_recorded_run_gives_the_same_micro_batches_again(seed: int) -> None:
    run = recorded(seed)
    replayed = replay(run)
    assert replayed.divergence is None
    assert replayed.num_equal == sum(isinstance(call, Sent) for call in run.calls)


def without_first(run: RecordedRun, kind: type) -> RecordedRun:
    """A record in which the first call of this kind is missing."""
    index = next(index for index, call in enumerate(run.calls) if isinstance(call, kind))
    return replace(run, calls=run.calls[:index] + run.calls[index + 1 :])


def test_another_policy_gives_others_and_the_first_is_shown() -> None:
    run = replace(recorded(7), policy=SchedulingPolicy(Static(1)))
    divergence = replay(run).divergence
    assert divergence is not None
    assert divergence.recorded is not None
    assert divergence.composed is not None
    assert divergence.composed.chunk_tokens == 1


def test_a_request_that_is_missing_in_the_record_shows() -> None:
    divergence = replay(without_first(recorded(7), Queued)).divergence
    assert divergence is not None


def test_a_completion_that_was_never_sent_is_refused() -> None:
    run = recorded(7)
    with pytest.raises(ValueError, match="micro-batch 0 is completed, but is not in flight"):
        replay(replace(run, calls=(Completed(1.0, 0), *run.calls)))
