"""The expected contents of a fixture, as JSON beside its archive; bytes are base64, a partition is `TOPIC/INDEX`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LONGEST_VALUE_BYTES = 64
"""Of a longer value the digest is kept."""

Row = list[Any]
"""A record: offset, timestamp in ms, key, value, headers."""


def text_of(content: bytes | None) -> str | None:
    """How a key, a value or the value of a header stands in a row."""
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
    """One record."""
    return [
        offset,
        timestamp_ms,
        text_of(key),
        text_of(value),
        [[name, text_of(content)] for name, content in headers],
    ]


@dataclass
class SentBatch:
    """A batch of an idempotent producer that is still remembered, and what its retry is answered with."""

    partition: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int
    is_last: bool
    """Whether the producer's next batch follows this one."""


@dataclass
class Manifest:
    """Everything that a release had acknowledged when it ended."""

    release: str
    ended: str
    """`stopped` or `killed`."""
    topics: dict[str, str] = field(default_factory=dict)
    """Topic ids by name."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """What was altered of topics, and under the name "" of the gateway."""
    ends: dict[str, list[int]] = field(default_factory=dict)
    """Log start offset and log end offset by partition."""
    records: dict[str, list[Row]] = field(default_factory=dict)
    committed: dict[str, list[int]] = field(default_factory=dict)
    """The offsets that a reader of committed records sees, where that is not all."""
    batches: list[SentBatch] = field(default_factory=list)
    producer_ids: list[int] = field(default_factory=list)
    """Ids that were handed out."""
    offsets: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    """By group and partition: offset, leader epoch, metadata."""
    group_types: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, str] = field(default_factory=dict)
    """States by transactional id."""
    shares: dict[str, list[list[int]]] = field(default_factory=dict)
    """By share group, of the topic `shared`: [offset, delivery count] of what is delivered next."""
    delayed: dict[str, list[int]] = field(default_factory=dict)
    """By share group, of the topic `delayed`: the offsets that are due."""

    def write(self, path: Path) -> None:
        """As JSON, a row in a line."""
        path.write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """What `write` wrote."""
        fields = json.loads(path.read_text())
        return cls(**{**fields, "batches": [SentBatch(**batch) for batch in fields["batches"]]})
