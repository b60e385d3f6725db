"""The subscriptions of client metrics, and the choice for one client: which metrics it pushes, and how often.

A client gets the metrics of all subscriptions that match it, at the shortest of their intervals; a client that none matches gets no
metrics and the default interval. Source: Kafka's ClientMetricsManager.createClientInstance. Kafka never sends a client an interval above
its default of five minutes; Seqgate sends the interval that was configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.config.client_metrics import (
    BY_CLIENT_METRICS_NAME,
    DEFAULT_INTERVAL_MS,
    INTERVAL_MS,
    LONGEST_INTERVAL_MS,
    MATCH,
    METRICS,
    SHORTEST_INTERVAL_MS,
)
from gateway.config.setting import InvalidValueError
from gateway.telemetry.clients import ClientDescription
from gateway.telemetry.matching import InvalidMatch, Patterns, is_match, parse_match
from seq_validator.checksum import crc32c

ALL_METRICS: Final = "*"
_SIGN: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription: name prefixes of metrics, the interval of pushes (ms), and the clients that it selects."""

    metrics: frozenset[str]
    interval_ms: int
    patterns: Patterns


@dataclass(frozen=True, slots=True)
class Choice:
    """What one client pushes. `subscription_id` changes when the other two change."""

    subscription_id: int
    requested_metrics: tuple[str, ...]
    push_interval_ms: int


def subscription_of(values: Mapping[str, str]) -> Subscription | None:
    """Return the subscription with these configurations; None when this version refuses a stored value."""
    try:
        interval_ms = _number(values)
        patterns = parse_match(_items(MATCH, values))
        return Subscription(frozenset(_items(METRICS, values)), interval_ms, patterns)
    except (InvalidMatch, InvalidValueError):
        return None


def _items(name: str, values: Mapping[str, str]) -> tuple[str, ...]:
    items = BY_CLIENT_METRICS_NAME[name].parse(values.get(name, ""))
    return items if isinstance(items, tuple) else ()


def _number(values: Mapping[str, str]) -> int:
    text = values.get(INTERVAL_MS)
    number = DEFAULT_INTERVAL_MS if text is None else BY_CLIENT_METRICS_NAME[INTERVAL_MS].parse(text)
    assert isinstance(number, int)
    return min(max(number, SHORTEST_INTERVAL_MS), LONGEST_INTERVAL_MS)


class Subscriptions:
    """All subscriptions by name. `version` grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, Subscription] = {}

    def set(self, name: str, values: Mapping[str, str]) -> None:
        """Replace a subscription; one without values is removed."""
        self.version += 1
        subscription = subscription_of(values) if values else None
        if subscription is None:
            self._by_name.pop(name, None)
        else:
            self._by_name[name] = subscription

    def choose(self, client: ClientDescription) -> Choice:
        """Return what the client pushes."""
        matching = [known for known in self._by_name.values() if is_match(known.patterns, client)]
        metrics: frozenset[str] = frozenset().union(*(known.metrics for known in matching))
        requested = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        interval_ms = min((known.interval_ms for known in matching), default=DEFAULT_INTERVAL_MS)
        return Choice(_subscription_id(requested, interval_ms, client), requested, interval_ms)


def _subscription_id(requested: tuple[str, ...], interval_ms: int, client: ClientDescription) -> int:
    """Return the CRC-32C of the choice and the client instance id, as int32. All gateways of a cluster compute the same."""
    content = "\0".join((*requested, str(interval_ms))).encode()
    checksum = crc32c(client.client_instance_id.bytes + content)
    return (checksum ^ _SIGN) - _SIGN
