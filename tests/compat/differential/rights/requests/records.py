"""Produce, Fetch, ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compat.differential.peer import fetch_request, produce_request
from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    CLUSTER_ACTION,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTION,
    Right,
    row,
)
from tests.compat.differential.transactional import TransactionalProducer, await_coordinator
from tests.support.batches import Batch, records
from tests.support.wire import Plain

UNKNOWN_ID = "00000000-0000-0000-0000-00000000beef"
FIRST_WITH_IDS = 13


def _places(stage: Stage) -> list[Plain]:
    """Return the four topics; in versions with topic ids the missing ones have an id that nobody has."""
    known = {stage.open.name: stage.open.topic_id, stage.closed.name: stage.closed.topic_id}
    return [{"name": name, "topic_id": known.get(name, UNKNOWN_ID)} for name in stage.topics]


def _produced(stage: Stage, version: int, data: Batch) -> list[Plain]:
    places = _places(stage)[: 3 if version >= FIRST_WITH_IDS else 4]
    return [{**place, "partition_data": [{"index": 0, "records": data.encode()}]} for place in places]


@row(WRITE_TOPIC, cases=(3, 9, 12, 13))
def produce(stage: Stage, version: int) -> None:
    data = _produced(stage, version, Batch(records(2)))
    stage.user.call("produce", version, transactional_id=None, acks=-1, timeout=5_000, topic_data=data)


@row(WRITE_TOPIC)
def produce_one_topic(stage: Stage) -> None:
    """Produce to one topic at a time, as most producers do."""
    for topic in (stage.open, stage.closed):
        stage.user.produce(topic, Batch(records(1)))


@row(WRITE_TOPIC)
def produce_in_turns(stage: Stage) -> None:
    """Produce twice with each step: the second request repeats the bytes of the first."""
    for _ in range(2):
        stage.user.produce(stage.open, Batch(records(1)))


@row(WRITE_TOPIC)
def produce_without_acknowledgement(stage: Stage) -> None:
    for topic in (stage.open, stage.closed):
        stage.user.produce(topic, Batch(records(1)), acks=0)


@row(WRITE_TOPIC)
def produce_by_an_idempotent_producer(stage: Stage) -> None:
    """Produce with a producer id: the batches have the same sequence, so that all but the first are
    duplicates.
    """
    stage.user.produce(stage.open, Batch(records(1)).of(2**40, 0, 0))


@row(WRITE_TOPIC)
def produce_to_an_internal_topic(stage: Stage) -> None:
    stage.admin.group()
    data = [{"name": "__consumer_offsets", "partition_data": [{"index": 0, "records": Batch().encode()}]}]
    stage.user.call("produce", 9, transactional_id=None, acks=-1, timeout=5_000, topic_data=data)


@row(WRITE_TOPIC)
def produce_with_wrong_acks(stage: Stage) -> None:
    data = _produced(stage, 9, Batch(records(1)))
    stage.user.call("produce", 9, transactional_id=None, acks=2, timeout=5_000, topic_data=data)


def _coordinated(stage: Stage) -> None:
    for transactional_id in stage.transactional_ids:
        await_coordinator(stage.admin, transactional_id)


@row(WRITE_TOPIC, WRITE_TRANSACTION, cases=(9, 12), prepare=_coordinated)
def produce_in_a_transaction(stage: Stage, version: int) -> None:
    """Produce with a transactional id whose producer id nobody has: a client that has all rights gets another
    error.
    """
    for transactional_id in stage.transactional_ids:
        data = _produced(stage, version, Batch(records(1), attributes=0x10).of(2**40, 0, 0))
        stage.user.call(
            "produce", version, transactional_id=transactional_id, acks=-1, timeout=5_000, topic_data=data[:2]
        )


def _with_a_producer(stage: Stage) -> None:
    TransactionalProducer(stage.admin, "tid").init()


@row(WRITE_TOPIC, WRITE_TRANSACTION, prepare=_with_a_producer)
def produce_transactional_batches_without_an_id(stage: Stage) -> None:
    batch = Batch(records(1), attributes=0x10).of(2**40, 0, 0)
    stage.user.call("produce", 9, **produce_request(stage.open, batch))


def _filled(stage: Stage) -> None:
    for topic in (stage.open, stage.closed):
        stage.admin.produce(topic, Batch(records(3)))


@row(READ_TOPIC, cases=(4, 12, 13, 17), prepare=_filled)
def fetch(stage: Stage, version: int) -> None:
    wanted = fetch_request(stage.open)["topics"][0]["partitions"]
    places = _places(stage)[: 3 if version >= FIRST_WITH_IDS else 4]
    topics = [
        {"topic": place["name"], "topic_id": place["topic_id"], "partitions": wanted} for place in places
    ]
    stage.user.call("fetch", version, **fetch_request(stage.open, max_wait=0, topics=topics))


@row(READ_TOPIC, prepare=_filled)
def fetch_in_a_session(stage: Stage) -> None:
    """Fetch in a session that is older than the entries: the rights are checked anew for each fetch of the
    session.
    """
    open_, closed = (
        fetch_request(topic, max_wait=0, session_epoch=0)["topics"][0] for topic in (stage.open, stage.closed)
    )
    begun = stage.user.call(
        "fetch", 12, **fetch_request(stage.open, max_wait=0, session_epoch=0, topics=[open_, closed])
    )
    session_id = begun.get("session_id", 0)
    for epoch, change in enumerate(({READ_TOPIC}, set(), {READ_TOPIC}), 1):
        stage.change(allowed=tuple(change))
        stage.user.call(
            "fetch",
            12,
            **fetch_request(stage.open, max_wait=0, session_id=session_id, session_epoch=epoch, topics=[]),
        )


@row(READ_TOPIC, cases=(7, 12, 13, 18), prepare=_filled)
def order_of_a_fetch(stage: Stage, version: int) -> None:
    """Note the order of the topics in a whole fetch and in a session: denied topics come last."""
    places = (stage.closed, stage.open)
    topics = [fetch_request(topic)["topics"][0] for topic in places]
    begun = _ordered(stage, version, session_epoch=0, topics=topics)
    session_id = begun.get("session_id", 0)
    for epoch, change in enumerate((set(), {READ_TOPIC}, set()), 1):
        stage.change(allowed=tuple(change))
        _ordered(stage, version, session_id=session_id, session_epoch=epoch, topics=[])


def _ordered(stage: Stage, version: int, **asked: Any) -> Plain:
    answer = stage.user.call("fetch", version, **fetch_request(stage.open, max_wait=0, **asked))
    suffixes = {stage.open.name: "open", stage.closed.name: "closed"}
    suffixes |= {stage.open.topic_id: "open", stage.closed.topic_id: "closed"}
    order = [suffixes[row.get("topic") or row["topic_id"]] for row in answer.get("responses", ())]
    stage.user.note("the order", topics=order)
    return answer


@row(READ_TOPIC, cases=(12, 17), prepare=_filled)
def fetch_with_an_unknown_isolation(stage: Stage, version: int) -> None:
    for topics in ((stage.open, stage.closed), (stage.closed,)):
        places = [fetch_request(topic)["topics"][0] for topic in topics]
        stage.user.call(
            "fetch", version, **fetch_request(stage.open, max_wait=0, isolation_level=7, topics=places)
        )


@row(READ_TOPIC, cases=(12, 17), prepare=_filled)
def fetch_of_a_deleted_topic_in_a_session(stage: Stage, version: int) -> None:
    """The right to read a deleted topic is that of the name which the session knows."""
    gone = stage.admin.topic(f"gone-{stage.step}".replace(" ", "-"))
    topics = [fetch_request(topic)["topics"][0] for topic in (gone, stage.open)]
    begun = stage.user.call(
        "fetch", version, **fetch_request(gone, max_wait=0, session_epoch=0, topics=topics)
    )
    stage.admin.wire.call("delete_topics", 4, topic_names=[gone.name], timeout=5_000)
    asked: Plain = {"topics": [{"name": gone.name}], "allow_auto_topic_creation": False}
    stage.admin.until("metadata", 12, lambda answer: answer["topics"][0]["error_code"] == 3, asked)
    more = {"session_id": begun.get("session_id", 0), "session_epoch": 1, "topics": [], "max_wait": 0}
    stage.user.call("fetch", version, **fetch_request(gone, **more))


_ATTEMPTS = 10
"""How often a fetch may lose the race against a change of rights on another connection."""


@row(READ_TOPIC, prepare=_filled)
def fetch_that_waits(stage: Stage) -> None:
    """Take the right away, or give it, while a fetch waits: the fetch keeps the right that it had at its
    beginning.
    """
    for before, after in (((READ_TOPIC,), ()), ((), (READ_TOPIC,))):
        rows = _waited(stage, before, after)
        for _ in range(_ATTEMPTS):
            if before and rows[0][1]:
                # the change was quicker than the fetch, which was sent first and began without the right
                rows = _waited(stage, before, after)
        stage.user.note("the fetch that waited", rows=rows)


def _append(stage: Stage) -> int:
    """Append a record and return its offset; nothing is noted, because the number of attempts differs."""
    request = produce_request(stage.open, Batch(records(1)))
    answer = stage.admin.wire.call("produce", 9, request).fields
    return int(answer["responses"][0]["partition_responses"][0]["base_offset"])


def _waited(stage: Stage, before: Sequence[Right], after: Sequence[Right]) -> list[tuple[int, int, bool]]:
    """Change the rights while a fetch waits; return partition, error and whether there were records, by row."""
    stage.change(allowed=before)
    fields = fetch_request(stage.open, _append(stage) + 1, max_wait=20_000)
    waiting = stage.user.wire.send("fetch", 12, fields)
    stage.change(allowed=after)
    _append(stage)
    answer = stage.user.wire.receive("fetch", 12, waiting).fields
    return [
        (row["partition_index"], row["error_code"], bool(row["records"]))
        for topic in answer["responses"]
        for row in topic["partitions"]
    ]


@row(READ_TOPIC, CLUSTER_ACTION, prepare=_filled)
def fetch_as_a_replica(stage: Stage) -> None:
    stage.user.call("fetch", 12, **fetch_request(stage.open, max_wait=0, replica_id=77))


@row(DESCRIBE_TOPIC, cases=(1, 11), prepare=_filled)
def list_offsets(stage: Stage, version: int) -> None:
    asked = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    topics = [{"name": name, "partitions": asked} for name in stage.topics]
    stage.user.call("list_offsets", version, replica_id=-1, topics=topics, timeout=1_000)


@row(DESCRIBE_TOPIC, prepare=_filled)
def list_offsets_with_an_unknown_isolation(stage: Stage) -> None:
    asked = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    for names in (stage.topics, stage.topics[1:2]):
        topics = [{"name": name, "partitions": asked} for name in names]
        stage.user.call("list_offsets", 8, replica_id=-1, isolation_level=7, topics=topics)


@row(DELETE_TOPIC, cases=(0, 2), prepare=_filled)
def delete_records(stage: Stage, version: int) -> None:
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "offset": 1}]} for name in stage.topics[:2]
    ]
    stage.user.call("delete_records", version, topics=topics, timeout=5_000)
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "offset": 1}]} for name in stage.topics[3:]
    ]
    stage.user.call("delete_records", version, topics=topics, timeout=5_000)


@row(DESCRIBE_TOPIC, cases=(2, 4), prepare=_filled)
def offset_for_leader_epoch(stage: Stage, version: int) -> None:
    asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    topics = [{"topic": name, "partitions": asked} for name in stage.topics]
    stage.user.call("offset_for_leader_epoch", version, replica_id=-1, topics=topics)


@row(READ_TOPIC, prepare=_filled)
def describe_producers(stage: Stage) -> None:
    topics = [{"name": name, "partition_indexes": [0]} for name in stage.topics]
    stage.user.call("describe_producers", 0, topics=topics)
