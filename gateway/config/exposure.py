"""Finds the listeners that let everybody in from other machines: listeners without authentication, on an
address other than the loopback.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from seqgate.gateway.config.config import Config
from seqgate.gateway.config.listeners import Listener
from seqgate.gateway.config.load import enabled_mechanisms
from seqgate.gateway.config.oauthbearer import INSECURE_TOKENS
from seqgate.gateway.config.protocols import SecurityProtocol

ALLOW_INSECURE_LISTENERS: Final = "seqgate.allow.insecure.listeners"


def exposure_complaint(config: Config) -> str | None:
    """Return why a gateway with these settings must not start, and what to do; None when it may."""
    if config.bool(ALLOW_INSECURE_LISTENERS):
        return None
    for listener in config.listeners:
        if is_exposed(config, listener):
            return (
                f"listener {listener.name} on {_shown(listener)} would let everybody who reaches it read, "
                "write and delete everything: "
                f"{_weakness(config, listener)}. Listen on 127.0.0.1, give the listener authentication "
                "(docs/security.md), or set "
                f"{ALLOW_INSECURE_LISTENERS}=true where only trusted clients reach the address"
            )
    return None


def is_exposed(config: Config, listener: Listener) -> bool:
    """Return whether clients on other machines reach the listener and need not say who they are."""
    return not is_loopback(listener.host) and not _authenticates(config, listener.name)


def is_loopback(host: str) -> bool:
    """Return whether only clients on this machine reach an address. Names other than localhost count as
    reachable.
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def accepts_anybody(config: Config, listener_name: str) -> bool:
    """Return whether a listener with logins accepts tokens that everybody can make."""
    return "OAUTHBEARER" in enabled_mechanisms(config, listener_name) and bool(
        config.of_mechanism(listener_name, "OAUTHBEARER", INSECURE_TOKENS)
    )


def _authenticates(config: Config, listener_name: str) -> bool:
    protocol = config.protocol_of(listener_name)
    if protocol.has_logins:
        return not accepts_anybody(config, listener_name)
    if protocol is SecurityProtocol.SSL:
        return config.of_listener(listener_name, "ssl.client.auth") == "required"
    return protocol is not SecurityProtocol.PLAINTEXT


def _weakness(config: Config, listener: Listener) -> str:
    if config.protocol_of(listener.name) is SecurityProtocol.SSL:
        return f"ssl.client.auth is {config.of_listener(listener.name, 'ssl.client.auth')}, not required"
    if config.protocol_of(listener.name).has_logins:
        return f"{INSECURE_TOKENS} is true"
    return "PLAINTEXT has no authentication"


def _shown(listener: Listener) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}" if host else f"every interface (port {listener.port})"
