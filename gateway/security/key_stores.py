"""Reads key stores and trust stores, PEM and PKCS12, from files and from settings; and the names in a
certificate: those by which clients recognize a listener, which a renewed certificate must keep, and the
subject of a client.

Source: Kafka's DefaultSslEngineFactory and SslFactory.CertificateEntries. A subject is written as Java writes
it (X500Principal.getName, RFC 2253): Kafka's principals and ACLs contain this text, so every character must
be the same.
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
from cryptography.x509.oid import NameOID

from seqgate.gateway.config import Config
from seqgate.gateway.config.tls import JKS_REMEDY
from seqgate.gateway.security.certificates import StoreError

TlsKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey
"""A private key that can sign a TLS handshake."""

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_KEY_LABEL: Final = "PRIVATE KEY"
_CERTIFICATE_LABELS: Final = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_LINE_CHARACTERS: Final = 64
_UNREADABLE: Final = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)
"""The errors of the library for bytes that are damaged, or that it has no implementation for."""
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


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """The subject of a certificate, and its subject alternative names. Two subjects that differ only in
    capitals and spaces are the same, as they are to Java.
    """

    subject: tuple[frozenset[tuple[str, str]], ...]
    alternative_names: frozenset[x509.GeneralName]


@dataclass(frozen=True, slots=True)
class AllowedChanges:
    """The names a renewed certificate may change: `ssl.allow.dn.changes`, `ssl.allow.san.changes`."""

    subject: bool = False
    alternative_names: bool = False


def identity_of(pair: KeyPair) -> CertificateIdentity:
    """Return the names in the certificate, by which clients recognize the listener."""
    certificate = pair.certificate
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    subject = tuple(
        frozenset((attribute.oid.dotted_string, _folded(attribute.value)) for attribute in part)
        for part in certificate.subject.rdns
    )
    return CertificateIdentity(subject, frozenset(names or ()))


def change_complaint(
    present: CertificateIdentity, new: CertificateIdentity, allowed: AllowedChanges
) -> str | None:
    """Return why a certificate can't replace this one; None if it can, also with more alternative names."""
    if new.subject != present.subject and not allowed.subject:
        return (
            "the new certificate has another subject, which clients may not recognize; "
            "ssl.allow.dn.changes=true allows it"
        )
    missing = present.alternative_names - new.alternative_names
    if missing and not allowed.alternative_names:
        shown = ", ".join(sorted(str(name.value) for name in missing))
        return (
            f"the new certificate lacks subject alternative names of the present one ({shown}), by which "
            "clients may connect; ssl.allow.san.changes=true allows it"
        )
    return None


def _folded(value: str | bytes) -> str:
    return value.hex() if isinstance(value, bytes) else " ".join(value.casefold().split())


_KEYWORDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_text(certificate: bytes) -> str:
    """Return the subject of a certificate in DER, its last part first: `CN=writer,OU=ingest,O=Example`."""
    name = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(_attribute_text(each) for each in part) for part in reversed(list(name.rdns)))


def _attribute_text(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{attribute.oid.dotted_string}=#{_der_value(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    inner = value.strip(" ")
    before = len(value) - len(value.lstrip(" "))
    after = len(value) - len(inner) - before
    escaped = "".join(f"\\{letter}" if letter in _ESCAPED else letter for letter in inner).replace(
        "\0", "\\00"
    )
    return "\\ " * before + escaped + "\\ " * after


def _der_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the attribute's value in DER, tag and length included."""
    encoded = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # the name, its part, the pair of type and value
        encoded, _ = _first_element(encoded)
    _, value = _first_element(encoded)
    return value


def _first_element(encoded: bytes) -> tuple[bytes, bytes]:
    """Return the content of the first DER element, after its tag and length, and what follows the element."""
    size, begin = encoded[1], 2
    if size >= 0x80:
        begin += size & 0x7F
        size = int.from_bytes(encoded[2:begin], "big")
    return encoded[begin : begin + size], encoded[begin + size :]
