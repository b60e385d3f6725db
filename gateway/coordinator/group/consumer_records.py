"""The records of groups of the consumer protocol (KIP-848) in `__consumer_offsets`, in Kafka's formats.

    key (int16 kind, then int16-length strings)     value (int16 version 0, compact fields, tags)
    3 | group                                       int32 group_epoch
    5 | group | member                              instance_id? | rack_id? | client_id | client_host |
                                                    names[] | regex? | int32 rebalance_timeout | assignor? |
                                                    tag 0: int8 1, int32 session_timeout, protocols[name, metadata]
    6 | group                                       int32 assignment_epoch | tag 0: int64 assigned_at_ms
    7 | group | member                              target: topics[topic_id, int32 partitions[]]
    8 | group | member                              int32 member_epoch | int32 previous_epoch | int8 state |
                                                    assigned topics[] | topics[] to be revoked, each with
                                                    tag 0: int32 assignment_epochs[], one for each partition

A null value deletes. Source: Kafka's ConsumerGroup*Key.json and *Value.json.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from gateway.coordinator.group.record_reader import CompactReader
from gateway.coordinator.group.record_writer import (
    NO_TAGS,
    VERSION_0,
    assigned_at_tag,
    compact_int32s,
    compact_places,
    compact_strings,
    key_of,
    nullable_compact_string,
)
from gateway.coordinator.places import Place, by_topic
from gateway.protocol.frames import MalformedRequest
from gateway.protocol.primitives import compact_string, unsigned_varint

_INT8: Final = Struct(">b")
_INT32: Final = Struct(">i")
_ONLY_VERSION: Final = 0
_CLASSIC_TAG: Final = 0
_ASSIGNMENT_EPOCHS_TAG: Final = 0
_PRESENT: Final = b"\1"
GROUP_EPOCH, MEMBER, ASSIGNMENT_EPOCH, TARGET, CURRENT = 3, 5, 6, 7, 8
KINDS: Final = frozenset((GROUP_EPOCH, MEMBER, ASSIGNMENT_EPOCH, TARGET, CURRENT))


class GroupEpochRecord(NamedTuple):
    """The group's epoch from this record on; None deletes the group."""

    group_id: str
    group_epoch: int | None


class ClassicMember(NamedTuple):
    """The data of a member that speaks the classic protocol; `protocols` are (name, metadata)."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberValue(NamedTuple):
    """A member's own description. `rebalance_timeout_ms` is -1 when the member never sent one."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_names: tuple[str, ...]
    subscribed_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMember | None = None


class MemberRecord(NamedTuple):
    """A member's description from this record on; None deletes the member."""

    group_id: str
    member_id: str
    value: MemberValue | None


class AssignmentEpochRecord(NamedTuple):
    """The group epoch for which the target assignment was made, and the time; None deletes the assignment epoch.

    The time is 0 in a record of an earlier release.
    """

    group_id: str
    assignment_epoch: int | None
    assigned_at_ms: int = 0


class TargetRecord(NamedTuple):
    """The target of a member: the partitions that it shall have; None deletes the target."""

    group_id: str
    member_id: str
    places: frozenset[Place] | None


class MemberState(enum.IntEnum):
    """The step of a member towards its target; the numbers are Kafka's."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before it gets others."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not revoked."""


class CurrentValue(NamedTuple):
    """The partitions that a member has, and those that it must revoke."""

    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: frozenset[Place]
    pending_revocation: frozenset[Place]
    assignment_epochs: Mapping[Place, int]
    """The group epoch at which the member was assigned each of these partitions (KIP-1251)."""


class CurrentRecord(NamedTuple):
    """The epoch and partitions of a member from this record on; None deletes epoch and partitions."""

    group_id: str
    member_id: str
    value: CurrentValue | None


ConsumerRecord = GroupEpochRecord | MemberRecord | AssignmentEpochRecord | TargetRecord | CurrentRecord


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log. Raises ValueError if a string of the record is too long."""
    try:
        if isinstance(record, GroupEpochRecord):
            return key_of(GROUP_EPOCH, record.group_id), _epoch_value(record.group_epoch)
        if isinstance(record, AssignmentEpochRecord):
            epoch = record.assignment_epoch
            value = None if epoch is None else _assignment_value(epoch, record.assigned_at_ms)
            return key_of(ASSIGNMENT_EPOCH, record.group_id), value
        if isinstance(record, MemberRecord):
            member = None if record.value is None else _member_value(record.value)
            return key_of(MEMBER, record.group_id, record.member_id), member
        if isinstance(record, TargetRecord):
            target = None if record.places is None else VERSION_0 + compact_places(record.places) + NO_TAGS
            return key_of(TARGET, record.group_id, record.member_id), target
        current = None if record.value is None else _current_value(record.value)
        return key_of(CURRENT, record.group_id, record.member_id), current
    except struct.error as error:
        raise ValueError(
            f"a string in the record is too long to be stored, at most 32767 bytes: {error}"
        ) from error


def decode(kind: int, names: tuple[str, ...], value: bytes | None) -> ConsumerRecord:
    """Return the record of one kind of key with its group and member. Raises ValueError."""
    reader = None if value is None else CompactReader(value)
    try:
        if reader is not None:
            reader.version(_ONLY_VERSION)
        if kind == GROUP_EPOCH:
            return GroupEpochRecord(names[0], None if reader is None else reader.int32())
        if kind == ASSIGNMENT_EPOCH:
            if reader is None:
                return AssignmentEpochRecord(names[0], None)
            return AssignmentEpochRecord(names[0], reader.int32(), reader.assigned_at_ms())
        group_id, member_id = names
        if kind == MEMBER:
            return MemberRecord(group_id, member_id, None if reader is None else _read_member(reader))
        if kind == TARGET:
            return TargetRecord(group_id, member_id, None if reader is None else reader.places())
        return CurrentRecord(group_id, member_id, None if reader is None else _read_current(reader))
    except (struct.error, MalformedRequest, ValueError) as error:
        raise ValueError(f"a record of kind {kind} can't be read: {error}") from error


def _epoch_value(epoch: int | None) -> bytes | None:
    return None if epoch is None else VERSION_0 + _INT32.pack(epoch) + NO_TAGS


def _assignment_value(epoch: int, assigned_at_ms: int) -> bytes:
    return VERSION_0 + _INT32.pack(epoch) + assigned_at_tag(assigned_at_ms)


def _member_value(value: MemberValue) -> bytes:
    return b"".join(
        (
            VERSION_0,
            nullable_compact_string(value.instance_id),
            nullable_compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            compact_strings(value.subscribed_names),
            nullable_compact_string(value.subscribed_regex),
            _INT32.pack(value.rebalance_timeout_ms),
            nullable_compact_string(value.server_assignor),
            NO_TAGS if value.classic is None else _classic_member(value.classic),
        )
    )


def _compact_bytes(raw: bytes) -> bytes:
    return unsigned_varint(len(raw) + 1) + raw


def _classic_member(classic: ClassicMember) -> bytes:
    """Encode the one tagged field of a member."""
    pieces = [_PRESENT, _INT32.pack(classic.session_timeout_ms), unsigned_varint(len(classic.protocols) + 1)]
    for name, metadata in classic.protocols:
        pieces += (compact_string(name), _compact_bytes(metadata), NO_TAGS)
    raw = b"".join(pieces) + NO_TAGS
    return unsigned_varint(1) + unsigned_varint(_CLASSIC_TAG) + unsigned_varint(len(raw)) + raw


def _current_value(value: CurrentValue) -> bytes:
    head = _INT32.pack(value.member_epoch) + _INT32.pack(value.previous_member_epoch)
    epochs = value.assignment_epochs
    places = _places_with_epochs(value.assigned, epochs) + _places_with_epochs(
        value.pending_revocation, epochs
    )
    return VERSION_0 + head + _INT8.pack(value.state) + places + NO_TAGS


def _places_with_epochs(places: Iterable[Place], epochs: Mapping[Place, int]) -> bytes:
    """Encode a list of topic ids, each with its partitions, and in a tag with their assignment epochs."""
    topics = by_topic(places)
    pieces = [unsigned_varint(len(topics) + 1)]
    for topic_id, partitions in topics.items():
        raw = compact_int32s(epochs[topic_id, partition] for partition in partitions)
        tag = unsigned_varint(1) + unsigned_varint(_ASSIGNMENT_EPOCHS_TAG) + unsigned_varint(len(raw))
        pieces += (topic_id.bytes, compact_int32s(partitions), tag, raw)
    return b"".join(pieces)


def _read_member(reader: CompactReader) -> MemberValue:
    return MemberValue(
        reader.nullable_string(),
        reader.nullable_string(),
        reader.string(),
        reader.string(),
        reader.strings(),
        reader.nullable_string(),
        reader.int32(),
        reader.nullable_string(),
        _read_classic_member(reader),
    )


def _read_classic_member(reader: CompactReader) -> ClassicMember | None:
    raw = reader.tagged_field(_CLASSIC_TAG)
    if raw is None or raw.int8() < 0:
        return None
    session_timeout_ms = raw.int32()
    protocols = []
    for _ in range(raw.count()):
        protocols.append((raw.string(), raw.octets()))
        raw.skip_tags()
    return ClassicMember(session_timeout_ms, tuple(protocols))


def _read_current(reader: CompactReader) -> CurrentValue:
    member_epoch, previous_member_epoch, state = reader.int32(), reader.int32(), MemberState(reader.int8())
    epochs: dict[Place, int] = {}
    assigned = _read_places(reader, member_epoch, epochs)
    pending_revocation = _read_places(reader, member_epoch, epochs)
    return CurrentValue(member_epoch, previous_member_epoch, state, assigned, pending_revocation, epochs)


def _read_places(reader: CompactReader, member_epoch: int, epochs: dict[Place, int]) -> frozenset[Place]:
    """Read partitions, and note their assignment epochs.

    A record of an earlier release, or one whose numbers don't match, has the member epoch for all partitions.
    """
    found: set[Place] = set()
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        places = [(topic_id, partition) for partition in reader.int32s()]
        tag = reader.tagged_field(_ASSIGNMENT_EPOCHS_TAG)
        stored = None if tag is None else tag.nullable_int32s()
        if stored is None or len(stored) != len(places):
            stored = [max(member_epoch, 0)] * len(places)
        found.update(places)
        epochs.update(zip(places, stored, strict=True))
    return frozenset(found)
