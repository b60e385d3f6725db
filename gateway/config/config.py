"""The values of all settings of one gateway, with their sources."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from seqgate.gateway.config.listeners import (
    Listener,
    SecurityProtocol,
    parse_listeners,
    parse_protocol_map,
    protocol_of,
)
from seqgate.gateway.config.setting import ConfigError, InvalidValueError, Setting, SettingValue, render
from seqgate.gateway.config.table import (
    BY_NAME,
    BY_TOPIC_NAME,
    LISTENER_PREFIX,
    SETTINGS,
    nearest,
    setting_named,
)

# The getters of Config are named after types, so the body of Config needs other names for these types.
_Text: TypeAlias = str
_Flag: TypeAlias = bool
_Names: TypeAlias = tuple[str, ...]


HINTS_BY_PREFIX: Mapping[str, str] = {
    "broker.id": "the name of this setting is node.id",
    "zookeeper.": "a gateway needs no ZooKeeper, it keeps its metadata itself",
    "controller.quorum.": "a gateway needs no controllers, it keeps its metadata itself",
    "process.roles": "a gateway has no roles, it keeps its metadata itself",
    "sasl.kerberos.": "Kerberos (GSSAPI) is not supported; the mechanisms are PLAIN, SCRAM-SHA-256, "
    "SCRAM-SHA-512 and OAUTHBEARER",
}
"""The hints for Kafka's settings that Seqgate does not have, by the prefix of the settings' names."""


class ConfigSource(enum.IntEnum):
    """The source of a value. The numbers are those of DescribeConfigsResponse (ConfigEntry.ConfigSource)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class ConfigEntry(msgspec.Struct, frozen=True):
    """The value of one setting from one source. `value` is the text of the value; None when unset."""

    name: str
    value: str | None
    source: ConfigSource


class Config:
    """All settings of one gateway.

    The precedence is: values altered for this broker (`set_dynamic`), values altered for all brokers,
    `static` values (from flags, environment and file), defaults. Reading is one dictionary access, so most
    parts read a value whenever they need the value. A part that keeps a copy, or runs a timer by a value,
    follows changes with `follow`.
    """

    __slots__ = ("_dynamic_broker", "_dynamic_default", "_followers", "_kept", "_static", "_values")

    def __init__(self, static: Mapping[_Text, SettingValue] | None = None) -> None:
        self._static: dict[_Text, SettingValue] = dict(static or {})
        self._dynamic_broker: dict[_Text, SettingValue] = {}
        self._dynamic_default: dict[_Text, SettingValue] = {}
        self._kept: dict[ConfigSource, Mapping[_Text, _Text]] = {}
        self._values: dict[_Text, SettingValue | None] = {}
        self._followers: list[Callable[[], None]] = []
        self._resolve()

    def __getitem__(self, name: _Text) -> SettingValue | None:
        """Return the effective value; None when it is unset. Raises KeyError for an unknown setting."""
        return self._values[name]

    def bool(self, name: _Text) -> bool:
        value = self._values[name]
        if not isinstance(value, bool):
            raise TypeError(f"setting {name} is {value!r}, not a boolean")
        return value

    def int(self, name: _Text) -> int:
        """Return the value of an INT or LONG setting that is set or has a fallback."""
        value = self._values[name]
        if not isinstance(value, int):
            raise TypeError(f"setting {name} is {value!r}, not a whole number")
        return value

    def double(self, name: _Text) -> float:
        value = self._values[name]
        if not isinstance(value, int | float):
            raise TypeError(f"setting {name} is {value!r}, not a number")
        return float(value)

    def str(self, name: _Text) -> _Text:
        value = self._values[name]
        if not isinstance(value, _Text):
            raise TypeError(f"setting {name} is {value!r}, not a text")
        return value

    def optional_str(self, name: _Text) -> _Text | None:
        """Return the value of a STRING setting; None when the setting is unset or empty."""
        value = self._values[name]
        return value if isinstance(value, _Text) and value else None

    def list(self, name: _Text) -> tuple[_Text, ...]:
        """Return the value of a LIST setting; empty when the setting is unset."""
        value = self._values[name]
        return value if isinstance(value, tuple) else ()

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The addresses to listen on."""
        return parse_listeners(self.list("listeners"))

    @property
    def advertised_listeners(self) -> tuple[Listener, ...]:
        """The addresses that Metadata gives to clients; empty when clients get those of `listeners`."""
        texts = self.list("advertised.listeners")
        return parse_listeners(texts) if texts else ()

    def of_listener(self, listener_name: _Text, name: _Text) -> SettingValue | None:
        """Return the value of a `per_listener` setting for one listener; None when the setting is unset."""
        own = self.own_of_listener(listener_name, name)
        return self._values[name] if own is None else own

    def own_of_listener(self, listener_name: _Text, name: _Text) -> SettingValue | None:
        """Return the value that a `per_listener` setting has for one listener only; None when it has none."""
        return self._values.get(f"{LISTENER_PREFIX}{listener_name.lower()}.{name}")

    def of_mechanism(self, listener_name: _Text, mechanism: _Text, name: _Text) -> SettingValue | None:
        """Return the value of a setting for one mechanism of one listener; None when the setting is unset."""
        own = self._values.get(f"{LISTENER_PREFIX}{listener_name.lower()}.{mechanism.lower()}.{name}")
        return self.of_listener(listener_name, name) if own is None else own

    def protocol_of(self, listener_name: _Text) -> SecurityProtocol:
        """Return the protocol that a listener speaks. Raises ValueError for a name without a protocol."""
        return protocol_of(listener_name, parse_protocol_map(self.str("listener.security.protocol.map")))

    def is_set(self, name: _Text) -> _Flag:
        """Whether flags, environment or file set a value, so that the default does not count."""
        return name in self._static

    def choose(self, name: _Text, value: SettingValue) -> None:
        """Set a value that the gateway chose because none was set, before any part reads the value."""
        self._static[name] = value
        self._resolve()

    def apart(self) -> Config:
        """Return a copy of the settings without values altered while a gateway runs and without followers."""
        return Config(self._static)

    def follow(self, apply: Callable[[], None]) -> None:
        """Call `apply` now, and again after each change of a value while the gateway runs. A change is in
        effect, and its request is answered, when all followers have returned.
        """
        self._followers.append(apply)
        apply()

    def set_dynamic(self, values: Mapping[_Text, _Text], *, all_brokers: _Flag) -> None:
        """Replace the values altered while the gateway runs, for this broker or for all brokers.

        Keep the text of a name that is no setting of the gateway (`kept_entries`). Ignore a value that this
        version refuses. The value was valid when it was stored, and the gateway must start.
        """
        parsed: dict[_Text, SettingValue] = {}
        kept: dict[_Text, _Text] = {}
        for name, text in values.items():
            setting = setting_named(name)
            if setting is None:
                kept[name] = text
                continue
            if not setting.dynamic:
                continue
            try:
                parsed[name] = setting.parse(text)
            except InvalidValueError:
                continue
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER if all_brokers else ConfigSource.DYNAMIC_BROKER
        self._kept[source] = kept
        if all_brokers:
            self._dynamic_default = parsed
        else:
            self._dynamic_broker = parsed
        before = self._values
        self._resolve()
        if self._values != before:
            for apply in self._followers:
                apply()

    def with_dynamic(self, values: Mapping[_Text, _Text], *, all_brokers: _Flag = False) -> Config:
        """Return a copy of the settings with other values altered for this broker, or for all brokers, and
        without followers.
        """
        proposed = Config(self._static)
        proposed._dynamic_default = self._dynamic_default
        proposed._dynamic_broker = self._dynamic_broker
        proposed.set_dynamic(values, all_brokers=all_brokers)
        return proposed

    def kept_names(self) -> set[_Text]:
        """Return the altered names that are no settings of the gateway: Kafka's, and unknown ones."""
        return {name for values in self._kept.values() for name in values}

    def kept_entries(self, name: _Text) -> Iterator[ConfigEntry]:
        """Yield the texts that were set for such a name, this broker's first."""
        for source in (ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER):
            text = self._kept.get(source, {}).get(name)
            if text is not None:
                yield ConfigEntry(name, text, source)

    @property
    def names_with_prefix(self) -> _Names:
        """The names of the settings that are set for one listener."""
        return tuple(name for name in self._values if name.startswith(LISTENER_PREFIX))

    def altered_on_listener(self, listener_name: _Text) -> _Names:
        """Return the names of the settings that were altered for one listener while a gateway ran."""
        prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."
        return tuple(name for name in self._dynamic_broker if name.startswith(prefix))

    def topic_value(self, topic_name: _Text, overrides: Mapping[_Text, _Text]) -> SettingValue | None:
        """Return the effective value of a topic setting: the topic's, otherwise the broker's, otherwise the
        default.

        Raises:
            KeyError: no topic setting has this name.
        """
        setting = BY_TOPIC_NAME[topic_name]
        text = overrides.get(topic_name)
        if text is not None:
            try:
                return setting.parse(text)
            except InvalidValueError:
                pass
        return self._values.get(setting.name, setting.default)

    def entries(self, name: _Text) -> Iterator[ConfigEntry]:
        """Yield a broker setting's values, the effective one first, as DescribeConfigs lists synonyms."""
        setting = setting_named(name)
        if setting is None:
            raise KeyError(name)
        layers = (
            (self._dynamic_broker, ConfigSource.DYNAMIC_BROKER),
            (self._dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._static, ConfigSource.STATIC_BROKER),
        )
        for values, source in layers:
            if name in values:
                yield ConfigEntry(name, render(values[name]), source)
        if setting.default is not None:
            yield ConfigEntry(name, render(setting.default), ConfigSource.DEFAULT)

    def _resolve(self) -> None:
        own = {**self._static, **self._dynamic_default, **self._dynamic_broker}
        values = {setting.name: own.get(setting.name, setting.default) for setting in SETTINGS}
        for setting in SETTINGS:
            if values[setting.name] is None:
                values[setting.name] = _fallback_value(setting, values)
        values.update((name, own[name]) for name in own if name.startswith(LISTENER_PREFIX))
        self._values = values


def _fallback_value(setting: Setting, values: Mapping[str, SettingValue | None]) -> SettingValue | None:
    for fallback in setting.fallbacks:
        number = values[fallback.name]
        if isinstance(number, int):
            return -1 if number < 0 else number * fallback.factor
    return setting.unset_value


def unknown_setting(name: str, origin: str) -> ConfigError:
    """Return the error for a name that is not in the table."""
    return ConfigError(f"Unknown setting {name} ({origin}){_hint(name)}.")


def _hint(name: str) -> str:
    for beginning, advice in HINTS_BY_PREFIX.items():
        if name.startswith(beginning):
            return f"; {advice}"
    near = nearest(name, BY_NAME)
    return f"; the nearest valid name is {near}" if near else ""
