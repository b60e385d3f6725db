"""The settings of a broker for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.config.setting import LONG_MAX

SETTINGS: Final[Mapping[str, str]] = {
    "log.flush.interval.messages": str(LONG_MAX),
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "max.incremental.fetch.session.cache.slots": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
"""The settings that make a broker quick: no fsync before an answer, no wait for further members, small internal topics.

Without fetch sessions each fetch names its topics, so that faults find them.
"""
