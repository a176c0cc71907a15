"""The sidecar's settings: one frozen class, read from flags of the same names."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.flags import faults_of_bounds, settings_from_flags

_BOUNDS: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "replica_index": (0, 100_000),
    "turns_per_second": (0.2, 50),
    "journal_bytes": (1 << 20, 1 << 34),
    "journal_files": (1, 1000),
    "drain_seconds": (0, 86_400),
    "parent_pid": (0, 1 << 31),
}
_ENGINE_TLS = ("engine_ca_file", "engine_certificate_file", "engine_key_file")


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """What `python -m pipelineserve_controller` takes; each field is a flag of that name."""

    engine_address: str = field(
        metadata={"help": "the engine's control address: unix:/path, or HOST:PORT with TLS"}
    )
    engine_ca_file: str = field(default="", metadata={"help": "CA of the engine's certificate"})
    engine_certificate_file: str = field(
        default="", metadata={"help": "certificate shown to the engine"}
    )
    engine_key_file: str = field(default="", metadata={"help": "key of that certificate"})
    engine_server_name: str = field(
        default="", metadata={"help": "name in the engine's certificate; empty takes the address"}
    )
    engine_metrics_url: str = field(
        default="", metadata={"help": "the engine's /metrics, to cross-check; empty checks nothing"}
    )
    objectives_file: str = field(
        default="",
        metadata={"help": "resource or objectives to follow; read again when it changes"},
    )
    operator_address: str = field(
        default="", metadata={"help": "the operator's HOST:PORT; empty attends to none"}
    )
    operator_ca_file: str = field(default="", metadata={"help": "CA of the operator's certificate"})
    operator_token_file: str = field(
        default="", metadata={"help": "service-account token for the operator"}
    )
    operator_server_name: str = field(
        default="pipelineserve-operator", metadata={"help": "name in the operator's certificate"}
    )
    resource_uid: str = field(
        default="", metadata={"help": "follow this resource only; empty follows any"}
    )
    replica_index: int = field(default=0, metadata={"help": "which replica this is"})
    host: str = field(
        default="127.0.0.1", metadata={"help": "address of the live page to listen on"}
    )
    port: int = field(default=8090, metadata={"help": "its port; 0 picks a free one"})
    turns_per_second: float = field(default=5.0, metadata={"help": "decisions per second"})
    journal_folder: str = field(
        default="",
        metadata={
            "help": "folder of the journal, from which a restart restores what was learned; "
            "empty keeps none"
        },
    )
    journal_bytes: int = field(default=16_777_216, metadata={"help": "size of one journal file"})
    journal_files: int = field(default=8, metadata={"help": "journal files that are kept"})
    drain_seconds: int = field(
        default=0,
        metadata={"help": "how long to go on after SIGTERM while the engine still serves"},
    )
    parent_pid: int = field(
        default=0, metadata={"help": "end when this is no longer the parent process; 0 for never"}
    )

    def __post_init__(self) -> None:
        """Refuse values out of bounds, all in one message."""
        faults = faults_of_bounds(self, _BOUNDS)
        faults += self._engine_faults()
        faults += self._operator_faults()
        if faults:
            raise InvalidInputError("the sidecar's configuration", faults)

    @property
    def is_engine_local(self) -> bool:
        """Whether the engine is reached over a Unix socket, which only this pod can open."""
        return self.engine_address.startswith("unix:")

    def _engine_faults(self) -> list[Fault]:
        if self.is_engine_local:
            given = [name for name in _ENGINE_TLS if getattr(self, name)]
            return [
                Fault(name, "expected nothing with a unix: address; leave it out") for name in given
            ]
        _, colon, port = self.engine_address.rpartition(":")
        faults = []
        if not colon or not port.isdecimal():
            faults.append(
                Fault(
                    "engine_address", f"expected unix:/path or HOST:PORT, got {self.engine_address}"
                )
            )
        return faults + [
            Fault(name, "expected a file, since an address over TCP needs mutual TLS; got nothing")
            for name in _ENGINE_TLS
            if not getattr(self, name)
        ]

    def _operator_faults(self) -> list[Fault]:
        if not self.operator_address:
            return []
        return [
            Fault(name, "expected a file, since an operator is given; got nothing")
            for name in ("operator_ca_file", "operator_token_file")
            if not getattr(self, name)
        ]


def parse_settings(arguments: Sequence[str]) -> SidecarSettings:
    """Read settings from command-line flags.

    Raises:
        InvalidInputError: values out of bounds, all of them in one message.
        SystemExit: an unknown flag or a malformed number, named on stderr (argparse).
    """
    return settings_from_flags(
        SidecarSettings,
        arguments,
        program="python -m pipelineserve_controller",
        description="Steer one engine's scheduler so that latency targets hold.",
    )
