"""Builds the TLS context of a listener from its settings."""

from __future__ import annotations

import os
import ssl
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from gateway.security.cipher_suites import suites_of
from gateway.security.errors import StoreError
from gateway.security.stores import KeyPair, Store, read_authorities, read_key_pair

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of one listener."""

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
        if settings.trust_store:
            trust(context, settings.trust_store)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context, pair


def trust(context: ssl.SSLContext, store: Store) -> None:
    """Trust each certificate of a trust store, whether or not it is a root, as Java does. Raises StoreError."""
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
        suites = suites_of(settings.cipher_suites)
        if not suites.allows_tls_1_3:
            allowed = [version for version in allowed if version is not ssl.TLSVersion.TLSv1_3]
        if not suites.tls_1_2:
            allowed = [version for version in allowed if version is not ssl.TLSVersion.TLSv1_2]
        else:
            _set_ciphers(context, suites.tls_1_2)
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
    """Load the key into the context.

    OpenSSL reads keys only from files, so the key is written to files that exist in memory only.
    """
    with ExitStack() as opened:
        paths = []
        for name, content in (("certificates", pair.chain), ("key", pair.key)):
            number = os.memfd_create(name)
            opened.callback(os.close, number)
            os.write(number, content)
            paths.append(f"/proc/self/fd/{number}")
        try:
            context.load_cert_chain(*paths)
        except ssl.SSLError as error:
            raise StoreError(f"OpenSSL refuses the private key or its certificates: {_why(error)}") from None


def _why(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words; it has none for some certificates that it can't parse."""
    return error.reason.lower().replace("_", " ") if error.reason else "it can't parse a certificate"
