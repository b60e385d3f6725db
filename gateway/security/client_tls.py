"""Builds the TLS context of a client, for commands that ask a cluster."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from gateway.security.errors import StoreError
from gateway.security.stores import Store, read_key_pair
from gateway.security.tls_context import VERSIONS, load_key_pair, trust


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
    if settings.trust_store:
        trust(context, settings.trust_store)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.key_store:
        load_key_pair(context, read_key_pair(settings.key_store))
    return context
