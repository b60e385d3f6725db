"""The configurations of subscriptions of client metrics: which may be set (Kafka's ClientMetricsConfigs.validate)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kio.schema.errors import ErrorCode

from gateway.config.client_metrics import (
    BY_CLIENT_METRICS_NAME,
    INTERVAL_MS,
    LONGEST_INTERVAL_MS,
    MATCH,
    SHORTEST_INTERVAL_MS,
)
from gateway.config.config import Config
from gateway.config.setting import EmptyItemError, InvalidValueError, SettingValue
from gateway.config.table import nearest
from gateway.metadata.decision import ApiError
from gateway.metadata.image import CLIENT_METRICS_RESOURCE, MetadataImage
from gateway.metadata.records import MAX_CONFIG_BYTES
from gateway.telemetry.matching import InvalidMatch, parse_match

MAX_NAME_BYTES: Final = 1024
"""Longest name of a subscription, in bytes."""


def client_metrics_config_error(name: str, values: Mapping[str, str]) -> ApiError | None:
    """Return the first error, in Kafka's order of checks, in the values to be set on a subscription.

    None when there is none. The gateway's own limits on lengths are checked after the name.
    """
    if not name:
        return ApiError(ErrorCode.invalid_request, "Subscription name can't be empty")
    if len(name.encode()) > MAX_NAME_BYTES:
        text = f"Subscription name can't be longer than {MAX_NAME_BYTES} bytes, and this one has {len(name.encode())}."
        return ApiError(ErrorCode.invalid_request, text)
    return _unknown_name(values) or _values_error(values)


def subscription_limit_error(image: MetadataImage, config: Config, new_subscriptions: int) -> ApiError | None:
    """Return why one more subscription can't exist, or None.

    The request already makes `new_subscriptions` others.
    """
    most = config.int("seqgate.telemetry.subscriptions.max")
    if len(image.configured(CLIENT_METRICS_RESOURCE)) + new_subscriptions < most:
        return None
    text = f"{most} subscriptions of client metrics exist, as many as seqgate.telemetry.subscriptions.max allows."
    return ApiError(ErrorCode.policy_violation, text)


def _unknown_name(values: Mapping[str, str]) -> ApiError | None:
    for name in values:
        if name not in BY_CLIENT_METRICS_NAME:
            near = nearest(name, BY_CLIENT_METRICS_NAME)
            hint = f" (the nearest valid name is {near})" if near else ""
            return ApiError(ErrorCode.invalid_request, f"Unknown client metrics configuration: {name}{hint}")
    return None


def _values_error(values: Mapping[str, str]) -> ApiError | None:
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
            f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between {SHORTEST_INTERVAL_MS} and "
            f"{LONGEST_INTERVAL_MS} (1 hour)",
        )
    entries = parsed.get(MATCH, ())
    try:
        parse_match(entries if isinstance(entries, tuple) else ())
    except InvalidMatch as error:
        return ApiError(ErrorCode.invalid_config, str(error))
    return None


def _parsed(name: str, text: str) -> SettingValue | ApiError:
    size = len(text.encode())
    if size > MAX_CONFIG_BYTES:
        text = f"The value of {name} has {size} bytes; at most {MAX_CONFIG_BYTES} are allowed."
        return ApiError(ErrorCode.invalid_config, text)
    try:
        return BY_CLIENT_METRICS_NAME[name].parse(text)
    except EmptyItemError:
        return ApiError(ErrorCode.invalid_config, f"Configuration '{name}' values must not be empty.")
    except InvalidValueError as error:
        return ApiError(ErrorCode.invalid_config, f"Invalid value {text} for configuration {name}: {error}")
