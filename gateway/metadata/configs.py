"""Which values the configurations of topics, groups, brokers and subscriptions of client metrics may have.

Rules and order of checks: Kafka's ConfigAdminManager (for what a broker refuses at once) and
ConfigurationControlManager.

The configurations of groups follow Kafka's GroupConfig and GroupConfigManager, changes of logger levels
(BROKER_LOGGER resources, KIP-412) its LoggingController.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config.config import Config
from seqgate.gateway.config.groups import BY_GROUP_NAME, GROUP_CONFIGS, LETTER_TOPIC, GroupConfig
from seqgate.gateway.config.setting import (
    EmptyItemError,
    InvalidValueError,
    RefusedValueError,
    Setting,
    SettingType,
    SettingValue,
    broker_conflict,
    topic_conflict,
)
from seqgate.gateway.config.table import BY_TOPIC_NAME, nearest, split_listener, without_listener
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.producer_ids import node_id_of
from seqgate.gateway.metadata.records import MAX_CONFIG_BYTES
from seqgate.gateway.telemetry.subscriptions import (
    BY_CLIENT_METRICS_NAME,
    INTERVAL_MS,
    LONGEST_INTERVAL_MS,
    MATCH,
    SHORTEST_INTERVAL_MS,
    InvalidMatch,
    parse_match,
)

# The configurations of groups: which may be set, and which are in effect (Kafka's GroupConfig,
# GroupConfigManager).

#: (heartbeat interval, session timeout) of the protocols that have both settings.
_SESSIONS: Final = tuple(
    (f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms")
    for kind in ("consumer", "share", "streams")
)


def group_config_error(config: Config, group_id: str, values: Mapping[str, str]) -> ApiError | None:
    """Return the first error, in Kafka's order of checks, in the values to be set on a group, or None."""
    if not group_id:
        return ApiError(ErrorCode.invalid_request, "Default group resources are not allowed.")
    if len(group_id.encode()) > MAX_NAME_BYTES:
        text = (
            f"Group id can't be longer than {MAX_NAME_BYTES} bytes, "
            f"and this one has {len(group_id.encode())}."
        )
        return ApiError(ErrorCode.invalid_request, text)
    unknown = filter(None, (_unknown("group config name", name, BY_GROUP_NAME) for name in values))
    complaint = (
        next(unknown, None)
        or next(filter(None, map(_size_complaint, values, values.values())), None)
        or _group_value_complaint(values)
        or _bounds_complaint(config, values)
    )
    if complaint:
        return ApiError(ErrorCode.invalid_config, complaint)
    return None


def _unknown(what: str, name: str, known: Collection[str]) -> str | None:
    """Return that no configuration has this name, with the nearest one; None for a known name."""
    if name in known:
        return None
    near = nearest(name, known)
    return f"Unknown {what}: {name}{f' (the nearest valid name is {near})' if near else ''}"


def _size_complaint(name: str, text: str) -> str | None:
    """Return that a value is too long; APPEND makes a list longer than any text of a request."""
    size = len(text.encode())
    if size > MAX_CONFIG_BYTES:
        return f"The value of {name} has {size} bytes; at most {MAX_CONFIG_BYTES} are allowed."
    return None


def _group_value_complaint(values: Mapping[str, str]) -> str | None:
    for name, text in values.items():
        try:
            BY_GROUP_NAME[name].setting.parse(text)
        except InvalidValueError as error:
            return f"Invalid value {text} for configuration {name}: {error}"
    return None


def _bounds_complaint(config: Config, values: Mapping[str, str]) -> str | None:
    for entry in GROUP_CONFIGS:
        name = entry.setting.name
        if name not in values:
            continue
        value = entry.setting.parse(values[name])
        if entry.at_least is not None and isinstance(value, int) and value < config.int(entry.at_least):
            return f"{name} must be greater than or equal to {entry.at_least}"
        if entry.at_most is not None and isinstance(value, int) and value > config.int(entry.at_most):
            return f"{name} must be less than or equal to {entry.at_most}"
        if isinstance(value, tuple) and len(set(value)) < len(value):
            return f"{name} must not contain duplicate tag keys."
        if entry.one_of and value not in entry.one_of:
            known = ", ".join(entry.one_of)
            return f"{name} '{value}' is not a registered task assignor. Registered assignors are: [{known}]."
    for heartbeat, session in _SESSIONS:
        if heartbeat not in values and session not in values:
            continue
        if group_number(config, values, session) <= group_number(config, values, heartbeat):
            return f"{session} must be greater than {heartbeat}"
    if values.get(LETTER_TOPIC, "").startswith("__"):
        return f"{LETTER_TOPIC}: DLQ topic name must not start with '__'"
    return None


def group_value(config: Config, values: Mapping[str, str], name: str) -> SettingValue:
    """Return the value in effect for a group with these values set: its own value, or that of all groups. A
    stored value outside the present bounds is moved to the nearest value that they allow.
    """
    entry = BY_GROUP_NAME[name]
    text = values.get(name)
    if text is not None:
        try:
            return _clamped(config, entry, entry.setting.parse(text))
        except InvalidValueError:
            pass
    for fallback in entry.setting.fallbacks:
        value = config[fallback.name]
        assert value is not None
        return value
    assert entry.setting.default is not None
    return entry.setting.default


def group_number(config: Config, values: Mapping[str, str], name: str) -> int:
    """Return the `group_value` of a setting that is a number."""
    value = group_value(config, values, name)
    assert isinstance(value, int)
    return value


def group_items(config: Config, values: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return the `group_value` of a setting that is a list."""
    value = group_value(config, values, name)
    assert isinstance(value, tuple)
    return value


def _clamped(config: Config, entry: GroupConfig, value: SettingValue) -> SettingValue:
    if not isinstance(value, int):
        return value
    if entry.at_least is not None:
        value = max(value, config.int(entry.at_least))
    return value if entry.at_most is None else min(value, config.int(entry.at_most))


LEVELS: Final = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")


def logger_error(
    node: str, node_id: int, changes: Iterable[ConfigChange], loggers: Collection[str]
) -> ApiError | None:
    """Return why these levels can't be set on these loggers; None when they can."""
    wanted = node_id_of(node)
    if wanted is None:
        return ApiError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {node}")
    if wanted != node_id:
        text = f"Unexpected node id. Expected {node_id}, but received {node}"
        return ApiError(ErrorCode.invalid_request, text)
    for change in changes:
        error = _change_error(change, loggers)
        if error:
            return error
    return None


def _change_error(change: ConfigChange, loggers: Collection[str]) -> ApiError | None:
    if change.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        operation = ConfigOperation(change.operation).name
        text = f"{operation} operation is not allowed for the BROKER_LOGGER resource"
        return ApiError(ErrorCode.invalid_request, text)
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        return ApiError(ErrorCode.invalid_request, f"Unknown operations type {change.operation}")
    if change.name not in loggers:
        return ApiError(ErrorCode.invalid_config, f"Logger {change.name} does not exist!")
    if change.operation == ConfigOperation.SET and change.value not in LEVELS:
        text = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log "
            f"level. Valid log levels are {', '.join(LEVELS)}"
        )
        return ApiError(ErrorCode.invalid_config, text)
    return None


# The configurations of subscriptions of client metrics: which may be set (Kafka's
# ClientMetricsConfigs.validate).

MAX_NAME_BYTES: Final = 1024
"""Longest name of a subscription, or of a group with configurations, in bytes; no group has a longer one."""


def client_metrics_config_error(name: str, values: Mapping[str, str]) -> ApiError | None:
    """Return the first error, in Kafka's order of checks, in the values to be set on a subscription. None
    when there is none. The gateway's own limits on lengths are checked after the name.
    """
    if not name:
        return ApiError(ErrorCode.invalid_request, "Subscription name can't be empty")
    if len(name.encode()) > MAX_NAME_BYTES:
        text = (
            f"Subscription name can't be longer than {MAX_NAME_BYTES} bytes, "
            f"and this one has {len(name.encode())}."
        )
        return ApiError(ErrorCode.invalid_request, text)
    for each in values:
        unknown = _unknown("client metrics configuration", each, BY_CLIENT_METRICS_NAME)
        if unknown:
            return ApiError(ErrorCode.invalid_request, unknown)
    return _values_error_client_metrics(values)


def _values_error_client_metrics(values: Mapping[str, str]) -> ApiError | None:
    parsed: dict[str, SettingValue] = {}
    for name, text in values.items():
        value = _parsed(name, text)
        if isinstance(value, ApiError):
            return value
        parsed[name] = value
    interval_ms = parsed.get(INTERVAL_MS)
    if isinstance(interval_ms, int) and not SHORTEST_INTERVAL_MS <= interval_ms <= LONGEST_INTERVAL_MS:
        return ApiError(
            ErrorCode.invalid_request,
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between {SHORTEST_INTERVAL_MS} "
            f"and {LONGEST_INTERVAL_MS} (1 hour)",
        )
    entries = parsed.get(MATCH, ())
    try:
        parse_match(entries if isinstance(entries, tuple) else ())
    except InvalidMatch as error:
        return ApiError(ErrorCode.invalid_config, str(error))
    return None


def _parsed(name: str, text: str) -> SettingValue | ApiError:
    complaint = _size_complaint(name, text)
    if complaint:
        return ApiError(ErrorCode.invalid_config, complaint)
    try:
        return BY_CLIENT_METRICS_NAME[name].parse(text)
    except EmptyItemError:
        return ApiError(ErrorCode.invalid_config, f"Configuration '{name}' values must not be empty.")
    except InvalidValueError as error:
        return ApiError(ErrorCode.invalid_config, f"Invalid value {text} for configuration {name}: {error}")


class ConfigOperation(enum.IntEnum):
    """The operations of an incremental change (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(msgspec.Struct, frozen=True):
    """One change of one configuration; `operation` is the client's number, maybe no ConfigOperation."""

    name: str
    value: str | None
    operation: int = ConfigOperation.SET


class Alteration(msgspec.Struct, frozen=True):
    """The changes of one resource."""

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]
    denied: ApiError | None = None
    """Why the resource is not altered, whatever the changes are: the client may not, for example. It counts
    after the form of the request.
    """


def broker_changes_error(alteration: Alteration, config: Config) -> ApiError | None:
    """Return the error in changes of a broker that Kafka finds before the rights: APPEND or SUBTRACT of a
    setting that is no list, a setting that is read at the start only, a wrong value, or the wrong scope.
    """
    from seqgate.gateway.metadata import broker_configs  # noqa: PLC0415 - a start does not need its table

    values: dict[str, str] = {}
    for change in alteration.changes:
        if change.operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            operation = ConfigOperation(change.operation).name.lower()
            complaint = broker_configs.list_complaint(change.name, operation)
            if complaint:
                return ApiError(ErrorCode.invalid_config, complaint)
        if change.operation != ConfigOperation.DELETE and change.value is not None:
            values[change.name] = change.value
    complaint = (
        broker_configs.fixed_complaint(values)
        or _value_complaint(values, broker_configs.broker_setting)
        or broker_configs.scope_complaint(config, values, of_all_brokers=not alteration.resource_name)
    )
    return ApiError(ErrorCode.invalid_request, complaint) if complaint else None


def broker_values_error(
    config: Config, values: Mapping[str, str], *, of_all_brokers: bool
) -> ApiError | None:
    """Return the error in all values that a broker shall have, or None. A name that nobody knows takes any
    value, and is kept without effect.
    """
    from seqgate.gateway.metadata import broker_configs  # noqa: PLC0415 - as above

    complaint = (
        _value_complaint(values, broker_configs.broker_setting)
        or _lockout_complaint(values)
        or broker_conflict(config.with_dynamic(values, all_brokers=of_all_brokers).__getitem__)
    )
    if complaint:
        return ApiError(ErrorCode.invalid_request, complaint)
    return broker_configs.kept_error(config, values, of_all_brokers=of_all_brokers)


def _lockout_complaint(values: Mapping[str, str]) -> str | None:
    for name, text in values.items():
        if without_listener(name) == "max.connections" and not int(text):
            return f"Invalid {name} 0: no client could connect any more to raise it"
    return None


def topic_config_error(config: Config, values: Mapping[str, str]) -> ApiError | None:
    """Return the error in the configurations of a topic, or None."""
    complaint = (
        _topic_name_complaint(values)
        or _value_complaint(values, BY_TOPIC_NAME.get)
        or topic_conflict(lambda name: config.topic_value(name, values))
    )
    return ApiError(ErrorCode.invalid_config, complaint) if complaint else None


def _topic_name_complaint(values: Mapping[str, str]) -> str | None:
    for name, text in values.items():
        unknown = _unknown("topic config name", name, BY_TOPIC_NAME)
        if unknown:
            return unknown
        complaint = _size_complaint(name, text)
        if complaint:
            return complaint
    return None


def _value_complaint(values: Mapping[str, str], find: Callable[[str], Setting | None]) -> str | None:
    """Return why the first wrong value is refused. A name for which `find` returns None takes any value."""
    for name, text in values.items():
        setting = find(name)
        if setting is None:
            continue
        try:
            setting.parse(text)
        except EmptyItemError:
            return f"Configuration '{name}' values must not be empty."
        except InvalidValueError as error:
            shown = "[hidden]" if setting.sensitive else text
            if setting.type is SettingType.LIST and isinstance(error, RefusedValueError):
                # Kafka shows the list where the rule is about all items, otherwise the wrong item
                shown = f"[{', '.join(item.strip() for item in text.split(','))}]"
            return f"Invalid value {shown} for configuration {_general_name(name)}: {error}"
    return None


def _general_name(name: str) -> str:
    """Return the name of a setting without the prefix of a listener, which the gateway may not have."""
    of_listener = split_listener(name)
    general = without_listener(name)
    return of_listener[1] if of_listener and general == name else general
