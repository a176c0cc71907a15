"""Makes CAs and certificates of the server: ECDSA on P-256, by the operating system's chance."""

import re
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pipelineserve_operator.attend.certificates import SERVER_NAME, KeyPair
from pipelineserve_operator.authorities import (
    AUTHORITY_LIFE_S,
    BACKDATED_S,
    PAIR_LIFE_S,
    Authority,
)

_AUTHORITY_NAME = "pipelineserve-operator-ca"
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----\n?", re.DOTALL)


def make_authority(now_s: float) -> Authority:
    """A CA whose certificates are for this operator's server only."""
    key = ec.generate_private_key(ec.SECP256R1())
    begins, ends = _moment(now_s - BACKDATED_S), _moment(now_s + AUTHORITY_LIFE_S)
    name = _name(_AUTHORITY_NAME)
    certificate = (
        _builder(begins, ends)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), _key_pem(key), *_life(certificate))


def issue_pair(authority: Authority, now_s: float) -> tuple[KeyPair, float]:
    """A certificate of the server under its one name, and when it ends (seconds since 1970)."""
    key = ec.generate_private_key(ec.SECP256R1())
    signing_key = load_pem_private_key(authority.key.encode(), password=None)
    parent = x509.load_pem_x509_certificate(authority.certificate.encode())
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"expected the key of an ECDSA CA, got {type(signing_key).__name__}")
    ends_at_s = min(now_s + PAIR_LIFE_S, authority.ends_at_s)
    certificate = (
        _builder(_moment(now_s - BACKDATED_S), _moment(ends_at_s))
        .subject_name(_name(SERVER_NAME))
        .issuer_name(parent.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
            critical=False,
        )
        .sign(signing_key, hashes.SHA256())
    )
    return KeyPair(_pem(certificate).encode(), _key_pem(key).encode()), ends_at_s


def read_authorities(certificates: str, keys: str) -> tuple[Authority, ...]:
    """CAs from two PEM texts with as many blocks in the same order.

    Raises:
        ValueError: they are not that.
    """
    certificate_blocks, key_blocks = _blocks(certificates), _blocks(keys)
    if len(certificate_blocks) != len(key_blocks):
        raise ValueError(
            f"expected a key for each certificate, got {len(certificate_blocks)} certificates "
            f"and {len(key_blocks)} keys"
        )
    return tuple(map(_read_authority, certificate_blocks, key_blocks))


def _read_authority(certificate_block: str, key_block: str) -> Authority:
    certificate = x509.load_pem_x509_certificate(certificate_block.encode())
    key = load_pem_private_key(key_block.encode(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"expected an ECDSA key, got {type(key).__name__}")  # noqa: TRY004
    if certificate.public_key() != key.public_key():
        raise ValueError("a certificate and the key at its place do not belong together")
    return Authority(certificate_block, key_block, *_life(certificate))


def _life(certificate: x509.Certificate) -> tuple[float, float]:
    """When it was made, and when it ends."""
    begins_at_s = certificate.not_valid_before_utc.timestamp()
    return begins_at_s + BACKDATED_S, certificate.not_valid_after_utc.timestamp()


def _builder(begins: datetime, ends: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(unix_s))


def _blocks(text: str) -> list[str]:
    return [match.group() for match in _BLOCK.finditer(text)]


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
