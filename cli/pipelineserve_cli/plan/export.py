"""A plan as JSON: seconds, bytes and ratios; what is infinite is null."""

import math
from typing import Any

from pipelineserve.load.targets import Target
from pipelineserve_simulator.measures.intervals import Estimate
from pipelineserve_simulator.planning.explanations import explain
from pipelineserve_simulator.planning.search import Plan, Question, Ranked, Spread


def plan_as_json(plan: Plan, *, with_formulas: bool) -> dict[str, Any]:
    """The whole plan; the formulas are those of the first in the ranking."""
    content: dict[str, Any] = {
        "question": _question(plan.question),
        "is_cut_short": plan.is_cut_short,
        "ranked": [_ranked(ranked) for ranked in plan.ranked],
        "refused": [
            {
                "tensor_parallel": refused.shape.tensor_parallel,
                "num_stages": refused.shape.num_stages,
                "num_replicas": refused.num_replicas,
                "why": refused.why,
            }
            for refused in plan.refused
        ],
    }
    if with_formulas and plan.ranked:
        content["formulas"] = [
            {
                "name": explained.name,
                "formula": explained.formula,
                "numbers": explained.numbers,
                "result": explained.result,
                "source": explained.source,
            }
            for explained in explain(plan.question, plan.ranked[0])
        ]
    return content


def _question(question: Question) -> dict[str, Any]:
    demand = question.demand
    return {
        "model": question.model.shape.name,
        "device": question.machine.profile.device,
        "costs": question.machine.source,
        "num_devices": question.num_devices,
        "workload": question.workload.description,
        "rate_per_s": demand.rate_per_s,
        "mean_prompt_tokens": demand.prompt_tokens,
        "mean_output_tokens": demand.output_tokens,
        "ttft": _target(question.targets.ttft),
        "tpot": _target(question.targets.tpot),
        "max_chunk_tokens": question.max_chunk_tokens,
    }


def _target(target: Target | None) -> dict[str, Any] | None:
    if target is None:
        return None
    return {"percentile": target.percentile, "target_s": target.target_s}


def _ranked(ranked: Ranked) -> dict[str, Any]:
    deployment, found = ranked.deployment, ranked.forecast
    return {
        "tensor_parallel": deployment.placed.shape.tensor_parallel,
        "num_stages": deployment.placed.shape.num_stages,
        "num_replicas": deployment.num_replicas,
        "num_devices": deployment.num_devices,
        "chunk_policy": deployment.policy.value,
        "static_chunk_tokens": deployment.static_tokens,
        "meets_targets": ranked.meets_targets,
        "num_seeds": len(ranked.results),
        "goodput_per_s": _estimate(ranked.goodput_per_s),
        "goodput_per_device_s": ranked.goodput_per_device_s,
        "ttft_s": _spread(ranked.ttft_s),
        "tpot_s": _spread(ranked.tpot_s),
        "mean_e2e_s": _finite(ranked.mean_e2e_s),
        "attainment_ratio": ranked.attainment_ratio,
        "bubble_ratio": ranked.bubble_ratio,
        "kv_used_ratio_max": ranked.kv_used_ratio_max,
        "formula_capacity_per_replica_s": found.capacity_per_s,
        "formula_limit": found.limit.value,
        "stages": [
            {
                "num_layers": num_layers,
                "weights_bytes_per_device": round(memory.weights_bytes),
                "usable_bytes_per_device": memory.usable_bytes,
                "kv_bytes_per_token_and_device": memory.kv_bytes_per_token,
                "kv_room_tokens": memory.room_tokens,
            }
            for num_layers, memory in zip(
                deployment.placed.layout.partition.layers_per_stage,
                deployment.placed.memories,
                strict=True,
            )
        ],
    }


def _estimate(found: Estimate) -> dict[str, float | None]:
    """Mean over seeds with its 95 % interval, null for one seed."""
    return {
        "mean": _finite(found.mean),
        "low": None if found.low is None else _finite(found.low),
        "high": None if found.high is None else _finite(found.high),
    }


def _spread(found: Spread) -> dict[str, float | None]:
    """Median over seeds, and two of the seeds' values that hold the true one with `confidence`."""
    return {
        "median": _finite(found.median),
        "low": _finite(found.interval.low),
        "high": _finite(found.interval.high),
        "confidence": found.interval.confidence,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
