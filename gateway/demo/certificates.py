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


def write_certificates(trusted: Path, listener: Path) -> None:
    """Write the authority's certificate to `trusted`, and key and certificate of the listener to `listener`, as PEM."""
    authority_key, listener_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer, subject = _name("Seqgate demo authority"), _name("localhost")
    addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    authority = (
        _builder(issuer, issuer, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(issuer, subject, listener_key)
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
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )
