"""Checks that the listeners with SASL have all settings that they need to log clients in."""

from __future__ import annotations

from gateway.config.config import Config
from gateway.config.oauthbearer import INSECURE_TOKENS, KEYS_URL, token_settings_complaint
from gateway.config.sasl import ENABLED_MECHANISMS, JAAS, USERS_FILE


def login_complaint(config: Config) -> str | None:
    """Return why a gateway with these settings can't log clients in, and what to do; None when it can."""
    if config[JAAS] is not None:
        return (
            f"{JAAS} must name a listener and a mechanism; set listener.name.NAME.plain.{JAAS}, in lower case"
        )
    for listener in config.listeners:
        if config.protocol_of(listener.name).has_logins:
            complaint = _listener_complaint(config, listener.name)
            if complaint:
                return complaint
    return None


def enabled_mechanisms(config: Config, listener_name: str) -> tuple[str, ...]:
    """Return the names of the mechanisms of a listener with SASL."""
    value = config.of_listener(listener_name, ENABLED_MECHANISMS)
    return tuple(dict.fromkeys(value)) if isinstance(value, tuple) else ()


def _listener_complaint(config: Config, name: str) -> str | None:
    mechanisms = enabled_mechanisms(config, name)
    prefix = f"listener.name.{name.lower()}."
    if not mechanisms:
        return f"listener {name} has no mechanism to log in with; set {prefix}{ENABLED_MECHANISMS}, for example to PLAIN"
    if "OAUTHBEARER" in mechanisms:
        has_keys, is_insecure = (
            bool(config.of_mechanism(name, "OAUTHBEARER", setting)) for setting in (KEYS_URL, INSECURE_TOKENS)
        )
        complaint = token_settings_complaint(has_keys, is_insecure)
        if complaint:
            return f"on listener {name} {complaint}"
    if "PLAIN" not in mechanisms:
        return None
    users = config.of_mechanism(name, "PLAIN", USERS_FILE), config.of_mechanism(name, "PLAIN", JAAS)
    if not any(users):
        return (
            f"PLAIN on listener {name} has no users; set {prefix}plain.{USERS_FILE} or {prefix}plain.{JAAS}"
        )
    return None
