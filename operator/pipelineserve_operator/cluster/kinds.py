"""The kinds that the operator deals with, and their addresses at the API server."""

from enum import Enum

from pipelineserve.api import API_VERSION, KIND
from pipelineserve_operator.render import JsonObject


class Kind(Enum):
    """One kind: its apiVersion, its name, and its name in addresses."""

    PIPELINE_SERVE = (API_VERSION, KIND, "pipelineserves")
    SERVICE_ACCOUNT = ("v1", "ServiceAccount", "serviceaccounts")
    CONFIG_MAP = ("v1", "ConfigMap", "configmaps")
    SERVICE = ("v1", "Service", "services")
    SECRET = ("v1", "Secret", "secrets")
    POD = ("v1", "Pod", "pods")
    CLAIM = ("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    EVENT = ("v1", "Event", "events")
    STATEFUL_SET = ("apps/v1", "StatefulSet", "statefulsets")
    CONTROLLER_REVISION = ("apps/v1", "ControllerRevision", "controllerrevisions")
    NETWORK_POLICY = ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
    DISRUPTION_BUDGET = ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
    POD_MONITOR = ("monitoring.coreos.com/v1", "PodMonitor", "podmonitors")
    PROMETHEUS_RULE = ("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules")
    LEASE = ("coordination.k8s.io/v1", "Lease", "leases")

    def __init__(self, api_version: str, kind: str, plural: str) -> None:
        self.api_version = api_version
        self.kind = kind
        self.plural = plural

    @property
    def group(self) -> str:
        """The API group; empty for the core one."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version within the group."""
        return self.api_version.rpartition("/")[2]

    def path(self, namespace: str, name: str = "") -> str:
        """Of all objects of a namespace (of all of them for ""), or of the one of this name."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        place = f"{root}/namespaces/{namespace}" if namespace else root
        objects = f"{place}/{self.plural}"
        return f"{objects}/{name}" if name else objects


_BY_NAME = {(kind.api_version, kind.kind): kind for kind in Kind}

CHILDREN = (
    Kind.SERVICE_ACCOUNT,
    Kind.CONFIG_MAP,
    Kind.SERVICE,
    Kind.NETWORK_POLICY,
    Kind.DISRUPTION_BUDGET,
    Kind.CONTROLLER_REVISION,
    Kind.STATEFUL_SET,
)
"""What a resource owns directly and every cluster knows, Secrets apart: these are never read."""

MONITORS = (Kind.POD_MONITOR, Kind.PROMETHEUS_RULE)
"""What a resource owns where the cluster knows it."""


def kind_of(document: JsonObject) -> Kind:
    """The kind of an object.

    Raises:
        KeyError: the operator deals with no such kind.
    """
    return _BY_NAME[document["apiVersion"], document["kind"]]
