"""A hash of the topics that a topology needs. The hash changes when such a topic is created, deleted or enlarged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from gateway.coordinator.group.consumer_heartbeat import Topics

_HASH_BYTES: Final = 8
_NO_TOPICS: Final = 0


def topic_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a signed 64-bit hash of the names, ids and partitions of those topics that exist; 0 when none does."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    is_empty = True
    for name in sorted(names):
        described = topics.describe(name)
        if described is not None:
            topic_id, count = described
            digest.update(f"{name}/{count}/".encode() + topic_id.bytes)
            is_empty = False
    return _NO_TOPICS if is_empty else int.from_bytes(digest.digest(), "big", signed=True)
