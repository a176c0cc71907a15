"""How things stand, of requests that came before the watcher as well."""

import pytest

from control_parts import an_end
from control_turns import make_standing
from pipelineserve.policy.control.heard import Standing
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.scheduling import SchedulingPolicy
from pipelineserve.scheduler.messages import Emission
from pipelineserve.scheduler.requests import NewRequest
from pipelineserve.scheduler.session import ControlSession
from pipelineserve.scheduler.telling.live_requests import LiveRequests
from pipelineserve.scheduler.telling.standings import standing_of
from pipelineserve.scheduler.telling.steps import StepAssembler
from pipelineserve_engine.control.assembly import HeardLiveRequests
from policy_views import line_model
from scripted_engine import ScriptedEngine, a_request, a_scripted_engine


def standing_at(engine: ScriptedEngine, live: LiveRequests, now_s: float) -> Standing:
    return standing_of(engine.core.scheduler, ControlSession(1), live, StepAssembler(1), now_s)


def heard(engine: ScriptedEngine) -> LiveRequests:
    live = HeardLiveRequests()
    engine.observer.add(live)
    return live


def test_an_idle_engine_has_nothing_to_show() -> None:
    engine = a_scripted_engine()
    assert standing_at(engine, heard(engine), 5.0) == make_standing(5.0, kv_free_ratio=1.0)


def test_shows_who_waits_runs_and_decodes() -> None:
    engine = a_scripted_engine(num_slots=1, chunk_tokens=5)
    live = heard(engine)
    for index, request_id in enumerate("abc"):
        engine.core.submit(a_request(request_id, num_prompt_tokens=5), float(index))
    engine.core.fill_slots(2.0)
    engine.executor.answer(engine.executor.next_command())
    for report in engine.executor.receive(0.0):
        engine.core.absorb(report, 3.0)
    shown = standing_at(engine, live, 4.0)
    assert (shown.num_waiting, shown.waiting_tokens) == (2, 10)
    assert (shown.num_running, shown.num_decoding, shown.num_held) == (1, 1, 0)
    assert shown.most_decodes == 1
    assert shown.kv_free_ratio == 1.0 - 2 / 32
    assert shown.oldest_wait_s == 3.0  # of b: a has had its first token


def test_the_demand_is_the_backlog_over_the_horizon_or_the_rate_of_arrivals() -> None:
    engine = a_scripted_engine(max_running_requests=1)
    live = heard(engine)
    predictive = Predictive(line_model(), (16,), None, horizon_s=2.0, arrival_window_s=4.0)
    engine.core.scheduler.adopt(SchedulingPolicy(predictive))
    engine.core.submit(a_request("a", num_prompt_tokens=20), 0.0)
    assert standing_at(engine, live, 0.0).demand_tokens_per_s == 20.0  # in its first second
    assert standing_at(engine, live, 3.0).demand_tokens_per_s == 10.0
    engine.core.fill_slots(3.0)
    assert standing_at(engine, live, 3.0).demand_tokens_per_s == pytest.approx(20 / 3)
    assert standing_at(engine, live, 5.0).demand_tokens_per_s == 0.0


def test_what_is_left_of_a_prompt_that_has_started_is_in_demand() -> None:
    engine = a_scripted_engine(num_slots=1, chunk_tokens=16)
    live = heard(engine)
    predictive = Predictive(line_model(), (16,), None, horizon_s=0.5)
    engine.core.scheduler.adopt(SchedulingPolicy(predictive))
    engine.core.submit(a_request("a", num_prompt_tokens=48), 0.0)
    engine.core.submit(a_request("b", num_prompt_tokens=10), 0.0)
    engine.core.fill_slots(0.0)
    shown = standing_at(engine, live, 10.0)
    assert shown.waiting_tokens == 10
    assert shown.demand_tokens_per_s == (48 - 16 + 10) / 0.5


def a_token(request_id: str) -> Emission:
    return Emission(request_id, 7)


def test_the_tpot_so_far_rises_while_no_token_comes() -> None:
    live = LiveRequests()
    live.on_accepted(NewRequest("r", (1,)), 0.0)
    for now_s in (10.0, 11.0, 12.0):
        live.on_emission(a_token("r"), now_s)
    assert live.tpot_percentiles_s(12.0) == (1.0,) * 3
    assert live.tpot_percentiles_s(12.5) == (1.0,) * 3
    assert live.tpot_percentiles_s(16.0) == (2.0,) * 3


def test_percentiles_are_over_those_with_two_tokens() -> None:
    live = LiveRequests()
    for index in range(1, 102):
        live.on_accepted(NewRequest(f"{index}", (1,)), 0.0)
        live.on_emission(a_token(f"{index}"), 0.0)
    assert live.tpot_percentiles_s(0.0) == ()
    for index in range(1, 101):
        live.on_emission(a_token(f"{index}"), index / 100)
    live.on_ended(an_end())  # of another request
    p50_s, p90_s, p99_s = live.tpot_percentiles_s(0.0)
    assert (p50_s, p90_s, p99_s) == (0.51, 0.91, 1.0)


def test_who_has_ended_neither_waits_nor_decodes() -> None:
    live = LiveRequests()
    live.on_accepted(NewRequest("r", (1,)), 1.0)
    live.on_ended(an_end())
    assert live.oldest_wait_s(9.0) == 0.0
    live.on_accepted(NewRequest("r", (1,)), 1.0)
    live.on_emission(a_token("r"), 2.0)
    live.on_emission(a_token("r"), 3.0)
    assert live.oldest_wait_s(9.0) == 0.0
    live.on_ended(an_end())
    assert live.tpot_percentiles_s(9.0) == ()
