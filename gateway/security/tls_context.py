"""Builds the TLS context of a listener from its settings."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from seqgate.gateway.security.certificates import StoreError
from seqgate.gateway.security.key_stores import KeyPair, Store, read_authorities, read_key_pair

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_MEMORY: Final = "/dev/shm"  # noqa: S108 - the files made there are private
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    key_store: Store
    trust_store: Store
    client_auth: str = "none"
    versions: tuple[str, ...] = tuple(VERSIONS)
    cipher_suites: tuple[str, ...] = ()


def build_context(settings: TlsSettings) -> tuple[ssl.SSLContext, KeyPair]:
    """Return the context of a listener, and the certificate that it shows. Raises StoreError."""
    pair = read_key_pair(settings.key_store)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_IGNORE_UNEXPECTED_EOF
    _limit_versions(context, settings)
    load_key_pair(context, pair)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, settings.trust_store, ssl.Purpose.CLIENT_AUTH)
    return context, pair


def _trust(context: ssl.SSLContext, store: Store, purpose: ssl.Purpose) -> None:
    """Trust each certificate of a trust store, root or not, as Java does, and without one those of the
    system. Raises StoreError.
    """
    if not store:
        context.load_default_certs(purpose)
        return
    authorities = read_authorities(store)
    try:
        context.load_verify_locations(cadata=authorities)
    except ssl.SSLError as error:
        origin = store.location or "ssl.truststore.certificates"
        raise StoreError(f"{origin}: OpenSSL refuses a certificate: {_why(error)}") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _limit_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    allowed = [VERSIONS[version] for version in settings.versions]
    if settings.cipher_suites:
        of_1_2, allows_1_3 = suites_of(settings.cipher_suites)
        if not allows_1_3:
            allowed = [version for version in allowed if version is not ssl.TLSVersion.TLSv1_3]
        if not of_1_2:
            allowed = [version for version in allowed if version is not ssl.TLSVersion.TLSv1_2]
        else:
            _set_ciphers(context, of_1_2)
    if not allowed:
        raise StoreError("ssl.enabled.protocols and ssl.cipher.suites together allow no version of TLS")
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    for name in names:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise StoreError(f"ssl.cipher.suites: OpenSSL here has no suite {name}") from None
    context.set_ciphers(":".join(names))


def load_key_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Load the key into the context, from files in memory if there are any: OpenSSL reads only files."""
    with ExitStack() as opened:
        paths = []
        for name, content in (("certificates", pair.chain), ("key", pair.key)):
            paths.append(_file(opened, name, content))
        try:
            context.load_cert_chain(*paths)
        except ssl.SSLError as error:
            raise StoreError(f"OpenSSL refuses the private key or its certificates: {_why(error)}") from None


def _file(opened: ExitStack, name: str, content: bytes) -> str:
    """Return the path of a file that nobody else can read, and that lasts as long as `opened`."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create(name)
        opened.callback(os.close, number)
        os.write(number, content)
        return f"/proc/self/fd/{number}"
    # macOS, or a Python for old C libraries
    number, path = tempfile.mkstemp(prefix="seqgate-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
    opened.callback(os.unlink, path)
    opened.callback(os.close, number)
    os.write(number, content)
    return path


def _why(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words; it has none for some certificates that it can't parse."""
    return error.reason.lower().replace("_", " ") if error.reason else "it can't parse a certificate"


# Names of cipher suites: IANA's, which Kafka's settings use, and OpenSSL's.

TLS_1_3_SUITES: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


def suites_of(names: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """Return the suites for TLS 1.2 that a list of IANA names allows, by OpenSSL's names, and whether it
    allows TLS 1.3. Raises StoreError for a list that has some suites of TLS 1.3 and not the others: Python
    can't choose among them.
    """
    of_1_3 = {name for name in names if name in TLS_1_3_SUITES}
    missing = [name for name in TLS_1_3_SUITES if name not in of_1_3]
    if of_1_3 and missing:
        raise StoreError(
            f"ssl.cipher.suites has suites of TLS 1.3, but not {', '.join(missing)}; name all of TLS 1.3 or "
            "none"
        )
    return tuple(_openssl_name(name) for name in names if name not in of_1_3), bool(of_1_3)


def _openssl_name(name: str) -> str:
    """Return OpenSSL's name: `TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256` is `ECDHE-RSA-AES128-SHA256`."""
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not (found and name.startswith("TLS_")):
        raise StoreError(
            f"ssl.cipher.suites names {name}, which is no suite of TLS 1.2 or 1.3 by its IANA name"
        )
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20_POLY1305"
    parts = ([] if exchange == "RSA" else [exchange]) + [cipher]
    return "-".join(parts).replace("_", "-")


# Builds the TLS context of a client, for commands that ask a cluster.


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The TLS settings of a client. Without a trust store it trusts the system's authorities."""

    key_store: Store
    trust_store: Store
    checks_names: bool = True
    versions: tuple[str, ...] = ()


def client_context(settings: ClientTls) -> ssl.SSLContext:
    """Return the context of a client. Raises StoreError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.versions:
        unknown = [version for version in settings.versions if version not in VERSIONS]
        if unknown:
            raise StoreError(f"ssl.enabled.protocols must be of {', '.join(VERSIONS)}, not {unknown[0]}")
        allowed = [VERSIONS[version] for version in settings.versions]
        context.minimum_version, context.maximum_version = min(allowed), max(allowed)
    _trust(context, settings.trust_store, ssl.Purpose.SERVER_AUTH)
    if settings.key_store:
        load_key_pair(context, read_key_pair(settings.key_store))
    return context
