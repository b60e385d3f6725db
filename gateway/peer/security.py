"""How a gateway connects to the others: the protocol, TLS files and login of the listener between brokers.

As in Kafka, the listener's own `ssl.` settings are those of the client, too, and the client logs in with the user of the JAAS line.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from gateway.config import Config
from gateway.config.inter_broker import MECHANISM, NAME_CHECK
from gateway.config.inter_broker_login import inter_broker_listener, peer_login


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """The security of connections to other gateways. `mechanism` is empty without a login."""

    has_tls: bool
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)


def peer_security(config: Config) -> PeerSecurity:
    """Return how to connect. Raises ValueError with the reason when the settings don't say how to log in."""
    name = inter_broker_listener(config)
    protocol = config.protocol_of(name)
    if not protocol.has_logins:
        return PeerSecurity(protocol.has_tls)
    username, password = peer_login(config, name)
    return PeerSecurity(protocol.has_tls, config.str(MECHANISM), username, password)


def peer_context(config: Config) -> ssl.SSLContext:
    """Return the TLS context for one connection, from the stores as they are now. Raises StoreError.

    The reading takes milliseconds, so call this in another thread than that of the event loop.
    """
    # only a gateway whose peers speak TLS needs cryptography for it
    from gateway.security.stores import configured_stores  # noqa: PLC0415
    from gateway.security.tls_context import ClientTls, client_context  # noqa: PLC0415

    name = inter_broker_listener(config)
    key_store, trust_store = configured_stores(config, name)
    versions = config.of_listener(name, "ssl.enabled.protocols")
    return client_context(
        ClientTls(
            key_store=key_store,
            trust_store=trust_store,
            checks_names=bool(config.of_listener(name, NAME_CHECK)),
            versions=versions if isinstance(versions, tuple) else (),
        )
    )
