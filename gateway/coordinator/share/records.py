"""The records of `__share_group_state`, in Kafka's formats.

    key     int16 0 (snapshot) or 1 (update) | group | topic_id | int32 partition
    0       int16 0 | int32 snapshot_epoch | int32 state_epoch | int32 leader_epoch | int64 start_offset |
            int64 create_timestamp | int64 write_timestamp | batches[] | tags
    1       int16 0 | int32 snapshot_epoch | int32 leader_epoch | int64 start_offset | batches[] | tags
    batch   int64 first_offset | int64 last_offset | int8 delivery_state | int16 delivery_count | tags

A snapshot says everything, an update what changed since. A null value deletes.
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
_HIGHEST_OFFSET: Final = 2**63 - 1
_STORED_STATES: Final = frozenset(DeliveryState) - {DeliveryState.ACQUIRED}
MAX_GROUP_ID_BYTES: Final = 2**15 - 1
"""What the length in a key can tell."""


class SharePartitionKey(NamedTuple):
    """A partition of a share group."""

    group_id: str
    topic_id: uuid.UUID
    partition: int

    def spread_text(self) -> str:
        """The text whose hash chooses the partition of the state topic (SharePartitionKey.asCoordinatorKey)."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class ShareSnapshot(NamedTuple):
    """Everything known of a partition; None: it is forgotten."""

    key: SharePartitionKey
    value: ShareState | None


class ShareState(NamedTuple):
    """Where delivery stands."""

    start_offset: int
    batches: tuple[StateBatch, ...]
    state_epoch: int = 0
    write_timestamp_ms: int = -1


class ShareUpdate(NamedTuple):
    """What changed in a partition."""

    key: SharePartitionKey
    start_offset: int
    batches: tuple[StateBatch, ...]


ShareRecord = ShareSnapshot | ShareUpdate


class UnreadableShareRecord(ValueError):
    """The bytes are no record of this topic, or of a newer kind than is known here."""


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """(key, value) as they lie in the log."""
    kind = SNAPSHOT if isinstance(record, ShareSnapshot) else UPDATE
    group = record.key.group_id.encode()
    head = _INT16.pack(kind) + _INT16.pack(len(group)) + group
    key = head + _KEY_END.pack(record.key.topic_id.bytes, record.key.partition)
    if isinstance(record, ShareUpdate):
        value = _UPDATE.pack(0, 0, 0, record.start_offset)
        return key, value + _batches(record.batches) + b"\0"
    if record.value is None:
        return key, None
    state = record.value
    stamp = state.write_timestamp_ms
    value = _SNAPSHOT.pack(0, 0, state.state_epoch, 0, state.start_offset, stamp, stamp)
    return key, value + _batches(state.batches) + b"\0"


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """The record, or None for a kind of key that is not known here. Raises UnreadableShareRecord."""
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind not in {SNAPSHOT, UPDATE}:
            return None
        (size,) = _INT16.unpack_from(key, 2)
        if size < 0:
            raise UnreadableShareRecord("a group without a name")
        topic_id, partition = _KEY_END.unpack_from(key, 4 + size)
        found = SharePartitionKey(key[4 : 4 + size].decode(), uuid.UUID(bytes=topic_id), partition)
        if value is None:
            return ShareSnapshot(found, None)
        view = memoryview(value)
        if kind == UPDATE:
            version, _, _, start_offset = _UPDATE.unpack_from(value)
            _check(version, start_offset)
            return ShareUpdate(found, start_offset, _read_batches(view, _UPDATE.size))
        version, _, state_epoch, _, start_offset, _, stamp = _SNAPSHOT.unpack_from(value)
        _check(version, start_offset)
        batches = _read_batches(view, _SNAPSHOT.size)
        return ShareSnapshot(found, ShareState(start_offset, batches, state_epoch, stamp))
    except (struct.error, MalformedRequest, UnicodeDecodeError, IndexError, NewerVersion) as error:
        raise UnreadableShareRecord(f"a record of a share group can't be read: {error}") from error


def _check(version: int, start_offset: int) -> None:
    if version > _NEWEST_READ:
        raise NewerVersion(version, _NEWEST_READ)
    if version < 0:
        raise UnreadableShareRecord(f"a value of version {version}")
    if not 0 <= start_offset < _HIGHEST_OFFSET:
        raise UnreadableShareRecord(f"a start offset of {start_offset}")


def _batches(batches: Sequence[StateBatch]) -> bytes:
    return unsigned_varint(len(batches) + 1) + b"".join(_BATCH.pack(*batch, 0) for batch in batches)


def _read_batches(value: memoryview, position: int) -> tuple[StateBatch, ...]:
    count, position = read_unsigned_varint(value, position)
    if not count:
        raise UnreadableShareRecord("no list of batches")
    batches = []
    for _ in range(count - 1):
        first_offset, last_offset, state, delivery_count, _ = _BATCH.unpack_from(value, position)
        position = skip_tagged_fields(value, position + _BATCH.size - 1)
        if (
            not 0 <= first_offset <= last_offset < _HIGHEST_OFFSET
            or delivery_count < 0
            or state not in _STORED_STATES
        ):
            raise UnreadableShareRecord(f"offsets {first_offset} to {last_offset} in state {state}")
        batches.append(StateBatch(first_offset, last_offset, state, delivery_count))
    return tuple(batches)
