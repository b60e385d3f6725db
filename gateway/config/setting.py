"""One row of the settings table: name, type, default, range, and the parsing of its value."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass

SettingValue = bool | int | float | str | tuple[str, ...]

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
    """A text that a setting refuses as its value. The message is the reason, without the name of the setting."""


class RefusedValueError(InvalidValueError):
    """A well-formed value that the setting's own check refuses.

    Its message gives the reason, so the error leaves out the list of allowed values.
    """


class EmptyItemError(InvalidValueError):
    """A list with an empty item."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """The setting whose value, times `factor` (hours to milliseconds), replaces the value of an unset setting."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
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
        """The environment variable of the setting: SEQGATE_ and the name in capitals, without a second `seqgate`."""
        return "SEQGATE_" + self.name.removeprefix("seqgate.").upper().replace(".", "_")

    @property
    def nullable(self) -> bool:
        """True when the setting can be unset."""
        return self.default is None

    def parse(self, text: str) -> SettingValue:
        """Return the value that `text` stands for.

        Raises:
            InvalidValueError: the text is malformed, out of range or not allowed; the message is the reason.
        """
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
        # Python's own parsers also accept underscores, digits of other scripts and NaN.
        if not (_DECIMAL if self.type is SettingType.DOUBLE else _WHOLE).fullmatch(text):
            raise InvalidValueError(f"Not a number of type {self.type.name}")
        number = float(text) if self.type is SettingType.DOUBLE else int(text)
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


def render(value: SettingValue | None) -> str | None:
    """Return the text of a value for DescribeConfigs and the documentation; None for None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def whole_number(
    section: str,
    name: str,
    default: int,
    doc: str,
    *,
    minimum: int = 1,
    maximum: int = INT_MAX,
    dynamic: bool = False,
) -> Setting:
    """Return a setting that is a whole number. Its value can be altered while the gateway runs only when `dynamic`."""
    return Setting(
        name=name,
        type=SettingType.INT,
        default=default,
        minimum=minimum,
        maximum=maximum,
        dynamic=dynamic,
        section=section,
        doc=doc,
    )
