"""The certificate that sidecars see, looked at for each connection: no change needs a restart."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pipelineserve.errors import PipelineServeError

logger = logging.getLogger(__name__)

# Sidecars check for this one name, whatever address the operator has in their cluster.
SERVER_NAME = "pipelineserve-operator"
_MAX_FILE_BYTES = 1 << 18


class CertificateUnavailableError(PipelineServeError):
    """There is no certificate to serve with; the message says what to do."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, with those between it and its CA, and its key; both PEM."""

    certificate: bytes
    key: bytes


class PairSource(Protocol):
    """Where the certificate comes from."""

    def pair(self) -> KeyPair:
        """The present one; called in threads of gRPC's.

        Raises:
            CertificateUnavailableError: it cannot be had.
        """


class MountedPair:
    """A certificate in files that somebody else keeps, as cert-manager does.

    Args:
        folder: holds `tls.crt`, `tls.key` and `ca.crt`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pair(self) -> KeyPair:
        """What the files say now.

        Raises:
            CertificateUnavailableError: they cannot be read.
        """
        return KeyPair(self._read("tls.crt"), self._read("tls.key"))

    def bundle(self) -> str:
        """The CAs that sidecars are to trust, as PEM text.

        Raises:
            CertificateUnavailableError: the file cannot be read.
        """
        return self._read("ca.crt").decode("ascii", "replace")

    def _read(self, name: str) -> bytes:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
        except OSError as error:
            raise CertificateUnavailableError(
                f"{path}: expected a readable PEM file, got: {error.strerror}; mount the "
                "certificate's Secret there as a folder"
            ) from None
        if len(content) > _MAX_FILE_BYTES:
            raise CertificateUnavailableError(f"{path}: expected at most {_MAX_FILE_BYTES} bytes")
        return content


class ServedPair:
    """Hands gRPC the present certificate; one that cannot be served with changes nothing.

    Raises:
        CertificateUnavailableError: there is none to begin with.
    """

    def __init__(self, source: PairSource) -> None:
        self._source = source
        self._pair = _checked(source.pair())
        # What was found wrong, so that it is said once and not at each connection.
        self._problem = ""

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that ask for the certificate at each new connection."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._pair),
            self._changed,  # type: ignore[arg-type] # None is allowed, which the stubs do not know
        )

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """The certificate that the next connections get; None: the one that is served.

        Given the same one again gRPC would serve with it anew, in the midst of handshakes that
        other connections have begun: of a thousand at the same moment, some failed.
        """
        try:
            pair = self._source.pair()
            if pair == self._pair:
                self._problem = ""
                return None
            self._pair = _checked(pair)
        except CertificateUnavailableError as error:
            if str(error) != self._problem:
                logger.error("certificate for sidecars stays as it was: %s", error)  # noqa: TRY400
            self._problem = str(error)
            return None
        self._problem = ""
        logger.info("certificate for sidecars read again")
        return _configuration(pair)


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)])


def _checked(pair: KeyPair) -> KeyPair:
    """Refuse what gRPC would take and then fail every connection with."""
    try:
        certificate = x509.load_pem_x509_certificates(pair.certificate)[0]
        key = load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateUnavailableError(
            f"expected a PEM certificate and its PEM key without a password: {error}"
        ) from None
    if certificate.public_key() != key.public_key():
        raise CertificateUnavailableError(
            "certificate and key do not belong together; they may be in the midst of a change"
        )
    return pair
