"""AddPartitionsToTxn and AddOffsetsToTxn: the partitions that belong to a transaction."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.transactional import COMMIT, TransactionalProducer
from tests.support.wire import Plain

VERSIONS = range(6)
OF_BROKERS = (4, 5)
OFFSETS_VERSIONS = range(5)


@scenario_for_each(VERSIONS)
def add(peer: Peer, version: int) -> None:
    """Add partitions in several requests, some of them twice."""
    one, two = peer.topic("one", partitions=3), peer.topic("two")
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({one.name: [0]}, version)
    producer.describe()
    producer.add({one.name: [0, 2], two.name: [0]}, version)
    producer.add({one.name: [1, 1, 1]}, version)
    producer.add({}, version)
    producer.add({one.name: []}, version)
    producer.describe()
    producer.end(COMMIT, version)
    producer.describe()


@scenario_for_each(VERSIONS)
def unknown_topics(peer: Peer, version: int) -> None:
    """Add an unknown topic: then none of the request's partitions is added."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    nowhere = peer.name("nowhere")
    producer.add({nowhere: [0, 1]}, version)
    producer.add({topic.name: [0], nowhere: [0]}, version)
    producer.add({topic.name: [0, 1, -1]}, version)
    producer.add({"": [0]}, version)
    producer.add({"a/b": [0]}, version)
    producer.describe()


@scenario_for_each(VERSIONS)
def internal_topics(peer: Peer, version: int) -> None:
    topic = peer.topic()
    peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({"__transaction_state": [0]}, version)
    producer.add({"__consumer_offsets": [0], topic.name: [0]}, version)
    producer.describe()


@scenario_for_each(VERSIONS)
def add_as_a_stranger(peer: Peer, version: int) -> None:
    """Add with wrong ids and epochs and an unknown transactional id. They are errors even when the request
    adds nothing."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.add({topic.name: [0]}, version)
    producer.init()
    producer.init()
    strangers: list[Plain] = [
        {"producer_epoch": 0},
        {"producer_epoch": 2},
        {"producer_epoch": -1},
        {"producer_id": 2**60},
        {"producer_id": -1},
        {"transactional_id": peer.name("nobody")},
        {"transactional_id": ""},
    ]
    for stranger in strangers:
        producer.add({topic.name: [0]}, version, **stranger)
        producer.add({}, version, **stranger)
    producer.describe()


@scenario_for_each(OF_BROKERS)
def verify(peer: Peer, version: int) -> None:
    """Ask whether partitions belong to a transaction, as brokers do, which adds none."""
    topic = peer.topic(partitions=3)
    producer = TransactionalProducer(peer)
    producer.add({topic.name: [0]}, version, verify_only=True)
    producer.init()
    producer.add({topic.name: [0]}, version, verify_only=True)
    producer.describe()
    producer.add({topic.name: [0, 1]}, version)
    producer.add({topic.name: [0]}, version, verify_only=True)
    producer.add({topic.name: [0, 2]}, version, verify_only=True)
    producer.add({topic.name: [0], peer.name("nowhere"): [0]}, version, verify_only=True)
    producer.add({topic.name: [0]}, version, verify_only=True, producer_epoch=7)
    producer.add({topic.name: [0]}, version, verify_only=True, producer_epoch=-1)
    producer.add({topic.name: [0]}, version, verify_only=True, producer_id=2**60)
    producer.add({topic.name: [0]}, version, verify_only=True, transactional_id="")
    producer.add({}, version, verify_only=True)
    producer.end(COMMIT, version)
    producer.add({topic.name: [0]}, version, verify_only=True)


@scenario_for_each(OF_BROKERS)
def several_transactions(peer: Peer, version: int) -> None:
    """Add to several transactions in one request: each has its own answer."""
    topic = peer.topic(partitions=3)
    producers = [TransactionalProducer(peer, suffix) for suffix in ("a", "b", "c")]
    for producer in producers[:2]:
        producer.init()
    transactions = [
        {
            **producer.identity,
            "verify_only": producer is producers[1],
            "topics": [{"name": topic.name, "partitions": [0, 2]}],
        }
        for producer in producers
    ]
    for _ in range(2):
        peer.call("add_partitions_to_txn", version, transactions=transactions)
    for producer in producers:
        producer.describe()


@scenario_for_each(OF_BROKERS)
def no_transactions(peer: Peer, version: int) -> None:
    peer.call_briefly("add_partitions_to_txn", version, transactions=[])


@scenario
def null_and_empty_ids(peer: Peer) -> None:
    """Add partitions and offsets with a transactional id that never began, and with an empty one."""
    topic = peer.topic()
    group_id = peer.group()
    producer = TransactionalProducer(peer)
    for version in OFFSETS_VERSIONS:
        producer.add({topic.name: [0]}, version, transactional_id="")
        producer.add_offsets(group_id, version, transactional_id="")
        producer.add_offsets(group_id, version)


@scenario_for_each(OFFSETS_VERSIONS)
def add_offsets(peer: Peer, version: int) -> None:
    """Add a group's offsets: the partition that stores them belongs to the transaction."""
    topic = peer.topic()
    group_id = peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add_offsets(group_id, version)
    producer.describe()
    producer.add({topic.name: [0]}, version)
    producer.add_offsets(group_id, version)
    producer.add_offsets(peer.name("other"), version)
    producer.describe()
    producer.end(COMMIT, version)
    producer.describe()


@scenario_for_each(OFFSETS_VERSIONS)
def add_offsets_as_a_stranger(peer: Peer, version: int) -> None:
    group_id = peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.init()
    strangers: list[dict[str, Any]] = [
        {"producer_epoch": 0},
        {"producer_epoch": 2},
        {"producer_id": 2**60},
        {"transactional_id": peer.name("nobody")},
        {"group_id": ""},
    ]
    for stranger in strangers:
        producer.add_offsets(version=version, **{"group_id": group_id, **stranger})
    producer.describe()


@scenario_for_each(VERSIONS)
def topic_of_the_transaction_is_deleted(peer: Peer, version: int) -> None:
    """Delete a topic of an open transaction: a new topic of that name is not part of the transaction and gets
    no marker."""
    topic = peer.topic()
    kept = peer.topic("kept")
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0], kept.name: [0]}, min(version, 3))
    peer.call("delete_topics", 4, topic_names=[topic.name], timeout=5_000)
    asked: dict[str, Any] = {"topics": [{"name": topic.name}], "allow_auto_topic_creation": False}
    peer.eventually("metadata", 12, lambda answer: answer["topics"][0]["error_code"] == 3, **asked)
    producer.add({topic.name: [0]}, min(version, 3))
    producer.describe()
    producer.end(COMMIT, version)
    producer.describe()
    producer.init()
