"""Fetch and ListOffsets of partitions that transactions write to."""

from __future__ import annotations

from tests.compat.differential.peer import Peer, Topic, fetch_request
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.compat.differential.transactional import (
    ABORT,
    COMMIT,
    TransactionalProducer,
    describe_producers,
    transact,
)
from tests.support.batches import Batch, records

FETCH_VERSIONS = range(4, 19)
LIST_OFFSETS_VERSIONS = range(2, 12)
UNCOMMITTED, COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LAST_TIERED = -1, -2, -3, -4, -5


def _fetch_both(peer: Peer, topic: Topic, offset: int = 0, version: int = 12) -> None:
    for isolation_level in (UNCOMMITTED, COMMITTED):
        peer.fetch(topic, offset, version=version, isolation_level=isolation_level, max_wait=30)


def _mixed(peer: Peer) -> tuple[Topic, TransactionalProducer, TransactionalProducer]:
    """Write offsets 0–1 committed, 3–4 aborted, each with a marker behind; 6 without a transaction; 7–8 in an
    open one."""
    topic = peer.topic()
    one, two = TransactionalProducer(peer, "one"), TransactionalProducer(peer, "two")
    one.init()
    two.init()
    transact(one, topic, 2, commit=COMMIT)
    transact(one, topic, 2, commit=ABORT)
    peer.produce(topic, Batch(records(1)))
    two.produce(topic, 2)
    return topic, one, two


@scenario_for_each(FETCH_VERSIONS)
def isolation(peer: Peer, version: int) -> None:
    """Read with both isolation levels while a transaction is open, and after its end."""
    topic, _, two = _mixed(peer)
    for offset in (0, 2, 3, 4, 5, 6, 7, 9):
        _fetch_both(peer, topic, offset, version)
    two.end(ABORT)
    for offset in (0, 5, 7, 8, 9, 10):
        _fetch_both(peer, topic, offset, version)


@scenario_for_each(FETCH_VERSIONS)
def nested(peer: Peer, version: int) -> None:
    """Overlap three transactions that end in another order than they began."""
    topic = peer.topic()
    producers = [TransactionalProducer(peer, suffix) for suffix in ("a", "b", "c")]
    for producer in producers:
        producer.init()
        producer.produce(topic, 2)
    for producer in reversed(producers):
        producer.produce(topic)
    for producer, commit in zip(
        (producers[1], producers[2], producers[0]), (ABORT, COMMIT, ABORT), strict=True
    ):
        producer.end(commit)
        _fetch_both(peer, topic, 0, version)
        _fetch_both(peer, topic, 3, version)
        describe_producers(peer, topic)


@scenario_for_each((4, 7, 12, 13, 18))
def open_only(peer: Peer, version: int) -> None:
    """Read while no transaction is committed: a reader of committed records waits and gets nothing."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, 3)
    _fetch_both(peer, topic, 0, version)
    _fetch_both(peer, topic, 3, version)
    _fetch_both(peer, topic, 4, version)
    peer.fetch(topic, 0, version=version, isolation_level=COMMITTED, min_bytes=0)
    producer.end(COMMIT)
    _fetch_both(peer, topic, 0, version)
    _fetch_both(peer, topic, 4, version)


@scenario_for_each((4, 7, 12, 18))
def reader_waits_for_the_end(peer: Peer, version: int) -> None:
    """Wake a waiting reader of committed records by a commit."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, 3)
    reader = peer.connect()
    waiting = reader.begin(
        "fetch", version, **fetch_request(topic, 0, isolation_level=COMMITTED, max_wait=5_000)
    )
    producer.end(COMMIT)
    waiting.answer()


@scenario_for_each((4, 12, 18))
def small_limits(peer: Peer, version: int) -> None:
    """Read batches that a size limit cuts, together with the list of aborted transactions."""
    topic, _, two = _mixed(peer)
    two.end(ABORT)
    for offset, limit in ((0, 1), (0, 100), (0, 200), (3, 100), (3, 1), (2, 100), (7, 1)):
        for isolation_level in (UNCOMMITTED, COMMITTED):
            peer.fetch(
                topic,
                offset,
                version=version,
                isolation_level=isolation_level,
                partition_max_bytes=limit,
                max_bytes=limit,
            )


@scenario_for_each((7, 12, 13, 18))
def session(peer: Peer, version: int) -> None:
    """Read committed records in a fetch session: compare which moves of the last stable offset an answer
    reports."""
    topic = peer.topic(partitions=2)
    producer = TransactionalProducer(peer)
    producer.init()
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    rows = [wanted, {**wanted, "partition": 1}]
    opened = peer.call(
        "fetch",
        version,
        **fetch_request(
            topic,
            isolation_level=COMMITTED,
            max_wait=30,
            session_epoch=0,
            topics=[{"topic": topic.name, "topic_id": topic.topic_id, "partitions": rows}],
        ),
    )
    more = {"session_id": opened.get("session_id", 0), "isolation_level": COMMITTED, "max_wait": 30}

    def go_on(session_epoch: int, **changed: object) -> None:
        request = fetch_request(topic, session_epoch=session_epoch, **{"topics": [], **more, **changed})
        peer.call("fetch", version, **request)

    producer.produce(topic, 2)
    go_on(1)
    go_on(2)
    producer.produce(topic, partition=1)
    go_on(3)
    producer.end(ABORT)
    go_on(4)
    go_on(5)
    moved = {**wanted, "fetch_offset": 3}
    go_on(6, topics=[{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [moved]}])
    forgotten = {"topic": topic.name, "topic_id": topic.topic_id, "partitions": [1]}
    go_on(7, forgotten_topics_data=[forgotten])
    go_on(8, isolation_level=UNCOMMITTED)


@scenario
def many_transactions(peer: Peer) -> None:
    """List in an answer only the aborted transactions that overlap with the records that it returns."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    for number in range(12):
        transact(producer, topic, 2, commit=number % 3 == 0)
    for offset in (0, 5, 11, 20, 30):
        peer.fetch(topic, offset, isolation_level=COMMITTED)
        peer.fetch(topic, offset, isolation_level=COMMITTED, partition_max_bytes=300)


@scenario_for_each(LIST_OFFSETS_VERSIONS)
def list_offsets(peer: Peer, version: int) -> None:
    """Ask for the latest offset of committed records, which is the last stable offset. Later timestamps are
    not found."""
    topic, _, two = _mixed(peer)
    first = Batch().base_timestamp
    timestamps = [LATEST, EARLIEST, first, first + 1]
    timestamps += [MAX_TIMESTAMP] if version >= 7 else []
    timestamps += [EARLIEST_LOCAL] if version >= 8 else []
    timestamps += [LAST_TIERED] if version >= 9 else []
    for isolation_level in (UNCOMMITTED, COMMITTED):
        peer.offsets(topic, *timestamps, version=version, isolation_level=isolation_level)
    two.end(ABORT)
    for isolation_level in (UNCOMMITTED, COMMITTED):
        peer.offsets(topic, *timestamps, version=version, isolation_level=isolation_level)


@scenario_for_each({"uncommitted": UNCOMMITTED, "committed": COMMITTED})
def times_of_an_open_transaction(peer: Peer, isolation_level: int) -> None:
    """Look up a timestamp that only a record of an open transaction reaches."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    first = Batch().base_timestamp
    peer.produce(topic, Batch(records(1)))
    producer.produce(topic, base_timestamp=first + 500)
    peer.produce(topic, Batch(records(1), base_timestamp=first + 200))
    asked = (first, first + 1, first + 200, first + 500, first + 501, LATEST, MAX_TIMESTAMP)
    peer.offsets(topic, *asked, isolation_level=isolation_level)
    producer.end(COMMIT)
    peer.offsets(topic, *asked[:-1], isolation_level=isolation_level)


@scenario_for_each((12, 18))
def records_deleted(peer: Peer, version: int) -> None:
    """Delete the first records of an aborted transaction: answers still list the transaction."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, 2)
    peer.produce(topic, Batch(records(1)))
    producer.produce(topic, 2)
    producer.end(ABORT)
    partitions = [{"partition_index": 0, "offset": 3}]
    peer.call("delete_records", 2, topics=[{"name": topic.name, "partitions": partitions}], timeout=5_000)
    _fetch_both(peer, topic, 0, version)
    _fetch_both(peer, topic, 3, version)


@scenario
def all_records_deleted(peer: Peer) -> None:
    """Delete all records below an open transaction too: offset −1 stands for the high watermark."""
    topic = peer.topic()
    producer = TransactionalProducer(peer)
    producer.init()
    producer.produce(topic, 2)
    peer.produce(topic, Batch(records(1)))
    partitions = [{"partition_index": 0, "offset": -1}]
    peer.call("delete_records", 2, topics=[{"name": topic.name, "partitions": partitions}], timeout=5_000)
    _fetch_both(peer, topic, 3)
    peer.offsets(topic, LATEST, EARLIEST, isolation_level=COMMITTED)
    producer.end(COMMIT)
    _fetch_both(peer, topic, 3)
    _fetch_both(peer, topic, 4)


@scenario
def across_segments(peer: Peer) -> None:
    """Read each segment of an aborted transaction that spans several segments: every answer lists the
    transaction."""
    topic = peer.topic(configs={"segment.bytes": "1048576"})
    one, two = TransactionalProducer(peer, "one"), TransactionalProducer(peer, "two")
    one.init()
    two.init()
    for _ in range(2):
        for producer in (one, two):
            producer.produce(topic, records=records(1, 600_000))
        one.end(ABORT)
    two.end(ABORT)
    for offset in range(8):
        for isolation_level in (UNCOMMITTED, COMMITTED):
            peer.fetch(topic, offset, isolation_level=isolation_level, partition_max_bytes=800_000)
