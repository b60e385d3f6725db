"""The records of `__share_group_state`, in Kafka's formats.

    key     int16 0 (snapshot) or 1 (update) | group | topic_id | int32 partition
    0       int16 0 | int32 snapshot_epoch | int32 state_epoch | int32 leader_epoch | int64 start_offset |
            int64 create_timestamp | int64 write_timestamp | batches[] | tags
    1       int16 0 | int32 snapshot_epoch | int32 leader_epoch | int64 start_offset | batches[] | tags
    batch   int64 first_offset | int64 last_offset | int8 delivery_state | int16 delivery_count | tags

A snapshot holds the whole state, an update the changes since the last record. A null value deletes.
Source: Kafka's ShareSnapshotKey/Value.json, ShareUpdateKey/Value.json.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from gateway.coordinator.share.ranges import DeliveryState, StateBatch
from gateway.coordinator.stored_versions import NewerVersion
from gateway.protocol.frames import MalformedRequest, read_unsigned_varint, skip_tagged_fields
from gateway.protocol.primitives import unsigned_varint

SNAPSHOT: Final = 0
UPDATE: Final = 1
_NEWEST_READ: Final = 0
_INT16: Final = Struct(">h")
_KEY_END: Final = Struct(">16si")
_SNAPSHOT: Final = Struct(">hiiiqqq")
_UPDATE: Final = Struct(">hiiq")
_BATCH: Final = Struct(">qqbhB")
NOT_BEGUN: Final = -1
"""The start offset of a partition in which the group has not begun to read."""
_HIGHEST_OFFSET: Final = 2**63 - 1
_STORED_STATES: Final = frozenset(DeliveryState) - {DeliveryState.ACQUIRED}
MAX_GROUP_ID_BYTES: Final = 2**15 - 1
"""Longest group id: the key stores its length as an int16."""


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: uuid.UUID
    partition: int

    def spread_text(self) -> str:
        """Return the text whose hash chooses the partition of the state topic (SharePartitionKey.asCoordinatorKey)."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class ShareSnapshot(NamedTuple):
    """The whole delivery state of a partition from this record on; None deletes it."""

    key: SharePartitionKey
    value: ShareState | None


class ShareState(NamedTuple):
    """The delivery state of a partition: all records before `start_offset` are done; `batches` have the states of later records.

    A start offset of -1 leaves it to the partition's leader where the group begins.
    """

    start_offset: int
    batches: tuple[StateBatch, ...]
    state_epoch: int = 0
    write_timestamp_ms: int = -1
    leader_epoch: int = 0


class ShareUpdate(NamedTuple):
    """The changes of a partition's delivery state. A start offset of -1 changes nothing."""

    key: SharePartitionKey
    start_offset: int
    batches: tuple[StateBatch, ...]
    leader_epoch: int = 0


ShareRecord = ShareSnapshot | ShareUpdate


class UnreadableShareRecord(ValueError):
    """The bytes are no record of this topic, or the record has a newer version than this release reads."""


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log."""
    kind = SNAPSHOT if isinstance(record, ShareSnapshot) else UPDATE
    group = record.key.group_id.encode()
    head = _INT16.pack(kind) + _INT16.pack(len(group)) + group
    key = head + _KEY_END.pack(record.key.topic_id.bytes, record.key.partition)
    if isinstance(record, ShareUpdate):
        value = _UPDATE.pack(0, 0, record.leader_epoch, record.start_offset)
        return key, value + _batches(record.batches) + b"\0"
    if record.value is None:
        return key, None
    state = record.value
    stamp = state.write_timestamp_ms
    value = _SNAPSHOT.pack(0, 0, state.state_epoch, state.leader_epoch, state.start_offset, stamp, stamp)
    return key, value + _batches(state.batches) + b"\0"


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """Return the record, or None for an unknown kind of key. Raises UnreadableShareRecord."""
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind not in {SNAPSHOT, UPDATE}:
            return None
        (size,) = _INT16.unpack_from(key, 2)
        if size < 0:
            raise UnreadableShareRecord(f"the group id has a length of {size}")
        topic_id, partition = _KEY_END.unpack_from(key, 4 + size)
        found = SharePartitionKey(key[4 : 4 + size].decode(), uuid.UUID(bytes=topic_id), partition)
        if value is None:
            return ShareSnapshot(found, None)
        view = memoryview(value)
        if kind == UPDATE:
            version, _, leader_epoch, start_offset = _UPDATE.unpack_from(value)
            _check(version, start_offset)
            return ShareUpdate(found, start_offset, _read_batches(view, _UPDATE.size), leader_epoch)
        version, _, state_epoch, leader_epoch, start_offset, _, stamp = _SNAPSHOT.unpack_from(value)
        _check(version, start_offset)
        batches = _read_batches(view, _SNAPSHOT.size)
        return ShareSnapshot(found, ShareState(start_offset, batches, state_epoch, stamp, leader_epoch))
    except (struct.error, MalformedRequest, UnicodeDecodeError, IndexError, NewerVersion) as error:
        raise UnreadableShareRecord(f"a record of a share group can't be read: {error}") from error


def can_be_stored(batch: StateBatch) -> bool:
    """Return whether a record may have this batch."""
    is_a_range = 0 <= batch.first_offset <= batch.last_offset < _HIGHEST_OFFSET
    return is_a_range and batch.delivery_count >= 0 and batch.state in _STORED_STATES


def _check(version: int, start_offset: int) -> None:
    if version > _NEWEST_READ:
        raise NewerVersion(version, _NEWEST_READ)
    if version < 0:
        raise UnreadableShareRecord(f"the version {version} is negative")
    if not NOT_BEGUN <= start_offset < _HIGHEST_OFFSET:
        raise UnreadableShareRecord(f"the start offset {start_offset} is out of range")


def _batches(batches: Sequence[StateBatch]) -> bytes:
    return unsigned_varint(len(batches) + 1) + b"".join(_BATCH.pack(*batch, 0) for batch in batches)


def _read_batches(value: memoryview, position: int) -> tuple[StateBatch, ...]:
    count, position = read_unsigned_varint(value, position)
    if not count:
        raise UnreadableShareRecord("the list of batches is null")
    batches = []
    for _ in range(count - 1):
        first_offset, last_offset, state, delivery_count, _ = _BATCH.unpack_from(value, position)
        position = skip_tagged_fields(value, position + _BATCH.size - 1)
        batch = StateBatch(first_offset, last_offset, state, delivery_count)
        if not can_be_stored(batch):
            raise UnreadableShareRecord(
                f"the batch of offsets {first_offset} to {last_offset} has state {state}"
            )
        batches.append(batch)
    return tuple(batches)
