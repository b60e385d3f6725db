"""Checks which settings of a broker can be altered while it runs: for one broker, for all brokers, or for one
listener.

    setting                                     one broker      all brokers
    alterable                                   plain, prefix   plain, prefix
    alterable on a listener (key stores, …)     prefix          refused
    any other                                   refused         refused

The prefix is `listener.name.NAME.`. The order of the checks is that of Kafka's DynamicBrokerConfig.validateConfigs. Unlike Kafka, which
stores such values and does nothing with them, a gateway refuses unknown names, unknown listeners, and a setting of a listener that is
read only when the listener starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.config.config import Config
from gateway.config.table import BY_NAME, listener_of, nearest, setting_named, without_listener


def names_complaint(config: Config, names: Sequence[str], *, of_all_brokers: bool) -> str | None:
    """Return why these settings can't be altered; None when they can."""
    plain = sorted(name for name in names if name in BY_NAME)
    fixed = [name for name in plain if not BY_NAME[name].dynamic and not BY_NAME[name].dynamic_on_listener]
    if fixed:
        return f"Cannot update these configs dynamically: {_listed(fixed)}"
    without_prefix = [name for name in plain if BY_NAME[name].dynamic_on_listener]
    if without_prefix:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{_listed(without_prefix)}"
        )
    for name in names:
        if setting_named(name) is None:
            return unknown_name("broker", name, BY_NAME)
    prefixed = sorted(name for name in names if name not in BY_NAME)
    of_one_broker = [name for name in prefixed if BY_NAME[without_listener(name)].dynamic_on_listener]
    if of_all_brokers and of_one_broker:
        return (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"{_listed(of_one_broker)}"
        )
    complaints = (_listener_complaint(config, name) for name in prefixed)
    return next((complaint for complaint in complaints if complaint), None)


def _listener_complaint(config: Config, name: str) -> str | None:
    """Return why a setting of one listener can't be altered; None when it can."""
    listener, setting = listener_of(name), setting_named(name)
    names = [each.name for each in config.listeners]
    if listener not in names:
        return f"Unknown listener in {name}: the listeners are {', '.join(names)}"
    if setting is None or not setting.dynamic:
        return f"{name} cannot be updated dynamically for an existing listener; set it in the gateway's settings and restart the gateway"
    if BY_NAME[without_listener(name)].dynamic_on_listener and not config.protocol_of(listener).has_tls:
        return f"{name} has no effect: listener {listener} speaks {config.protocol_of(listener).value}, without TLS"
    return None


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the sentence that refuses a name which no setting has."""
    near = nearest(name, names)
    hint = f" (the nearest valid name is {near})" if near else ""
    return f"Unknown {kind} config name: {name}{hint}"


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"
