"""Makes certificates for tests: an authority, and the certificates of listeners and clients that it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from examples.demo.security import SIGNS_CERTIFICATES

DAY = dt.timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Certified:
    """A private key with its certificate."""

    key: Key
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Write key and certificate into one file, as Kafka's PEM key stores are."""
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, None, encryption)
        )
        return path


def name(common_name: str) -> x509.Name:
    """Return the subject of `common_name` at an organization."""
    parts = ((NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, common_name))
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])


class Authority:
    """An authority that signs certificates of listeners and clients."""

    def __init__(self, common_name: str = "Tests", *, root: Authority | None = None) -> None:
        """With a `root` the authority is an intermediate one, whose own certificate the root signs."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = name(common_name)
        signing = root._key if root is not None else self._key
        self.certificate = (
            self._builder(
                subject,
                self._key.public_key(),
                issuer=root.certificate.subject if root is not None else subject,
                signing=signing,
                days=30,
            )
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(SIGNS_CERTIFICATES, critical=True)
            .sign(signing, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def listener(
        self,
        common_name: str = "localhost",
        *,
        days: int = 30,
        names: Sequence[str] = ("localhost",),
        rsa_bits: int = 0,
    ) -> Certified:
        """Return a key with a certificate for a listener on the loopback.

        The certificate has these names beside the address. With `rsa_bits` the key is an RSA key of this
        size.
        """
        addresses = [
            *(x509.DNSName(each) for each in names),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        key = rsa.generate_private_key(65537, rsa_bits) if rsa_bits else None
        return self._certified(name(common_name), x509.SubjectAlternativeName(addresses), days, key)

    def client(
        self, subject: x509.Name | str, *, usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH
    ) -> Certified:
        """Return a key with a certificate that a client shows."""
        subject = name(subject) if isinstance(subject, str) else subject
        return self._certified(subject, x509.ExtendedKeyUsage([usage]), 30)

    def _certified(
        self, subject: x509.Name, extension: x509.ExtensionType, days: int, key: Key | None = None
    ) -> Certified:
        key = key or ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject
        builder = self._builder(subject, key.public_key(), issuer=issuer, signing=self._key, days=days)
        signed = builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())
        return Certified(key, signed)

    @staticmethod
    def _builder(
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        *,
        issuer: x509.Name,
        signing: ec.EllipticCurvePrivateKey,
        days: int,
    ) -> x509.CertificateBuilder:
        """Return a certificate to sign. It names both keys, because clients since Python 3.13 refuse one that
        does not.
        """
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + days * DAY) - DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
            )
        )
