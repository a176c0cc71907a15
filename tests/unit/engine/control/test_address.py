"""A controller's address is a socket file, or a port behind mutual TLS, and nothing else."""

from pathlib import Path

import pytest

from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.control.address import (
    TcpAddress,
    TlsFiles,
    UnixAddress,
    address_faults,
    parse_address,
)
from pipelineserve_engine.settings import parse_settings

ALL_FILES = TlsFiles("cert", "key", "ca")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:/run/control.sock", UnixAddress(Path("/run/control.sock"))),
        ("127.0.0.1:7000", TcpAddress("127.0.0.1", 7000)),
        ("[::1]:0", TcpAddress("[::1]", 0)),
    ],
)
def test_reads_what_it_writes(text: str, address: UnixAddress | TcpAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unix:control.sock", "expected an absolute path after unix:, got 'control.sock'"),
        ("unix:", "expected an absolute path"),
        ("unix:/a\0b", "expected an absolute path"),
        (f"unix:/{'a' * 107}", "expected a path of at most 107 bytes, got 108"),
        ("7000", "expected unix:/path or HOST:PORT, got 7000"),
        (":7000", "expected unix:/path or HOST:PORT"),
        ("host:", "expected unix:/path or HOST:PORT"),
        ("host:-1", "expected unix:/path or HOST:PORT"),
        ("host:²", "expected unix:/path or HOST:PORT"),
        ("host:65536", "expected a port of at most 65535, got 65536"),
    ],
)
def test_says_what_is_wrong_with_an_address(text: str, expected: str) -> None:
    (fault,) = address_faults(text, TlsFiles())
    assert fault.field == "control_address"
    assert expected in fault.message


def test_a_port_needs_every_tls_file() -> None:
    assert address_faults("host:1", ALL_FILES) == []
    faults = address_faults("host:1", TlsFiles(certificate="cert"))
    assert [fault.field for fault in faults] == ["control_tls_key", "control_tls_client_ca"]


def test_a_socket_file_takes_no_tls_file() -> None:
    assert address_faults("unix:/a", TlsFiles()) == []
    (fault,) = address_faults("unix:/a", TlsFiles(key="key"))
    assert fault.field == "control_tls_key"


def test_tls_files_without_an_address_are_a_mistake() -> None:
    assert address_faults("", TlsFiles()) == []
    (fault,) = address_faults("", ALL_FILES)
    assert fault.field == "control_address"


def test_plain_tcp_is_refused_at_the_start() -> None:
    flags = ("--model-folder=m", "--served-name=m", "--control-address=0.0.0.0:7000")
    with pytest.raises(InvalidInputError, match="control_tls_client_ca: expected a file: a port"):
        parse_settings(flags)
