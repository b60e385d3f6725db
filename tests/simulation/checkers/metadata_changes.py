"""Checks that each change of the shared metadata was decided on exactly the metadata before it.

A change that another gateway had decided on older metadata shows: it registers an earlier session, skips or
repeats a leader epoch, gives producer ids out a second time, or creates what is there already.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from seqgate.gateway.cluster.metadata.change import CorruptChange, StoredChange
from seqgate.gateway.cluster.metadata.shared_log import decode_entry
from seqgate.gateway.cluster.wal.wal_object import registration_key
from seqgate.gateway.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode_record,
)
from seqgate.log.format.records import iterate_records
from tests.simulation.checkers.shortened_metadata import first_objects
from tests.support.simulated_objects import SimulatedBucket


class Change(NamedTuple):
    """One change of the metadata: its object, its place in the log of `__cluster_metadata`, and its records."""

    seq: int
    base_offset: int
    records: tuple[Any, ...]


@dataclass
class _Metadata:
    """What the changes so far have made."""

    topics: dict[uuid.UUID, str] = field(default_factory=dict)
    partitions: dict[tuple[uuid.UUID, int], PartitionRecord] = field(default_factory=dict)
    brokers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """The epoch of each registered broker, and whether it is fenced."""
    next_producer_id: int = 0


def unfit_changes(changes: Iterable[Change]) -> list[str]:
    """Return a breach for each change that does not fit the metadata before it."""
    breaches = []
    metadata, end_offset, last_seq = _Metadata(), 0, -1
    for change in changes:
        if change.base_offset != end_offset:
            breaches.append(
                f"metadata: change {change.seq} begins at offset {change.base_offset}, and the one before it "
                f"ends at {end_offset}"
            )
        if change.seq <= last_seq:
            breaches.append(f"metadata: change {change.seq} comes after change {last_seq}")
        end_offset, last_seq = change.base_offset + len(change.records), change.seq
        breaches += [
            f"metadata: change {change.seq}: {sentence}"
            for record in change.records
            for sentence in _JUDGES.get(type(record), _nothing)(metadata, record)
        ]
        breaches += [
            f"metadata: change {change.seq}: {sentence}" for sentence in _led_by_nobody(metadata, change)
        ]
    return breaches


def _nothing(_: _Metadata, __: Any) -> Iterator[str]:
    yield from ()


def _topic(metadata: _Metadata, record: TopicRecord) -> Iterator[str]:
    if record.name in metadata.topics.values():
        yield f"topic {record.name} exists already"
    metadata.topics[record.topic_id] = record.name


def _remove_topic(metadata: _Metadata, record: RemoveTopicRecord) -> Iterator[str]:
    if metadata.topics.pop(record.topic_id, None) is None:
        yield f"there is no topic {record.topic_id}"
    metadata.partitions = {key: one for key, one in metadata.partitions.items() if key[0] != record.topic_id}


def _partition(metadata: _Metadata, record: PartitionRecord) -> Iterator[str]:
    key = (record.topic_id, record.partition_id)
    topic = metadata.topics.get(record.topic_id, f"of id {record.topic_id}")
    where = f"{topic}-{record.partition_id}"
    before = metadata.partitions.get(key)
    if record.topic_id not in metadata.topics:
        yield f"{where} belongs to no topic"
    if before is not None:
        step = record.leader_epoch - before.leader_epoch
        if step not in {0, 1} or (step == 0 and record.leader != before.leader):
            yield (
                f"{where} goes from node {before.leader} in epoch {before.leader_epoch} "
                f"to node {record.leader} in epoch {record.leader_epoch}"
            )
        if record.partition_epoch != before.partition_epoch + 1:
            yield f"{where} goes from partition epoch {before.partition_epoch} to {record.partition_epoch}"
    metadata.partitions[key] = record


def _register(metadata: _Metadata, record: RegisterBrokerRecord) -> Iterator[str]:
    epoch, _ = metadata.brokers.get(record.broker_id, (-1, False))
    if record.broker_epoch <= epoch:
        yield f"node {record.broker_id} registers session {record.broker_epoch} after session {epoch}"
    metadata.brokers[record.broker_id] = record.broker_epoch, record.fenced


def _change_registration(metadata: _Metadata, record: BrokerRegistrationChangeRecord) -> Iterator[str]:
    epoch, is_fenced = metadata.brokers.get(record.broker_id, (-1, False))
    if record.broker_epoch != epoch:
        yield f"session {record.broker_epoch} of node {record.broker_id} changes, and session {epoch} is registered"
    metadata.brokers[record.broker_id] = epoch, record.fenced > 0 or (is_fenced and record.fenced == 0)


def _unregister(metadata: _Metadata, record: UnregisterBrokerRecord) -> Iterator[str]:
    epoch, _ = metadata.brokers.pop(record.broker_id, (-1, False))
    if record.broker_epoch != epoch:
        yield f"session {record.broker_epoch} of node {record.broker_id} leaves, and session {epoch} is registered"


def _producer_ids(metadata: _Metadata, record: ProducerIdsRecord) -> Iterator[str]:
    if record.first_producer_id >= 0 and record.first_producer_id != metadata.next_producer_id:
        yield f"producer ids from {record.first_producer_id} on are given out, and the next one is {metadata.next_producer_id}"
    if record.next_producer_id < metadata.next_producer_id:
        yield f"the next producer id goes from {metadata.next_producer_id} back to {record.next_producer_id}"
    metadata.next_producer_id = record.next_producer_id


_JUDGES: dict[type[Any], Callable[[_Metadata, Any], Iterator[str]]] = {
    TopicRecord: _topic,
    RemoveTopicRecord: _remove_topic,
    PartitionRecord: _partition,
    RegisterBrokerRecord: _register,
    BrokerRegistrationChangeRecord: _change_registration,
    UnregisterBrokerRecord: _unregister,
    ProducerIdsRecord: _producer_ids,
}


def _led_by_nobody(metadata: _Metadata, change: Change) -> Iterator[str]:
    """Find partitions that this change gives to a node that is not live after it, although others are."""
    live = {node_id for node_id, (_, is_fenced) in metadata.brokers.items() if not is_fenced}
    for record in change.records:
        if live and isinstance(record, PartitionRecord) and record.leader not in live:
            topic = metadata.topics.get(record.topic_id, f"of id {record.topic_id}")
            yield f"{topic}-{record.partition_id} goes to node {record.leader}, which is not live"


def changes_of(bucket: SimulatedBucket) -> tuple[list[Change], list[str]]:
    """Return the changes that the bucket has or had, in order, and a breach for each hole and each object
    that can't be read.
    """
    changes, breaches = [], []
    for seq, (number, content) in enumerate(first_objects(bucket).items()):
        if number != seq:
            return changes, [f"metadata: {registration_key(number)} has no object before it"]
        try:
            entry = decode_entry(content, number)
        except CorruptChange as error:
            breaches.append(f"metadata: {error}")
            continue
        if isinstance(entry, StoredChange):
            records = tuple(decode_record(one.value or b"") for one in iterate_records(entry.batch))
            changes.append(Change(number, entry.base_offset, records))
    return changes, breaches
