"""Reads key stores and trust stores: PEM and PKCS12, from files and from settings.

Source: Kafka's DefaultSslEngineFactory.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

from seqgate.gateway.config import Config
from seqgate.gateway.config.tls import JKS_REMEDY
from seqgate.gateway.security.errors import StoreError

TlsKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey
"""A private key that can sign a TLS handshake."""

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_KEY_LABEL: Final = "PRIVATE KEY"
_CERTIFICATE_LABELS: Final = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_LINE_CHARACTERS: Final = 64
_UNREADABLE: Final = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)
"""What the library raises for bytes that are damaged, or that it has no implementation for."""
MOST_BYTES: Final = 16 << 20
"""The size of the largest store in bytes; a larger file is refused. The trust store of a system has about 200
KiB.
"""


@dataclass(frozen=True, slots=True)
class Store:
    """A key store or trust store as its settings name it: a file, or texts in PEM."""

    location: str | None = None
    type: str | None = None
    password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return bool(self.location or self.key or self.certificates)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its chain, both in PEM, and the listener's own certificate."""

    key: bytes = field(repr=False)
    chain: bytes
    certificate: x509.Certificate


def read_key_pair(store: Store) -> KeyPair:
    """Return the private key and the certificates of a key store. Raises StoreError."""
    if store.location is None:
        if not (store.key and store.certificates):
            raise StoreError(
                "a listener with TLS needs ssl.keystore.location, or both ssl.keystore.key and its "
                "certificates"
            )
        return _pair_of_texts(store.key, store.certificates, store.key_password, "ssl.keystore.key")
    data = _read(store.location)
    if _is_pem(data, store):
        text = data.decode("ascii", errors="replace")
        return _pair_of_texts(text, text, store.key_password, store.location)
    key, certificate, others = _pkcs12(data, store)
    if key is None or certificate is None:
        raise StoreError(f"{store.location} holds no private key with its certificate")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(pem, _as_pem([certificate, *others]), certificate)


def read_authorities(store: Store) -> str:
    """Return the certificates of a trust store, in PEM. Raises StoreError."""
    if store.location is None:
        return _as_pem(_certificates(store.certificates or "", "ssl.truststore.certificates")).decode()
    data = _read(store.location)
    if _is_pem(data, store):
        found = _certificates(data.decode("ascii", errors="replace"), store.location)
        return _as_pem(found).decode()
    _, certificate, others = _pkcs12(data, store)
    found = [*([certificate] if certificate else []), *others]
    if not found:
        raise StoreError(f"{store.location} holds no certificate")
    return _as_pem(found).decode()


def _read(location: str) -> bytes:
    try:
        # Check the type of the file first, because opening a pipe would wait for its writer.
        number = os.open(location, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{location} can't be read: {error.strerror}") from None
    except ValueError:
        raise StoreError(f"{location!r} is no path of a file") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise StoreError(f"{location} can't be read: it is no regular file")
    try:
        with open(number, "rb") as file:  # noqa: PTH123 - opens a descriptor, not a path
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise StoreError(f"{location} can't be read: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise StoreError(f"{location} can't be read: a store has at most {MOST_BYTES} bytes")
    return data


def _is_pem(data: bytes, store: Store) -> bool:
    if data.startswith(_JKS_MAGIC):
        raise StoreError(f"{store.location}: {JKS_REMEDY}")
    return store.type == "PEM" if store.type else b"-----BEGIN " in data


def _pkcs12(
    data: bytes, store: Store
) -> tuple[TlsKey | None, x509.Certificate | None, list[x509.Certificate]]:
    password = store.password.encode() if store.password else None
    try:
        key, certificate, others = pkcs12.load_key_and_certificates(data, password)
    except _UNREADABLE:
        raise StoreError(
            f"{store.location} can't be opened: it is not PKCS12, or its password is not that of the setting"
        ) from None
    return None if key is None else _usable(key, store.location or ""), certificate, others


def _usable(key: object, origin: str) -> TlsKey:
    if not isinstance(key, TlsKey):
        raise StoreError(f"{origin}: TLS needs an RSA, elliptic-curve or EdDSA private key")
    return key


def _pair_of_texts(key_text: str, chain_text: str, password: str | None, origin: str) -> KeyPair:
    key = _private_key(key_text, password, origin)
    chain = _certificates(chain_text, origin)
    written = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    try:
        certified = chain[0].public_key().public_bytes(*written)
    except _UNREADABLE:
        raise StoreError(f"{origin} holds a certificate whose public key can't be read") from None
    if certified != key.public_key().public_bytes(*written):
        raise StoreError(f"{origin}: the private key does not belong to the first certificate")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(pem, _as_pem(chain), chain[0])


def _private_key(text: str, password: str | None, origin: str) -> TlsKey:
    for label, block in _blocks(text):
        if not label.endswith(_KEY_LABEL):
            continue
        encrypted = label.startswith("ENCRYPTED") or b"Proc-Type: 4,ENCRYPTED" in block
        try:
            key = load_pem_private_key(block, password.encode() if password and encrypted else None)
        except TypeError:
            raise StoreError(f"{origin}: the private key is encrypted; set ssl.key.password") from None
        except _UNREADABLE:
            why = (
                "ssl.key.password does not fit, or the key is damaged" if encrypted else "the key is damaged"
            )
            raise StoreError(f"{origin}: the private key can't be read: {why}") from None
        return _usable(key, origin)
    raise StoreError(f"{origin} holds no private key in PEM")


def _certificates(text: str, origin: str) -> list[x509.Certificate]:
    found = [block for label, block in _blocks(text) if label in _CERTIFICATE_LABELS]
    if not found:
        raise StoreError(f"{origin} holds no certificate in PEM")
    try:
        return [x509.load_pem_x509_certificate(block) for block in found]
    except _UNREADABLE:
        raise StoreError(f"{origin} holds a certificate that can't be read") from None


def _blocks(text: str) -> list[tuple[str, bytes]]:
    """Return label and bytes of each block. Its lines may be joined by spaces, as in a settings file."""
    blocks = []
    for label, body in _PEM_BLOCK.findall(text.replace("\\n", "\n")):
        headers, _, rest = body.rpartition("\n\n")
        packed = "".join(rest.split())
        lines = [packed[at : at + _LINE_CHARACTERS] for at in range(0, len(packed), _LINE_CHARACTERS)]
        written = [f"-----BEGIN {label}-----", *([headers.strip(), ""] if headers.strip() else []), *lines]
        blocks.append((label, "\n".join([*written, f"-----END {label}-----", ""]).encode()))
    return blocks


def _as_pem(certificates: list[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


# The key store and the trust store that the settings name for a listener.


def configured_stores(config: Config, listener_name: str) -> tuple[Store, Store]:
    """Return the key store and the trust store of a listener."""

    def text(setting: str) -> str | None:
        value = config.of_listener(listener_name, setting)
        return str(value) if value else None

    return (
        Store(
            text("ssl.keystore.location"),
            text("ssl.keystore.type"),
            text("ssl.keystore.password"),
            text("ssl.keystore.key"),
            text("ssl.keystore.certificate.chain"),
            text("ssl.key.password"),
        ),
        Store(
            text("ssl.truststore.location"),
            text("ssl.truststore.type"),
            text("ssl.truststore.password"),
            certificates=text("ssl.truststore.certificates"),
        ),
    )
