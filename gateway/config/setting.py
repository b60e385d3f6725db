"""A setting: its row of the table with name, type, default and range, and the parsing of its value. The rules
that bind several settings together are at the end. Source: Kafka's LogConfig.validateValues,
KafkaConfig.validateValues, GroupCoordinatorConfig, ShareGroupConfig.
"""

from __future__ import annotations

import enum
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import msgspec

SettingValue = bool | int | float | str | tuple[str, ...]

_MAX_HEADER_BYTES: Final = 1_000
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class SettingType(enum.IntEnum):
    """The type of a setting. The numbers are those of DescribeConfigsResponse (ConfigEntry.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_WHOLE_NUMBERS = {
    SettingType.SHORT: (-(2**15), 2**15 - 1),
    SettingType.INT: (-(2**31), INT_MAX),
    SettingType.LONG: (-(2**63), LONG_MAX),
}


class InvalidValueError(ValueError):
    """A text that a setting refuses as its value. The message is the reason, without the setting's name."""


class RefusedValueError(InvalidValueError):
    """A well-formed value that the setting's check refuses; the reason replaces the allowed values."""


class EmptyItemError(InvalidValueError):
    """A list with an empty item."""


class Fallback(msgspec.Struct, frozen=True):
    """The setting whose value times `factor` (hours to milliseconds) replaces an unset value."""

    name: str
    factor: int = 1


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting, under Kafka's name, or a `seqgate.` name where Kafka has no such setting.

    `default` None means unset: the value then comes from the first fallback that is set, otherwise from
    `unset_value`. `topic_name` is the name of the same setting on a topic; the broker's value is the default
    of the topic's value. `dynamic` settings can be altered while the gateway runs. `check` gets a parsed
    value and returns the reason why the setting refuses the value, or None. `internal` settings are accepted,
    but not listed to clients. `per_listener` settings can be set for one listener, as
    `listener.name.NAME.SETTING`, and those that are `per_mechanism` too for a mechanism of the listener, as
    `listener.name.NAME.MECHANISM.SETTING`. `dynamic_on_listener` settings can be altered while the gateway
    runs, but only for one listener of one node. The gateway keeps and describes a setting `without_effect`,
    and no part of the gateway reads it. `choices` of a CLASS are the Java classes that the setting takes.
    `empty_items` allows a list to have empty items.
    """

    name: str
    type: SettingType
    default: SettingValue | None
    doc: str
    section: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    topic_name: str | None = None
    dynamic: bool = False
    dynamic_on_listener: bool = False
    per_listener: bool = False
    per_mechanism: bool = False
    sensitive: bool = False
    internal: bool = False
    without_effect: bool = False
    empty_items: bool = False
    fallbacks: tuple[Fallback, ...] = ()
    unset_value: SettingValue | None = None
    check: Callable[[SettingValue], str | None] | None = None

    @property
    def environment_name(self) -> str:
        """The environment variable of the setting: SEQGATE_ and the name in capitals, `seqgate` once."""
        return "SEQGATE_" + self.name.removeprefix("seqgate.").upper().replace(".", "_")

    def parse(self, text: str) -> SettingValue:
        """Return the value of a text. Raises InvalidValueError: malformed, out of range or not allowed."""
        value = self._convert(text.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_range(value)
        if self.type is SettingType.CLASS and value not in self.choices:
            raise InvalidValueError(f"Class {value} could not be found.")
        chosen = value if isinstance(value, tuple) else (value,)
        if self.choices and any(item not in self.choices for item in chosen):
            raise InvalidValueError(f"String must be one of: {', '.join(self.choices)}")
        complaint = self.check(value) if self.check else None
        if complaint:
            raise RefusedValueError(complaint)
        return value

    def _convert(self, text: str) -> SettingValue:
        if self.type is SettingType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise InvalidValueError("Expected value to be either true or false")
            return text.lower() == "true"
        if self.type is SettingType.LIST:
            items = tuple(item.strip() for item in text.split(",")) if text else ()
            if "" in items and not self.empty_items:
                raise EmptyItemError("an item of the list is empty")
            return items
        if self.type in (SettingType.STRING, SettingType.PASSWORD, SettingType.CLASS):
            return text
        try:
            number = parse_decimal(text) if self.type is SettingType.DOUBLE else _parse_whole(text)
        except ValueError:
            raise InvalidValueError(f"Not a number of type {self.type.name}") from None
        lowest, highest = _WHOLE_NUMBERS.get(self.type, (float("-inf"), float("inf")))
        if not lowest <= number <= highest:
            raise InvalidValueError(f"Not a number of type {self.type.name}")
        return number

    def _check_range(self, number: float) -> None:
        if self.minimum is not None and number < self.minimum:
            raise InvalidValueError(f"Value must be at least {self.minimum}")
        if self.maximum is not None and number > self.maximum:
            raise InvalidValueError(f"Value must be no more than {self.maximum}")

    def allowed(self) -> str:
        """Return the allowed values, in words."""
        if self.type is SettingType.BOOLEAN:
            return "true or false"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kind = {
            SettingType.SHORT: "a whole number",
            SettingType.INT: "a whole number",
            SettingType.LONG: "a whole number",
            SettingType.DOUBLE: "a number",
            SettingType.LIST: "a list separated by commas",
        }.get(self.type, "text")
        if self.minimum is not None and self.minimum == self.maximum:
            return f"only {self.minimum}"
        if self.minimum is not None and self.maximum is not None:
            return f"{kind} from {self.minimum} to {self.maximum}"
        if self.minimum is not None:
            return f"{kind}, at least {self.minimum}"
        return kind


def parse_decimal(text: str) -> float:
    """Return the number of a text. Raises ValueError, also for underscores, digits of other scripts and NaN,
    which Python's own parsers accept.
    """
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a number")
    return float(text)


def _parse_whole(text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


def render(value: SettingValue | None) -> str | None:
    """Return the text of a value for DescribeConfigs and the documentation; None for None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


class Facts(TypedDict, total=False):
    """Attributes that most settings leave at their defaults: bounds, choices, flags, fallbacks."""

    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    topic_name: str
    dynamic: bool
    dynamic_on_listener: bool
    per_listener: bool
    per_mechanism: bool
    sensitive: bool
    internal: bool
    without_effect: bool
    empty_items: bool
    fallbacks: tuple[Fallback, ...]
    unset_value: SettingValue
    check: Callable[[SettingValue], str | None] | None


def complaint_of(parse: Callable[[str], object]) -> Callable[[SettingValue], str | None]:
    """Return the check of a setting whose text `parse` must take; its ValueError says why not."""

    def complaint(value: SettingValue) -> str | None:
        try:
            parse(str(value))
        except ValueError as error:
            return str(error)
        return None

    return complaint


def header_complaint(least: int) -> Callable[[SettingValue], str | None]:
    """Return the check of a setting that names a record header of at least so many bytes."""

    def complaint(value: SettingValue) -> str | None:
        size = len(str(value).encode())
        if least <= size <= _MAX_HEADER_BYTES:
            return None
        bounds = f"{least} to" if least else "at most"
        return f"the name of a record header must have {bounds} {_MAX_HEADER_BYTES} bytes, not {size}"

    return complaint


class Section:
    """A section of docs/configuration.md, which makes the settings in it.

    A setting is written in two steps, what it is and what it does: `SECTION.long("log.roll.ms", None,
    minimum=1)("Age at which a log begins a new segment.")`. Facts of the section hold for all its settings.
    With `topic_prefix` they exist on topics too, each under its `topic_name`, or else its name without the
    prefix. `whole` and `number` have 32 bits, `long` has 64, and nobody may read a `secret`.
    """

    def __init__(self, title: str, topic_prefix: str | None = None, **facts: Unpack[Facts]) -> None:
        self.title = title
        self._topic_prefix = topic_prefix
        self._facts = facts

    def _row(
        self, kind: SettingType, name: str, default: SettingValue | None, facts: Facts
    ) -> Callable[[str], Setting]:
        every: Facts = {**self._facts, **facts}
        if self._topic_prefix is not None:
            every.setdefault("topic_name", name.removeprefix(self._topic_prefix))
        return lambda doc: Setting(
            name=name, type=kind, default=default, doc=doc, section=self.title, **every
        )

    def switch(self, name: str, default: bool, **facts: Unpack[Facts]) -> Callable[[str], Setting]:
        return self._row(SettingType.BOOLEAN, name, default, facts)

    def text(self, name: str, default: str | None, **facts: Unpack[Facts]) -> Callable[[str], Setting]:
        return self._row(SettingType.STRING, name, default, facts)

    def secret(self, name: str, default: str | None, **facts: Unpack[Facts]) -> Callable[[str], Setting]:
        hidden: Facts = {"sensitive": True, **facts}
        return self._row(SettingType.PASSWORD, name, default, hidden)

    def items(
        self, name: str, default: tuple[str, ...] | None, **facts: Unpack[Facts]
    ) -> Callable[[str], Setting]:
        return self._row(SettingType.LIST, name, default, facts)

    def decimal(self, name: str, default: float, **facts: Unpack[Facts]) -> Callable[[str], Setting]:
        return self._row(SettingType.DOUBLE, name, default, facts)

    def long(self, name: str, default: int | None, **facts: Unpack[Facts]) -> Callable[[str], Setting]:
        return self._row(SettingType.LONG, name, default, facts)

    def whole(self, name: str, default: int | None, **facts: Unpack[Facts]) -> Callable[[str], Setting]:
        return self._row(SettingType.INT, name, default, facts)

    def number(self, name: str, default: int, **facts: Unpack[Facts]) -> Callable[[str], Setting]:
        """Begin a setting that is a whole number from 1 to INT_MAX, unless the facts give other bounds."""
        bounded: Facts = {"minimum": 1, "maximum": INT_MAX, **facts}
        return self.whole(name, default, **bounded)


# Durations in the notation of ISO 8601, in days and shorter units (java.time.Duration.parse).

_PATTERN: Final = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)


def parse_iso_duration(text: str) -> int:
    """Return the whole milliseconds of a duration such as `P1DT2H3M4.5S`, cut towards zero.

    Raises:
        ValueError: the text is malformed, or the duration does not fit into 64 bits.
    """
    found = _PATTERN.fullmatch(text)
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"{text!r} is not a duration such as P1DT2H3M4.5S")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    milliseconds = (
        int(days or 0) * 86_400_000
        + int(hours or 0) * 3_600_000
        + int(minutes or 0) * 60_000
        + int(seconds or 0) * 1000
    )
    if fraction:
        part = int(fraction.ljust(9, "0")) // 1_000_000
        milliseconds += -part if seconds.startswith("-") else part
    if abs(milliseconds) > LONG_MAX:
        raise ValueError(f"{text!r} is longer than {LONG_MAX} ms")
    return -milliseconds if sign == "-" else milliseconds


# The error of a setting.


class ConfigError(Exception):
    """A setting that is unknown, malformed or out of range; the message is one sentence for the operator."""


Values: TypeAlias = Callable[[str], SettingValue | None]
"""The lookup of a setting's proposed value by its name. Each value is valid by itself."""

_LOWER: Final = "min.compaction.lag.ms"
_HIGHER: Final = "max.compaction.lag.ms"
_ON_BROKERS: Final = "log.cleaner."
_RELATIONS: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    ">=": (operator.ge, "greater than or equal to"),
    "<=": (operator.le, "less than or equal to"),
    "<": (operator.lt, "less than"),
}


def _within_bounds(kind: str, *names: str) -> Iterator[tuple[str, str, str]]:
    """Yield that a setting of all groups must be within the bounds for single groups."""
    for name in names:
        yield f"group.{kind}.{name}", ">=", f"group.{kind}.min.{name}"
        yield f"group.{kind}.{name}", "<=", f"group.{kind}.max.{name}"


def _group_rules() -> Iterator[tuple[str, str, str]]:
    for kind in ("consumer", "share", "streams"):
        yield from _within_bounds(kind, "heartbeat.interval.ms", "session.timeout.ms")
        yield f"group.{kind}.heartbeat.interval.ms", "<", f"group.{kind}.session.timeout.ms"
        yield from _within_bounds(kind, "assignment.interval.ms")
    yield "group.streams.num.standby.replicas", "<=", "group.streams.max.standby.replicas"
    yield from _within_bounds(
        "share", "delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"
    )
    yield "group.share.max.share.sessions", ">=", "group.share.max.size"


_GROUP_RULES: Final = tuple(_group_rules())
"""The relations between settings of groups, in the order of Kafka's GroupCoordinatorConfig, ShareGroupConfig.
"""
_TIERS_ARE_DISABLED: Final = (
    "Tiered Storage functionality is disabled in the broker. "
    "Topic cannot be configured with remote log storage."
)


def topic_conflict(value: Values) -> str | None:
    """Return the sentence about a rule that a topic's configurations break together; None without one."""
    policies = value("cleanup.policy")
    if value("delivery.delay.header") and isinstance(policies, tuple) and "compact" in policies:
        return (
            "A topic can't have both delivery.delay.header and the cleanup policy compact: compaction would "
            "remove a record that is not due yet when a newer record has the same key."
        )
    if value("message.deduplication.enable"):
        complaint = _same_header(value, "message.deduplication.")
        if complaint is not None:
            return complaint
    conflict = _out_of_order("topic", value, _LOWER, _HIGHER)
    if conflict is None and value("remote.storage.enable"):
        return _TIERS_ARE_DISABLED
    return conflict


def broker_conflict(value: Values) -> str | None:
    """Return the sentence about a rule that the gateway's settings break together; None without one."""
    if value("log.retention.ms") == 0:
        return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    if value("max.connections.per.ip") == 0 and not value("max.connections.per.ip.overrides"):
        return (
            "max.connections.per.ip can be set to zero only if "
            "max.connections.per.ip.overrides property is set."
        )
    complaint = (
        _small_buffer(value) or _same_header(value, "log.message.deduplication.") or _group_conflict(value)
    )
    return complaint or _out_of_order("broker", value, _ON_BROKERS + _LOWER, _ON_BROKERS + _HIGHER)


def _small_buffer(value: Values) -> str | None:
    threads, buffer_bytes = value("log.cleaner.threads"), value("log.cleaner.dedupe.buffer.size")
    # Kafka refuses exactly 1 MiB too, against its own words.
    if isinstance(threads, int) and isinstance(buffer_bytes, int) and buffer_bytes < threads * (1 << 20):
        return "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    return None


def _group_conflict(value: Values) -> str | None:
    """Return the sentence about the first rule of _GROUP_RULES that is broken; None without one."""
    for name, relation, other in _GROUP_RULES:
        holds, words = _RELATIONS[relation]
        number, bound = value(name), value(other)
        if not holds(number, bound):
            return f"{name} ({number}) must be {words} {other} ({bound})"
    return None


def _same_header(value: Values, prefix: str) -> str | None:
    headers = {
        f"{prefix}{what}.header": value(f"{prefix}{what}.header") for what in ("name", "sequence", "epoch")
    }
    if len(set(headers.values())) == len(headers):
        return None
    given = ", ".join(str(header) for header in headers.values())
    return f"{', '.join(headers)} must name three different record headers, not {given}"


def _out_of_order(kind: str, value: Values, lower: str, higher: str) -> str | None:
    least, most = value(lower), value(higher)
    if isinstance(least, int) and isinstance(most, int) and least > most:
        return f"conflict {kind} config setting {lower} ({least}) > {higher} ({most})"
    return None
