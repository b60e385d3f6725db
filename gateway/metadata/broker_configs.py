"""Checks which settings of a broker can be altered while it runs: for one broker, for all brokers, or for one
listener.

    setting                                     one broker      all brokers
    alterable                                   plain, prefix   plain, prefix
    alterable on a listener (key stores, …)     prefix          refused
    read at the start only, here or in Kafka    refused         refused
    Kafka's, without effect here                kept            kept, or refused where Kafka refuses it
    unknown                                     kept            kept; refused with a prefix

The prefix is `listener.name.NAME.`. The order of the checks is that of Kafka's
DynamicBrokerConfig.validateConfigs. Unlike Kafka, which stores such values and does nothing with them, a
gateway refuses unknown listeners, and a setting of a listener that is read only when the listener starts.

The module brings the table of Kafka's settings that the gateway does not have. Import it where a request
alters or describes a broker, so that a start does not load the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from seqgate.gateway.config.config import Config, ConfigSource
from seqgate.gateway.config.kept_brokers import (
    BY_KEPT_NAME,
    CORDONED,
    MAX_KEPT_BYTES,
    MAX_KEPT_NAMES,
    OF_ONE_BROKER,
    READ_ONLY,
    READ_ONLY_LISTS,
    THREAD_COUNTS,
)
from seqgate.gateway.config.setting import Setting, SettingType
from seqgate.gateway.config.table import BY_NAME, listener_of, setting_named, split_listener, without_listener
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.records import MAX_CONFIG_BYTES

_OF_LISTENERS_OF_ALL_BROKERS: Final = frozenset(
    {"max.connection.creation.rate", "max.connections", "num.network.threads"}
)
"""The settings of listeners that can be altered for all brokers (Kafka's CLUSTER_LEVEL_LISTENER_CONFIGS)."""


def broker_setting(name: str) -> Setting | None:
    """Return the setting that decides which values this name takes: the gateway's own, or one of Kafka's.
    None when neither the gateway nor Kafka has the setting. As in Kafka, an unknown name takes any text.
    """
    found = setting_named(name)
    if found is not None:
        return found
    of_listener = split_listener(name)
    if of_listener is None:
        return BY_KEPT_NAME.get(name)
    general = BY_NAME.get(of_listener[1]) or BY_KEPT_NAME.get(of_listener[1])
    return general and replace(general, name=name, default=None, without_effect=True)


def list_complaint(name: str, operation: str) -> str | None:
    """Return why a setting is no list (Kafka's ConfigAdminManager.prepareIncrementalConfigs), or None."""
    setting = BY_NAME.get(name) or BY_KEPT_NAME.get(name)
    if name in READ_ONLY_LISTS or (setting is not None and setting.type is SettingType.LIST):
        return None
    if setting is None and name not in READ_ONLY:
        return f"Unknown config name: {name}"
    return f"Config value {operation} is not allowed for config key: {name}"


def fixed_complaint(names: Iterable[str]) -> str | None:
    """Return which settings are read at the start only, or need a listener; None when all can be altered."""
    plain = sorted(names)
    fixed = [name for name in plain if name in READ_ONLY or _is_fixed(name)]
    if fixed:
        return f"Cannot update these configs dynamically: {_listed(fixed)}"
    without_prefix = [name for name in plain if name in BY_NAME and BY_NAME[name].dynamic_on_listener]
    if without_prefix:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"{_listed(without_prefix)}"
        )
    return None


def _is_fixed(name: str) -> bool:
    setting = BY_NAME.get(name)
    if setting is not None:
        return not setting.dynamic and not setting.dynamic_on_listener
    # Kafka keeps such a name without effect. A secret is not stored where nothing reads it.
    of_listener = split_listener(name)
    general = None if of_listener is None or setting_named(name) is not None else BY_NAME.get(of_listener[1])
    return general is not None and general.sensitive


def scope_complaint(config: Config, names: Iterable[str], *, of_all_brokers: bool) -> str | None:
    """Return which settings can't be altered for all brokers, or on their listener; None when all can."""
    ordered = sorted(names)
    if of_all_brokers:
        of_one_broker = [
            name for name in ordered if name in OF_ONE_BROKER or _is_of_listener_of_one_broker(name)
        ]
        if of_one_broker:
            return (
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"{_listed(of_one_broker)}"
            )
    complaints = (_listener_complaint(config, name) for name in ordered)
    return next((complaint for complaint in complaints if complaint), None)


def _is_of_listener_of_one_broker(name: str) -> bool:
    of_listener = split_listener(name)
    return of_listener is not None and of_listener[1] not in _OF_LISTENERS_OF_ALL_BROKERS


def _listener_complaint(config: Config, name: str) -> str | None:
    """Return why a setting of a listener can't be altered; None when it can, and for other names."""
    of_listener = split_listener(name)
    if of_listener is None:
        return None
    general = BY_NAME.get(without_listener(name)) or BY_NAME.get(of_listener[1])
    if general is None or not general.per_listener:
        return None
    setting = setting_named(name)
    if setting is None:
        return f"{name} must have the name of its listener in lower case"
    listener = listener_of(name)
    names = [each.name for each in config.listeners]
    if listener not in names:
        return f"Unknown listener in {name}: the listeners are {', '.join(names)}"
    if not setting.dynamic:
        return (
            f"{name} cannot be updated dynamically for an existing listener; "
            "set it in the gateway's settings and restart the gateway"
        )
    if general.dynamic_on_listener and not config.protocol_of(listener).has_tls:
        return (
            f"{name} has no effect: "
            f"listener {listener} speaks {config.protocol_of(listener).value}, without TLS"
        )
    return None


def kept_error(config: Config, values: Mapping[str, str], *, of_all_brokers: bool) -> ApiError | None:
    """Return the error in those of the values that have no effect, or None; each is valid by itself. Source:
    Kafka's DynamicThreadPool.validateReconfiguration, KafkaConfig; limits on sizes are the gateway's.
    """
    kept = {name: text for name, text in values.items() if setting_named(name) is None}
    if not kept:
        return None
    sizes = {name: (len(name.encode()), len(text.encode())) for name, text in kept.items()}
    for name, size in sizes.items():
        if max(size) > MAX_CONFIG_BYTES:
            said = f"{name[:100]} and its value must have at most {MAX_CONFIG_BYTES} bytes, not {max(size)}."
            return ApiError(ErrorCode.invalid_request, said)
    total = sum(map(sum, sizes.values()))
    if len(kept) > MAX_KEPT_NAMES or total > MAX_KEPT_BYTES:
        said = (
            f"Settings without effect must be at most {MAX_KEPT_NAMES} with {MAX_KEPT_BYTES} bytes, "
            f"not {len(kept)} with {total} bytes; delete some of them."
        )
        return ApiError(ErrorCode.policy_violation, said)
    complaints = (
        _threads_complaint(config, name, text, of_all_brokers=of_all_brokers)
        or _cordoned_complaint(config, name, text)
        for name, text in kept.items()
    )
    complaint = next((complaint for complaint in complaints if complaint), None)
    return ApiError(ErrorCode.invalid_request, complaint) if complaint else None


def _threads_complaint(config: Config, name: str, text: str, *, of_all_brokers: bool) -> str | None:
    of_listener = split_listener(name)
    general = of_listener[1] if of_listener else name
    if general not in THREAD_COUNTS or (of_listener and general not in _OF_LISTENERS_OF_ALL_BROKERS):
        return None
    entries = [*config.kept_entries(name), *(config.kept_entries(general) if of_listener else ())]
    if of_all_brokers and entries and entries[0].source == ConfigSource.DYNAMIC_BROKER:
        return None
    default = BY_KEPT_NAME[general].default
    now = int(entries[0].value or 0) if entries else default
    assert isinstance(now, int)
    if now // 2 <= int(text) <= now * 2:
        return None
    said = f"it is {now}, and can be at most doubled or halved at once"
    return f"Invalid value {text} for configuration {general}: {said}"


def _cordoned_complaint(config: Config, name: str, text: str) -> str | None:
    directories = [item.strip() for item in text.split(",")]
    if name != CORDONED or text.strip() in {"", "*"}:
        return None
    missing = [directory for directory in directories if directory != config["log.dirs"]]
    if not missing:
        return None
    return f"All entries in {CORDONED} must be present in log.dirs. Missing entries: {', '.join(missing)}"


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"
