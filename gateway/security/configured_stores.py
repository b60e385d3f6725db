"""The key store and the trust store that the settings name for a listener."""

from __future__ import annotations

from gateway.config import Config
from gateway.security.stores import Store


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
