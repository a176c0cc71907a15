"""The engine server's settings: one frozen class, read from flags of the same names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve.flags import faults_of_bounds, settings_from_flags
from pipelineserve.policy.schedule import Continuous, FillDrain, Schedule
from pipelineserve_engine.control.address import TlsFiles, address_faults
from pipelineserve_engine.transport.choice import TRANSPORTS

DTYPES = ("float32", "bfloat16", "float16")
# Of a setting whose 0 has a meaning of its own.
AUTOMATIC = -1
SCHEDULES: Mapping[str, Schedule] = {"continuous": Continuous(), "fill_drain": FillDrain()}

_BOUNDS = {
    "port": (0, 65535),
    "stages": (1, 64),
    "max_context_tokens": (0, 1 << 22),
    "static_chunk_tokens": (1, 1 << 20),
    "max_chunk_tokens": (1, 1 << 20),
    "block_tokens": (1, 1024),
    "kv_tokens": (0, 1 << 30),
    "kv_swap_tokens": (AUTOMATIC, 1 << 30),
    "max_waiting_requests": (1, 1 << 20),
    "max_running_requests": (1, 1 << 16),
    "threads_per_stage": (0, 1024),
    "parent_pid": (0, 1 << 31),
    "extra_slots": (0, 1),
    "drain_seconds": (0, 86400),
    "stall_seconds": (1, 86400),
    "recovery_max_restarts": (0, 1000),
    "recovery_window_seconds": (1, 1 << 20),
    "leader_port": (0, 65535),
    "group_epoch": (0, 1 << 62),
    "trace_max_events": (1, 1 << 30),
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What `python -m pipelineserve_engine.server` takes; each field is a flag of that name."""

    model_folder: Path = field(metadata={"help": "folder with config.json and safetensors"})
    served_name: str = field(metadata={"help": "the model's name in the API"})
    host: str = field(default="127.0.0.1", metadata={"help": "address to listen on"})
    port: int = field(default=8000, metadata={"help": "port to listen on; 0 picks a free one"})
    stages: int = field(default=1, metadata={"help": "pipeline stages, one process each"})
    layers_per_stage: str = field(
        default="", metadata={"help": "layers of each stage, like 9,10,11; empty balances by cost"}
    )
    dtype: str = field(default="float32", metadata={"help": "float32, bfloat16 or float16"})
    max_context_tokens: int = field(
        default=0, metadata={"help": "prompt and output of one request; 0 takes the model's own"}
    )
    static_chunk_tokens: int = field(
        default=512, metadata={"help": "tokens of one micro-batch, decodes included"}
    )
    max_chunk_tokens: int = field(
        default=2048, metadata={"help": "ceiling of the chunk size while running"}
    )
    block_tokens: int = field(default=16, metadata={"help": "tokens of one KV block"})
    kv_tokens: int = field(
        default=0,
        metadata={
            "help": "tokens that the KV pool holds; 0 sizes it from free memory, not with nccl"
        },
    )
    kv_swap_tokens: int = field(
        default=AUTOMATIC,
        metadata={
            "help": "tokens of preempted requests that host memory keeps; 0 keeps none, "
            "-1 as many as the KV pool, within an eighth of free memory"
        },
    )
    max_waiting_requests: int = field(
        default=1024, metadata={"help": "bound of the waiting queue; more get HTTP 429"}
    )
    max_running_requests: int = field(
        default=256, metadata={"help": "requests that may hold KV at once"}
    )
    threads_per_stage: int = field(
        default=0, metadata={"help": "torch threads of each stage; 0 divides the cores"}
    )
    api_key_file: str = field(
        default="", metadata={"help": "file with the API's keys, one a line; empty lets all in"}
    )
    drain_seconds: int = field(
        default=30, metadata={"help": "how long streams may go on after a request to stop"}
    )
    stall_seconds: int = field(
        default=300,
        metadata={"help": "work without any step ending for this long restarts the stages"},
    )
    recovery_max_restarts: int = field(
        default=5, metadata={"help": "restarts of failed stages within the window before giving up"}
    )
    recovery_window_seconds: int = field(
        default=3600, metadata={"help": "failures older than this are forgotten"}
    )
    transport: str = field(
        default="auto",
        metadata={"help": "auto, shared_memory, gloo or nccl: what joins the stages"},
    )
    stage_addresses: str = field(
        default="",
        metadata={"help": "where stage hosts run the stages, like 10.0.0.2,10.0.0.3; empty: here"},
    )
    leader_address: str = field(
        default="", metadata={"help": "this host's own, for stage hosts to reach it"}
    )
    leader_port: int = field(default=0, metadata={"help": "where stage hosts reach this server"})
    group_key_file: str = field(
        default="", metadata={"help": "32 or more random bytes that server and stage hosts share"}
    )
    group_epoch: int = field(
        default=0, metadata={"help": "stage hosts of another epoch are refused"}
    )
    schedule: str = field(
        default="continuous",
        metadata={"help": "continuous, or fill_drain to compare with"},
    )
    extra_slots: int = field(
        default=0,
        metadata={"help": "micro-batches in flight beyond one per stage: 1 hides host work"},
    )
    trace_file: str = field(
        default="", metadata={"help": "record for `pserve trace convert`; empty records nothing"}
    )
    trace_max_events: int = field(
        default=200_000,
        metadata={"help": "pieces, steps and ends of requests that a trace file holds at most"},
    )
    control_address: str = field(
        default="",
        metadata={
            "help": "where a controller is served: unix:/path, or HOST:PORT with TLS; "
            "empty serves none"
        },
    )
    control_tls_certificate: str = field(
        default="", metadata={"help": "file with the certificate chain for HOST:PORT, PEM"}
    )
    control_tls_key: str = field(
        default="", metadata={"help": "file with the certificate's key, PEM, not encrypted"}
    )
    control_tls_client_ca: str = field(
        default="",
        metadata={"help": "file with the CAs that a controller's certificate must be of, PEM"},
    )
    parent_pid: int = field(
        default=0, metadata={"help": "end when this is no longer the parent process; 0 for never"}
    )

    def __post_init__(self) -> None:
        """Refuse values out of bounds, all in one message."""
        faults = [*faults_of_bounds(self, _BOUNDS), *_host_faults(self)]
        if self.dtype not in DTYPES:
            faults.append(Fault("dtype", f"expected one of {', '.join(DTYPES)}, got {self.dtype}"))
        if self.transport not in TRANSPORTS:
            known = ", ".join(TRANSPORTS)
            faults.append(Fault("transport", f"expected one of {known}, got {self.transport}"))
        if self.schedule not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            faults.append(Fault("schedule", f"expected one of {known}, got {self.schedule}"))
        if self.static_chunk_tokens > self.max_chunk_tokens:
            message = f"expected at most max_chunk_tokens, {self.max_chunk_tokens}"
            faults.append(
                Fault("static_chunk_tokens", f"{message}, got {self.static_chunk_tokens}")
            )
        faults += address_faults(self.control_address, self.control_tls_files)
        if faults:
            raise InvalidInputError("the engine's configuration", faults)

    @property
    def control_tls_files(self) -> TlsFiles:
        """The files for a controller that is not on this machine; all empty or all given."""
        return TlsFiles(
            self.control_tls_certificate, self.control_tls_key, self.control_tls_client_ca
        )

    @property
    def stage_address_list(self) -> tuple[str, ...]:
        """One entry per stage, or none."""
        addresses = self.stage_addresses.split(",") if self.stage_addresses else []
        return tuple(address.strip() for address in addresses)


def parse_settings(arguments: Sequence[str]) -> EngineSettings:
    """Read settings from command-line flags.

    Raises:
        InvalidInputError: values out of bounds, all of them in one message.
        SystemExit: an unknown flag or a malformed number, named on stderr (argparse).
    """
    return settings_from_flags(
        EngineSettings,
        arguments,
        program="python -m pipelineserve_engine.server",
        description="Serve a model through a pipeline of stages behind an OpenAI-compatible API.",
    )


def _host_faults(settings: EngineSettings) -> list[Fault]:
    """Stages on other hosts need all that belongs to them, stages of this host nothing of it."""
    belonging = ("leader_address", "leader_port", "group_key_file")
    if not settings.stage_addresses:
        text = "has no effect without stage_addresses; leave it out, or name the stages' hosts"
        return [
            Fault(name, text) for name in (*belonging, "group_epoch") if getattr(settings, name)
        ]
    faults = [
        Fault(name, "needed with stage_addresses; say it")
        for name in belonging
        if not getattr(settings, name)
    ]
    addresses = settings.stage_address_list
    if len(addresses) != settings.stages or not all(addresses):
        text = f"expected one address for each of {settings.stages} stages"
        faults.append(Fault("stage_addresses", f"{text}, got {settings.stage_addresses}"))
    return faults
