"""The order of the checks in a transactional request: request, partition, transaction, group."""

from __future__ import annotations

from dataclasses import replace

from tests.compat.differential.group_member import committed, fetch_offsets, fetched
from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.transactional import (
    ABORT,
    ADDS_BY_PRODUCE,
    COMMIT,
    KEEPS_EPOCH,
    RAISES_EPOCH,
    TransactionalProducer,
    describe_producers,
)
from tests.support.batches import Batch, records
from tests.support.wire import Plain

OFFSET_VERSIONS = range(6)
FIRST_WITH_MEMBER = 3
ADDS_ITSELF = 5


def _too_large(topic: Topic) -> Plain:
    return {"topics": [committed(topic, {0: 5}, committed_metadata="m" * 5_000)]}


def _refusals(topic: Topic, version: int) -> list[Plain]:
    """Return the fields of offset commits that the group refuses, each for another reason."""
    by_member: list[Plain] = [
        {"generation_id": 3},
        {"member_id": "nobody"},
        {"member_id": "nobody", "group_instance_id": "i", "generation_id": 3},
    ]
    return [_too_large(topic), *(by_member if version >= FIRST_WITH_MEMBER else [])]


def _end_version(version: int) -> int:
    return RAISES_EPOCH if version >= ADDS_ITSELF else KEEPS_EPOCH


# TxnOffsetCommit: the transaction is checked before the group.


@scenario_for_each(
    {f"v{version} {number}": (version, number) for version in (3, 4, 5) for number in range(4)}
)
def offsets_that_the_group_refuses(peer: Peer, case: tuple[int, int]) -> None:
    """The group refuses offsets; from v5 on, the transaction has their partition nevertheless."""
    version, number = case
    topic, group_id = peer.topic(), peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    more = _refusals(topic, version)[number]
    producer.commit_offsets(group_id, topic, {0: 5}, version, **more)
    producer.describe()
    producer.add_offsets(group_id)
    producer.commit_offsets(group_id, topic, {0: 5}, version, **more)
    producer.describe()
    producer.end(COMMIT, _end_version(version))
    fetch_offsets(peer, group_id, [fetched(topic, 0)])


@scenario_for_each(OFFSET_VERSIONS)
def offsets_with_a_large_one_among_them(peer: Peer, version: int) -> None:
    topic, group_id = peer.topic(partitions=2), peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.commit_offsets(group_id, topic, {0: 5}, version, **_too_large(topic))
    producer.describe()
    producer.end(COMMIT, _end_version(version))
    fetch_offsets(peer, group_id, [fetched(topic, 0, 1)])


@scenario_for_each(OFFSET_VERSIONS)
def offsets_of_a_zombie(peer: Peer, version: int) -> None:
    """A fenced producer gets the fatal error of the transaction, and no error of the group."""
    topic, group_id = peer.topic(), peer.group()
    zombie = TransactionalProducer(peer)
    zombie.init()
    producer = zombie.heir()
    producer.init()
    for more in _refusals(topic, version):
        zombie.commit_offsets(group_id, topic, {0: 5}, version, **more)
        producer.commit_offsets(group_id, topic, {0: 5}, version, **{"producer_id": 2**60, **more})
    producer.describe()


@scenario_for_each(OFFSET_VERSIONS)
def offsets_of_an_epoch_that_the_partition_has_left(peer: Peer, version: int) -> None:
    """A producer commits offsets with an epoch older than the one that the partition of the offsets has
    stored.
    """
    topic, group_id = peer.topic(), peer.group()
    zombie = TransactionalProducer(peer)
    zombie.init()
    producer = zombie.heir()
    producer.init()
    producer.add_offsets(group_id)
    producer.commit_offsets(group_id, topic, {0: 5}, version)
    producer.end(ABORT, _end_version(version))
    for more in ({}, {"transactional_id": ""}, *_refusals(topic, version)):
        zombie.commit_offsets(group_id, topic, {0: 5}, version, **more)
    producer.describe()


# Produce: malformed requests are refused before the transaction is checked.


def _two_batches(batch: Batch) -> bytes:
    return batch.encode() + replace(batch, base_sequence=batch.base_sequence + 1).encode()


UNREADABLE = {
    "two batches": _two_batches,
    "a batch and a cut one": lambda batch: batch.encode() + batch.encode()[:40],
    "cut": lambda batch: batch.encode()[:-3],
    "cut in the header": lambda batch: batch.encode()[:40],
    "magic 1": lambda batch: replace(batch, magic=1).encode(),
    "magic 3": lambda batch: replace(batch, magic=3).encode(),
    "short length": lambda batch: replace(batch, batch_length=9).encode(),
    "long length": lambda batch: replace(batch, batch_length=9_999).encode(),
    "wrong crc": lambda batch: replace(batch, crc=7).encode(),
    "empty": lambda _: b"",
}


@scenario_for_each({f"{name} v{version}": (name, version) for name in UNREADABLE for version in (11, 12, 13)})
def batches_that_the_request_refuses(peer: Peer, case: tuple[str, int]) -> None:
    """A batch that is refused as malformed does not add its partition to the transaction; a batch with a
    wrong CRC does.
    """
    name, version = case
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    raw = UNREADABLE[name](producer.batch(topic))
    peer.produce(topic, raw, version=version, transactional_id=producer.transactional_id)
    producer.describe()
    producer.end(COMMIT, RAISES_EPOCH if version >= ADDS_BY_PRODUCE else KEEPS_EPOCH)
    heir = producer.heir()
    heir.init()
    raw = UNREADABLE[name](producer.batch(topic))
    peer.produce(topic, raw, version=version, transactional_id=producer.transactional_id)
    heir.describe()


@scenario_for_each((9, 10, 11, 12, 13))
def an_epoch_that_the_partition_has_left(peer: Peer, version: int) -> None:
    """A transactional batch with an older epoch than a plain batch that the partition has stored."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    newer = Batch(records(1)).of(producer.producer_id, 2, 0)
    peer.produce(topic, newer, version=9)
    for crc in (None, 7):
        producer.produce(topic, version=version, crc=crc)
    peer.produce(topic, producer.batch(topic), version=version, transactional_id="")
    producer.describe()
    describe_producers(peer, topic)


@scenario_for_each(
    {f"acks {acks} v{version}": (acks, version) for acks in (-1, 0) for version in (9, 12, 13)}
)
def without_a_transactional_id(peer: Peer, case: tuple[int, int]) -> None:
    """A transactional batch in a request without a transactional id: all partitions of the request are
    refused.
    """
    acks, version = case
    topic = peer.topic(partitions=3)
    producer = TransactionalProducer(peer)
    producer.init()
    good = Batch(records(1))
    for wrong in (0, 1, 2):
        by_partition = dict.fromkeys(range(3), good) | {wrong: producer.batch(topic)}
        peer.produce(topic, by_partition, version=version, acks=acks)
    for index in range(3):
        peer.offsets(topic, -1, partition=index)


@scenario_for_each((3, 6, 9, 12))
def alone_without_a_transactional_id(peer: Peer, version: int) -> None:
    """A transactional batch that is alone in its request: it is refused before its topic, partition and codec
    are looked at.
    """
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    batch = producer.batch(topic)
    for partition, sent in ((0, batch), (5, batch), (0, replace(batch, codec="zstd"))):
        peer.produce(topic, {partition: sent}, version=version)
    peer.produce(replace(topic, name=peer.name("nowhere")), batch, version=version)
    peer.offsets(topic, -1)


@scenario_for_each({f"{name} v{version}": (name, version) for name in UNREADABLE for version in (3, 9, 13)})
def unreadable_among_good_ones(peer: Peer, case: tuple[str, int]) -> None:
    name, version = case
    topic = peer.topic(partitions=2)
    good = Batch(records(1))
    bad = UNREADABLE[name](Batch(records(1)).of(-1, -1, -1))
    for by_partition in ({0: good, 1: bad}, {0: bad, 1: good}):
        peer.produce(topic, by_partition, version=version)
    for index in range(2):
        peer.offsets(topic, -1, partition=index)


@scenario
def one_transactional_and_one_unreadable(peer: Peer) -> None:
    """A malformed batch refuses the whole request if it comes before the transactional batch, and not if it
    comes after.
    """
    topic = peer.topic(partitions=2)
    producer = TransactionalProducer(peer)
    producer.init()
    bad = replace(Batch(records(1)), magic=3)
    for by_partition in ({0: producer.batch(topic), 1: bad}, {0: bad, 1: producer.batch(topic)}):
        peer.produce(topic, by_partition, version=ADDS_BY_PRODUCE, transactional_id=producer.transactional_id)
        producer.describe()
    for index in range(2):
        peer.offsets(topic, -1, partition=index)
