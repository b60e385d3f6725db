"""Requests that describe transactions and end them from outside: features, DescribeTransactions,
ListTransactions, DescribeProducers, WriteTxnMarkers."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer, Topic
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.transactional import (
    ABORT,
    COMMIT,
    TransactionalProducer,
    describe_producers,
    end_marker,
    send_markers,
    transact,
)
from tests.support.batches import Batch, records
from tests.support.wire import Plain

FEATURES = {"transaction.version", "group.version", "share.version", "streams.version"}
LIST_VERSIONS = range(3)
MARKER_VERSIONS = (1, 2)
STATES = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
]


@scenario_for_each((3, 4))
def features(peer: Peer, version: int) -> None:
    """Compare the feature versions of transactions, consumer groups and share groups, by which clients choose
    protocols."""
    answer = peer.wire.call(
        "api_versions", version, client_software_name="a", client_software_version="1"
    ).fields
    for kind in ("supported_features", "finalized_features"):
        rows = [row for row in answer[kind] if row["name"] in FEATURES]
        peer.note(kind, rows=sorted(rows, key=lambda row: str(row["name"])))
    keys = (0, 1, 2, 10, 22, 24, 25, 26, 27, 28, 61, 65, 66)
    peer.note("versions", rows=[row for row in answer["api_keys"] if row["api_key"] in keys])


@scenario_for_each(range(1, 7))
def find_coordinator(peer: Peer, version: int) -> None:
    """Find the coordinator of several ids, an empty one included."""
    TransactionalProducer(peer)
    names = [peer.name("x"), "", peer.name("ü" * 100)]
    for name in names:
        peer.call("find_coordinator", version, key=name, key_type=1, coordinator_keys=[name])
    if version >= 4:
        peer.call("find_coordinator", version, key_type=1, coordinator_keys=names)
        peer.call("find_coordinator", version, key_type=1, coordinator_keys=[])


def _population(peer: Peer) -> list[TransactionalProducer]:
    """Return one producer in each lasting state, and one that never called InitProducerId."""
    topic = peer.topic(partitions=3)
    producers = [TransactionalProducer(peer, suffix) for suffix in ("a", "b", "c", "d", "e")]
    for producer in producers[:4]:
        producer.init()
    producers[1].add({topic.name: [2, 0]})
    transact(producers[2], topic, commit=COMMIT)
    transact(producers[3], topic, commit=ABORT)
    return producers


@scenario
def describe(peer: Peer) -> None:
    """Describe transactions in every state, unknown ids, the empty id, and one id twice."""
    names = [producer.transactional_id for producer in _population(peer)]
    for asked in (names, names[1:2] * 2, [], [""], [peer.name("nobody"), names[1]], [peer.name("ü" * 100)]):
        peer.call("describe_transactions", 0, transactional_ids=asked)


@scenario
def producers_of_the_same_again(peer: Peer) -> None:
    """Describe the producers of a partition twice in a topic, and of a topic twice."""
    topic = peer.topic(partitions=2)
    producer = TransactionalProducer(peer)
    producer.init()
    transact(producer, topic, commit=COMMIT)
    wanted = [{"name": topic.name, "partition_indexes": indexes} for indexes in ([1, 0, 1, 7, 7], [0])]
    peer.call("describe_producers", 0, topics=wanted)


def _list(peer: Peer, version: int, **filters: Any) -> None:
    everything: Plain = {
        "state_filters": [],
        "producer_id_filters": [],
        "duration_filter": -1,
        "transactional_id_pattern": None,
    }
    peer.call("list_transactions", version, only_own=True, **{**everything, **filters})


@scenario_for_each(LIST_VERSIONS)
def list_by_state_and_producer(peer: Peer, version: int) -> None:
    producers = _population(peer)
    _list(peer, version)
    for state in STATES:
        _list(peer, version, state_filters=[state])
    _list(peer, version, state_filters=["Ongoing", "Empty", "Ongoing"])
    for names in (["ongoing"], [""], ["Nonsense", "Ongoing", "Nonsense", "Other"], ["COMPLETE_COMMIT"]):
        _list(peer, version, state_filters=names)
    ids = [producer.producer_id for producer in producers]
    _list(peer, version, producer_id_filters=ids[1:3])
    _list(peer, version, producer_id_filters=[2**60, -1])
    _list(peer, version, producer_id_filters=ids[1:3], state_filters=["CompleteCommit"])


@scenario_for_each((1, 2))
def list_by_duration(peer: Peer, version: int) -> None:
    """List transactions by how long they have been open; those that are not open are listed regardless."""
    _population(peer)
    for duration_ms in (-1, -5, 0, 1, 3_600_000, 2**62):
        _list(peer, version, duration_filter=duration_ms)


@scenario
def list_by_pattern(peer: Peer) -> None:
    """List transactions by a pattern, which is RE2 syntax and must match the whole id."""
    names = [producer.transactional_id for producer in _population(peer)]
    prefix = peer.name("")
    patterns = (
        "", ".*", "a", ".*a", "x*", names[0], f"{prefix}[ab]", f"^{prefix}(a|b)$", f"{prefix}", f"(?i){names[0].upper()}",
        "(", "[", "*", "a{2", r".*\Aa", "(?=a)a", r"(.)\1", ".*[a-c]$",
    )  # fmt: skip
    for pattern in patterns:
        _list(peer, 2, transactional_id_pattern=pattern)
    _list(peer, 2, transactional_id_pattern=".*[ab]", state_filters=["Ongoing"])


@scenario
def producers_of_a_partition(peer: Peer) -> None:
    """Describe the producers of partitions: where their transactions began, and the coordinator epoch of the
    last marker."""
    topic = peer.topic(partitions=2)
    one, two = TransactionalProducer(peer, "one"), TransactionalProducer(peer, "two")
    one.init()
    two.init()
    peer.produce(topic, Batch(records(3)))
    one.produce(topic, 2)
    two.produce(topic)
    describe_producers(peer, topic, 0, 1, 5)
    one.end(ABORT)
    describe_producers(peer, topic, 0, 1)
    one.produce(topic)
    two.produce(topic, 2)
    describe_producers(peer, topic, 0)
    two.end(COMMIT)
    one.end(COMMIT)
    describe_producers(peer, topic, 0)


@scenario_for_each(MARKER_VERSIONS)
def write_markers(peer: Peer, version: int) -> None:
    """End a hanging transaction with WriteTxnMarkers, bypassing the coordinator, which ends the transaction
    again."""
    topic = peer.topic(partitions=2)
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, 2)
    send_markers(peer, version, end_marker(producer, topic, 0, 1, 7))
    describe_producers(peer, topic, 0, 1)
    peer.fetch(topic, isolation_level=1)
    producer.describe()
    send_markers(peer, version, end_marker(producer, topic))
    send_markers(peer, version, end_marker(producer, topic, transaction_result=COMMIT))
    producer.end(COMMIT)
    describe_producers(peer, topic, 0, 1)
    peer.fetch(topic)


@scenario_for_each(MARKER_VERSIONS)
def write_markers_of_strangers(peer: Peer, version: int) -> None:
    """Write markers for unknown producers, older and newer epochs, unknown and internal topics, and no
    topics."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.init()
    producer.produce(topic)
    nowhere = Topic(peer.name("nowhere"), "")
    for marker in (
        end_marker(producer, topic, producer_epoch=0),
        end_marker(producer, nowhere),
        end_marker(producer, topic, 9, -1),
        end_marker(producer, topic, producer_id=2**60, producer_epoch=3),
        end_marker(producer, topic, topics=[]),
        end_marker(producer, topic, producer_epoch=5),
        end_marker(producer, topic, producer_epoch=4),
        end_marker(producer, topic, coordinator_epoch=-1),
    ):
        send_markers(peer, version, marker)
        describe_producers(peer, topic)
    peer.fetch(topic)


@scenario_for_each(MARKER_VERSIONS)
def coordinator_epochs(peer: Peer, version: int) -> None:
    """Write markers with several coordinator epochs: one of an older coordinator is refused."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    for coordinator_epoch in (5, 4, 5, 6, 0, -1):
        send_markers(peer, version, end_marker(producer, topic, coordinator_epoch=coordinator_epoch))
    describe_producers(peer, topic)
    peer.fetch(topic)


@scenario_for_each({str(version): version for version in (0, 1, 2, 3, -1)})
def transaction_versions_of_markers(peer: Peer, transaction_version: int) -> None:
    """Write markers of each transaction version: from version 2 on they must carry a newer producer epoch
    (request v2 tells the version)."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic)
    more = {"transaction_version": transaction_version}
    for producer_epoch in (0, 1, 1, 0):
        send_markers(peer, 2, end_marker(producer, topic, producer_epoch=producer_epoch, **more))
        describe_producers(peer, topic)
    peer.fetch(topic)


@scenario_for_each(MARKER_VERSIONS)
def markers_without_an_epoch(peer: Peer, version: int) -> None:
    """Write markers with producer epoch −1, which no reader would accept."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    send_markers(peer, version, end_marker(producer, topic, producer_epoch=-1))
    producer.produce(topic)
    send_markers(peer, version, end_marker(producer, topic, producer_epoch=-1))
    describe_producers(peer, topic)


@scenario_for_each(MARKER_VERSIONS)
def several_markers(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=2)
    one, two = TransactionalProducer(peer, "one"), TransactionalProducer(peer, "two")
    for producer in (one, two):
        producer.init()
        producer.produce(topic)
    send_markers(
        peer, version, end_marker(one, topic), end_marker(two, topic, 0, 1, transaction_result=COMMIT)
    )
    describe_producers(peer, topic, 0, 1)
    peer.fetch(topic)


@scenario_for_each(MARKER_VERSIONS)
def no_markers(peer: Peer, version: int) -> None:
    peer.call_briefly("write_txn_markers", version, markers=[])


@scenario
def markers_of_internal_topics(peer: Peer) -> None:
    peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    for name in ("__transaction_state",):
        send_markers(peer, 1, end_marker(producer, Topic(name, ""), producer_id=2**60))
