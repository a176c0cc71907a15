"""What a turn decides under each law that a resource can ask for."""

from itertools import pairwise

import pytest

from control_turns import (
    Course,
    make_engine,
    make_objectives,
    make_request,
    make_standing,
    make_step,
)
from pipelineserve.policy.chunking import Static
from pipelineserve.policy.control.answers import Answer
from pipelineserve.policy.control.decide import EXPLORING_DWELL_S, Bounds, reachable_sizes
from pipelineserve.policy.control.heard import Capability, Standing
from pipelineserve.policy.control.learning import Learning
from pipelineserve.policy.control.objectives import ChunkLaw, HoldLaw, OrderLaw
from pipelineserve.policy.control.turns import Turn
from pipelineserve.policy.holding import HoldNothing
from pipelineserve.policy.ordering import Ageing, Arrival
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.reasons import Reason
from pipelineserve.policy.rebalancing import HoldMode, Rebalance
from pipelineserve.policy.triage import Triage


def chunk(turn: Turn) -> int:
    assert turn.policy is not None
    assert isinstance(turn.policy.chunking, Static)
    return turn.policy.chunking.chunk_tokens


def predictive(turn: Turn) -> Predictive:
    assert turn.policy is not None
    assert isinstance(turn.policy.chunking, Predictive)
    return turn.policy.chunking


def without(*lacking: Capability) -> tuple[Capability, ...]:
    return tuple(capability for capability in Capability if capability not in lacking)


def busy(now_s: float) -> Standing:
    return make_standing(
        now_s, num_waiting=5, waiting_tokens=5000, num_running=4, running_tpot_s=(0.05,) * 3
    )


def test_static_keeps_the_static_chunk() -> None:
    course = Course(make_objectives(chunk_law=ChunkLaw.STATIC))
    turn, _ = course.train()
    assert (chunk(turn), turn.reason) == (256, Reason.STATIC_CHUNK)


def test_an_edited_static_chunk_holds_at_the_next_turn() -> None:
    course = Course(make_objectives(chunk_law=ChunkLaw.STATIC))
    course.train()
    course.with_objectives(static_tokens=1024)
    assert chunk(course.turn()[0]) == 1024


def test_the_engines_ceiling_bounds_every_size() -> None:
    objectives = make_objectives(chunk_law=ChunkLaw.STATIC, static_tokens=1024)
    course = Course(objectives, make_engine(max_chunk_tokens=512))
    assert chunk(course.train()[0]) == 512


def test_greedy_begins_at_the_chunk_that_the_engine_runs() -> None:
    course = Course(make_objectives(chunk_law=ChunkLaw.GREEDY))
    assert chunk(course.last(3.0)[0]) == 256


def test_greedy_grows_step_by_step_while_prompts_wait() -> None:
    course = Course(make_objectives(chunk_law=ChunkLaw.GREEDY))
    course.last(9.0)
    course.standing = lambda now_s: make_standing(now_s, oldest_wait_s=1.5, num_waiting=3)
    sizes = [chunk(course.turn()[0]) for _ in range(16)]
    # A step a second, since the one before must show in what is measured.
    assert sizes[0] + 2 * 64 <= sizes[-1] <= sizes[0] + 4 * 64
    assert all(0 <= later - earlier <= 64 for earlier, later in pairwise(sizes))


def test_greedy_shrinks_when_tpot_is_violated() -> None:
    course = Course(make_objectives(chunk_law=ChunkLaw.GREEDY))
    course.last(9.0)
    course.standing = lambda now_s: make_standing(
        now_s, running_tpot_s=(0.1, 0.3, 0.4), most_decodes=3
    )
    turn, _ = course.last(3.0)
    assert chunk(turn) < 256
    assert turn.reason is Reason.TPOT_VIOLATED


def test_kv_pressure_does_not_wait_for_the_next_greedy_step() -> None:
    course = Course(make_objectives(chunk_law=ChunkLaw.GREEDY))
    course.last(9.0)
    course.standing = lambda now_s: make_standing(now_s, kv_free_ratio=0.05)
    turn, _ = course.turn()
    assert (chunk(turn), turn.reason) == (64, Reason.KV_PRESSURE)


def test_predictive_begins_with_the_static_chunk_and_says_that_it_learns() -> None:
    turn, _ = Course().last(9.0)
    assert (chunk(turn), turn.reason) == (256, Reason.MODEL_LEARNING)


def test_predictive_starts_by_itself_once_enough_was_measured() -> None:
    turn, _ = Course().train()
    assert turn.reason is Reason.MODEL_READY
    policy = predictive(turn)
    assert policy.tpot_target_s == 0.2
    assert policy.horizon_s == pytest.approx(0.4)


def test_predictive_reaches_no_further_than_a_little_beyond_what_was_measured() -> None:
    policy = predictive(Course().train()[0])
    assert (policy.candidates[0], policy.candidates[-1]) == (64, 384)


def test_the_reach_grows_with_what_is_measured() -> None:
    course = Course()
    course.train()
    course.train(sizes=(384, 512))
    assert predictive(course.turn()[0]).candidates[-1] == 768


def test_without_a_tpot_target_steps_may_last() -> None:
    policy = predictive(Course(make_objectives(tpot_s=None)).train()[0])
    assert policy.tpot_target_s is None


def test_measured_overhead_takes_no_more_than_half_of_the_target() -> None:
    course = Course()
    for k in range(1, 40):
        course.turn(
            steps=[
                make_step(6 * k + j, num_tokens=n, overhead_s=5.0)
                for j, n in enumerate((4, 16, 64, 256))
            ]
        )
    assert predictive(course.last(10.0)[0]).cycle_overhead_s == pytest.approx(0.1)


def test_an_engine_that_cannot_predict_gets_greedy_chunks() -> None:
    course = Course(engine=make_engine(capabilities=without(Capability.PREDICTIVE)))
    turn, _ = course.train()
    assert turn.reason is Reason.ENGINE_LACKS_PREDICTIVE
    assert chunk(turn) >= 64


def test_an_engine_that_takes_no_chunk_is_sent_nothing() -> None:
    course = Course(engine=make_engine(capabilities=without(Capability.CHUNK)))
    turn, _ = course.train()
    assert (turn.is_to_send, turn.reason) == (False, Reason.ENGINE_LACKS_CHUNK)


def explored(course: Course, seconds: float) -> list[tuple[int, Reason]]:
    """Chunks and reasons of busy turns in which every micro-batch has the same size."""
    found = []
    for _ in range(round(seconds / 0.2)):
        turn, _ = course.turn(steps=course.steps([256] * 4))
        if turn.policy is not None and isinstance(turn.policy.chunking, Static):
            found.append((chunk(turn), turn.reason))
    return found


def test_other_sizes_are_tried_when_service_shows_only_one() -> None:
    found = explored(Course(standing=busy), 5 * EXPLORING_DWELL_S)
    tried = {size for size, reason in found if reason is Reason.EXPLORING_CHUNK}
    assert tried == {128, 64, 384}


def test_no_larger_size_is_tried_where_tpot_has_no_room() -> None:
    tight = make_objectives(tpot_s=0.06)
    found = explored(Course(tight, standing=busy), 5 * EXPLORING_DWELL_S)
    assert max(size for size, _ in found) == 256


def test_no_smaller_size_is_tried_while_prompts_wait_long() -> None:
    def late(now_s: float) -> Standing:
        return make_standing(now_s, num_waiting=5, waiting_tokens=5000, oldest_wait_s=1.5)

    found = explored(Course(standing=late), 5 * EXPLORING_DWELL_S)
    assert min(size for size, _ in found) == 256


def test_nothing_is_tried_on_an_idle_engine() -> None:
    found = explored(Course(), 5 * EXPLORING_DWELL_S)
    assert {size for size, _ in found} == {256}


def test_exploring_ends_in_a_model_that_predicts() -> None:
    course = Course(standing=busy)
    for _ in range(120):
        turn, _ = course.turn()
        size = chunk(turn) if turn.policy and isinstance(turn.policy.chunking, Static) else 256
        turn, _ = course.turn(steps=course.steps([size] * 4))
    assert turn.reason is Reason.MODEL_READY


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (OrderLaw.ARRIVAL, Arrival()),
        (OrderLaw.AGEING, Ageing(0.002)),
        (OrderLaw.TRIAGE, Triage(2.0, 0.05)),
    ],
)
def test_order_is_as_asked(law: OrderLaw, expected: object) -> None:
    turn, _ = Course(make_objectives(order_law=law)).last(9.0)
    assert turn.policy is not None
    assert turn.policy.order == expected


def test_triage_without_a_ttft_target_is_ageing() -> None:
    turn, _ = Course(make_objectives(order_law=OrderLaw.TRIAGE, ttft_s=None)).last(9.0)
    assert turn.policy is not None
    assert turn.policy.order == Ageing()


def test_an_engine_without_orders_keeps_arrival() -> None:
    course = Course(engine=make_engine(capabilities=without(Capability.ORDER)))
    turn, _ = course.last(9.0)
    assert turn.policy is not None
    assert turn.policy.order == Arrival()


def test_nothing_is_held_before_a_model_tells_what_that_gains() -> None:
    course = Course(make_objectives(hold_law=HoldLaw.E2E_FIRST))
    turn, _ = course.last(9.0)
    assert turn.policy is not None
    assert isinstance(turn.policy.holding, HoldNothing)


@pytest.mark.parametrize(
    ("law", "mode"),
    [
        (HoldLaw.TPOT_FIRST, HoldMode.TPOT_FIRST),
        (HoldLaw.E2E_FIRST, HoldMode.E2E_FIRST),
        (HoldLaw.AUTO, HoldMode.E2E_FIRST),
    ],
)
def test_holding_follows_the_law_within_the_users_gap(law: HoldLaw, mode: HoldMode) -> None:
    turn, _ = Course(make_objectives(hold_law=law)).train()
    assert turn.policy is not None
    assert isinstance(turn.policy.holding, Rebalance)
    assert (turn.policy.holding.mode, turn.policy.holding.max_gap_s) == (mode, 2.0)


def test_auto_holds_the_oldest_when_tpot_comes_near_its_target() -> None:
    course = Course(make_objectives(hold_law=HoldLaw.AUTO))
    course.train()
    course.standing = lambda now_s: make_standing(now_s, running_tpot_s=(0.19,) * 3)
    turn, _ = course.last(4.0)
    assert turn.policy is not None
    assert isinstance(turn.policy.holding, Rebalance)
    assert turn.policy.holding.mode is HoldMode.TPOT_FIRST


def test_an_engine_with_one_slot_holds_nothing() -> None:
    objectives = make_objectives(hold_law=HoldLaw.E2E_FIRST)
    turn, _ = Course(objectives, make_engine(num_slots=1)).train()
    assert turn.policy is not None
    assert isinstance(turn.policy.holding, HoldNothing)


def test_feasibility_is_unknown_without_traffic() -> None:
    turn, _ = Course().train()
    assert (turn.slo_feasible, turn.feasible_reason) == (Answer.UNKNOWN, Reason.NO_TRAFFIC)


def served(course: Course) -> Turn:
    course.train()
    for _ in range(100):
        turn, _ = course.turn(requests=[make_request()])
    return turn


def test_light_load_makes_usual_targets_feasible() -> None:
    turn = served(Course())
    assert (turn.slo_feasible, turn.feasible_reason) == (Answer.YES, Reason.TARGETS_FEASIBLE)


def test_a_tpot_that_no_chunk_can_meet_is_said_to_be_infeasible_and_what_could_be_met() -> None:
    turn = served(Course(make_objectives(tpot_s=0.005)))
    assert (turn.slo_feasible, turn.feasible_reason) == (Answer.NO, Reason.TPOT_TOO_STRICT)
    assert turn.verdict is not None
    assert turn.verdict.least_tpot_s is not None
    assert turn.verdict.least_tpot_s > 0.005


def test_a_verdict_must_stand_before_it_replaces_another() -> None:
    course = Course()
    assert served(course).slo_feasible is Answer.YES
    course.with_objectives(tpot=make_objectives(tpot_s=0.005).tpot)
    assert course.last(4.0)[0].slo_feasible is Answer.YES
    assert course.last(8.0)[0].slo_feasible is Answer.NO


def test_stale_input_has_no_verdict() -> None:
    course = Course()
    served(course)
    course.standing = lambda _: None
    turn, _ = course.last(5.0)
    assert (turn.slo_feasible, turn.feasible_reason) == (Answer.UNKNOWN, Reason.INPUT_STALE)


def test_candidates_lie_within_bounds_even_where_nothing_was_measured() -> None:
    assert reachable_sizes(Learning(), Bounds(64, 128, 64, 64)) == (64,)
