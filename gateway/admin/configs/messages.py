"""The JSON output of `seqgate configs … --json`."""

from __future__ import annotations

import msgspec


class ConfigRow(msgspec.Struct, frozen=True):
    """One configuration. `value` is None where the cluster keeps it secret, or where nothing is set.

    `source` is Kafka's word for where the value comes from, such as `DYNAMIC_TOPIC_CONFIG` or `DEFAULT_CONFIG`.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool


class ConfigListing(msgspec.Struct, frozen=True):
    """The configurations of a topic, broker or group; `left_out` counts those that have their defaults and are not listed."""

    kind: str
    name: str
    configs: list[ConfigRow]
    left_out: int


class ConfigChange(msgspec.Struct, frozen=True):
    """The configurations of a topic, broker or group that a command has set and unset."""

    kind: str
    name: str
    set: dict[str, str]
    unset: list[str]
