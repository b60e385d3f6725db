"""THE table of settings, for flags, environment, file, DescribeConfigs, AlterConfigs and the docs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from seqgate.gateway.config.authorization import AUTHORIZATION_SETTINGS, USER_SETTINGS
from seqgate.gateway.config.cluster import CLUSTER_SETTINGS, INTER_BROKER_SETTINGS, WORKER_SETTINGS
from seqgate.gateway.config.delivery import BACKLOG_SETTINGS, DELIVERY_SETTINGS, DELIVERY_TOPIC_SETTINGS
from seqgate.gateway.config.groups import GROUP_SETTINGS, STREAMS_GROUP_SETTINGS
from seqgate.gateway.config.metrics import METRICS_SETTINGS, TELEMETRY_SETTINGS
from seqgate.gateway.config.network import (
    CLIENT_QUOTA_SETTINGS,
    LOGGING_SETTINGS,
    NETWORK_SETTINGS,
    NODE_SETTINGS,
    SHARED_LIMIT_SETTINGS,
)
from seqgate.gateway.config.oauthbearer import DELEGATION_TOKEN_SETTINGS, OAUTHBEARER_SETTINGS
from seqgate.gateway.config.producers import DEDUPLICATION_SETTINGS, PRODUCER_SETTINGS, TRANSACTION_SETTINGS
from seqgate.gateway.config.sasl import MECHANISMS, SASL_SETTINGS
from seqgate.gateway.config.setting import Setting
from seqgate.gateway.config.storage import (
    COMPACTED_TOPIC_SETTINGS,
    COMPACTION_SETTINGS,
    DISK_SETTINGS,
    READ_SETTINGS,
    STORAGE_SETTINGS,
)
from seqgate.gateway.config.tls import TLS_SETTINGS
from seqgate.gateway.config.topics import (
    COMPRESSION_SETTINGS,
    DEAD_LETTER_TOPIC_SETTINGS,
    KEPT_TOPIC_ONLY_SETTINGS,
    KEPT_TOPIC_SETTINGS,
    TOPIC_SETTINGS,
)

SETTINGS: tuple[Setting, ...] = (
    *NODE_SETTINGS,
    *NETWORK_SETTINGS,
    *TLS_SETTINGS,
    *SASL_SETTINGS,
    *AUTHORIZATION_SETTINGS,
    *OAUTHBEARER_SETTINGS,
    *USER_SETTINGS,
    *DELEGATION_TOKEN_SETTINGS,
    *LOGGING_SETTINGS,
    *METRICS_SETTINGS,
    *SHARED_LIMIT_SETTINGS,
    *CLIENT_QUOTA_SETTINGS,
    *WORKER_SETTINGS,
    *CLUSTER_SETTINGS,
    *INTER_BROKER_SETTINGS,
    *STORAGE_SETTINGS,
    *READ_SETTINGS,
    *DISK_SETTINGS,
    *TOPIC_SETTINGS,
    *COMPRESSION_SETTINGS,
    *KEPT_TOPIC_SETTINGS,
    *BACKLOG_SETTINGS,
    *COMPACTED_TOPIC_SETTINGS,
    *COMPACTION_SETTINGS,
    *DELIVERY_SETTINGS,
    *DEDUPLICATION_SETTINGS,
    *PRODUCER_SETTINGS,
    *GROUP_SETTINGS,
    *STREAMS_GROUP_SETTINGS,
    *TRANSACTION_SETTINGS,
    *TELEMETRY_SETTINGS,
)
TOPIC_ONLY_SETTINGS: tuple[Setting, ...] = (
    *DEAD_LETTER_TOPIC_SETTINGS,
    *KEPT_TOPIC_ONLY_SETTINGS,
    *DELIVERY_TOPIC_SETTINGS,
)
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
    re.escape(LISTENER_PREFIX) + rf"[a-z0-9_-]+\.(?:({'|'.join(MECHANISMS).lower()})\.)?(.+)"
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
