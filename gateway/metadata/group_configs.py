"""The configurations of groups: which may be set, and which are in effect (Kafka's GroupConfig,
GroupConfigManager).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.config.config import Config
from seqgate.gateway.config.groups import BY_GROUP_NAME, GROUP_CONFIGS, GroupConfig
from seqgate.gateway.config.setting import InvalidValueError, SettingValue
from seqgate.gateway.config.table import nearest
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.image import GROUP_RESOURCE, MetadataImage

#: (heartbeat interval, session timeout) of the protocols that have both settings.
_SESSIONS: Final = tuple(
    (f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms")
    for kind in ("consumer", "share", "streams")
)
MAX_NAME_BYTES: Final = 1024
"""Longest id of a group with configurations, in bytes; no consumer or share group has a longer one."""


def group_config_error(config: Config, group_id: str, values: Mapping[str, str]) -> ApiError | None:
    """Return the first error, in Kafka's order of checks, in the values to be set on a group.

    None when there is none.
    """
    if not group_id:
        return ApiError(ErrorCode.invalid_request, "Default group resources are not allowed.")
    if len(group_id.encode()) > MAX_NAME_BYTES:
        text = f"Group id can't be longer than {MAX_NAME_BYTES} bytes, and this one has {len(group_id.encode())}."
        return ApiError(ErrorCode.invalid_request, text)
    complaint = _name_complaint(values) or _value_complaint(values) or _bounds_complaint(config, values)
    if complaint:
        return ApiError(ErrorCode.invalid_config, complaint)
    return None


def group_limit_error(image: MetadataImage, config: Config, new_groups: int) -> ApiError | None:
    """Return why one more group can't have configurations, or None.

    The request already gives configurations to `new_groups` other groups.
    """
    if len(image.configured(GROUP_RESOURCE)) + new_groups < config.int("seqgate.group.configs.max"):
        return None
    text = (
        f"{config.int('seqgate.group.configs.max')} groups have configurations, as many as "
        "seqgate.group.configs.max allows."
    )
    return ApiError(ErrorCode.policy_violation, text)


def _name_complaint(values: Mapping[str, str]) -> str | None:
    for name in values:
        if name not in BY_GROUP_NAME:
            near = nearest(name, BY_GROUP_NAME)
            hint = f" (the nearest valid name is {near})" if near else ""
            return f"Unknown group config name: {name}{hint}"
    return None


def _value_complaint(values: Mapping[str, str]) -> str | None:
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
    for heartbeat, session in _SESSIONS:
        if heartbeat not in values and session not in values:
            continue
        if group_number(config, values, session) <= group_number(config, values, heartbeat):
            return f"{session} must be greater than {heartbeat}"
    return None


def group_value(config: Config, values: Mapping[str, str], name: str) -> SettingValue:
    """Return the value in effect for a group with these values set: its own value, or that of all groups.

    A stored value outside the present bounds is moved to the nearest value that they allow.
    """
    entry = BY_GROUP_NAME[name]
    text = values.get(name)
    if text is not None:
        try:
            return _clamped(config, entry, entry.setting.parse(text))
        except InvalidValueError:
            pass
    for fallback in entry.setting.fallbacks:
        return config.int(fallback.name)
    assert entry.setting.default is not None
    return entry.setting.default


def group_number(config: Config, values: Mapping[str, str], name: str) -> int:
    """Return the `group_value` of a setting that is a number."""
    value = group_value(config, values, name)
    assert isinstance(value, int)
    return value


def _clamped(config: Config, entry: GroupConfig, value: SettingValue) -> SettingValue:
    if not isinstance(value, int):
        return value
    if entry.at_least is not None:
        value = max(value, config.int(entry.at_least))
    return value if entry.at_most is None else min(value, config.int(entry.at_most))
