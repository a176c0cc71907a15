"""Certificates are what TLS asks for, and what is written is read again as it was."""

import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store

from pipelineserve_operator.attend import SERVER_NAME, KeyPair
from pipelineserve_operator.authorities import AUTHORITY_LIFE_S, BACKDATED_S, PAIR_LIFE_S, Authority
from pipelineserve_operator.issuing import issue_pair, make_authority, read_authorities

NOW_S = float(int(time.time()))


def verify(pair: KeyPair, authority: Authority, name: str = SERVER_NAME) -> None:
    """As a strict client does."""
    trusted = x509.load_pem_x509_certificate(authority.certificate.encode())
    verifier = PolicyBuilder().store(Store([trusted])).build_server_verifier(x509.DNSName(name))
    verifier.verify(x509.load_pem_x509_certificate(pair.certificate), [])


def test_a_certificate_is_good_for_the_one_name_under_its_ca() -> None:
    authority = make_authority(NOW_S)
    pair, ends_at_s = issue_pair(authority, NOW_S)
    verify(pair, authority)
    assert ends_at_s == NOW_S + PAIR_LIFE_S
    with pytest.raises(x509.verification.VerificationError):
        verify(pair, authority, "someone-else")
    with pytest.raises(x509.verification.VerificationError):
        verify(pair, make_authority(NOW_S))


def test_keys_are_of_p_256_and_validity_begins_a_while_ago() -> None:
    authority = make_authority(NOW_S)
    pair, _ = issue_pair(authority, NOW_S)
    key = load_pem_private_key(pair.key, password=None)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert certificate.not_valid_before_utc.timestamp() == NOW_S - BACKDATED_S


def test_a_certificate_does_not_outlast_its_ca() -> None:
    authority = make_authority(NOW_S - AUTHORITY_LIFE_S + 3600.0)
    pair, ends_at_s = issue_pair(authority, NOW_S)
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    assert ends_at_s == authority.ends_at_s == certificate.not_valid_after_utc.timestamp()


def test_authorities_are_read_again_as_they_were_written() -> None:
    written = (make_authority(NOW_S), make_authority(NOW_S + 5.0))
    certificates = "".join(one.certificate for one in written)
    assert read_authorities(certificates, "".join(one.key for one in written)) == written
    assert read_authorities("", "") == ()


def test_texts_that_do_not_belong_together_are_refused() -> None:
    one, other = make_authority(NOW_S), make_authority(NOW_S)
    with pytest.raises(ValueError, match="belong together"):
        read_authorities(one.certificate, other.key)
    with pytest.raises(ValueError, match="2 certificates and 1 keys"):
        read_authorities(one.certificate + other.certificate, one.key)
    broken = one.certificate[:80] + "!!!!" + one.certificate[84:]
    with pytest.raises(ValueError):  # noqa: PT011 # the library's words
        read_authorities(broken, one.key)
