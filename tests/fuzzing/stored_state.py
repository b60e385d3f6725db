"""What coordinators and the metadata read from their logs: an input is a topic and the keys and values of
records.

An unreadable record is skipped and logged; in the metadata, it ends the start with an error. Every readable
record changes the state, and the state can be written again.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from seqgate.gateway.coordinator.change import Pending, TransactionEnd
from seqgate.gateway.coordinator.group import consumer_group, share_group
from seqgate.gateway.coordinator.group import records as group_records
from seqgate.gateway.coordinator.group.classic_protocol import GroupLimits
from seqgate.gateway.coordinator.group.consumer_group import CurrentValue, MemberState, MemberValue
from seqgate.gateway.coordinator.group.epoch_group import AssignmentEpoch
from seqgate.gateway.coordinator.group.events import Effects
from seqgate.gateway.coordinator.group.records import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    MemberMetadata,
    OffsetCommitRecord,
)
from seqgate.gateway.coordinator.group.shard import GroupShard
from seqgate.gateway.coordinator.group.share_group import BegunTopic, ShareCurrentValue, ShareMemberValue
from seqgate.gateway.coordinator.share import records as share_records
from seqgate.gateway.coordinator.share.records import (
    SharePartitionKey,
    ShareSnapshot,
    ShareState,
    ShareStates,
    ShareUpdate,
)
from seqgate.gateway.coordinator.share.share_partition import LETTER_ROUND, StateBatch
from seqgate.gateway.coordinator.streams import records as streams_records
from seqgate.gateway.coordinator.streams import topology_description
from seqgate.gateway.coordinator.streams.records import (
    StreamsCurrentValue,
    StreamsEndpoint,
    StreamsGroupValue,
    StreamsMemberState,
    StreamsMemberValue,
)
from seqgate.gateway.coordinator.streams.task_assignor import HeldTasks, TaskAssignment, TaskId
from seqgate.gateway.coordinator.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from seqgate.gateway.coordinator.streams.topology_description import StoredDescription
from seqgate.gateway.coordinator.transaction import records as transaction_records
from seqgate.gateway.coordinator.transaction.records import Transaction, TransactionRecord, TransactionState
from seqgate.gateway.coordinator.transaction.rules import TransactionShard
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    SnapshotRecord,
    TopicRecord,
    UnknownRecordError,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from seqgate.gateway.security.sasl.scram_credential import ScramHash
from tests.fuzzing.changes import changed
from tests.fuzzing.target import Run

MAX_INPUT_BYTES = 2048
PEAK_BYTES = 16 << 20
BASE_WORK = 100.0
NOW_MS = 1_700_000_000_000
GROUPS, TRANSACTIONS, SHARES, METADATA = range(4)
_SIZES = struct.Struct(">HH")
NULL = 0xFFFF
"""A size that means: the value is null. As the size of a key it ends a transaction."""
PRODUCER = (7, 0)


@contextmanager
def opened() -> Iterator[Run]:
    yield feed


def feed(data: bytes) -> None:
    topic = (data[0] if data else 0) % 4
    is_transactional = bool(data and data[0] & 0x80)
    if topic == METADATA:
        _replay_metadata(_records_of(data[1:]))
        return
    codec, shard = _of(topic)
    for key, value in _records_of(data[1:]):
        if key is None:
            record: Any = (
                TransactionEnd(PRODUCER[0], is_commit=value is not None) if topic == GROUPS else None
            )
        else:
            try:
                record = codec.decode(key, value)
            except ValueError:
                continue
        if record is None:
            continue
        is_pending = is_transactional and topic == GROUPS and key is not None
        shard.replay(Pending(*PRODUCER, record) if is_pending else record, NOW_MS)
    if topic == GROUPS:
        shard.loaded(Effects(NOW_MS))
    for stored in list(shard.stored_keys()):
        for record in shard.records_of(stored):
            codec.encode(record.record if isinstance(record, Pending) else record)


def _of(topic: int) -> tuple[Any, Any]:
    if topic == GROUPS:
        return group_records, GroupShard(GroupLimits(), 1000)
    if topic == TRANSACTIONS:
        return transaction_records, TransactionShard()
    return share_records, ShareStates()


def _replay_metadata(records: Iterator[tuple[bytes | None, bytes | None]]) -> None:
    image = MetadataImage()
    for _, value in records:
        try:
            record = decode_record(value or b"")
        except UnknownRecordError:
            return
        image.replay(record)
        encode_record(record)


def _records_of(data: bytes) -> Iterator[tuple[bytes | None, bytes | None]]:
    position = 0
    while len(data) - position >= _SIZES.size:
        key_bytes, value_bytes = _SIZES.unpack_from(data, position)
        position += _SIZES.size
        key = None
        if key_bytes != NULL:
            key, position = data[position : position + key_bytes], position + key_bytes
        value = None
        if value_bytes != NULL:
            value, position = data[position : position + value_bytes], position + value_bytes
        yield key, value


def written(topic: int, records: Sequence[tuple[bytes | None, bytes | None]]) -> bytes:
    """Encode an input from these keys and values."""
    pieces = [bytes([topic])]
    for key, value in records:
        pieces += (
            _SIZES.pack(NULL if key is None else len(key), NULL if value is None else len(value)),
            key or b"",
            value or b"",
        )
    return b"".join(pieces)


def seeds() -> Iterator[bytes]:
    for topic, records in (
        (GROUPS, [group_records.encode(record) for record in every_group_record()]),
        (TRANSACTIONS, [transaction_records.encode(record) for record in _transaction_records()]),
        (SHARES, [share_records.encode(record) for record in _share_records()]),
        (METADATA, [(b"", encode_record(record)) for record in every_metadata_record()]),
    ):
        yield written(topic, records)
        for record in records:
            yield written(topic, [record])
    pending = [
        group_records.encode(record)
        for record in every_group_record()
        if isinstance(record, OffsetCommitRecord)
    ]
    yield written(GROUPS | 0x80, [*pending, (None, b"")])
    yield written(GROUPS | 0x80, [*pending, (None, None)])


def every_group_record() -> list[Any]:
    topic_id = uuid.UUID(int=7)
    places = frozenset({(topic_id, 0), (topic_id, 1)})
    member = MemberMetadata("m", "static", "client", "/host", 1000, 1000, b"\0\0", b"\0\1")
    value = MemberValue("static", "rack", "client", "/host", ("plain",), "p.*", 1000, "uniform", None)
    epochs = dict.fromkeys(places, 4)
    current = CurrentValue(4, 3, MemberState.STABLE, places, frozenset(), epochs)
    return [
        GroupMetadataRecord("classic", GroupMetadata("consumer", 3, "range", "m", NOW_MS, (member,))),
        OffsetCommitRecord("classic", "plain", 0, CommittedOffset(5, 1, "meta", NOW_MS, -1)),
        OffsetCommitRecord("classic", "plain", 0, None),
        consumer_group.GROUP_EPOCH.of("consumer", 4),
        consumer_group.MEMBER.of("consumer", "m", value),
        consumer_group.ASSIGNMENT.of("consumer", AssignmentEpoch(4, 1_700_000_000_000)),
        consumer_group.TARGET.of("consumer", "m", places),
        consumer_group.CURRENT.of("consumer", "m", current),
        *_share_group_records(topic_id),
        *_streams_group_records(),
    ]


def _share_group_records(topic_id: uuid.UUID) -> list[Any]:
    places = frozenset({(topic_id, 0)})
    return [
        share_group.GROUP_EPOCH.of("shared", 4),
        share_group.BEGUN.of("shared", (BegunTopic(topic_id, "plain", (0, 1)),)),
        share_group.MEMBER.of("shared", "m", ShareMemberValue("rack", "client", "/host", ("plain",))),
        share_group.ASSIGNMENT.of("shared", AssignmentEpoch(4, NOW_MS)),
        share_group.TARGET.of("shared", "m", places),
        share_group.CURRENT.of("shared", "m", ShareCurrentValue(4, 3, places)),
    ]


def _streams_group_records() -> list[Any]:
    first, second = TaskId("0", 0), TaskId("0", 1)
    named = (("key", "value"),)
    value = StreamsMemberValue(
        "static", "rack", "client", "/host", 1000, 2, "process", StreamsEndpoint("host", 9092), named
    )
    held = HeldTasks({first: 4}, frozenset({second}))
    current = StreamsCurrentValue(4, 3, StreamsMemberState.UNREVOKED_TASKS, held, HeldTasks({second: 3}))
    changelog = TopicInfo("changelog", 0, 1, named)
    repartition = TopicInfo("repartition", 2, 0)
    topics = ("plain",), ("p.*",), (changelog,), ("repartition",), (repartition,)
    topology = Topology(2, (Subtopology("0", *topics, (CopartitionGroup((0,), (0,), (0,)),)),))
    return [
        streams_records.GROUP.of("streams", StreamsGroupValue(4, 5, 2, named, 2, 1)),
        streams_records.TOPOLOGY.of("streams", topology),
        topology_description.DESCRIPTION.of("streams", StoredDescription(2, b"\x01\x01")),
        streams_records.MEMBER.of("streams", "m", value),
        streams_records.ASSIGNMENT.of("streams", AssignmentEpoch(4, NOW_MS)),
        streams_records.TARGET.of("streams", "m", TaskAssignment(frozenset({first}), frozenset({second}))),
        streams_records.CURRENT.of("streams", "m", current),
    ]


def _transaction_records() -> list[TransactionRecord]:
    places = frozenset({("plain", 0), ("compacted", 1)})
    return [
        TransactionRecord("t", Transaction(7, 0, 60_000, TransactionState.EMPTY, frozenset(), NOW_MS, -1)),
        TransactionRecord(
            "t", Transaction(7, 0, 60_000, TransactionState.ONGOING, places, NOW_MS, NOW_MS, 1, 2, 3, 2)
        ),
        TransactionRecord("t", None),
    ]


def _share_records() -> list[Any]:
    key = SharePartitionKey("shared", uuid.UUID(int=7), 0)
    waiting, letters = StateBatch(13, 14, 0, 1, NOW_MS), StateBatch(3, NOW_MS, LETTER_ROUND, 0)
    batches = (StateBatch(5, 9, 0, 2), StateBatch(10, 12, 2, 1), waiting, letters)
    return [
        ShareSnapshot(key, ShareState(5, batches, 0, NOW_MS)),
        ShareUpdate(key, 7, batches),
        ShareSnapshot(key, None),
    ]


def every_metadata_record() -> list[Any]:
    topic_id = uuid.UUID(int=7)
    endpoint = BrokerEndpoint("PLAINTEXT", "host", 9092)
    return [
        TopicRecord("plain", topic_id),
        PartitionRecord(0, topic_id, (1,), (1,), 1, 0),
        ConfigRecord(2, "plain", "retention.ms", "5"),
        ConfigRecord(2, "plain", "retention.ms", None),
        ProducerIdsRecord(1, 0, 1000, 0, "owner", NOW_MS),
        ClientQuotaRecord((("client-id", None), ("user", "ann")), "producer_byte_rate", 1024.0),
        UserScramCredentialRecord("ann", ScramHash.SHA_256, b"salt", b"stored", b"server", 4096),
        RemoveUserScramCredentialRecord("ann", ScramHash.SHA_256),
        DelegationTokenRecord("User:ann", "User:bob", ("User:carl",), 1, 3, 2, "token"),
        RemoveDelegationTokenRecord("token"),
        AccessControlEntryRecord(
            topic_id,
            ResourceType.TOPIC,
            "plain",
            PatternType.LITERAL,
            "User:ann",
            "*",
            Operation.READ,
            Permission.ALLOW,
        ),
        RemoveAccessControlEntryRecord(topic_id),
        RegisterBrokerRecord(1, topic_id, 5, (endpoint,), "rack", True, False, 2, 3000),
        BrokerRegistrationChangeRecord(1, 5, -1, 1),
        FeatureLevelRecord("share.version", 2),
        UnregisterBrokerRecord(1, 5),
        RemoveTopicRecord(topic_id),
        SnapshotRecord(),
    ]


def mutated(data: bytes, chance: random.Random) -> bytes:
    records = list(_records_of(data[1:]))
    topic = data[0] if data else 0
    if not records or chance.random() < 0.2:
        chosen = chance.choice(list(seeds()))
        topic, records = chosen[0], list(_records_of(chosen[1:]))
    if chance.random() < 0.2:
        topic ^= 0x80
    for _ in range(chance.choice((1, 1, 2))):
        position = chance.randrange(len(records))
        key, value = records[position]
        what = chance.random()
        if what < 0.1:
            records.insert(chance.randrange(len(records) + 1), (key, value))
        elif what < 0.2 and len(records) > 1:
            del records[position]
        elif what < 0.3:
            records[position] = key, None
        elif what < 0.4 and key is not None:
            records[position] = changed(key, chance, 1), value
        elif value is not None:
            records[position] = key, changed(value, chance)
    return written(topic, records)
