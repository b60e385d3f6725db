"""What settings must keep to together. Source: Kafka's LogConfig.validateValues, KafkaConfig.validateValues, SocketServer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.config.config import Config
from gateway.config.setting import SettingValue
from gateway.config.table import BY_NAME, BY_TOPIC_NAME

_LOWER, _HIGHER = "min.compaction.lag.ms", "max.compaction.lag.ms"
_BROKER_PREFIX: Final = "log.cleaner."


def topic_conflict(config: Config, values: Mapping[str, str]) -> str | None:
    """What is wrong with the values of a topic taken together with those of the broker; each is valid by itself."""
    if _LOWER not in BY_TOPIC_NAME or _HIGHER not in BY_TOPIC_NAME:
        return None
    lower, higher = (config.topic_value(name, values) for name in (_LOWER, _HIGHER))
    return _lag_conflict("topic", (_LOWER, lower), (_HIGHER, higher))


def broker_conflict(config: Config, values: Mapping[str, str]) -> str | None:
    """What is wrong with the values altered on brokers, taken together with those that hold; each is valid by itself."""

    def value(name: str) -> SettingValue | None:
        text = values.get(name)
        return config[name] if text is None else BY_NAME[name].parse(text)

    if value("log.retention.ms") == 0:
        return "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    if value("max.connections") == 0:
        return "Invalid max.connections 0: nobody could connect any more to raise it"
    if value("max.connections.per.ip") == 0 and not value("max.connections.per.ip.overrides"):
        return "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
    lower, higher = _BROKER_PREFIX + _LOWER, _BROKER_PREFIX + _HIGHER
    if lower not in BY_NAME or higher not in BY_NAME:
        return None
    return _lag_conflict("broker", (lower, value(lower)), (higher, value(higher)))


def _lag_conflict(
    kind: str, lower: tuple[str, SettingValue | None], higher: tuple[str, SettingValue | None]
) -> str | None:
    if isinstance(lower[1], int) and isinstance(higher[1], int) and lower[1] > higher[1]:
        return f"conflict {kind} config setting {lower[0]} ({lower[1]}) > {higher[0]} ({higher[1]})"
    return None
