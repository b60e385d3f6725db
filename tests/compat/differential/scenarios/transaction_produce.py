"""Produce in transactions: which batches belong to one, and which are refused."""

from __future__ import annotations

from dataclasses import replace

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.transactional import (
    ABORT,
    ADDS_BY_PRODUCE,
    ADDS_FIRST,
    COMMIT,
    KEEPS_EPOCH,
    RAISES_EPOCH,
    TRANSACTIONAL,
    TransactionalProducer,
    describe_producers,
    transact,
)
from tests.support.batches import Batch, records

VERSIONS = range(3, 14)
PROTOCOLS = {"v1": (ADDS_FIRST, KEEPS_EPOCH), "v2": (ADDS_BY_PRODUCE, RAISES_EPOCH)}
Protocol = tuple[int, int]


def _end_version(version: int) -> int:
    return RAISES_EPOCH if version >= ADDS_BY_PRODUCE else KEEPS_EPOCH


@scenario_for_each(VERSIONS)
def not_added(peer: Peer, version: int) -> None:
    """Produce to a partition that was not added: from v12 on the request adds it, before v12 it is refused."""
    topic = peer.topic(partitions=2)
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, version=version)
    producer.describe()
    describe_producers(peer, topic)
    producer.add({topic.name: [1]})
    producer.produce(topic, version=version)
    producer.produce(topic, partition=1, version=version)
    producer.describe()


@scenario_for_each(VERSIONS)
def added(peer: Peer, version: int) -> None:
    """Produce batches, a retry and a gap in each of several transactions."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    for commit in (COMMIT, ABORT, COMMIT):
        producer.add({topic.name: [0]})
        producer.produce(topic, 2, version=version)
        last = producer.batch(topic, 3)
        producer.produce(topic, 3, version=version)
        producer.send(topic, last, version=version)
        producer.send(topic, producer.batch(topic, base_sequence=99), version=version)
        producer.end(commit, _end_version(version))
        describe_producers(peer, topic)
    producer.send(topic, last, version=version)
    peer.fetch(topic)


@scenario_for_each(VERSIONS)
def by_strangers(peer: Peer, version: int) -> None:
    """Produce with wrong producer ids and producer epochs, with another transactional id, and without a
    transactional id.
    """
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.init()
    producer.add({topic.name: [0]})
    for producer_epoch in (0, 2, -1):
        producer.produce(topic, version=version, producer_epoch=producer_epoch)
    producer.produce(topic, version=version, producer_id=2**60)
    for transactional_id in (None, "", peer.name("nobody")):
        batch = producer.batch(topic)
        peer.produce(topic, batch, version=version, transactional_id=transactional_id)
    producer.produce(topic, version=version)
    describe_producers(peer, topic)
    producer.end(COMMIT, _end_version(version))


@scenario_for_each((3, 9, 11, 12, 13))
def plain_batches(peer: Peer, version: int) -> None:
    """Produce plain batches as a transactional producer: before, during and after a transaction."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, version=version, attributes=0)
    producer.add({topic.name: [0]})
    producer.produce(topic, version=version)
    producer.produce(topic, version=version, attributes=0)
    batch = producer.batch(topic, attributes=0)
    peer.produce(topic, batch, version=version)
    peer.produce(topic, Batch(records(1)), version=version)
    producer.end(COMMIT, _end_version(version))
    producer.produce(topic, version=version, attributes=0)
    describe_producers(peer, topic)
    peer.fetch(topic)


@scenario_for_each((3, 9, 11, 12, 13))
def transactional_without_a_producer(peer: Peer, version: int) -> None:
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.produce(topic, version=version)
    producer.produce(topic, version=version, base_sequence=-1)
    producer.init()
    producer.produce(topic, version=version, base_sequence=-1)
    producer.produce(topic, version=version, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    producer.describe()


@scenario_for_each((3, 9, 11, 12, 13))
def control_batches(peer: Peer, version: int) -> None:
    """Produce control batches, which only the coordinator may write."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0]})
    producer.produce(topic, version=version, attributes=TRANSACTIONAL | 0x20)
    producer.produce(topic, version=version, attributes=0x20)
    describe_producers(peer, topic)


@scenario_for_each(PROTOCOLS)
def sequences(peer: Peer, protocol: Protocol) -> None:
    """Produce gaps, overlaps and retries inside a transaction."""
    version, end_version = protocol
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0]})
    for base_sequence, count in ((3, 1), (0, 2), (0, 2), (3, 1), (2, 1), (1, 2), (2, 1), (3, 1), (-1, 1)):
        producer.produce(topic, count, version=version, base_sequence=base_sequence)
    describe_producers(peer, topic)
    producer.end(ABORT, end_version)
    for base_sequence in (9, 4, 0, 1):
        producer.add({topic.name: [0]})
        producer.produce(topic, version=version, base_sequence=base_sequence)
        describe_producers(peer, topic)


@scenario_for_each(PROTOCOLS)
def first_sequence_of_a_new_epoch(peer: Peer, protocol: Protocol) -> None:
    """Begin a new epoch and produce to a written partition: the sequence must start at 0 there."""
    version, end_version = protocol
    topic = peer.topic(partitions=2)
    producer = TransactionalProducer(peer)
    producer.init()
    transact(producer, topic, 3, commit=COMMIT, version=end_version)
    producer.init_again()
    producer.add({topic.name: [0, 1]})
    for partition in (0, 1):
        for base_sequence in (3, 1, 0, 1):
            producer.produce(topic, partition=partition, version=version, base_sequence=base_sequence)
    describe_producers(peer, topic, 0, 1)
    producer.end(COMMIT, end_version)


@scenario_for_each(PROTOCOLS)
def after_the_end(peer: Peer, protocol: Protocol) -> None:
    """Produce late, with the epoch of a transaction that has ended."""
    version, end_version = protocol
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0]})
    producer.produce(topic, version=version)
    last, late = producer.batch(topic, base_sequence=0), producer.batch(topic)
    producer.end(COMMIT, end_version)
    if version >= ADDS_BY_PRODUCE:
        producer.send(topic, last, version=version)
    producer.describe()
    producer.add({topic.name: [0]})
    producer.send(topic, late, version=version)
    producer.send(topic, last, version=version)
    producer.send(topic, replace(late, attributes=0), version=version)
    describe_producers(peer, topic)
    producer.describe()
    peer.fetch(topic, isolation_level=1)


@scenario_for_each((3, 11))
def sequence_after_a_batch_that_was_not_added(peer: Peer, version: int) -> None:
    """Produce again after a batch was refused because its partition had not been added: the missing sequence
    is no gap."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    transact(producer, topic, 2, commit=COMMIT, version=KEEPS_EPOCH)
    producer.produce(topic, version=version, base_sequence=1)
    producer.add({topic.name: [0]})
    producer.produce(topic, version=version)
    producer.end(COMMIT, KEEPS_EPOCH)


@scenario_for_each(PROTOCOLS)
def several_partitions(peer: Peer, protocol: Protocol) -> None:
    """Produce to several partitions of which some are refused: the others belong to the transaction."""
    version, end_version = protocol
    topic = peer.topic(partitions=3)
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0, 1]})
    batches = {
        0: producer.batch(topic),
        1: producer.batch(topic, partition=1, crc=5),
        2: producer.batch(topic, partition=2),
        7: producer.batch(topic, partition=7),
    }
    for _ in range(2):
        peer.produce(topic, batches, version=version, transactional_id=producer.transactional_id)
    producer.describe()
    producer.end(COMMIT, end_version)
    describe_producers(peer, topic, 0, 1, 2)


@scenario_for_each(PROTOCOLS)
def two_producers_in_one_request(peer: Peer, protocol: Protocol) -> None:
    """Produce batches of two producers in one request, which is an error."""
    version, _ = protocol
    topic = peer.topic(partitions=2)
    one, two = TransactionalProducer(peer, "one"), TransactionalProducer(peer, "two")
    for producer in (one, two):
        producer.init()
        producer.add({topic.name: [0, 1]})
    batches = {0: one.batch(topic), 1: two.batch(topic, partition=1)}
    peer.produce(topic, batches, version=version, transactional_id=one.transactional_id)
    mixed = {0: one.batch(topic), 1: Batch(records(1))}
    peer.produce(topic, mixed, version=version, transactional_id=one.transactional_id)
    describe_producers(peer, topic, 0, 1)


@scenario_for_each({f"acks {acks}, {name}": (acks, *it) for acks in (0, 1) for name, it in PROTOCOLS.items()})
def acks(peer: Peer, case: tuple[int, int, int]) -> None:
    """Produce with acks 0 and 1 in a transaction: both are accepted, though clients always use acks=all."""
    acks, version, end_version = case
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0]})
    batch = producer.batch(topic)
    peer.produce(topic, batch, version=version, acks=acks, transactional_id=producer.transactional_id)
    peer.end_offset_reaches(topic, 1)
    producer.end(COMMIT, end_version)
    peer.fetch(topic)


@scenario_for_each((3, 11, 12, 13))
def internal_topics(peer: Peer, version: int) -> None:
    """Produce to the internal topics of the coordinators, which is refused."""
    producer = TransactionalProducer(peer)
    producer.init()
    found = peer.until(
        "metadata", 12, lambda answer: not answer["topics"][0]["error_code"], {"topics": [{"name": STATE}]}
    )
    topic = replace(peer.topic(), name=STATE, topic_id=found["topics"][0]["topic_id"])
    producer.produce(topic, version=version)
    peer.produce(topic, Batch(records(1)), version=version)
    producer.describe()


STATE = "__transaction_state"


@scenario_for_each({"at a batch": 2, "inside a batch": 3, "at the end": 4})
def records_are_deleted_below_an_open_transaction(peer: Peer, offset: int) -> None:
    """Delete records beyond the last stable offset; the open transaction continues."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, 2)
    peer.produce(topic, Batch(records(2)))
    partitions = [{"partition_index": 0, "offset": offset}]
    peer.call("delete_records", 2, topics=[{"name": topic.name, "partitions": partitions}], timeout=5_000)
    describe_producers(peer, topic)
    peer.fetch(topic, offset, isolation_level=1)
    producer.produce(topic)
    producer.end(ABORT)
    describe_producers(peer, topic)
    peer.fetch(topic, offset, isolation_level=1)


@scenario
def verification_of_an_idempotent_producers_batch(peer: Peer) -> None:
    """Produce a transactional batch with a producer id that belongs to no transactional id."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    handed = peer.call("init_producer_id", 5, transactional_id=None, transaction_timeout=60_000)
    batch = Batch(records(1), attributes=TRANSACTIONAL).of(handed.get("producer_id", -1), 0, 0)
    for version in (9, 11, 12):
        producer.send(topic, batch, version=version)
    describe_producers(peer, topic)
