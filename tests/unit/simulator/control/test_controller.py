"""The controller on virtual time: when what it does counts, and what its absence costs."""

import pickle
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw, LatencyGoal, OrderLaw
from pipelineserve.policy.control.observation import STALE_AFTER_S
from pipelineserve.policy.control.turns import Turn
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve_simulator.control.controller import controlled_by
from pipelineserve_simulator.control.settings import (
    ControlSettings,
    Edit,
    LeaseEnded,
    PolicyAdopted,
)
from pipelineserve_simulator.pipeline.executor import run_pipeline
from pipelineserve_simulator.pipeline.faults import (
    ControllerGone,
    Fault,
    RecordsLost,
    StageLost,
    StageSlowed,
)
from pipelineserve_simulator.pipeline.options import (
    FreeRunning,
    Interleaved,
    LockStep,
    PipelineOptions,
    Timing,
)
from simulated_control import (
    LAUNCH_TOKENS,
    STATIC_TOKENS,
    ControlledRunSeen,
    run_controlled,
    small_objectives,
)
from simulated_pipelines import PlainCosts, draw_requests, make_requests, make_scheduler

TICK_S = 1e-9
# Ten a second, of many lengths, for 40 s.
STEADY = make_requests(*[(0.1 * k, 10 + (37 * k) % 140, 20) for k in range(400)])
# One at a time for ten seconds: hardly two sizes of micro-batches, which is too few to learn from.
SLOW_START = make_requests(
    *[(1.5 * k, 60, 20) for k in range(7)],
    *[(10.0 + 0.1 * k, 10 + (37 * k) % 140, 20) for k in range(200)],
)
PREDICTIVE = small_objectives(chunk_law=ChunkLaw.PREDICTIVE)
GREEDY = small_objectives(chunk_law=ChunkLaw.GREEDY)


def is_predictive(adopted: PolicyAdopted) -> bool:
    return isinstance(adopted.leased.policy.chunking, Predictive)


def num_samples(turn: Turn) -> float:
    return next(fact.value for fact in turn.facts if fact.name == "num_samples")


def after(run: ControlledRunSeen, at_s: float) -> list[PolicyAdopted]:
    return [adopted for adopted in run.adopted if adopted.now_s >= at_s]


# What it does in a run without faults


def test_under_the_greedy_law_the_chunk_moves_by_no_more_than_a_step_at_a_time() -> None:
    run = run_controlled(STEADY, GREEDY)
    chunks = [adopted.leased.policy.chunking for adopted in run.adopted]
    sizes = [chunk.chunk_tokens for chunk in chunks if isinstance(chunk, Static)]
    assert len(sizes) == len(chunks)
    moves = {size - before for before, size in pairwise(sizes)}
    assert GREEDY.step_tokens in {abs(move) for move in moves}
    assert max(map(abs, moves)) == GREEDY.step_tokens


def test_it_learns_the_step_times_while_serving_and_goes_over_to_predictions() -> None:
    run = run_controlled(SLOW_START, PREDICTIVE)
    kinds = [is_predictive(adopted) for adopted in run.adopted]
    assert kinds == sorted(kinds)
    assert (kinds[0], kinds[-1]) == (False, True)
    assert run.turn_at(5.0).reason is Reason.MODEL_SIZES_TOO_FEW
    assert run.turn_at(25.0).reason is Reason.MODEL_READY
    chunking = run.adopted[-1].leased.policy.chunking
    assert isinstance(chunking, Predictive)
    for num_tokens in (20, 60):
        assert chunking.model.table.at(num_tokens) == pytest.approx(
            0.01 + 0.0005 * num_tokens, rel=0.05
        )
    assert run.lapses_s == []
    assert len(run.chunks_between(20.0, 30.0)) > 1


def test_until_its_first_policy_the_engine_runs_on_the_chunk_that_it_began_with() -> None:
    run = run_controlled(STEADY)
    first_s = run.adopted[0].now_s
    assert run.chunks_between(0.0, first_s) == {LAUNCH_TOKENS}
    assert run.chunks_between(first_s, 40.0) == {STATIC_TOKENS}


def test_a_policy_is_renewed_long_before_its_lease_ends() -> None:
    run = run_controlled(STEADY)
    gaps_s = {round(b.now_s - a.now_s, 3) for a, b in pairwise(run.adopted)}
    # Three tenths of the lease, at the next turn.
    assert gaps_s == {1.6}


def test_an_edit_in_the_middle_of_a_run_counts_from_the_next_turn_on() -> None:
    edit = Edit(10.1, small_objectives(generation=2, static_tokens=128))
    run = run_controlled(STEADY, edits=(edit,), delay_s=0.001)
    (first,) = [a for a in run.adopted if a.leased.static_chunk_tokens == 128][:1]
    assert first.now_s == pytest.approx(10.2 + 0.001, abs=TICK_S)
    assert run.chunks_between(5.0, first.now_s) == {STATIC_TOKENS}
    assert run.chunks_between(first.now_s, 40.0) == {128}


def test_an_edit_of_a_target_changes_what_is_predicted_for() -> None:
    edit = Edit(20.0, replace(PREDICTIVE, generation=2, tpot=LatencyGoal(90, 0.04)))
    run = run_controlled(STEADY, PREDICTIVE, edits=(edit,))
    before, behind = run.adopted[-1 - len(after(run, 20.0))], run.adopted[-1]
    for adopted, bound_s in ((before, 0.2), (behind, 0.04)):
        assert isinstance(adopted.leased.policy.chunking, Predictive)
        assert adopted.leased.policy.chunking.tpot_target_s == bound_s
    assert max(run.chunks_between(21.0, 40.0)) < max(run.chunks_between(10.0, 20.0))


def test_records_and_policies_travel_as_long_as_they_are_said_to() -> None:
    run = run_controlled(STEADY, delay_s=0.5, period_s=0.25)
    known_at_s = next(t.now_s for t in run.turns if t.observation.engine is not None)
    assert known_at_s == 1.0  # there and back
    sent_s = [taken.now_s for taken in run.turns]
    assert all(min(abs(a.now_s - 0.5 - at_s) for at_s in sent_s) < 2 * TICK_S for a in run.adopted)
    # A turn that has sent something waits for the answer, longer than its period.
    assert {round(b - a, 6) for a, b in pairwise(sent_s)} == {0.25, 1.0}


# What its absence costs


def test_when_it_is_gone_the_lease_ends_to_the_instant_and_the_static_chunk_is_back() -> None:
    gone = ControllerGone(12.0, 25.0)
    run = run_controlled(STEADY, PREDICTIVE, faults=(gone,))
    last = [adopted for adopted in run.adopted if adopted.now_s < 12.0][-1]
    (lapse_s,) = run.lapses_s
    assert lapse_s == pytest.approx(last.now_s + last.leased.lease_s, abs=TICK_S)
    assert run.chunks_between(lapse_s, 25.0) == {STATIC_TOKENS}
    assert len(run.chunks_between(12.0, lapse_s)) > 1
    assert [taken for taken in run.turns if 12.0 <= taken.now_s < 25.0] == []


@pytest.mark.parametrize("keeps_journal", [True, False])
def test_another_one_begins_with_what_the_journal_holds_if_one_is_kept(
    keeps_journal: bool,
) -> None:
    gone = ControllerGone(12.0, 20.0, keeps_journal)
    run = run_controlled(STEADY, PREDICTIVE, faults=(gone,))
    before, behind = (num_samples(run.turn_at(at_s)) for at_s in (12.0, 22.5))
    assert (behind > before) == keeps_journal
    assert is_predictive(run.adopted[-1])


def test_what_happens_while_it_is_gone_is_told_to_nobody() -> None:
    gone = ControllerGone(10.0, 30.0, keeps_journal=False)
    run = run_controlled(STEADY, faults=(gone,))
    last = run.turns[-1]
    ended = [r for r in run.outcome.requests if 30.001 <= r.end_s <= last.now_s - 0.03]
    assert len(ended) > 50
    assert 0 <= last.observation.num_judged - len(ended) <= 1


def test_lost_records_are_borne_for_a_while_and_then_the_lease_is_left_to_end() -> None:
    objectives = replace(PREDICTIVE, stale_s=6.0)
    run = run_controlled(STEADY, objectives, faults=(RecordsLost(10.0, 35.0),))
    assert run.turn_at(10.0 + STALE_AFTER_S - 0.5).reason is Reason.MODEL_READY
    assert run.turn_at(14.0).reason is Reason.INPUT_STALE
    assert is_predictive([a for a in run.adopted if a.now_s < 16.0][-1])
    assert run.turn_at(25.0).reason is Reason.LEASE_LEFT_TO_END
    (lapse_s,) = run.lapses_s
    # The last fresh turn, what it bears, and the lease of the last renewal in that time.
    assert 12.0 + 6.0 < lapse_s < 13.0 + 6.0 + 5.0
    assert run.chunks_between(lapse_s, 35.0) == {STATIC_TOKENS}
    assert is_predictive(run.adopted[-1])
    assert run.adopted[-1].now_s > 35.0


def test_a_short_silence_changes_nothing_that_is_in_force() -> None:
    run = run_controlled(STEADY, PREDICTIVE, faults=(RecordsLost(10.0, 20.0),))
    assert run.lapses_s == []
    assert run.turn_at(19.0).reason is Reason.INPUT_STALE
    assert all(is_predictive(adopted) for adopted in after(run, 5.0))


# The order at one instant


def held_up(period_s: float, delay_s: float) -> ControlledRunSeen:
    """A lease as long as the time between two turns."""
    objectives = small_objectives(lease_s=5.0)
    return run_controlled(STEADY, objectives, period_s=period_s, delay_s=delay_s)


def test_a_policy_that_arrives_at_the_instant_at_which_the_lease_ends_is_in_time() -> None:
    run = held_up(period_s=5.0, delay_s=0.5)
    assert [adopted.now_s for adopted in run.adopted][:3] == [5.5, 10.5, 15.5]
    assert run.lapses_s == []


def test_a_lease_that_ends_at_the_instant_of_a_turn_has_ended_before_it() -> None:
    run = held_up(period_s=5.0, delay_s=0.0)
    changes = [e for e in run.events if isinstance(e, LeaseEnded | PolicyAdopted)]
    assert [(type(change), change.now_s) for change in changes[:4]] == [
        (PolicyAdopted, 5.0),
        (LeaseEnded, 10.0),
        (PolicyAdopted, 10.0),
        (LeaseEnded, 15.0),
    ]
    # And without any time in between nothing is composed in between.
    assert run.chunks_between(10.0, 15.0) == {STATIC_TOKENS}


def test_what_happens_at_the_instant_of_a_turn_is_heard_in_it_if_it_takes_no_time() -> None:
    """Micro-batches come back every tenth of a second, each at a turn or between two."""
    requests = make_requests((0.0, 8, 40))
    heard = []
    for delay_s in (0.0, 0.001):
        run = run_controlled(requests, delay_s=delay_s, costs=PlainCosts(2, step_s=0.1))
        turn = run.turns[5]
        assert turn.now_s == 1.0
        assert turn.observation.last_step is not None
        heard.append(turn.observation.last_step.sequence)
    # One request: a micro-batch begins every 0.2 s, and the fifth comes back after a second.
    assert heard == [4, 3]


def test_a_policy_counts_for_what_is_composed_at_the_instant_at_which_it_arrives() -> None:
    edit = Edit(10.0, small_objectives(generation=2, static_tokens=128))
    requests = make_requests((0.0, 8, 100))
    run = run_controlled(requests, edits=(edit,), delay_s=0.0, costs=PlainCosts(2, step_s=0.1))
    assert [step.chunk_tokens for step in run.outcome.steps if step.start_s == 10.0] == [128]
    assert run.chunks_between(5.0, 10.0) == {STATIC_TOKENS}


# Whatever happens


def draw_faults(random: Random) -> tuple[Fault, ...]:
    def span(longest_s: float) -> tuple[float, float]:
        start_s = 30.0 * random.random()
        return start_s, start_s + 0.001 + longest_s * random.random()

    drawn: list[Fault] = []
    for _ in range(random.randint(0, 3)):
        drawn.append(ControllerGone(*span(15.0), keeps_journal=random.random() < 0.5))
        drawn.append(RecordsLost(*span(20.0)))
        drawn.append(StageSlowed(random.randrange(2), 1.0 + 3.0 * random.random(), *span(10.0)))
    drawn += [StageLost(0, 30.0 * random.random(), 5.0 * random.random())] * random.randint(0, 2)
    return tuple(drawn)


def run_random(seed: int, timing: Timing) -> ControlledRunSeen:
    random = Random(seed)
    objectives = replace(
        small_objectives(
            chunk_law=random.choice(list(ChunkLaw)),
            lease_s=random.choice([1.0, 5.0]),
            stale_s=random.choice([1.0, 10.0]),
        ),
        order_law=random.choice(list(OrderLaw)),
        hold_law=random.choice(list(HoldLaw)),
    )
    requests = draw_requests(random)
    run = run_controlled(
        requests,
        objectives,
        edits=(Edit(10.0, replace(objectives, generation=2, hold_law=HoldLaw.AUTO)),),
        faults=draw_faults(random),
        timing=timing,
        delay_s=random.choice([0.0, 0.001, 0.4]),
        num_blocks=random.choice([60, 2048]),
    )
    asked = [(r.index, r.prompt_tokens, r.output_tokens) for r in requests]
    assert [(r.index, r.prompt_tokens, r.output_tokens) for r in run.outcome.requests] == asked
    return run


@pytest.mark.parametrize("timing", [FreeRunning(), LockStep(), Interleaved(2)], ids=repr)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_under_random_faults_and_policies_every_request_ends_and_time_only_goes_on(
    timing: Timing, seed: int
) -> None:
    run = run_random(seed, timing)
    assert all(request.is_success for request in run.outcome.requests)
    times_s = [event.now_s for event in run.events]
    assert times_s == sorted(times_s)
    # A lease ends once for each time that a policy came into force, at most.
    assert len(run.lapses_s) <= len(run.adopted)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_the_same_run_gives_the_same_bytes(seed: int) -> None:
    first, second = (run_random(seed, FreeRunning()) for _ in range(2))
    assert pickle.dumps(first.outcome) == pickle.dumps(second.outcome)
    assert first.events == second.events


def test_nothing_stays_held_once_the_lease_has_ended() -> None:
    run = run_controlled(
        STEADY,
        replace(PREDICTIVE, hold_law=HoldLaw.E2E_FIRST),
        faults=(ControllerGone(12.0, 100.0),),
    )
    assert run.scheduler.num_held == 0
    assert isinstance(run.scheduler.chunk_policy, Static)
    assert all(request.is_success for request in run.outcome.requests)


# What is refused


def test_a_scheduler_without_a_static_chunk_is_refused() -> None:
    control = controlled_by(ControlSettings(small_objectives()))
    predicted = make_scheduler()
    chunking = run_controlled(STEADY, PREDICTIVE).adopted[-1].leased.policy.chunking
    predicted.chunk_policy = chunking
    options = PipelineOptions(control=control(predicted))
    with pytest.raises(TypeError, match="static chunk to return to, got Predictive"):
        run_pipeline(STEADY, predicted, PlainCosts(), options)


def test_faults_of_a_controller_need_one() -> None:
    options = PipelineOptions(faults=(RecordsLost(1.0, 2.0),))
    with pytest.raises(ValueError, match="expected a controller for its faults"):
        run_pipeline(STEADY, make_scheduler(), PlainCosts(), options)


@pytest.mark.parametrize("kind", [ControllerGone, RecordsLost])
@pytest.mark.parametrize("span_s", [(2.0, 2.0), (3.0, 1.0), (-1.0, 2.0)])
def test_a_fault_must_last(
    kind: type[ControllerGone | RecordsLost], span_s: tuple[float, float]
) -> None:
    with pytest.raises(ValueError, match="expected 0 <= start_s < end_s"):
        kind(*span_s)


def test_settings_out_of_bounds_are_named() -> None:
    objectives = small_objectives()
    for changes, name in (
        ({"period_s": 0.0}, "period_s"),
        ({"delay_s": -0.1}, "delay_s"),
        ({"delay_s": 1.5}, "delay_s"),
        ({"edits": (Edit(2.0, objectives), Edit(1.0, objectives))}, "edits"),
    ):
        with pytest.raises(ValueError, match=name):
            ControlSettings(objectives, **changes)
