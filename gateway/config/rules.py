"""The rules that bind several settings together. Source: Kafka's LogConfig.validateValues, KafkaConfig.validateValues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from gateway.config.setting import SettingValue

Values: TypeAlias = Callable[[str], SettingValue | None]
"""The lookup of a setting's proposed value by its name. Each value is valid by itself."""

_LOWER: Final = "min.compaction.lag.ms"
_HIGHER: Final = "max.compaction.lag.ms"
_ON_BROKERS: Final = "log.cleaner."
_TIERS_ARE_DISABLED: Final = (
    "Tiered Storage functionality is disabled in the broker. "
    "Topic cannot be configured with remote log storage."
)


def topic_conflict(value: Values) -> str | None:
    """Return the sentence about a rule that the configurations of a topic break together; None when they
    break no rule.
    """
    policies = value("cleanup.policy")
    if value("delivery.delay.header") and isinstance(policies, tuple) and "compact" in policies:
        return (
            "A topic can't have both delivery.delay.header and the cleanup policy compact: compaction would remove a record "
            "that is not due yet when a newer record has the same key."
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
    """Return the sentence about a rule that the settings of the gateway break together; None when they break
    no rule.
    """
    if value("log.retention.ms") == 0:
        return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    if value("max.connections.per.ip") == 0 and not value("max.connections.per.ip.overrides"):
        return "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
    complaint = _same_header(value, "log.message.deduplication.") or _outside_of_bounds(value)
    return complaint or _out_of_order("broker", value, _ON_BROKERS + _LOWER, _ON_BROKERS + _HIGHER)


def _outside_of_bounds(value: Values) -> str | None:
    """Return the sentence about an assignment interval that is outside of the bounds for single groups; None
    when there is none.
    """
    for kind in ("consumer", "share", "streams"):
        name = f"group.{kind}.assignment.interval.ms"
        least, most = f"group.{kind}.min.assignment.interval.ms", f"group.{kind}.max.assignment.interval.ms"
        interval, shortest, longest = (_whole(value(each)) for each in (name, least, most))
        if interval < shortest:
            return f"{name} ({interval}) must be greater than or equal to {least} ({shortest})"
        if interval > longest:
            return f"{name} ({interval}) must be less than or equal to {most} ({longest})"
    return None


def _whole(number: SettingValue | None) -> int:
    assert isinstance(number, int)
    return number


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
