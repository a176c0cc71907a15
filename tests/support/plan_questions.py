"""Questions to a planner that are valid by default, and results without a simulation."""

import json
from dataclasses import replace

from pipelineserve.load.arrivals import Constant
from pipelineserve.load.lengths import Fixed
from pipelineserve.load.targets import Target, Targets
from pipelineserve_simulator.hardware.devices import find_device
from pipelineserve_simulator.measures.figures import measure, whole_window
from pipelineserve_simulator.planning.demand import demand_of
from pipelineserve_simulator.planning.machines import machine_for
from pipelineserve_simulator.planning.models import PlannedModel, find_model, model_from_config
from pipelineserve_simulator.planning.search import Question
from pipelineserve_simulator.planning.trials import TrialResult
from pipelineserve_simulator.workloads.arriving import RandomArrivals
from pipelineserve_simulator.workloads.generated import GeneratedWorkload
from pipelineserve_simulator.workloads.lengths import IndependentLengths
from pipelineserve_simulator.workloads.requests import Workload
from simulated_runs import request_outcome, run_of

TARGETS = Targets(Target(90, 2.0), Target(90, 0.2))
# The models' published configurations.
LLAMA_70B = {
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
QWEN_HALF_B = {
    "num_hidden_layers": 24,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
}


def model_of(config: dict[str, object]) -> PlannedModel:
    """A model from the contents of its `config.json`."""
    return model_from_config(json.dumps(config), "models/some/config.json")


def steady_workload(rate_per_s: float, num_requests: int = 40) -> Workload:
    """Requests of 1,000 tokens in and 200 out, one after the other."""
    lengths = IndependentLengths(Fixed(1000), Fixed(200))
    return GeneratedWorkload(lengths, RandomArrivals(Constant(rate_per_s)), num_requests)


def question(
    *,
    model: PlannedModel | None = None,
    gpu: str = "a100-40gb-pcie",
    num_devices: int = 4,
    rate_per_s: float = 4.0,
    workload: Workload | None = None,
    targets: Targets = TARGETS,
    tensor_parallel: int | None = None,
    num_stages: int | None = None,
) -> Question:
    """Qwen2.5-32B on four A100 of 40 GB."""
    planned = model or find_model("Qwen2.5-32B")
    device = find_device(gpu)
    asked = workload or steady_workload(rate_per_s)
    return Question(
        model=planned,
        machine=machine_for(planned.shape, device, device.link),
        num_devices=num_devices,
        workload=asked,
        demand=demand_of(asked, 90, rate_per_s),
        targets=targets,
        tensor_parallel=tensor_parallel,
        num_stages=num_stages,
    )


def result(
    *, ttft_s: float = 1.0, tpot_s: float = 0.1, num_met: int = 10, e2e_factor: float = 1.0
) -> TrialResult:
    """Ten requests, one each second, of which some meet their targets."""
    met = [request_outcome(index=i, arrival_s=float(i)) for i in range(num_met)]
    late = [request_outcome(index=i, arrival_s=float(i), ttft_s=9.0) for i in range(num_met, 10)]
    run = run_of([*met, *late])
    figures = measure(run, TARGETS, whole_window(run))
    if figures.e2e_s is not None:
        longer = replace(figures.e2e_s, mean=figures.e2e_s.mean * e2e_factor)
        figures = replace(figures, e2e_s=longer)
    return TrialResult(figures, ttft_s, tpot_s, meets_targets=ttft_s <= 2.0 and tpot_s <= 0.2)
