"""Whole turns: replayable, serialisable, and never anything that an engine would refuse."""

import json

from hypothesis import given
from hypothesis import strategies as st

from control_turns import (
    Course,
    make_engine,
    make_objectives,
    make_request,
    make_standing,
    make_step,
)
from pipelineserve.policy.control.heard import Ending, EngineFacts, Heard, RequestSeen, StepSeen
from pipelineserve.policy.control.journal_format import from_json, to_json
from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw, Mode, Objectives, OrderLaw
from pipelineserve.policy.control.turns import ControlMemory, Turn, take_turn
from pipelineserve.policy.scheduling import LeasedPolicy
from pipelineserve.policy.step_time import StepFeatures
from pipelineserve.wire.policies import decode_policy, encode_policy

AMOUNTS = st.floats(0.0, 1e18)
COUNTS = st.integers(0, 2**32 - 1)
RATIOS = st.floats(0.0, 1.0)


@st.composite
def objectives(draw: st.DrawFn) -> Objectives:
    least, most = sorted(draw(st.lists(st.integers(1, 131_072), min_size=2, max_size=2)))
    return make_objectives(
        ttft_s=draw(st.none() | st.floats(0.001, 3600.0)),
        tpot_s=draw(st.none() | st.floats(0.001, 3600.0)),
        window_s=draw(st.floats(10.0, 86_400.0)),
        chunk_law=draw(st.sampled_from(ChunkLaw)),
        min_tokens=least,
        max_tokens=most,
        step_tokens=max(1, (most - least) // draw(st.integers(1, 64))),
        static_tokens=draw(st.integers(least, most)),
        hold_law=draw(st.sampled_from(HoldLaw)),
        order_law=draw(st.sampled_from(OrderLaw)),
        mode=draw(st.sampled_from([Mode.ACTIVE, Mode.ACTIVE, Mode.ADVISORY, Mode.PAUSED])),
        lease_s=draw(st.floats(1.0, 300.0)),
        stale_s=draw(st.floats(1.0, 3600.0)),
    )


@st.composite
def steps(draw: st.DrawFn, first: int) -> tuple[StepSeen, ...]:
    sizes = draw(st.lists(st.integers(1, 5000), max_size=12))
    return tuple(
        make_step(
            first + index,
            num_tokens=size,
            num_decodes=draw(st.integers(0, size)),
            time_s=draw(st.floats(0.0, 10.0) | st.floats(0.001, 0.1)),
            features=StepFeatures(draw(AMOUNTS), draw(AMOUNTS), draw(AMOUNTS)),
        )
        for index, size in enumerate(sizes)
    )


REQUESTS = st.builds(
    RequestSeen,
    ending=st.sampled_from(Ending),
    num_prompt_tokens=COUNTS,
    num_output_tokens=COUNTS,
    ttft_s=st.none() | AMOUNTS,
    tpot_s=st.none() | AMOUNTS,
    held_s=AMOUNTS,
    longest_gap_s=AMOUNTS,
)


@st.composite
def heards(draw: st.DrawFn, now_s: float, first: int) -> Heard:
    told = draw(steps(first))
    standing = make_standing(
        draw(st.sampled_from([now_s, 0.0, 5.0])),
        num_waiting=draw(COUNTS),
        waiting_tokens=draw(st.integers(0, 2**64 - 1)),
        num_running=draw(COUNTS),
        num_held=draw(COUNTS),
        kv_free_ratio=draw(RATIOS),
        oldest_wait_s=draw(AMOUNTS),
        running_tpot_s=draw(st.sampled_from([(), (0.01, 0.1, 1.0), (0.0, 1e9, 1e18)])),
        most_decodes=draw(COUNTS),
    )
    engine: EngineFacts | None = make_engine(
        epoch=draw(st.integers(1, 3)), max_chunk_tokens=draw(st.sampled_from([2048, 2048, 32]))
    )
    return Heard(
        now_s=now_s,
        engine=draw(st.sampled_from([engine, engine, engine, None])),
        standing=draw(st.sampled_from([standing, standing, None])),
        steps=told,
        requests=tuple(draw(st.lists(REQUESTS, max_size=5))),
        num_steps=len(told),
        num_lost=0,
        num_refused=draw(st.sampled_from([0, 0, 0, 2])),
    )


@st.composite
def courses(draw: st.DrawFn) -> list[tuple[Heard, Objectives]]:
    """Turns with anything in them that can come off the wire, at any pace."""
    now_s, first, held = 0.0, 0, draw(objectives())
    course = []
    for _ in range(draw(st.integers(1, 12))):
        now_s += draw(st.sampled_from([0.0, 0.2, 0.2, 2.5, 40.0]))
        heard = draw(heards(now_s, first))
        first += len(heard.steps)
        held = draw(st.sampled_from([held, held, held, draw(objectives())]))
        course.append((heard, held))
    return course


def taken(course: list[tuple[Heard, Objectives]]) -> list[tuple[Turn, ControlMemory]]:
    memory, results = ControlMemory(), []
    for heard, held in course:
        turn, _, memory = take_turn(memory, heard, held)
        results.append((turn, memory))
    return results


@given(courses())
def test_whatever_is_heard_no_policy_is_one_that_an_engine_refuses(
    course: list[tuple[Heard, Objectives]],
) -> None:
    for (heard, _), (turn, _) in zip(course, taken(course), strict=True):
        if turn.policy is None or heard.engine is None:
            continue  # nothing would be sent
        leased = LeasedPolicy(turn.policy, turn.lease_s, turn.static_chunk_tokens)
        ceiling = heard.engine.max_chunk_tokens
        assert decode_policy(encode_policy(leased), max_chunk_tokens=ceiling) == leased


@given(courses())
def test_the_same_inputs_give_the_same_turns_and_memories(
    course: list[tuple[Heard, Objectives]],
) -> None:
    assert taken(course) == taken(course)


@given(courses())
def test_inputs_turns_and_memories_are_written_and_read_without_loss(
    course: list[tuple[Heard, Objectives]],
) -> None:
    for (heard, held), (turn, memory) in zip(course, taken(course), strict=True):
        for value in (heard, held, turn, memory):
            text = json.dumps(to_json(value), allow_nan=False)
            assert from_json(type(value), json.loads(text)) == value


@given(courses())
def test_a_policy_is_sent_only_on_order_of_an_active_mode(
    course: list[tuple[Heard, Objectives]],
) -> None:
    for (heard, held), (turn, _) in zip(course, taken(course), strict=True):
        if turn.is_to_send:
            assert held.mode is Mode.ACTIVE
            assert heard.engine is not None
            assert turn.policy is not None


def test_a_real_memory_survives_the_journal_and_goes_on_the_same() -> None:
    course = Course(make_objectives(hold_law=HoldLaw.AUTO))
    course.train()
    course.turn(requests=[make_request()])
    copy = Course(course.objectives, now_s=course.now_s, engine_now_s=course.engine_now_s)
    copy.memory = from_json(ControlMemory, json.loads(json.dumps(to_json(course.memory))))
    copy.sequence = course.sequence
    for _ in range(10):
        assert copy.turn(steps=copy.steps([64, 256])) == course.turn(steps=course.steps([64, 256]))
