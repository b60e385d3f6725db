"""Makes the certificates of the demo on the spot: an authority, and a key with a certificate for the loopback address."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)
SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""The use of an authority's key, which clients on Python 3.13 and later require."""


def write_certificates(trusted: Path, listener: Path) -> None:
    """Write the authority's certificate to `trusted`, and key and certificate of the listener to `listener`, as PEM."""
    authority_key, listener_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer, subject = _name("Seqgate demo authority"), _name("localhost")
    addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    authority = (
        _builder(issuer, issuer, authority_key, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(SIGNS_CERTIFICATES, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(issuer, subject, listener_key, authority_key)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    trusted.write_bytes(authority.public_bytes(Encoding.PEM))
    listener.touch(mode=0o600)
    key = listener_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    listener.write_bytes(key + certificate.public_bytes(Encoding.PEM))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signing: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    """Return a certificate to sign. It names both keys, because clients since Python 3.13 refuse one that does not."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
    )
