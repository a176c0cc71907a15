"""What rendering needs to know beside the resource: images, addresses, facts of the cluster."""

from dataclasses import dataclass, field

from pipelineserve_operator.render.subject import JsonObject

_ANY_UNPRIVILEGED_ID = 65532


def _monitoring_namespace() -> tuple[JsonObject, ...]:
    name = {"kubernetes.io/metadata.name": "monitoring"}
    return ({"namespaceSelector": {"matchLabels": name}},)


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The same for every resource of one operator.

    Attributes:
        engine_image: where a resource on Torch names none; it holds the model download too.
        controller_image: of the sidecar.
        sglang_image: where a resource on SGLang names none, with the add-on and the download; empty
            if the operator was given none.
        image_pull_policy: of every container.
        operator_address: HOST:PORT that sidecars attend to; empty for none, then objectives reach
            them through the ConfigMap only.
        ca_bundle: PEM text of the CAs that the operator's certificate may be of.
        version: of the operator, a label of objects that are no pods.
        user_id: that pods run under, with the group of the same number; None where the cluster
            chooses one for each namespace (OpenShift).
        listen_host: that servers in pods listen on; `::` where pods have IPv6 addresses.
        has_pod_monitors: whether the cluster knows PodMonitor.
        has_prometheus_rules: whether it knows PrometheusRule.
        monitoring_peers: who may read metrics, as in a NetworkPolicy's from.
    """

    engine_image: str
    controller_image: str
    sglang_image: str = ""
    image_pull_policy: str = "IfNotPresent"
    operator_address: str = ""
    ca_bundle: str = ""
    version: str = ""
    user_id: int | None = _ANY_UNPRIVILEGED_ID
    listen_host: str = "0.0.0.0"  # noqa: S104 # within the pod's own network
    has_pod_monitors: bool = False
    has_prometheus_rules: bool = False
    monitoring_peers: tuple[JsonObject, ...] = field(default_factory=_monitoring_namespace)
