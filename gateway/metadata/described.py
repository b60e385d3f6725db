"""The configurations that DescribeConfigs returns: values, sources and synonyms (Kafka's ConfigHelper)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from seqgate.gateway.config.config import Config, ConfigEntry, ConfigSource
from seqgate.gateway.config.groups import GROUP_CONFIGS
from seqgate.gateway.config.setting import InvalidValueError, Setting, SettingType, SettingValue, render
from seqgate.gateway.config.table import (
    BY_NAME,
    BY_TOPIC_NAME,
    SETTINGS,
    setting_named,
    split_listener,
    without_listener,
)
from seqgate.gateway.telemetry.subscriptions import CLIENT_METRICS_CONFIGS

_UNKNOWN_TYPE: Final = 0
"""The type that DescribeConfigs returns for a logger's level, and for a name that nobody knows."""


class DescribedConfig(msgspec.Struct, frozen=True):
    """One configuration as clients see it; `synonyms` has its values in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigEntry, ...]
    read_only: bool
    is_sensitive: bool
    type: int
    documentation: str | None


def describe_topic(
    config: Config, overrides: Mapping[str, str], names: Container[str] | None = None
) -> Iterator[DescribedConfig]:
    """Yield the effective configurations of a topic, sorted by name; `names` None means all."""
    for name in sorted(BY_TOPIC_NAME):
        setting = BY_TOPIC_NAME[name]
        if _wanted(name, setting, names):
            synonyms = _broker_synonyms(config, setting)
            if name in overrides:
                synonyms = (ConfigEntry(name, overrides[name], ConfigSource.DYNAMIC_TOPIC), *synonyms)
            value = render(config.topic_value(name, overrides))
            yield _described(name, value, setting, synonyms, read_only=False)


def describe_group(
    config: Config, overrides: Mapping[str, str], names: Container[str] | None = None
) -> Iterator[DescribedConfig]:
    """Yield the configurations of a group; the group need not exist."""
    for entry in GROUP_CONFIGS:
        setting = entry.setting
        if not _wanted(setting.name, setting, names):
            continue
        synonyms = tuple(shown for fallback in setting.fallbacks for shown in config.entries(fallback.name))
        if setting.default is not None:
            synonyms = (ConfigEntry(setting.name, render(setting.default), ConfigSource.DEFAULT),)
        if setting.name in overrides:
            text = overrides[setting.name].strip()
            if setting.type is SettingType.LIST:
                text = ",".join(item.strip() for item in text.split(","))
            synonyms = (ConfigEntry(setting.name, text, ConfigSource.DYNAMIC_GROUP), *synonyms)
        yield _described(setting.name, synonyms[0].value, setting, synonyms, read_only=False)


def describe_client_metrics(
    overrides: Mapping[str, str], names: Container[str] | None = None
) -> Iterator[DescribedConfig]:
    """Yield the configurations of a subscription, which need not exist. In Kafka, a default is no synonym."""
    for setting in CLIENT_METRICS_CONFIGS:
        if not _wanted(setting.name, setting, names):
            continue
        value = render(setting.default)
        synonyms: tuple[ConfigEntry, ...] = ()
        text = overrides.get(setting.name)
        if text is not None:
            value = _listed_once(setting.parse(text))
            synonyms = (ConfigEntry(setting.name, value, ConfigSource.CLIENT_METRICS),)
        yield _described(setting.name, value, setting, synonyms, read_only=False)


def _listed_once(value: SettingValue) -> str | None:
    """Return a stored value as it takes effect: an item that a list has twice counts once."""
    return render(tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value)


def describe_broker(config: Config, names: Container[str] | None = None) -> Iterator[DescribedConfig]:
    """Yield all settings of this node, and those without effect; an unset setting has no value."""
    prefixed = (setting_named(name) for name in sorted(config.names_with_prefix))
    for setting in (*SETTINGS, *filter(None, prefixed)):
        if _wanted(setting.name, setting, names):
            synonyms = _broker_synonyms(config, setting)
            value = synonyms[0].value if synonyms else None
            yield _described(setting.name, value, setting, synonyms, read_only=not setting.dynamic)
    from seqgate.gateway.config.kept_brokers import BY_KEPT_NAME  # noqa: PLC0415 - not for a start

    for name in sorted({*BY_KEPT_NAME, *config.kept_names()}):
        if names is None or name in names:
            synonyms = tuple(_kept_synonyms(config, name))
            yield _described_kept(name, synonyms[0].value if synonyms else None, synonyms, parsed=True)


def describe_all_brokers(
    values: Mapping[str, str], names: Container[str] | None = None
) -> Iterator[DescribedConfig]:
    """Yield the configurations altered for all brokers."""
    for name, text in sorted(values.items()):
        setting = setting_named(name)
        synonyms = (ConfigEntry(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
        if setting is None:
            if names is None or name in names:
                yield _described_kept(name, text, synonyms)
        elif _wanted(name, setting, names):
            yield _described(name, text, setting, synonyms, read_only=not setting.dynamic)


def _kept_synonyms(config: Config, name: str) -> Iterator[ConfigEntry]:
    """Yield the values of a name without effect, and as Kafka those of a listener's general setting."""
    from seqgate.gateway.config.kept_brokers import BY_KEPT_NAME  # noqa: PLC0415 - as above

    yield from config.kept_entries(name)
    of_listener = split_listener(name)
    general = of_listener[1] if of_listener else name
    if of_listener:
        yield from config.entries(general) if general in BY_NAME else config.kept_entries(general)
    if general in BY_KEPT_NAME and BY_KEPT_NAME[general].default is not None:
        yield ConfigEntry(general, render(BY_KEPT_NAME[general].default), ConfigSource.DEFAULT)


def _described_kept(
    name: str, value: str | None, synonyms: tuple[ConfigEntry, ...], *, parsed: bool = False
) -> DescribedConfig:
    """Describe a name that has no effect. As in Kafka, the value of an unknown name counts as a secret."""
    from seqgate.gateway.metadata.broker_configs import broker_setting  # noqa: PLC0415 - as above

    setting = broker_setting(name)
    if setting is None:
        hidden = tuple(ConfigEntry(entry.name, None, entry.source) for entry in synonyms)
        return DescribedConfig(name, None, hidden[0].source, hidden, True, True, _UNKNOWN_TYPE, None)
    if parsed and value is not None:
        with suppress(InvalidValueError):
            value = render(setting.parse(value))
    return _described(name, value, setting, synonyms, read_only=split_listener(name) is not None)


def describe_loggers(
    levels: Mapping[str, str], names: Container[str] | None = None
) -> Iterator[DescribedConfig]:
    for name, level in levels.items():
        if names is None or name in names:
            yield DescribedConfig(
                name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, (), False, False, _UNKNOWN_TYPE, ""
            )


def _wanted(name: str, setting: Setting, names: Container[str] | None) -> bool:
    return not setting.internal and (names is None or name in names)


def _broker_synonyms(config: Config, setting: Setting) -> tuple[ConfigEntry, ...]:
    general = without_listener(setting.name)
    if general not in BY_NAME:
        return ()
    own = tuple(config.entries(setting.name))
    if general != setting.name:
        return (*own, *config.entries(general))
    if not own:
        # Kafka drops the entries of log.retention.hours where log.retention.ms has none: `configSynonyms` of
        # its `ConfigHelper`.
        return ()
    others = (entry for fallback in setting.fallbacks for entry in config.entries(fallback.name))
    return (*own, *others)


def _described(
    name: str, value: str | None, setting: Setting, synonyms: tuple[ConfigEntry, ...], *, read_only: bool
) -> DescribedConfig:
    if setting.sensitive:
        value = None
        synonyms = tuple(ConfigEntry(entry.name, None, entry.source) for entry in synonyms)
    return DescribedConfig(
        name=name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms=synonyms,
        read_only=read_only,
        is_sensitive=setting.sensitive,
        type=setting.type,
        documentation=setting.doc,
    )
