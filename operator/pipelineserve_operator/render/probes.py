"""When a container counts as started, alive and ready."""

from pipelineserve_operator.render import places, variables
from pipelineserve_operator.render.subject import JsonObject

_STARTUP_PERIOD_S = 2
# The longest that a resource may allow. How long it does allow is a live field, so the operator
# judges by it; the kubelet must only not be sooner.
_STARTUP_DEADLINE_S = 86_400


def of_server() -> JsonObject:
    """Loading is no failure; stages that start anew leave the server alive and not ready."""
    return _of_server("/health", "/ready")


def of_sglang_server() -> JsonObject:
    """SGLang ends as a whole when a stage does, so one path tells all."""
    return _of_server("/health", "/health")


def of_worker() -> JsonObject:
    """A worker is ready when its leader is, so that a disruption budget counts whole groups."""
    return _of_worker("/ready")


def of_sglang_worker() -> JsonObject:
    """As `of_worker`; SGLang's own answer on a worker says nothing of the leader."""
    return _of_worker("/health")


def _of_server(health_path: str, ready_path: str) -> JsonObject:
    return {
        "startupProbe": {
            **_get(health_path),
            "periodSeconds": _STARTUP_PERIOD_S,
            "timeoutSeconds": 3,
            "failureThreshold": _STARTUP_DEADLINE_S // _STARTUP_PERIOD_S,
        },
        "livenessProbe": {
            **_get(health_path),
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        },
        "readinessProbe": {
            **_get(ready_path),
            "periodSeconds": 2,
            "timeoutSeconds": 3,
            "failureThreshold": 2,
        },
    }


def _of_worker(leader_path: str) -> JsonObject:
    program = ["python3", "-m", "pipelineserve_engine.leader_ready"]
    leader = [variables.LEADER_HOST, str(places.API_PORT), leader_path]
    return {
        "readinessProbe": {
            "exec": {"command": [*program, *leader]},
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 2,
        }
    }


def _get(path: str) -> JsonObject:
    return {"httpGet": {"path": path, "port": "api", "scheme": "HTTP"}}
