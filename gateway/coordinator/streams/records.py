"""The records of streams groups (KIP-1071) in `__consumer_offsets`, in Kafka's formats.

    key (int16 kind, then int16-length strings)     value (int16 version 0, compact fields, tags)
    17 | group                                      int32 group_epoch | int64 metadata_hash |
                                                    tag 0: int32 validated_topology_epoch, tag 1: configs[key,
                                                    value]
    19 | group | member                             instance_id? | rack_id? | client_id | client_host |
                                                    int32 rebalance_timeout | int32 topology_epoch |
                                                    process_id | endpoint?(int8 1, host, uint16 port) |
                                                    client_tags[key, value]
    20 | group                                      int32 assignment_epoch | tag 0: int64 assignment_timestamp
    21 | group | member                             target: active[] | standby[] | warm-up[]
    22 | group | member                             int32 member_epoch | int32 previous_epoch | int8 state |
                                                    active[] | standby[] | warm-up[] | the same three to be
                                                    revoked
    23 | group                                      the topology: see `topology_record`

Tasks are a list of subtopology ids, each with int32 partitions[]; active tasks of a member have tag 0: int32
assignment_epochs[], one for each partition. A null value deletes. The hash is Seqgate's own: Kafka compares
this hash with its own; where the two differ, Kafka only makes a new assignment. Source: Kafka's
StreamsGroup*Key.json and *Value.json.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from seqgate.gateway.coordinator.group.record import (
    NO_TAGS,
    VERSION_0,
    CompactReader,
    assigned_at_tag,
    compact_int32s,
    key_of,
    nullable_compact_string,
    tagged,
)
from seqgate.gateway.coordinator.streams.task_assignor import (
    HeldTasks,
    TaskAssignment,
    TaskId,
    Tasks,
    by_subtopology,
)
from seqgate.gateway.coordinator.streams.topology import (
    Topology,
    encode_topology,
    pairs,
    read_pairs,
    read_topology,
)
from seqgate.gateway.protocol.frames import MalformedRequest
from seqgate.gateway.protocol.primitives import compact_string, unsigned_varint

_INT32: Final = Struct(">i")
_UINT16: Final = Struct(">H")
_GROUP: Final = Struct(">iq")
_TIMEOUT_AND_TOPOLOGY: Final = Struct(">ii")
_CURRENT: Final = Struct(">iib")
_ONLY_VERSION: Final = 0
_PRESENT, _NULL = b"\1", b"\xff"
_VALIDATED_TAG, _CONFIGS_TAG, _EPOCHS_TAG = 0, 1, 0
_PORT_MASK: Final = 0xFFFF
GROUP, MEMBER, ASSIGNMENT, TARGET, CURRENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
KINDS: Final = frozenset((GROUP, MEMBER, ASSIGNMENT, TARGET, CURRENT, TOPOLOGY))
NOT_VALIDATED: Final = -1
"""The validated topology epoch of a group whose topics do not fit its topology."""


class MemberState(enum.IntEnum):
    """The step of a member towards its target; the numbers are Kafka's."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """The member must revoke tasks before it gets others."""
    UNRELEASED_TASKS = 3
    """The member waits for tasks that others have not revoked."""
    UNKNOWN = 127
    """A later release wrote the state."""


_STATES: Final[dict[int, MemberState]] = {int(state): state for state in MemberState}


class StreamsGroupValue(NamedTuple):
    """The epochs of a group, and the topics and configurations for which its last assignment was made."""

    group_epoch: int
    metadata_hash: int
    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: tuple[tuple[str, str], ...] = ()


class StreamsGroupRecord(NamedTuple):
    """The group's epoch from this record on; None deletes the group."""

    group_id: str
    value: StreamsGroupValue | None


class Endpoint(NamedTuple):
    """The address at which an instance of the application answers interactive queries."""

    host: str
    port: int


class StreamsMemberValue(NamedTuple):
    """A member's own description. `rebalance_timeout_ms` and `topology_epoch` are -1 before the member sent
    them.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


class StreamsMemberRecord(NamedTuple):
    """A member's description from this record on; None deletes the member."""

    group_id: str
    member_id: str
    value: StreamsMemberValue | None


class StreamsAssignmentValue(NamedTuple):
    """The group epoch for which the targets were made, and when; 0 when the time is unknown."""

    assignment_epoch: int
    timestamp_ms: int = 0


class StreamsAssignmentRecord(NamedTuple):
    """The epoch of the targets from this record on; None deletes the epoch."""

    group_id: str
    value: StreamsAssignmentValue | None


class StreamsTargetRecord(NamedTuple):
    """The target of a member: the tasks that it shall have; None deletes the target."""

    group_id: str
    member_id: str
    tasks: TaskAssignment | None


class StreamsCurrentValue(NamedTuple):
    """The epoch and tasks of a member, and the tasks that it must revoke."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = HeldTasks()
    pending_revocation: HeldTasks = HeldTasks()


class StreamsCurrentRecord(NamedTuple):
    """The epoch and tasks of a member from this record on; None deletes epoch and tasks."""

    group_id: str
    member_id: str
    value: StreamsCurrentValue | None


class StreamsTopologyRecord(NamedTuple):
    """The group's topology from this record on; None deletes it."""

    group_id: str
    topology: Topology | None


StreamsRecord = (
    StreamsGroupRecord
    | StreamsMemberRecord
    | StreamsAssignmentRecord
    | StreamsTargetRecord
    | StreamsCurrentRecord
    | StreamsTopologyRecord
)


def encode(record: StreamsRecord) -> tuple[bytes, bytes | None]:
    """Return the record's (key, value) for the log. Raises ValueError if a string of the record is too long."""
    try:
        key, fields = _encoded(record)
    except struct.error as error:
        raise ValueError(
            f"a string in the record is too long to be stored, at most 32767 bytes: {error}"
        ) from error
    return key, None if fields is None else VERSION_0 + fields


def _encoded(record: StreamsRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record, StreamsGroupRecord):
        return key_of(GROUP, record.group_id), None if record.value is None else _group(record.value)
    if isinstance(record, StreamsAssignmentRecord):
        return key_of(ASSIGNMENT, record.group_id), None if record.value is None else _assignment(
            record.value
        )
    if isinstance(record, StreamsTopologyRecord):
        topology = record.topology
        return key_of(TOPOLOGY, record.group_id), None if topology is None else encode_topology(topology)
    names = record.group_id, record.member_id
    if isinstance(record, StreamsMemberRecord):
        return key_of(MEMBER, *names), None if record.value is None else _member(record.value)
    if isinstance(record, StreamsTargetRecord):
        tasks = record.tasks
        return key_of(TARGET, *names), None if tasks is None else b"".join((*map(_tasks, tasks), NO_TAGS))
    return key_of(CURRENT, *names), None if record.value is None else _current(record.value)


def _group(value: StreamsGroupValue) -> bytes:
    tags = {_CONFIGS_TAG: pairs(value.assignment_configs)}
    if value.validated_topology_epoch != NOT_VALIDATED:
        tags[_VALIDATED_TAG] = _INT32.pack(value.validated_topology_epoch)
    return _GROUP.pack(value.group_epoch, value.metadata_hash) + tagged(tags)


def _assignment(value: StreamsAssignmentValue) -> bytes:
    return _INT32.pack(value.assignment_epoch) + assigned_at_tag(value.timestamp_ms)


def _member(value: StreamsMemberValue) -> bytes:
    endpoint = value.user_endpoint
    return b"".join(
        (
            nullable_compact_string(value.instance_id),
            nullable_compact_string(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            _TIMEOUT_AND_TOPOLOGY.pack(value.rebalance_timeout_ms, value.topology_epoch),
            compact_string(value.process_id),
            _NULL if endpoint is None else _endpoint(endpoint),
            pairs(value.client_tags),
            NO_TAGS,
        )
    )


def _endpoint(endpoint: Endpoint) -> bytes:
    return _PRESENT + compact_string(endpoint.host) + _UINT16.pack(endpoint.port) + NO_TAGS


def _current(value: StreamsCurrentValue) -> bytes:
    head = _CURRENT.pack(value.member_epoch, value.previous_member_epoch, value.state)
    return head + _held(value.assigned) + _held(value.pending_revocation) + NO_TAGS


def _held(held: HeldTasks) -> bytes:
    return _active(held.active) + _tasks(held.standby) + _tasks(held.warmup)


def _tasks(tasks: Iterable[TaskId]) -> bytes:
    found = by_subtopology(tasks)
    pieces = [unsigned_varint(len(found) + 1)]
    for subtopology_id, partitions in found.items():
        pieces += (compact_string(subtopology_id), compact_int32s(partitions), NO_TAGS)
    return b"".join(pieces)


def _active(epochs: Mapping[TaskId, int]) -> bytes:
    """Encode active tasks, with their assignment epochs in a tag."""
    found = by_subtopology(epochs)
    pieces = [unsigned_varint(len(found) + 1)]
    for subtopology_id, partitions in found.items():
        numbers = compact_int32s(epochs[TaskId(subtopology_id, partition)] for partition in partitions)
        pieces += (compact_string(subtopology_id), compact_int32s(partitions), tagged({_EPOCHS_TAG: numbers}))
    return b"".join(pieces)


def decode(kind: int, names: tuple[str, ...], value: bytes | None) -> StreamsRecord:
    """Return the record of one kind of key with its group and member. Raises ValueError."""
    reader = None if value is None else CompactReader(value)
    try:
        if reader is not None:
            reader.version(_ONLY_VERSION)
        if kind == GROUP:
            return StreamsGroupRecord(names[0], None if reader is None else _read_group(reader))
        if kind == ASSIGNMENT:
            return StreamsAssignmentRecord(names[0], None if reader is None else _read_assignment(reader))
        if kind == TOPOLOGY:
            return StreamsTopologyRecord(names[0], None if reader is None else read_topology(reader))
        group_id, member_id = names
        if kind == MEMBER:
            return StreamsMemberRecord(group_id, member_id, None if reader is None else _read_member(reader))
        if kind == TARGET:
            return StreamsTargetRecord(group_id, member_id, None if reader is None else _read_target(reader))
        return StreamsCurrentRecord(group_id, member_id, None if reader is None else _read_current(reader))
    except (struct.error, MalformedRequest, ValueError) as error:
        raise ValueError(f"a record of kind {kind} can't be read: {error}") from error


def _read_group(reader: CompactReader) -> StreamsGroupValue:
    group_epoch, metadata_hash = reader.int32(), reader.int64()
    tags = reader.tagged_fields()
    validated, configs = tags.get(_VALIDATED_TAG), tags.get(_CONFIGS_TAG)
    return StreamsGroupValue(
        group_epoch,
        metadata_hash,
        NOT_VALIDATED if validated is None else validated.int32(),
        () if configs is None or configs.is_null() else read_pairs(configs),
    )


def _read_assignment(reader: CompactReader) -> StreamsAssignmentValue:
    return StreamsAssignmentValue(reader.int32(), reader.assigned_at_ms())


def _read_member(reader: CompactReader) -> StreamsMemberValue:
    return StreamsMemberValue(
        reader.nullable_string(),
        reader.nullable_string(),
        reader.string(),
        reader.string(),
        reader.int32(),
        reader.int32(),
        reader.string(),
        _read_endpoint(reader),
        read_pairs(reader),
    )


def _read_endpoint(reader: CompactReader) -> Endpoint | None:
    if reader.int8() < 0:
        return None
    endpoint = Endpoint(reader.string(), reader.int16() & _PORT_MASK)
    reader.skip_tags()
    return endpoint


def _read_target(reader: CompactReader) -> TaskAssignment:
    return TaskAssignment(_read_tasks(reader), _read_tasks(reader), _read_tasks(reader))


def _read_current(reader: CompactReader) -> StreamsCurrentValue:
    member_epoch, previous_member_epoch, number = reader.int32(), reader.int32(), reader.int8()
    return StreamsCurrentValue(
        member_epoch,
        previous_member_epoch,
        _STATES.get(number, MemberState.UNKNOWN),
        _read_held(reader, member_epoch),
        _read_held(reader, member_epoch),
    )


def _read_held(reader: CompactReader, member_epoch: int) -> HeldTasks:
    return HeldTasks(_read_active(reader, member_epoch), _read_tasks(reader), _read_tasks(reader))


def _read_tasks(reader: CompactReader) -> Tasks:
    return frozenset(_read_active(reader, 0))


def _read_active(reader: CompactReader, member_epoch: int) -> dict[TaskId, int]:
    """Read tasks with their assignment epochs; a record without them has the member epoch for all."""
    found: dict[TaskId, int] = {}
    for _ in range(reader.count()):
        subtopology_id = reader.string()
        tasks = [TaskId(subtopology_id, partition) for partition in reader.int32s()]
        tag = reader.tagged_field(_EPOCHS_TAG)
        stored = None if tag is None else tag.nullable_int32s()
        if stored is None or len(stored) != len(tasks):
            stored = [member_epoch] * len(tasks)
        found.update(zip(tasks, stored, strict=True))
    return found
