"""Certificates of the control port: checked before they are used, read again when they change."""

import logging
import ssl
from dataclasses import astuple
from pathlib import Path

import grpc

from pipelineserve.errors import Fault, InvalidInputError
from pipelineserve_engine.control.address import TlsFiles
from pipelineserve_engine.file_versions import FileVersion, version_of

logger = logging.getLogger(__name__)

_Versions = tuple[FileVersion, ...]


class CertificateFiles:
    """Certificate, key and client CAs of a server that lets nobody in without a certificate.

    Raises:
        InvalidInputError: they cannot be read or do not belong together.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._paths = tuple(map(Path, astuple(files)))
        self._versions, self._configuration = self._load()
        # What was found broken, so that it is said once and not per connection.
        self._broken_versions: _Versions | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that look for changed files at each new connection."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration, self._current, require_client_authentication=True
        )

    def _current(self) -> grpc.ServerCertificateConfiguration:
        """What the next connection uses; files that are broken change nothing."""
        try:
            versions = self._present_versions()
            if versions not in (self._versions, self._broken_versions):
                self._versions, self._configuration = self._load()
                self._broken_versions = None
                logger.info("certificates of the control port read again")
        except InvalidInputError as error:
            self._note_broken(error)
        return self._configuration

    def _note_broken(self, error: InvalidInputError) -> None:
        try:
            versions: _Versions = self._present_versions()
        except InvalidInputError:
            versions = ()  # a file is missing
        if versions != self._broken_versions:
            logger.error("certificates of the control port stay as they were: %s", error)
            self._broken_versions = versions

    def _load(self) -> tuple[_Versions, grpc.ServerCertificateConfiguration]:
        """Read all files, in one state of theirs."""
        versions = self._present_versions()
        certificate, key, client_ca = (_read(path) for path in self._paths)
        self._check()
        if self._present_versions() != versions:
            raise _unusable("change while they are read; they are looked at again soon")
        configuration = grpc.ssl_server_certificate_configuration(
            [(key, certificate)], root_certificates=client_ca
        )
        return versions, configuration

    def _check(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # Without a function here an encrypted key would ask whoever sits at the terminal.
            context.load_cert_chain(self._files.certificate, self._files.key, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            raise _unusable(f"certificate and key do not belong together: {error}") from None
        try:
            context.load_verify_locations(self._files.client_ca)
        except (ssl.SSLError, OSError) as error:
            raise _unusable(f"{self._files.client_ca} holds no CA's certificate: {error}") from None

    def _present_versions(self) -> _Versions:
        return tuple(map(_version_of, self._paths))


def _version_of(path: Path) -> FileVersion:
    try:
        return version_of(path)
    except OSError as error:
        raise _unusable(f"{path} cannot be read ({error.strerror})") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unusable(f"{path} cannot be read ({error.strerror})") from None


def _unusable(reason: str) -> InvalidInputError:
    text = f"{reason}; give readable PEM files of a certificate, its key and the controllers' CA"
    return InvalidInputError("the control port's TLS files", [Fault("control_tls_*", text)])
