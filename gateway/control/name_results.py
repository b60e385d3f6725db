"""What the control socket answers about producer names, and what `seqgate names --json` prints."""

from __future__ import annotations

import msgspec

Position = tuple[str, int, bytes | None]
"""Topic, partition, and the name after which a page begins there; None: with the first."""


class NameRow(msgspec.Struct, frozen=True):
    """A producer name in one partition. `name` is its text, with what is not UTF-8 escaped; `name_base64` are its bytes.

    `persisted_sequence` is the highest sequence id that is durable, `pushed_sequence` the highest that is written; `epoch` is
    that of the name. Each is −1 where there is none. `is_pending` tells of further records in an open transaction.
    `age_ms` is the time since a record of the name came. `dropped_records` were acknowledged and not stored since the gateway
    started, or the partition came back; −1 of a gateway that is stopped.
    """

    topic: str
    partition: int
    name: str
    name_base64: bytes
    persisted_sequence: int
    pushed_sequence: int
    epoch: int
    last_active_ms: int
    age_ms: int
    is_pending: bool
    dropped_records: int


class NameCounters(msgspec.Struct, frozen=True):
    """How many names are remembered now, each counted once per partition; and since the gateway started: records that were
    acknowledged and not stored, names forgotten for others and for being idle, and batches refused for want of room.
    """

    remembered: int
    dropped_records: int
    evicted: int
    expired: int
    refused: int


class UntoldPartition(msgspec.Struct, frozen=True):
    """A partition whose names can't be told."""

    topic: str
    partition: int
    reason: str


class NamePage(msgspec.Struct, frozen=True):
    """Some of the names, by topic, partition and name; `next` is where the next page begins, None when there is none."""

    names: list[NameRow]
    untold: list[UntoldPartition]
    counters: NameCounters
    next: Position | None
