"""Certificates made for one test, with the openssl program."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import grpc

HOST = "127.0.0.1"


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """A CA of its own; `name` keeps its files apart from another one's."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        """Make its key and certificate."""
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={self.name}", "-days", "2"),
            *("-keyout", str(self.pair.key), "-out", str(self.pair.certificate)),
        )

    @property
    def pair(self) -> KeyPair:
        """Its own certificate and key."""
        return KeyPair(self.folder / f"{self.name}.crt", self.folder / f"{self.name}.key")

    def issue(self, name: str) -> KeyPair:
        """A certificate for this machine's loopback address, or for a client on it."""
        pair = KeyPair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        request = self.folder / f"{name}.csr"
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{HOST}"),
            *("-keyout", str(pair.key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-days", "2", "-copy_extensions", "copy"),
            *("-CA", str(self.pair.certificate), "-CAkey", str(self.pair.key)),
            *("-CAcreateserial", "-out", str(pair.certificate)),
        )
        return pair


def client_credentials(authority: Authority, client: KeyPair | None) -> grpc.ChannelCredentials:
    """Of a client that trusts this authority and shows its own certificate, if it has one."""
    return grpc.ssl_channel_credentials(
        authority.pair.certificate.read_bytes(),
        None if client is None else client.key.read_bytes(),
        None if client is None else client.certificate.read_bytes(),
    )


def replace_pair(target: KeyPair, source: KeyPair) -> None:
    """Put another certificate and key in place, each file at once."""
    for old, new in ((target.key, source.key), (target.certificate, source.certificate)):
        staged = old.with_suffix(".new")
        staged.write_bytes(new.read_bytes())
        staged.rename(old)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)  # noqa: S607
