"""How many pods a planned disruption must leave."""

from pipelineserve_operator.render import labels, names
from pipelineserve_operator.render.metadata import owned
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject


def disruption_budgets(subject: Subject, settings: OperatorSettings) -> list[JsonObject]:
    """One, or none where it would forbid nothing, or every drain of a node for ever."""
    spec = subject.spec
    kept = spec.replicas - spec.rollout.max_unavailable
    if spec.replicas <= 1 or kept <= 0:
        return []
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owned(subject, settings, names.members(subject.name)),
        "spec": {
            # A pod is ready when its group is, so a pod that goes takes its group from the count.
            "minAvailable": kept * spec.parallelism.pods_per_replica,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels.selecting_all(subject.name)},
        },
    }
    return [budget]
