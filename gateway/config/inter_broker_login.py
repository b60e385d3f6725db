"""Which listener gateways reach each other at, and as which user they log in there."""

from __future__ import annotations

from seqgate.gateway.config.config import Config
from seqgate.gateway.config.inter_broker import LISTENER, MECHANISM, MECHANISMS
from seqgate.gateway.config.sasl import JAAS, parse_jaas


def inter_broker_listener(config: Config) -> str:
    """Return the name of the listener at which gateways reach each other."""
    given = config.optional_str(LISTENER)
    return config.listeners[0].name if given is None else given.upper()


def peer_login(config: Config, listener_name: str) -> tuple[str, str]:
    """Return the user name and the password with which this gateway logs in to others. Raises ValueError with
    the reason.
    """
    mechanism = config.optional_str(MECHANISM)
    if mechanism is None:
        raise ValueError(
            f"listener {listener_name} has logins; set {MECHANISM} to one of {', '.join(MECHANISMS)}"
        )
    line = config.of_mechanism(listener_name, mechanism, JAAS)
    options = parse_jaas(str(line)).options if line else {}
    username, password = options.get("username"), options.get("password")
    if not (username and password):
        setting = f"listener.name.{listener_name.lower()}.{mechanism.lower()}.{JAAS}"
        raise ValueError(
            f"{setting} must have username and password, with which gateways log in to each other"
        )
    return username, password


def missing_login(config: Config) -> str | None:
    """Return why this gateway could not log in to another one; None when it could. A gateway that is alone
    need not.
    """
    name = inter_broker_listener(config)
    if not config.protocol_of(name).has_logins:
        return None
    try:
        peer_login(config, name)
    except ValueError as error:
        return str(error)
    return None


def inter_broker_complaint(config: Config) -> str | None:
    """Return why gateways can't connect to each other as the settings ask; None when they can, or nothing is
    asked.
    """
    name = inter_broker_listener(config)
    if name not in {listener.name for listener in config.listeners}:
        return f"{LISTENER} is {name}, which is not in listeners"
    return None if config.optional_str(MECHANISM) is None else missing_login(config)
