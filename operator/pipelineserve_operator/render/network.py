"""Who may reach the pods; rendered always, since hidden states travel between them in plain."""

from pipelineserve_operator.render import labels, names, places
from pipelineserve_operator.render.metadata import owned
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject


def network_policy(subject: Subject, settings: OperatorSettings) -> JsonObject:
    """The pods reach each other on every port, clients the API, Prometheus the metrics."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owned(subject, settings, names.members(subject.name)),
        "spec": {
            "podSelector": {"matchLabels": labels.selecting_all(subject.name)},
            "policyTypes": ["Ingress"],
            "ingress": [_members(subject), *_clients(subject), *_monitoring(subject, settings)],
        },
    }


def _members(subject: Subject) -> JsonObject:
    return {"from": [{"podSelector": {"matchLabels": labels.selecting_all(subject.name)}}]}


def _clients(subject: Subject) -> list[JsonObject]:
    peers = subject.spec.network_policy.ingress_from
    if peers is None:
        return [{"ports": _ports(places.API_PORT)}]
    # A rule without peers would let everybody in.
    return [{"from": list(peers), "ports": _ports(places.API_PORT)}] if peers else []


def _monitoring(subject: Subject, settings: OperatorSettings) -> list[JsonObject]:
    if not subject.spec.monitoring.enabled or not settings.monitoring_peers:
        return []
    ports = _ports(places.API_PORT, places.PAGE_PORT)
    return [{"from": list(settings.monitoring_peers), "ports": ports}]


def _ports(*ports: int) -> list[JsonObject]:
    return [{"port": port, "protocol": "TCP"} for port in ports]
