"""A deployment as the part of a manifest that it decides."""

import yaml

from pipelineserve.load.targets import Target
from pipelineserve_simulator.planning.forecasts import CHUNK_STEP_TOKENS
from pipelineserve_simulator.planning.search import Question, Ranked


def manifest_of(question: Question, ranked: Ranked) -> str:
    """YAML of `spec`: parallelism, replicas, slo and chunking; the model is the user's to name."""
    deployment = ranked.deployment
    shape = deployment.placed.shape
    ttft, tpot = question.targets.ttft, question.targets.tpot
    slo = {name: _target(target) for name, target in (("ttft", ttft), ("tpot", tpot)) if target}
    spec = {
        "parallelism": {"stages": shape.num_stages, "tensorParallel": shape.tensor_parallel},
        "replicas": deployment.num_replicas,
        "slo": slo,
        "chunking": {
            "policy": deployment.policy.value,
            "minTokens": min(CHUNK_STEP_TOKENS, question.max_chunk_tokens),
            "maxTokens": question.max_chunk_tokens,
            "stepTokens": min(CHUNK_STEP_TOKENS, question.max_chunk_tokens),
            "staticTokens": deployment.static_tokens,
        },
    }
    comment = (
        f"# {question.model.shape.name} on {deployment.num_devices} x "
        f"{question.machine.profile.device}, {question.demand.rate_per_s:.2f} requests/s: "
        f"goodput {ranked.goodput_per_s.mean:.2f}/s simulated.\n"
    )
    return comment + yaml.safe_dump({"spec": spec}, sort_keys=False)


def _target(target: Target) -> dict[str, int]:
    return {"percentile": target.percentile, "milliseconds": round(target.target_s * 1000)}
