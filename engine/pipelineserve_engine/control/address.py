"""Where a controller is served: a socket file on this machine, or a port behind mutual TLS."""

from dataclasses import astuple, dataclass
from pathlib import Path

from pipelineserve.errors import Fault

_FIELD = "control_address"
_UNIX_PREFIX = "unix:"
# `sun_path` of Linux, with its last byte.
_MAX_PATH_BYTES = 107
_TLS_FIELDS = ("control_tls_certificate", "control_tls_key", "control_tls_client_ca")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files; all empty or all given."""

    certificate: str = ""
    key: str = ""
    client_ca: str = ""

    @property
    def are_given(self) -> bool:
        """Whether there are any."""
        return any(astuple(self))


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket file."""

    path: Path

    def __str__(self) -> str:
        return f"{_UNIX_PREFIX}{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A port; 0 picks a free one. An IPv6 host is written in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> UnixAddress | TcpAddress:
    """The address of this text.

    Raises:
        ValueError: it is none; the message says what was expected.
    """
    if text.startswith(_UNIX_PREFIX):
        return _unix_address(text.removeprefix(_UNIX_PREFIX))
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"expected unix:/path or HOST:PORT, got {text}")
    if int(port) > 65535:
        raise ValueError(f"expected a port of at most 65535, got {port}")
    return TcpAddress(host, int(port))


def address_faults(text: str, files: TlsFiles) -> list[Fault]:
    """What is wrong with an address, empty for none, and the TLS files given with it."""
    if not text:
        return [Fault(_FIELD, "expected one for the TLS files, got none")] * files.are_given
    try:
        address = parse_address(text)
    except ValueError as error:
        return [Fault(_FIELD, str(error))]
    match address:
        case UnixAddress():
            message = "serves HOST:PORT only, and control_address is a socket file; leave it out"
            return [Fault(name, message) for name, file in _named(files) if file]
        case TcpAddress():
            message = "expected a file: a port is served behind mutual TLS only, got none"
            return [Fault(name, message) for name, file in _named(files) if not file]


def _unix_address(path: str) -> UnixAddress:
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"expected an absolute path after {_UNIX_PREFIX}, got {path!r}")
    num_bytes = len(path.encode())
    if num_bytes > _MAX_PATH_BYTES:
        raise ValueError(f"expected a path of at most {_MAX_PATH_BYTES} bytes, got {num_bytes}")
    return UnixAddress(Path(path))


def _named(files: TlsFiles) -> list[tuple[str, str]]:
    return list(zip(_TLS_FIELDS, astuple(files), strict=True))
