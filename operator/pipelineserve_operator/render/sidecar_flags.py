"""Flags of the sidecar, `python -m pipelineserve_controller`."""

from pipelineserve_operator.render import places, variables
from pipelineserve_operator.render.engine_flags import as_flags
from pipelineserve_operator.render.settings import OperatorSettings
from pipelineserve_operator.render.subject import Subject


def flags(subject: Subject, settings: OperatorSettings) -> list[str]:
    """All of them."""
    given: dict[str, str | int] = {
        "engine-address": places.CONTROL_ADDRESS,
        "engine-metrics-url": f"http://{_loopback(settings.listen_host)}:{places.API_PORT}/metrics",
        "objectives-file": f"{places.CONTROL_FOLDER}/{places.OBJECTIVES}",
        "resource-uid": subject.uid,
        "replica-index": variables.reference(variables.REPLICA),
        "host": settings.listen_host,
        "port": places.PAGE_PORT,
        "journal-folder": f"{places.JOURNAL_FOLDER}/journal",
        "drain-seconds": subject.spec.rollout.drain_seconds,
    }
    if settings.operator_address:
        given |= {
            "operator-address": settings.operator_address,
            "operator-ca-file": f"{places.CONTROL_FOLDER}/{places.CA_BUNDLE}",
            "operator-token-file": f"{places.TOKEN_FOLDER}/{places.TOKEN}",
        }
    return as_flags(given)


def _loopback(listen_host: str) -> str:
    return "[::1]" if ":" in listen_host else "127.0.0.1"
