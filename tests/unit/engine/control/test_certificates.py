"""Certificates are checked before they are used, and read again when they change."""

import logging
from pathlib import Path

import pytest

from certificates import Authority, KeyPair, replace_pair
from pipelineserve.errors import InvalidInputError
from pipelineserve_engine.control.address import TlsFiles
from pipelineserve_engine.control.certificates import CertificateFiles


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def files_of(pair: KeyPair, authority: Authority) -> TlsFiles:
    return TlsFiles(str(pair.certificate), str(pair.key), str(authority.pair.certificate))


def test_refuses_a_key_of_another_certificate(authority: Authority) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    with pytest.raises(InvalidInputError, match="certificate and key do not belong together"):
        CertificateFiles(files_of(KeyPair(one.certificate, other.key), authority))


def test_names_a_file_that_is_missing(authority: Authority) -> None:
    pair = authority.issue("one")
    pair.key.unlink()
    with pytest.raises(InvalidInputError, match=r"one\.key cannot be read \(No such file"):
        CertificateFiles(files_of(pair, authority))


def test_refuses_a_client_ca_that_is_none(authority: Authority) -> None:
    pair = authority.issue("one")
    authority.pair.certificate.write_text("no certificate")
    with pytest.raises(InvalidInputError, match="holds no CA's certificate"):
        CertificateFiles(files_of(pair, authority))


def test_an_unchanged_file_is_not_read_again(authority: Authority) -> None:
    files = CertificateFiles(files_of(authority.issue("one"), authority))
    assert files._current() is files._current()


def test_a_changed_file_is_read_again(authority: Authority) -> None:
    pair = authority.issue("one")
    files = CertificateFiles(files_of(pair, authority))
    before = files._current()
    replace_pair(pair, authority.issue("other"))
    assert files._current() is not before


def test_broken_files_change_nothing_and_are_said_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.issue("one")
    files = CertificateFiles(files_of(pair, authority))
    before = files._current()
    good = pair.key.read_bytes()
    with caplog.at_level(logging.ERROR):
        pair.key.write_bytes(b"not a key")
        assert files._current() is before
        assert files._current() is before
        assert len(caplog.messages) == 1
        pair.key.unlink()
        assert files._current() is before
        assert files._current() is before
        assert len(caplog.messages) == 2
    pair.key.write_bytes(good)
    assert files._current() is not before
