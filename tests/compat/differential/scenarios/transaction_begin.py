"""InitProducerId with a transactional id: the producer's new id and epoch, and the producers that it fences."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.transactional import (
    ABORT,
    ADDS_BY_PRODUCE,
    ADDS_FIRST,
    COMMIT,
    KEEPS_EPOCH,
    TransactionalProducer,
    await_coordinator,
    describe_producers,
    transact,
)

VERSIONS = range(6)
WITH_PRODUCER = (3, 4, 5)
MAX_TIMEOUT_MS = 900_000


@scenario_for_each(VERSIONS)
def begin(peer: Peer, version: int) -> None:
    """Begin three times: the producer epoch rises each time, and the producer id stays."""
    producer = TransactionalProducer(peer)
    for _ in range(3):
        producer.init(version)
        producer.describe()


@scenario_for_each(VERSIONS)
def timeouts(peer: Peer, version: int) -> None:
    producer = TransactionalProducer(peer)
    for timeout_ms in (0, -1, -(2**31), MAX_TIMEOUT_MS + 1, 2**31 - 1):
        producer.init(version, transaction_timeout=timeout_ms)
    producer.describe()
    for timeout_ms in (1, MAX_TIMEOUT_MS, 0):
        producer.init(version, transaction_timeout=timeout_ms)
        producer.describe()


@scenario_for_each(VERSIONS)
def transactional_ids(peer: Peer, version: int) -> None:
    """Begin with no transactional id, an empty one, long ones and unusual ones."""
    await_coordinator(peer, peer.name("x"))
    asked: dict[str, Any] = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    for transactional_id in (None, "", peer.name("ü" * 200), peer.name(" \n\x00")):
        peer.call("init_producer_id", version, transactional_id=transactional_id, **asked)


@scenario_for_each(WITH_PRODUCER)
def goes_on_after_an_error(peer: Peer, version: int) -> None:
    """Begin again with the producer's own id and epoch (KIP-360): the epoch rises once, also when the request
    is repeated."""
    producer = TransactionalProducer(peer)
    first = producer.init(version)
    claimed = {key: first.get(key, -1) for key in ("producer_id", "producer_epoch")}
    producer.init(version, **claimed)
    producer.init(version, **claimed)
    producer.describe()
    producer.init_again(version)
    producer.init(version, **claimed)
    producer.describe()


@scenario_for_each(WITH_PRODUCER)
def claims_of_strangers(peer: Peer, version: int) -> None:
    """Begin with wrong ids and epochs, before and after the first producer."""
    producer = TransactionalProducer(peer)
    producer.init(version, producer_id=5, producer_epoch=0)
    producer.describe()
    producer.init(version)
    for producer_epoch in (7, 32_767, 0):
        producer.init(version, producer_id=2**60, producer_epoch=producer_epoch)
    for producer_epoch in (producer.producer_epoch + 1, 32_766, 32_767, -5):
        producer.init(version, producer_id=producer.producer_id, producer_epoch=producer_epoch)
    producer.init(version, producer_id=producer.producer_id, producer_epoch=-1)
    producer.init(version, producer_id=-1, producer_epoch=producer.producer_epoch)
    producer.init(version, producer_id=-2, producer_epoch=-2)
    producer.describe()


@scenario_for_each(VERSIONS)
def open_transaction_is_aborted(peer: Peer, version: int) -> None:
    """Begin a second instance during the first one's transaction: the transaction is aborted and the first
    instance fenced."""
    topic = peer.topic()
    zombie = TransactionalProducer(peer)
    zombie.init(version)
    zombie.produce(topic, 2)
    heir = zombie.heir()
    heir.init(version)
    heir.describe()
    describe_producers(peer, topic)
    peer.fetch(topic, isolation_level=1)
    zombie.produce(topic)
    zombie.add({topic.name: [0]}, 1)
    zombie.add({topic.name: [0]}, 2)
    for end_version in range(6):
        zombie.end(COMMIT, end_version)
    zombie.init_again()
    transact(heir, topic, commit=COMMIT)
    heir.describe()
    peer.fetch(topic, isolation_level=1)


@scenario_for_each({"v1": KEEPS_EPOCH, "v2": 5})
def goes_on_with_an_open_transaction(peer: Peer, end_version: int) -> None:
    """Begin again in the middle of a transaction (KIP-360): the transaction is aborted, and the same producer
    continues."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    if end_version < 5:
        producer.add({topic.name: [0]})
    producer.produce(topic, version=ADDS_FIRST if end_version < 5 else ADDS_BY_PRODUCE)
    producer.init_again()
    producer.describe()
    describe_producers(peer, topic)
    peer.fetch(topic, isolation_level=1)
    transact(producer, topic, commit=COMMIT, version=end_version)
    producer.init_again()
    producer.describe()


@scenario
def old_epoch_claims_with_an_open_transaction(peer: Peer) -> None:
    """Begin with an epoch that is already fenced: the request is refused and the newer producer's transaction
    stays open."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    first = producer.init()
    producer.init()
    producer.add({topic.name: [0]})
    producer.init(producer_id=first.get("producer_id", -1), producer_epoch=first.get("producer_epoch", -1))
    producer.init(producer_id=2**60, producer_epoch=0)
    producer.describe()


@scenario
def after_ends_of_both_protocols(peer: Peer) -> None:
    """End transactions of both protocol versions, and compare the epochs that follow, also after KIP-360
    requests."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    for end_version in (4, 5, 5, 4):
        transact(producer, topic, commit=COMMIT, version=end_version)
        producer.describe()
        before = producer.identity
        producer.init_again()
        producer.init(**before)
        transact(producer, topic, commit=ABORT, version=end_version)
        producer.init()
        producer.describe()
    describe_producers(peer, topic)


@scenario
def timeout_of_the_next_transaction(peer: Peer) -> None:
    """Begin with a new transaction timeout, also while a transaction is open."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init(transaction_timeout=50_000)
    producer.add({topic.name: [0]})
    producer.init(transaction_timeout=40_000)
    producer.describe()
    producer.init(transaction_timeout=30_000)
    producer.describe()


@scenario
def transaction_takes_too_long(peer: Peer) -> None:
    """Let a transaction time out: the coordinator aborts it, and the producer learns of the abort when it
    ends the transaction."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init(transaction_timeout=1)
    producer.produce(topic, 2)

    def is_aborted(answer: dict[str, Any]) -> bool:
        return bool(answer["transaction_states"][0]["transaction_state"] == "CompleteAbort")

    asked = {"transactional_ids": [producer.transactional_id]}
    peer.eventually("describe_transactions", 0, is_aborted, **asked)
    describe_producers(peer, topic)
    producer.produce(topic)
    producer.end(COMMIT, 4)
    producer.end(COMMIT)
    producer.end(ABORT)
    producer.init_again()
    producer.describe()
    peer.fetch(topic, isolation_level=1)


@scenario
def two_phase_commit_is_not_offered(peer: Peer) -> None:
    """Send the version of InitProducerId for two-phase commit (KIP-939), which is not offered yet."""
    producer = TransactionalProducer(peer)
    more: dict[str, Any] = {"enable2_pc": True, "keep_prepared_txn": True, "transaction_timeout": 60_000}
    peer.call(
        "init_producer_id",
        6,
        transactional_id=producer.transactional_id,
        producer_id=-1,
        producer_epoch=-1,
        **more,
    )
