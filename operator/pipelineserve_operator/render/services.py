"""The two Services: one that members find each other by, one in front of the API."""

from pipelineserve_operator.render import labels, names, places
from pipelineserve_operator.render.metadata import owned
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import JsonObject, Subject


def members_service(subject: Subject, settings: OperatorSettings) -> JsonObject:
    """Names for all pods, also before they are ready: to become ready they must find each other."""
    return _service(
        subject,
        settings,
        names.members(subject.name),
        {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels.selecting_all(subject.name),
            "ports": [_port("group", places.GROUP_PORT, places.GROUP_PORT)],
        },
    )


def api_service(subject: Subject, settings: OperatorSettings) -> JsonObject:
    """The API of every replica whose leader is ready."""
    return _service(
        subject,
        settings,
        names.api(subject.name),
        {
            "type": "ClusterIP",
            "selector": labels.selecting_leaders(subject.name),
            "ports": [_port("http", places.API_PORT, "api")],
        },
    )


def endpoint(subject: Subject) -> str:
    """Where the API is inside the cluster, whatever the cluster's domain is."""
    return f"http://{names.api(subject.name)}.{subject.namespace}.svc:{places.API_PORT}/v1"


def _service(
    subject: Subject, settings: OperatorSettings, name: str, spec: JsonObject
) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned(subject, settings, name),
        "spec": spec,
    }


def _port(name: str, port: int, target: int | str) -> JsonObject:
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
