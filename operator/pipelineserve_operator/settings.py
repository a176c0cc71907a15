"""The operator's settings: one frozen class, read from flags of the same names."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.flags import faults_of_bounds, settings_from_flags

_BOUNDS: dict[str, tuple[float, float]] = {
    "user_id": (0, 2**31 - 1),
    "probe_port": (0, 65535),
    "metrics_port": (0, 65535),
    "attend_port": (1, 65535),
    "workers": (1, 64),
    "requests_per_second": (1, 10_000),
    "resync_seconds": (10, 86_400),
}
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")


class LogFormat(Enum):
    """How log lines are written."""

    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """What `pipelineserve-operator` takes; each field is a flag of that name."""

    engine_image: str = field(metadata={"help": "image of the engine, where a resource names none"})
    controller_image: str = field(metadata={"help": "image of the controller"})
    sglang_image: str = field(
        default="",
        metadata={"help": "image of SGLang with the add-on, where a resource on it names none"},
    )
    namespace: str = field(
        default="", metadata={"help": "namespaces to watch, with commas between"}
    )
    all_namespaces: bool = field(
        default=False, metadata={"help": "watch all namespaces instead; needs a ClusterRole"}
    )
    image_pull_policy: str = field(
        default="IfNotPresent", metadata={"help": "Always, IfNotPresent or Never"}
    )
    operator_address: str = field(
        default="",
        metadata={"help": "HOST:PORT at which controllers reach this operator; empty for none"},
    )
    attend_port: int = field(
        default=8443, metadata={"help": "port that controllers are listened to on, if at all"}
    )
    certificate_folder: str = field(
        default="",
        metadata={"help": "folder with tls.crt, tls.key and ca.crt; empty: it makes its own"},
    )
    authority_secret: str = field(
        default="pipelineserve-operator-ca",
        metadata={"help": "Secret of its own certificate's CAs, in the Lease's namespace"},
    )
    user_id: int = field(
        default=65532,
        metadata={"help": "user and group that pods run under; 0 leaves it to the cluster"},
    )
    listen_host: str = field(
        default="0.0.0.0",  # noqa: S104 # within the pods' own network
        metadata={"help": "what servers in pods listen on; :: for IPv6"},
    )
    monitoring_namespace: str = field(
        default="monitoring",
        metadata={"help": "namespace from which metrics may be read; empty for none"},
    )
    lease_namespace: str = field(
        default="", metadata={"help": "namespace of the Lease; the first watched one by default"}
    )
    lease_name: str = field(
        default="pipelineserve-operator", metadata={"help": "name of the Lease"}
    )
    identity: str = field(
        default="", metadata={"help": "name of this process in the Lease; the host's by default"}
    )
    kubeconfig: str = field(
        default="", metadata={"help": "kubeconfig file; empty: the pod's own account"}
    )
    probe_host: str = field(
        default="0.0.0.0",  # noqa: S104 # kubelet and Prometheus come from outside of the pod
        metadata={"help": "address of /healthz, /readyz and /metrics to listen on"},
    )
    probe_port: int = field(default=8081, metadata={"help": "port of /healthz and /readyz"})
    metrics_port: int = field(default=8082, metadata={"help": "port of /metrics"})
    workers: int = field(default=8, metadata={"help": "resources looked at at the same time"})
    requests_per_second: float = field(
        default=200.0, metadata={"help": "requests to the API server in the long run"}
    )
    resync_seconds: float = field(
        default=600.0, metadata={"help": "how often a resource is read though nothing happened"}
    )
    log_format: str = field(default=LogFormat.JSON.value, metadata={"help": "json or text"})

    def __post_init__(self) -> None:
        """Refuse what cannot be, all in one message."""
        faults = faults_of_bounds(self, _BOUNDS)
        faults += [*self._faults_of_place(), *self._faults_of_choices()]
        if faults:
            raise InvalidInputError("the operator's configuration", faults)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The watched ones; none if all are."""
        return tuple(name for name in self.namespace.split(",") if name)

    def _faults_of_place(self) -> list[Fault]:
        if self.all_namespaces == bool(self.namespaces):
            got = "both" if self.all_namespaces else "neither"
            return [Fault("namespace", f"expected either this or all_namespaces, got {got}")]
        if self.all_namespaces and not self.lease_namespace:
            return [Fault("lease_namespace", "expected a namespace with all_namespaces, got none")]
        return []

    def _faults_of_choices(self) -> list[Fault]:
        choices = {
            "image_pull_policy": _PULL_POLICIES,
            "log_format": tuple(one.value for one in LogFormat),
        }
        return [
            Fault(name, f"expected one of {', '.join(allowed)}, got {value}")
            for name, allowed in choices.items()
            if (value := getattr(self, name)) not in allowed
        ]


def parse_settings(arguments: Sequence[str]) -> ProcessSettings:
    """Read settings from command-line flags.

    Raises:
        InvalidInputError: values that cannot be, all of them in one message.
        SystemExit: an unknown flag or a malformed number, named on stderr (argparse).
    """
    return settings_from_flags(
        ProcessSettings,
        arguments,
        program="pipelineserve-operator",
        description="Keep what belongs to PipelineServe resources as they say.",
    )
