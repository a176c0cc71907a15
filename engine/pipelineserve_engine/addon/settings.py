"""What an add-on is told, in environment variables: engines give their plugins no arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_engine.control.address import TlsFiles, address_faults

PREFIX = "PIPELINESERVE_ADDON_"
_FIELDS = (
    "static_chunk_tokens",
    "control_address",
    "control_tls_certificate",
    "control_tls_key",
    "control_tls_client_ca",
)


@dataclass(frozen=True, slots=True)
class AddOnSettings:
    """Of one host of a replica; the leader's chunk is the one that counts.

    Attributes:
        static_chunk_tokens: tokens of a micro-batch, decodes included, while no policy holds.
        control_address: `unix:/path` or `HOST:PORT`; only the leader needs one.
        control_tls_files: for `HOST:PORT`.
    """

    static_chunk_tokens: int
    control_address: str = ""
    control_tls_files: TlsFiles = field(default_factory=TlsFiles)


def read_settings(environ: Mapping[str, str]) -> AddOnSettings | None:
    """The settings; None if there are none, and the engine runs as if there were no add-on.

    Raises:
        InvalidInputError: names every variable that is wrong.
    """
    given = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
    if not given:
        return None
    known = {variable(field): field for field in _FIELDS}
    faults = [
        Fault(name, f"is no setting of the add-on; expected one of {', '.join(known)}")
        for name in given
        if name not in known
    ]
    values = {field: given.get(name, "") for name, field in known.items()}
    chunk, address = values["static_chunk_tokens"], values["control_address"]
    if not (chunk.isascii() and chunk.isdigit() and int(chunk) >= 1):
        text = f"expected a number of tokens of at least 1, got {chunk or 'nothing'}"
        faults.append(Fault(variable("static_chunk_tokens"), text))
    files = TlsFiles(
        values["control_tls_certificate"],
        values["control_tls_key"],
        values["control_tls_client_ca"],
    )
    faults += [
        Fault(variable(fault.field), fault.message) for fault in address_faults(address, files)
    ]
    if faults:
        raise InvalidInputError("the add-on's settings", faults)
    return AddOnSettings(int(chunk), address, files)


def variable(field: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + field.upper()
