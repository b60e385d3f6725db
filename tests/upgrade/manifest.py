"""The expected contents of a fixture, as JSON next to its archive; bytes are base64, a partition is
`TOPIC/INDEX`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LONGEST_VALUE_BYTES = 64
"""Longer values are stored as a digest."""

Row = list[Any]
"""A record: offset, timestamp in ms, key, value, headers."""


def text_of(content: bytes | None) -> str | None:
    """Return a key, a value or a header's value in the form of a row."""
    if content is None:
        return None
    if len(content) > LONGEST_VALUE_BYTES:
        return f"sha256:{hashlib.sha256(content).hexdigest()}"
    return base64.b64encode(content).decode()


def row(
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> Row:
    """Return a record as a row."""
    return [
        offset,
        timestamp_ms,
        text_of(key),
        text_of(value),
        [[name, text_of(content)] for name, content in headers],
    ]


@dataclass
class SentBatch:
    """A batch of an idempotent producer that is still in its window, and the answer to its retry."""

    partition: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int
    is_last: bool
    """Whether this is the producer's last batch."""


@dataclass
class Manifest:
    """Everything that a release had acknowledged when it ended."""

    release: str
    ended: str
    """`stopped` or `killed`."""
    topics: dict[str, str] = field(default_factory=dict)
    """Topic ids by name."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Altered configs by topic; those of the gateway under the name ""."""
    ends: dict[str, list[int]] = field(default_factory=dict)
    """Log start offset and log end offset by partition."""
    records: dict[str, list[Row]] = field(default_factory=dict)
    committed: dict[str, list[int]] = field(default_factory=dict)
    """The offsets that a reader of committed records sees; absent if it sees all."""
    batches: list[SentBatch] = field(default_factory=list)
    producer_ids: list[int] = field(default_factory=list)
    """The producer ids that were handed out."""
    offsets: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    """Offset, leader epoch and metadata by group and partition."""
    group_types: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, str] = field(default_factory=dict)
    """The states of transactions by transactional id."""
    shares: dict[str, list[list[int]]] = field(default_factory=dict)
    """[offset, delivery count] of the records of topic `shared` that each share group gets next."""
    delayed: dict[str, list[int]] = field(default_factory=dict)
    """The offsets of topic `delayed` that are due, by share group."""
    entries: list[list[Any]] = field(default_factory=list)
    """Access control entries: resource type, name, pattern, principal, host, operation, permission."""
    quotas: list[list[Any]] = field(default_factory=list)
    """Client quotas: entity and values."""
    users: dict[str, list[list[int]]] = field(default_factory=dict)
    """[mechanism, iterations] of the credentials of each user."""
    tokens: list[list[Any]] = field(default_factory=list)
    """Delegation tokens: id, password, owner, requester, renewers, times of issue, expiry and end."""

    def write(self, path: Path) -> None:
        """Write the manifest as JSON, one row per line."""
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read a written manifest."""
        fields = json.loads(path.read_text())
        return cls(**{**fields, "batches": [SentBatch(**batch) for batch in fields["batches"]]})
