"""The delivery state of share partitions: its records, and what the share coordinator decides about it
(KIP-932).

The records of `__share_group_state`, in Kafka's formats:

    key     int16 0 (snapshot) or 1 (update) | group | topic_id | int32 partition
    0       int16 0 | int32 snapshot_epoch | int32 state_epoch | int32 leader_epoch | int64 start_offset |
            int64 create_timestamp | int64 write_timestamp | batches[] | tags
    1       int16 0 | int32 snapshot_epoch | int32 leader_epoch | int64 start_offset | batches[] | tags
    batch   int64 first_offset | int64 last_offset | int8 delivery_state | int16 delivery_count | tags
            tag 0 of a batch is Seqgate's: int64 time (ms) before which its records are not acquired again

A snapshot holds the whole state, an update the changes since the last record. A null value deletes. A batch
of delivery_state 5 is none of Kafka's: it holds the newest round of dead letters. Source: Kafka's
ShareSnapshotKey/Value.json, ShareUpdateKey/Value.json.

`ShareStates` decides about requests of share-partition leaders, and of group coordinators:

    initialize   begin a state, also anew: the group is assigned the partition, or its offsets were altered
    read         a leader takes the partition over; what the former one handed out is available again
    write        the leader stores changes; one of an earlier leader epoch or beginning is refused
    delete       the group, or its offsets in a topic, are deleted
    summarize    the start offset, for those who describe the group

Source: Kafka's `ShareCoordinatorShard`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.coordinator.change import Change
from seqgate.gateway.coordinator.deadlines import NEVER
from seqgate.gateway.coordinator.rows import NewerVersion
from seqgate.gateway.coordinator.share.share_partition import (
    DONE,
    LETTER_ROUND,
    DeliveryState,
    SharePartition,
    StateBatch,
)
from seqgate.gateway.protocol.frames import (
    MalformedRequest,
    read_unsigned_varint,
    skip_tagged_fields,
    unsigned_varint,
)

SNAPSHOT: Final = 0
UPDATE: Final = 1
_NEWEST_READ: Final = 0
_INT16: Final = Struct(">h")
_KEY_END: Final = Struct(">16si")
_SNAPSHOT: Final = Struct(">hiiiqqq")
_UPDATE: Final = Struct(">hiiq")
_BATCH: Final = Struct(">qqbh")
_DUE: Final = Struct(">BBBq")
_DUE_TAGS: Final = (1, 0, 8)
"""One tagged field of a batch, number 0 of 8 bytes: when its records may be acquired again (ms)."""
NOT_BEGUN: Final = -1
"""The start offset of a partition in which the group has not begun to read."""
_HIGHEST_OFFSET: Final = 2**63 - 1
_STORED_STATES: Final = frozenset(DeliveryState) - {DeliveryState.ACQUIRED} | {LETTER_ROUND}
MAX_GROUP_ID_BYTES: Final = 2**15 - 1
"""Longest group id: the key stores its length as an int16."""


class SharePartitionKey(NamedTuple):
    """A partition as one share group reads it."""

    group_id: str
    topic_id: uuid.UUID
    partition: int

    def spread_text(self) -> str:
        """Return the text whose hash chooses the state partition (SharePartitionKey.asCoordinatorKey)."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class ShareSnapshot(NamedTuple):
    """The whole delivery state of a partition from this record on; None deletes it."""

    key: SharePartitionKey
    value: ShareState | None


class ShareState(NamedTuple):
    """The delivery state of a partition: all records before `start_offset` are done; `batches` have the
    states of later records. Start offset -1: the partition's leader chooses where the group begins.
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
    waits = batch.due_ms == NEVER or (batch.due_ms > 0 and batch.state == DeliveryState.AVAILABLE)
    return is_a_range and batch.delivery_count >= 0 and batch.state in _STORED_STATES and waits


def _check(version: int, start_offset: int) -> None:
    if version > _NEWEST_READ:
        raise NewerVersion(version, _NEWEST_READ)
    if version < 0:
        raise UnreadableShareRecord(f"the version {version} is negative")
    if start_offset < NOT_BEGUN:
        raise UnreadableShareRecord(f"the start offset {start_offset} is out of range")


def _batches(batches: Sequence[StateBatch]) -> bytes:
    return unsigned_varint(len(batches) + 1) + b"".join(map(_batch, batches))


def _batch(batch: StateBatch) -> bytes:
    return _BATCH.pack(*batch[:4]) + (b"\0" if batch.due_ms == NEVER else _DUE.pack(*_DUE_TAGS, batch.due_ms))


def _read_batches(value: memoryview, position: int) -> tuple[StateBatch, ...]:
    count, position = read_unsigned_varint(value, position)
    if not count:
        raise UnreadableShareRecord("the list of batches is null")
    batches = []
    for _ in range(count - 1):
        first_offset, last_offset, state, delivery_count = _BATCH.unpack_from(value, position)
        position += _BATCH.size
        due_ms = NEVER
        if tuple(value[position : position + 3]) == _DUE_TAGS:
            due_ms = _DUE.unpack_from(value, position)[3]
        position = skip_tagged_fields(value, position)
        batch = StateBatch(first_offset, last_offset, state, delivery_count, due_ms)
        if not can_be_stored(batch):
            raise UnreadableShareRecord(
                f"the batch of offsets {first_offset} to {last_offset} has state {state}"
            )
        batches.append(batch)
    return tuple(batches)


READ_TOO_EARLY: Final = "Read operation on uninitialized share partition not allowed."
WRITTEN_TOO_EARLY: Final = "Write operation on uninitialized share partition not allowed."
WRONG_BATCH: Final = (
    "A batch of the request has offsets, a delivery state or a delivery count that no state has."
)
MESSAGES: Final = {
    ErrorCode.fenced_leader_epoch: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.fenced_state_epoch: "The share coordinator rejected the request because the share-group state "
    "epoch did not match.",
}


class Refusal(NamedTuple):
    """Why a request about one partition changes nothing."""

    error_code: ErrorCode
    message: str | None = None


NEGATIVE_LEADER_EPOCH: Final = Refusal(
    ErrorCode.invalid_request, "The leader epoch cannot be a negative number."
)
NEGATIVE_STATE_EPOCH: Final = Refusal(
    ErrorCode.invalid_request, "The state epoch cannot be a negative number."
)


class Write(msgspec.Struct, frozen=True):
    """The changes of one partition's state that a leader asks for. A start offset of -1 stays as it is."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]


class Summary(NamedTuple):
    """A state without its batches. `done` counts the done offsets from the start on; -1 without a start."""

    start_offset: int = NOT_BEGUN
    state_epoch: int = 0
    leader_epoch: int = 0
    done: int = -1


_FIRST_EPOCH_AT_S: Final = 1_577_836_800
"""2020-01-01: the seconds since then fit into an int32 for a long time."""


_HIGHEST_EPOCH: Final = 2**31 - 1


def next_state_epoch(stored: int, now_ms: int) -> int:
    """Return the epoch of a state that begins anew; `stored` is that of the state before. By the time it is
    above those of deleted states, too: their leader may not know yet, and its writes must be refused.
    """
    return min(max(stored + 1, now_ms // 1000 - _FIRST_EPOCH_AT_S), _HIGHEST_EPOCH)


# The share partitions whose state one partition of `__share_group_state` holds.


class ShareStates:
    """The share partitions by key and group; who acquired a record is known here, but not stored."""

    def __init__(self) -> None:
        self.partitions: dict[SharePartitionKey, SharePartition] = {}
        self.groups: dict[str, dict[SharePartitionKey, SharePartition]] = {}
        self._highest_epoch = 0
        """The highest epoch of the states that are here or were deleted since the start."""

    def next_epoch(self, key: SharePartitionKey, now_ms: int) -> int:
        """Return the epoch in which the state of a partition begins anew."""
        found = self.partitions.get(key)
        return next_state_epoch(self._highest_epoch if found is None else found.state_epoch, now_ms)

    def put(self, key: SharePartitionKey, partition: SharePartition) -> None:
        """Add a share partition, or replace the one with this key."""
        self.partitions[key] = self.groups.setdefault(key.group_id, {})[key] = partition

    def drop(self, key: SharePartitionKey) -> bool:
        if self.partitions.pop(key, None) is None:
            return False
        of_group = self.groups[key.group_id]
        del of_group[key]
        if not of_group:
            del self.groups[key.group_id]
        return True

    def replay(self, record: ShareRecord, now_ms: int) -> None:
        """Replay a record while the log is loaded."""
        del now_ms  # no stored state depends on the time
        if not isinstance(record, ShareSnapshot):
            found = self.partitions.get(record.key)
            if found is not None:
                _restore(found, record.start_offset, record.batches)
                found.leader_epoch = max(found.leader_epoch, record.leader_epoch)
        elif record.value is None:
            self.drop(record.key)
        else:
            fresh = SharePartition(record.value.start_offset)
            fresh.state_epoch, fresh.leader_epoch = record.value.state_epoch, record.value.leader_epoch
            self._highest_epoch = max(self._highest_epoch, fresh.state_epoch)
            self.put(record.key, fresh)
            _restore(fresh, record.value.start_offset, record.value.batches)

    def change(
        self,
        key: SharePartitionKey,
        act: Callable[[SharePartition], Sequence[StateBatch]],
        wake: Callable[[SharePartitionKey], None],
    ) -> Change[None]:
        """Change the delivery state of a known partition; call `wake` if the state has changed."""
        found = self.partitions[key]
        before = found.start_offset
        batches = tuple(act(found))
        if not batches and found.start_offset == before:
            return Change(None)
        wake(key)
        update = ShareUpdate(key, found.start_offset, batches, found.leader_epoch)
        return Change(None, [update], is_folded_in=True)

    # --- requests of share-partition leaders and of group coordinators

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> Change[Refusal | None]:
        """Begin the state of a partition at an offset, without batches."""
        found = self.partitions.get(key)
        if state_epoch < 0:
            return Change(NEGATIVE_STATE_EPOCH)
        if found is not None and state_epoch < found.state_epoch:
            return Change(_refusal(ErrorCode.fenced_state_epoch))
        if start_offset < NOT_BEGUN:
            return Change(Refusal(ErrorCode.invalid_request, f"The start offset {start_offset} is negative."))
        leader_epoch = 0 if found is None else found.leader_epoch
        state = ShareState(start_offset, (), state_epoch, now_ms, leader_epoch)
        return Change(None, [ShareSnapshot(key, state)])

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Change[ShareState | Refusal]:
        """Return the state to the partition's leader; store a new leader epoch, to refuse the one before."""
        if leader_epoch < 0:
            return Change(NEGATIVE_LEADER_EPOCH)
        found = self.partitions.get(key)
        if found is None:
            return Change(Refusal(ErrorCode.invalid_request, READ_TOO_EARLY))
        if leader_epoch <= found.leader_epoch:
            return Change(stored(found))
        found.forget_members()
        found.leader_epoch = leader_epoch
        taken_over = ShareUpdate(key, NOT_BEGUN, (), leader_epoch)
        return Change(stored(found), [taken_over], is_folded_in=True)

    def write(self, key: SharePartitionKey, wanted: Write) -> Change[Refusal | None]:
        """Store the changes of a leader."""
        if wanted.leader_epoch < 0 or wanted.state_epoch < 0:
            return Change(NEGATIVE_LEADER_EPOCH if wanted.leader_epoch < 0 else NEGATIVE_STATE_EPOCH)
        found = self.partitions.get(key)
        if found is None:
            return Change(Refusal(ErrorCode.invalid_request, WRITTEN_TOO_EARLY))
        if wanted.leader_epoch < found.leader_epoch:
            return Change(_refusal(ErrorCode.fenced_leader_epoch))
        if wanted.state_epoch < found.state_epoch:
            return Change(_refusal(ErrorCode.fenced_state_epoch))
        begins = max(found.start_offset, wanted.start_offset)
        if not all(map(can_be_stored, wanted.batches)) or (wanted.batches and begins == NOT_BEGUN):
            return Change(Refusal(ErrorCode.invalid_request, WRONG_BATCH))
        leader_epoch = max(wanted.leader_epoch, found.leader_epoch)
        start_offset = max(wanted.start_offset, NOT_BEGUN)
        return Change(None, [ShareUpdate(key, start_offset, tuple(wanted.batches), leader_epoch)])

    def delete(self, key: SharePartitionKey) -> Change[None]:
        return Change(None, [ShareSnapshot(key, None)] if key in self.partitions else ())

    def summarize(self, key: SharePartitionKey) -> Change[Summary]:
        """Return the start offset of a partition; NOT_BEGUN (-1) for a state that has not begun."""
        found = self.partitions.get(key)
        return Change(Summary(start_offset=NOT_BEGUN) if found is None else summary_of(found))

    def forget(self, keys: Sequence[SharePartitionKey]) -> Change[None]:
        """Delete the delivery states of these partitions, if they have any."""
        return Change(None, [ShareSnapshot(key, None) for key in keys if key in self.partitions])

    def stored_keys(self) -> Iterator[SharePartitionKey]:
        """Yield the key of every record that the log must hold."""
        yield from self.partitions

    def records_of(self, key: SharePartitionKey) -> list[ShareRecord]:
        """Return the record of a key as it would be written now; none when the key no longer exists."""
        found = self.partitions.get(key)
        if found is None:
            return []
        return [ShareSnapshot(key, stored(found))]


def _restore(found: SharePartition, start_offset: int, batches: Sequence[StateBatch]) -> None:
    """Replay a change of a state. A state that has not begun has no batches."""
    if max(found.start_offset, start_offset) != NOT_BEGUN:
        found.restore(start_offset, batches)


def stored(found: SharePartition) -> ShareState:
    """Return a delivery state as the log stores it: no member has acquired anything."""
    return ShareState(
        found.start_offset, tuple(found.stored_batches()), found.state_epoch, leader_epoch=found.leader_epoch
    )


def summary_of(found: SharePartition) -> Summary:
    is_begun = found.start_offset != NOT_BEGUN
    done = sum(len(run) for run in found.runs if run.state in DONE) if is_begun else -1
    return Summary(found.start_offset, found.state_epoch, found.leader_epoch, done)


def _refusal(error_code: ErrorCode) -> Refusal:
    return Refusal(error_code, MESSAGES[error_code])
