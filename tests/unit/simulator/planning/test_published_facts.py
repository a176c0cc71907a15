"""Plans against what is published of the same machines and models."""

from functools import cache

from pipelineserve_simulator.planning.layouts import Shape
from pipelineserve_simulator.planning.search import Effort, Plan, make_plan
from pipelineserve_simulator.workloads.registry import (
    WorkloadName,
    WorkloadOptions,
    make_workload,
)
from plan_questions import LLAMA_70B, QWEN_HALF_B, model_of, question

ONE_SEED = Effort(num_layouts=2, seeds=(1,))


@cache
def plan_of_32b() -> Plan:
    """Qwen2.5-32B on four A100 of 40 GB over PCIe, at 6/s: above TP's capacity, below PP's."""
    options = WorkloadOptions(rate_per_s=6.0, num_requests=400)
    workload = make_workload(WorkloadName.AZURE_400, options)
    return make_plan(question(workload=workload, rate_per_s=6.0), ONE_SEED)


def test_four_stages_serve_what_four_shards_cannot_on_pcie() -> None:
    # Published: TP 4 bears 3.48 requests/s of this workload, PP 4 8.28 (Hwang & Ahn, OSDI 2026).
    plan = plan_of_32b()
    assert plan.best is not None
    assert plan.best.deployment.placed.shape == Shape(1, 4)
    assert plan.best.attainment_ratio > 0.95
    shapes_that_do = {r.deployment.placed.shape for r in plan.ranked if r.meets_targets}
    assert Shape(4, 1) not in shapes_that_do


def test_four_shards_alone_miss_the_targets_in_the_twin_too() -> None:
    options = WorkloadOptions(rate_per_s=6.0, num_requests=400)
    workload = make_workload(WorkloadName.AZURE_400, options)
    asked = question(workload=workload, rate_per_s=6.0, tensor_parallel=4, num_stages=1)
    assert make_plan(asked, ONE_SEED).best is None


def test_one_device_does_not_hold_32_billion_weights_in_16_bits() -> None:
    refused = [r for r in plan_of_32b().refused if r.shape == Shape(1, 1)]
    assert [r.why for r in refused] == [
        "stage 0: weights of 61.0 GiB per GPU, but only 35.5 GiB usable"
    ]


def test_70_billion_weights_in_16_bits_do_not_serve_on_four_devices_of_40_gb() -> None:
    # 131.4 GiB of weights in 141.8 GiB: what is left is KV for a few dozen requests.
    plan = make_plan(question(model=model_of(LLAMA_70B), rate_per_s=2.0), ONE_SEED)
    assert plan.best is None
    whys = {refusal.shape: refusal.why for refusal in plan.refused}
    assert "weights of 65.7 GiB per GPU, but only 35.5 GiB usable" in whys[Shape(1, 2)]
    assert "with room for KV of 21," in whys[Shape(1, 4)]


def test_a_small_model_under_a_light_load_needs_no_pipeline() -> None:
    plan = make_plan(question(model=model_of(QWEN_HALF_B), rate_per_s=2.0), ONE_SEED)
    assert plan.best is not None
    assert plan.best.deployment.placed.shape == Shape(1, 1)
    assert plan.best.deployment.num_devices == 1
