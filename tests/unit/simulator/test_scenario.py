"""A whole scenario: profile, layout, scheduler, load."""

import pickle
from dataclasses import replace
from random import Random

import pytest

from pipelineserve.policy.chunking import Static
from pipelineserve.policy.predictive import Predictive
from pipelineserve.policy.step_time import StepTimeModel
from pipelineserve.scheduler.scheduler import Scheduler
from pipelineserve.scheduler.settings import SchedulerSettings
from pipelineserve_simulator.hardware.catalogue import load_profile
from pipelineserve_simulator.hardware.layouts import even_layout
from pipelineserve_simulator.pipeline.options import (
    ControlTurns,
    FreeRunning,
    Interleaved,
    LockStep,
)
from pipelineserve_simulator.scenario import Scenario, simulate
from pipelineserve_simulator.workloads.requests import SimulatedRequest
from simulated_pipelines import FixedWorkload

PROFILE = load_profile("a100-40gb-pcie/qwen2.5-32b")


def static_512(settings: SchedulerSettings, model: StepTimeModel) -> Scheduler:
    del model
    return Scheduler(settings, Static(512))


def make_workload(num: int = 60, rate_per_s: float = 5.0) -> FixedWorkload:
    random, now_s, requests = Random(3), 0.0, []
    for index in range(num):
        now_s += random.expovariate(rate_per_s)
        prompt, output = random.randint(100, 2000), random.randint(10, 120)
        requests.append(SimulatedRequest(index, now_s, prompt, output))
    return FixedWorkload(tuple(requests))


def make_scenario() -> Scenario:
    layout = even_layout(PROFILE.model, 4)
    return Scenario(PROFILE, layout, make_workload(), static_512)


def test_every_request_is_served_and_steps_take_what_the_profile_says() -> None:
    outcome = simulate(replace(make_scenario(), has_noise=False, timing=LockStep()))
    assert all(request.is_success for request in outcome.requests)
    full = [step for step in outcome.steps if step.num_tokens == 512 and step.num_decodes < 5]
    assert len(full) > 20
    for step in full:
        # 50 ms with the leader's three, for a fresh prompt; more with a past.
        assert 0.045 < max(step.stage_times_s) < 0.053


def test_the_same_scenario_gives_the_same_bytes_and_another_seed_others() -> None:
    scenario = make_scenario()
    first = pickle.dumps(simulate(scenario))
    assert pickle.dumps(simulate(make_scenario())) == first
    assert pickle.dumps(simulate(replace(scenario, seed=1))) != first


def test_without_noise_the_seed_of_a_fixed_workload_means_nothing() -> None:
    scenario = replace(make_scenario(), has_noise=False)
    assert simulate(scenario) == simulate(replace(scenario, seed=1))


def test_noise_changes_little() -> None:
    scenario = make_scenario()
    noisy, quiet = simulate(scenario), simulate(replace(scenario, has_noise=False))
    assert noisy.duration_s == pytest.approx(quiet.duration_s, rel=0.03)
    assert noisy.duration_s != quiet.duration_s


def test_the_scheduler_gets_the_machines_sizes_and_a_model_of_its_steps() -> None:
    seen: list[tuple[SchedulerSettings, StepTimeModel]] = []

    def make(settings: SchedulerSettings, model: StepTimeModel) -> Scheduler:
        seen.append((settings, model))
        return Scheduler(settings, Predictive(model, (128, 256, 512), 0.2))

    scenario = replace(make_scenario(), make_scheduler=make)
    assert all(request.is_success for request in simulate(scenario).requests)
    ((settings, model),) = seen
    assert settings.num_slots == 4
    assert settings.num_blocks * settings.block_tokens == pytest.approx(331_000, rel=0.001)
    assert model == scenario.step_time_model


def test_slots_are_as_many_as_workers_unless_said_otherwise() -> None:
    scenario = make_scenario()
    assert scenario.sizes.num_slots == 4
    assert replace(scenario, num_slots=5).sizes.num_slots == 5
    virtual = replace(
        scenario, layout=even_layout(PROFILE.model, 8), timing=Interleaved(num_workers=4)
    )
    assert virtual.sizes.num_slots == 4
    assert all(request.is_success for request in simulate(virtual).requests)


def test_stages_that_share_their_machine_are_faster_while_others_wait() -> None:
    alone = FixedWorkload((SimulatedRequest(0, 0.0, 400, 20),))
    sharing = PROFILE.model_copy(update={"sharing_ratio": 2.0})
    scenario = replace(make_scenario(), workload=alone, has_noise=False)
    plain, shared = (simulate(replace(scenario, profile=p)) for p in (PROFILE, sharing))
    for step, faster in zip(plain.steps, shared.steps, strict=True):
        halves = [time_s / 2.0 for time_s in step.stage_times_s]
        assert list(faster.stage_times_s) == pytest.approx(halves)


def test_stages_that_run_free_are_no_slower_than_in_lock_step() -> None:
    scenario = replace(make_scenario(), has_noise=False)
    free = simulate(replace(scenario, timing=FreeRunning()))
    assert free.duration_s <= simulate(replace(scenario, timing=LockStep())).duration_s


def test_one_stage_over_four_devices() -> None:
    scenario = replace(make_scenario(), layout=even_layout(PROFILE.model, 1, 4), has_noise=False)
    outcome = simulate(scenario)
    assert {len(step.stage_times_s) for step in outcome.steps} == {1}
    assert all(request.is_success for request in outcome.requests)


def test_a_controller_is_made_for_the_scheduler() -> None:
    turns_s: list[float] = []
    made_for: list[Scheduler] = []

    def make(scheduler: Scheduler) -> ControlTurns:
        made_for.append(scheduler)
        return ControlTurns(0.25, turns_s.append)

    outcome = simulate(replace(make_scenario(), make_control=make))
    assert len(made_for) == 1
    assert len(turns_s) == int(outcome.duration_s / 0.25)


def test_in_lock_step_the_leaders_work_is_part_of_what_a_controller_measures() -> None:
    scenario = make_scenario()
    free, locked = (
        replace(scenario, timing=timing).step_time_model.table.at(512)
        for timing in (FreeRunning(), LockStep())
    )
    assert locked == pytest.approx(0.050, rel=0.01)
    assert locked - free == pytest.approx(0.003, rel=0.01)
