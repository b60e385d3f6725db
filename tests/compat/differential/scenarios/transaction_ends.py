"""EndTxn: which producers may end a transaction, how often, and which epoch follows."""

from __future__ import annotations

from tests.compat.differential.peer import Peer, produce_request
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.settling import await_applied
from tests.compat.differential.transactional import (
    ABORT,
    ADDS_BY_PRODUCE,
    ADDS_FIRST,
    COMMIT,
    KEEPS_EPOCH,
    RAISES_EPOCH,
    TransactionalProducer,
    describe_producers,
    end_marker,
    send_markers,
    transact,
)
from tests.support.wire import Plain

VERSIONS = range(6)
EPOCH_VERSIONS = {"v1": KEEPS_EPOCH, "v2": RAISES_EPOCH}


@scenario_for_each(VERSIONS)
def nothing_to_end(peer: Peer, version: int) -> None:
    """End a transaction before the producer began, and before it wrote anything."""
    producer = TransactionalProducer(peer)
    for commit in (COMMIT, ABORT):
        producer.end(commit, version)
    producer.init()
    for commit in (COMMIT, ABORT, ABORT, COMMIT):
        producer.end(commit, version)
        producer.describe()


@scenario_for_each(VERSIONS)
def committed(peer: Peer, version: int) -> None:
    """Commit, then commit again and abort, with the producer epoch from before the end and with the one from
    after it.
    """
    _ended(peer, version, COMMIT)


@scenario_for_each(VERSIONS)
def aborted(peer: Peer, version: int) -> None:
    """Abort, then abort again and commit, with the producer epoch from before the end and with the one from
    after it.
    """
    _ended(peer, version, ABORT)


def _ended(peer: Peer, version: int, commit: bool) -> None:
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0]})
    producer.produce(topic, 2, version=ADDS_FIRST)
    before = producer.identity
    producer.end(commit, version)
    producer.describe()
    after = producer.identity
    for who in (before, after):
        for again in (commit, not commit):
            producer.end(again, version, **who)
            producer.describe()
    describe_producers(peer, topic)
    peer.fetch(topic, version=18)


@scenario_for_each({"commit": COMMIT, "abort": ABORT})
def ended_by_one_whose_successor_keeps_epochs(peer: Peer, commit: bool) -> None:
    """End a transaction as a fenced producer of the second protocol, after its successor of the first has
    ended one.
    """
    topic = peer.topic()
    fenced = TransactionalProducer(peer)
    fenced.init()
    successor = fenced.heir()
    successor.init()
    transact(successor, topic, commit=commit, version=KEEPS_EPOCH)
    peer.call("end_txn", RAISES_EPOCH, **{**fenced.identity, "committed": commit})
    successor.describe()


@scenario_for_each(VERSIONS)
def ended_by_strangers(peer: Peer, version: int) -> None:
    """End a transaction with wrong ids and epochs, which must leave it open."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.init()
    producer.add({topic.name: [0]})
    strangers: list[Plain] = [
        {"producer_epoch": 0},
        {"producer_epoch": 2},
        {"producer_epoch": 9},
        {"producer_epoch": -1},
        {"producer_epoch": 32_767},
        {"producer_id": 2**60},
        {"producer_id": -1, "producer_epoch": -1},
        {"transactional_id": peer.name("nobody")},
        {"transactional_id": ""},
    ]
    for stranger in strangers:
        producer.peer.call("end_txn", version, **{**producer.identity, "committed": COMMIT, **stranger})
    producer.describe()
    producer.end(COMMIT, version)


@scenario_for_each(EPOCH_VERSIONS)
def one_after_the_other(peer: Peer, version: int) -> None:
    """Run five transactions in a row; compare epochs, sequences and markers."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    for commit in (COMMIT, ABORT, COMMIT, COMMIT, ABORT):
        transact(producer, topic, 2, commit=commit, version=version)
        describe_producers(peer, topic)
    producer.describe()
    peer.fetch(topic, version=18)


@scenario
def both_protocols_in_turn(peer: Peer) -> None:
    """Switch between both protocol versions from transaction to transaction, as an upgraded and downgraded
    client does."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    for version in (KEEPS_EPOCH, RAISES_EPOCH, RAISES_EPOCH, KEEPS_EPOCH, KEEPS_EPOCH):
        transact(producer, topic, commit=COMMIT, version=version)
        producer.describe()
    peer.fetch(topic, version=18)


@scenario_for_each(EPOCH_VERSIONS)
def added_and_never_written(peer: Peer, version: int) -> None:
    """Add partitions and write nothing to them: each still gets its marker."""
    topic = peer.topic(partitions=2)
    producer = TransactionalProducer(peer)
    producer.init()
    for commit in (COMMIT, ABORT):
        producer.add({topic.name: [0, 1]})
        producer.end(commit, version)
    describe_producers(peer, topic, 0, 1)
    peer.fetch(topic, version=18)


@scenario
def end_of_the_other_protocol(peer: Peer) -> None:
    """Begin a transaction in one protocol version and end it in the other."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, version=ADDS_BY_PRODUCE)
    producer.end(COMMIT, KEEPS_EPOCH)
    producer.describe()
    producer.add({topic.name: [0]})
    producer.produce(topic, version=ADDS_FIRST)
    producer.end(COMMIT, RAISES_EPOCH)
    producer.describe()
    producer.produce(topic, version=ADDS_BY_PRODUCE)
    producer.end(ABORT, KEEPS_EPOCH)
    describe_producers(peer, topic)
    peer.fetch(topic, version=18)


@scenario_for_each({"commit": COMMIT, "abort": ABORT})
def retried_over_another_connection(peer: Peer, commit: bool) -> None:
    """Lose the answer of an EndTxn, and repeat the request with the old epoch over another connection."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic)
    before = producer.identity
    producer.end(commit)
    other = peer.connect()
    other.call("end_txn", 5, **before, committed=commit)
    transact(producer, topic, commit=COMMIT)
    other.call("end_txn", 5, **before, committed=commit)
    producer.produce(topic)
    other.call("end_txn", 5, **before, committed=commit)
    producer.describe()


@scenario
def topic_that_takes_no_batches(peer: Peer) -> None:
    """End a transaction in a topic whose max.message.bytes is smaller than a marker.

    A partition that refuses a marker of the test refuses the coordinator's, too. Then the transaction is
    never complete.
    """
    topic = peer.topic(configs={"max.message.bytes": "10"})
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0]})
    producer.produce(topic, version=ADDS_FIRST)
    answer = send_markers(peer, 1, end_marker(producer, topic, transaction_result=COMMIT))
    (partition,) = answer["markers"][0]["topics"][0]["partitions"]
    in_the_end = "PrepareCommit" if partition["error_code"] else "CompleteCommit"
    peer.call("end_txn", RAISES_EPOCH, **producer.identity, committed=COMMIT)

    def has_come_to_rest(answer: Plain) -> bool:
        return bool(answer["transaction_states"][0]["transaction_state"] == in_the_end)

    asked = {"transactional_ids": [producer.transactional_id]}
    peer.eventually("describe_transactions", 0, has_come_to_rest, **asked)


@scenario_for_each(EPOCH_VERSIONS)
def log_append_time(peer: Peer, version: int) -> None:
    topic = peer.topic(configs={"message.timestamp.type": "LogAppendTime"})
    producer = TransactionalProducer(peer)
    producer.init()
    transact(producer, topic, 2, commit=COMMIT, version=version)
    transact(producer, topic, 2, commit=ABORT, version=version)
    describe_producers(peer, topic)
    peer.fetch(topic)


@scenario_for_each(EPOCH_VERSIONS)
def pipelined(peer: Peer, version: int) -> None:
    """Pipeline all requests of a transaction before the first answer."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    topics = [{"name": topic.name, "partitions": [0]}]
    added = {f"v3_and_below_{key}": value for key, value in producer.identity.items()}
    batches = [producer.batch(topic), producer.batch(topic, base_sequence=1)]
    produce_version = ADDS_FIRST if version < RAISES_EPOCH else ADDS_BY_PRODUCE
    requests: list[tuple[str, int, Plain]] = [
        ("add_partitions_to_txn", 3, {**added, "v3_and_below_topics": topics}),
        *(
            (
                "produce",
                produce_version,
                produce_request(topic, batch, transactional_id=producer.transactional_id),
            )
            for batch in batches
        ),
        ("end_txn", version, {**producer.identity, "committed": COMMIT}),
    ]
    peer.pipelined(requests)
    producer.settle()
    peer.fetch(topic, isolation_level=1)


@scenario_for_each(EPOCH_VERSIONS)
def many_topics(peer: Peer, version: int) -> None:
    """End a transaction in many topics: every partition gets its marker."""
    topics = [peer.topic(suffix, partitions=3) for suffix in ("a", "b", "c")]
    group_id = peer.group()
    producer = TransactionalProducer(peer)
    producer.init()
    for commit in (COMMIT, ABORT):
        producer.add({topic.name: [0, 1, 2] for topic in topics})
        producer.add_offsets(group_id)
        for topic in topics:
            producer.produce(topic, partition=1, version=ADDS_FIRST)
        producer.end(commit, version)
        for topic in topics:
            describe_producers(peer, topic, 0, 1, 2)
    producer.describe()


@scenario_for_each(EPOCH_VERSIONS)
def topic_is_deleted(peer: Peer, version: int) -> None:
    """End a transaction whose only topic was deleted."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.add({topic.name: [0]})
    producer.produce(topic, version=ADDS_FIRST)
    peer.call("delete_topics", 4, topic_names=[topic.name], timeout=5_000)
    await_applied(peer)
    producer.end(COMMIT, version)
    producer.describe()
    producer.init()
    producer.describe()
