"""THE table of settings, for flags, environment, file, DescribeConfigs, AlterConfigs and the docs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from seqgate.gateway.config import (
    authorization,
    cluster,
    delivery,
    groups,
    metrics,
    network,
    oauthbearer,
    producers,
    sasl,
    storage,
    tls,
    topics,
)
from seqgate.gateway.config.setting import Setting

SETTINGS: tuple[Setting, ...] = (
    *network.NETWORK_SETTINGS,
    *tls.TLS_SETTINGS,
    *sasl.SASL_SETTINGS,
    *authorization.AUTHORIZATION_SETTINGS,
    *oauthbearer.OAUTHBEARER_SETTINGS,
    *authorization.USER_SETTINGS,
    *oauthbearer.DELEGATION_TOKEN_SETTINGS,
    *network.LOGGING_SETTINGS,
    *metrics.METRICS_SETTINGS,
    *network.LIMIT_SETTINGS,
    *cluster.CLUSTER_SETTINGS,
    *storage.STORAGE_SETTINGS,
    *topics.TOPIC_SETTINGS,
    *delivery.BACKLOG_SETTINGS,
    *storage.COMPACTION_SETTINGS,
    *delivery.DELIVERY_SETTINGS,
    *producers.PRODUCER_SETTINGS,
    *groups.GROUP_SETTINGS,
    *producers.TRANSACTION_SETTINGS,
    *metrics.TELEMETRY_SETTINGS,
)
TOPIC_ONLY_SETTINGS: tuple[Setting, ...] = (*topics.TOPIC_ONLY_SETTINGS, *delivery.DELIVERY_TOPIC_SETTINGS)
"""The settings of topics without a counterpart on the broker."""
BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}
BY_TOPIC_NAME: dict[str, Setting] = {
    setting.topic_name: setting
    for setting in (*SETTINGS, *TOPIC_ONLY_SETTINGS)
    if setting.topic_name is not None
}
BY_ENVIRONMENT_NAME: dict[str, Setting] = {setting.environment_name: setting for setting in SETTINGS}


LISTENER_PREFIX: Final = "listener.name."
"""The prefix of settings for one listener: `listener.name.NAME.SETTING`, or
`listener.name.NAME.MECHANISM.SETTING`, with both names in lower case.
"""
_OF_LISTENER = re.compile(
    re.escape(LISTENER_PREFIX) + rf"[a-z0-9_-]+\.(?:({'|'.join(sasl.MECHANISMS).lower()})\.)?(.+)"
)


@lru_cache(maxsize=1024)
def setting_named(name: str) -> Setting | None:
    """Return the broker setting of this name, which may be one for a listener; None when there is none."""
    found = BY_NAME.get(name)
    if found is not None:
        return found
    of_listener = _OF_LISTENER.fullmatch(name)
    general = BY_NAME.get(of_listener[2]) if of_listener else None
    if of_listener is None or general is None or not general.per_listener:
        return None
    if of_listener[1] and not general.per_mechanism:
        return None
    return replace(general, name=name, default=None, dynamic=general.dynamic or general.dynamic_on_listener)


def is_secret(name: str) -> bool:
    """Return whether a broker setting of this name, which may be one for a listener, holds a secret."""
    setting = setting_named(name)
    return setting is not None and setting.sensitive


def listener_of(name: str) -> str | None:
    """Return the listener of `listener.name.LISTENER.…`, in capitals; None for other settings."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    return name.removeprefix(LISTENER_PREFIX).partition(".")[0].upper()


def without_listener(name: str) -> str:
    """Return the name of a setting without the prefix of a listener and mechanism, if it has one."""
    of_listener = _OF_LISTENER.fullmatch(name)
    return of_listener[2] if of_listener else name


def split_listener(name: str) -> tuple[str, str] | None:
    """Return the listener and the rest of a name that Kafka takes for a listener's; None for other names.

    Unlike `without_listener`, take any text for the name of a listener, and no mechanism.
    Source: Kafka's DynamicBrokerConfig.LISTENER_CONFIG_REGEX.
    """
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, dot, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    return (listener, rest) if dot else None


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the entry of `names` that is most similar to `name`; None when no entry is similar."""
    import difflib  # noqa: PLC0415 - only for a wrong name

    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return matches[0] if matches else None
