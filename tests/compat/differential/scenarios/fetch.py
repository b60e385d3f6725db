"""Fetch: versions, limits, waiting, epochs, sessions."""

from __future__ import annotations

from typing import Any

from tests.compat.differential.peer import Peer, Topic, fetch_request, produce_request
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import Batch, Record, records
from tests.support.wire import Plain

VERSIONS = range(4, 19)
UNKNOWN_ID = "00000000-0000-0000-0000-00000000f00d"


def _filled(peer: Peer, *, batches: int = 4, **more: Any) -> Topic:
    topic = peer.topic(**more)
    for index in range(batches):
        peer.produce(topic, Batch(records(3, 100, prefix=f"b{index}-")))
    return topic


@scenario_for_each(VERSIONS)
def every_version(peer: Peer, version: int) -> None:
    topic = _filled(peer)
    for offset in (0, 1, 3, 11, 12):
        peer.fetch(topic, offset, version=version, max_wait=0)


@scenario_for_each(VERSIONS)
def out_of_range(peer: Peer, version: int) -> None:
    topic = _filled(peer)
    for offset in (13, 1_000_000, -1, -2):
        peer.fetch(topic, offset, version=version, max_wait=0)


@scenario_for_each(VERSIONS)
def unknown(peer: Peer, version: int) -> None:
    topic = peer.topic()
    peer.fetch(topic, partition=5, version=version, max_wait=0)
    peer.fetch(Topic(peer.name("nowhere"), UNKNOWN_ID), version=version, max_wait=0)
    peer.fetch(Topic("", "00000000-0000-0000-0000-000000000000"), version=version, max_wait=0)


@scenario
def empty_log(peer: Peer) -> None:
    topic = peer.topic()
    for offset in (0, 1, -1):
        peer.fetch(topic, offset, max_wait=0)


@scenario_for_each({str(limit): limit for limit in (0, 1, 60, 61, 375, 500, 1_000, 1_500, 5_000)})
def partition_limit(peer: Peer, limit: int) -> None:
    """Cut a batch at the limit of the partition, except the first batch, which is returned whole."""
    topic = _filled(peer)
    peer.fetch(topic, 0, partition_max_bytes=limit)
    peer.fetch(topic, 4, partition_max_bytes=limit)


@scenario_for_each({str(limit): limit for limit in (0, 1, 400, 900, 5_000)})
def request_limit(peer: Peer, limit: int) -> None:
    topic = _filled(peer)
    for version in (4, 12, 18):
        peer.fetch(topic, 0, version=version, max_bytes=limit)


@scenario_for_each({"-1": -1, "min": -(2**31)})
def negative_limits(peer: Peer, limit: int) -> None:
    topic = _filled(peer)
    peer.fetch(topic, 0, max_bytes=limit)
    peer.fetch(topic, 0, partition_max_bytes=limit, max_wait=0)
    peer.fetch(topic, 12, max_bytes=limit, partition_max_bytes=limit, max_wait=0)
    peer.fetch(topic, 13, max_bytes=limit, max_wait=0)
    peer.fetch(topic, 0, min_bytes=limit)
    peer.fetch(topic, 12, max_wait=limit)


@scenario_for_each({"request": (-1, 1 << 20), "partition": (1 << 20, -1), "both": (-1, -1)})
def negative_limits_over_partitions(peer: Peer, limits: tuple[int, int]) -> None:
    """A negative limit of the request counts for the first partition only."""
    topic = peer.topic(partitions=4)
    peer.produce(topic, {1: Batch(records(2, 100)), 2: Batch(records(2, 100)), 3: Batch(records(2, 100))})
    max_bytes, partition_max_bytes = limits
    wanted = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": partition_max_bytes}
        for index in range(4)
    ]
    for version in (4, 12, 17):
        for first in (0, 1):
            topics = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": wanted[first:]}]
            peer.call("fetch", version, **fetch_request(topic, max_bytes=max_bytes, topics=topics))


@scenario_for_each({"request": (700, 1 << 20), "partition": (1 << 20, 700), "tiny": (10, 10)})
def limits_over_partitions(peer: Peer, limits: tuple[int, int]) -> None:
    """Only the first partition with records may exceed the limit of the request."""
    topic = peer.topic(partitions=3)
    for _ in range(3):
        peer.produce(topic, {0: Batch(records(2, 100)), 1: Batch(records(2, 100)), 2: Batch(records(2, 100))})
    max_bytes, partition_max_bytes = limits
    wanted = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
        for index, offset in ((0, 6), (1, 0), (2, 0))
    ]
    topics = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": wanted}]
    for version in (4, 12, 17):
        peer.call("fetch", version, **fetch_request(topic, max_bytes=max_bytes, topics=topics))


@scenario
def waits_for_nothing(peer: Peer) -> None:
    topic = _filled(peer)
    peer.fetch(topic, 12, max_wait=50)
    peer.fetch(topic, 12, max_wait=0)
    peer.fetch(topic, 0, max_wait=300, min_bytes=1_000_000)
    peer.fetch(topic, 0, max_wait=50, min_bytes=0)


@scenario
def woken_by_a_produce(peer: Peer) -> None:
    """End a long poll when another connection appends records."""
    topic = peer.topic()
    waiting = peer.connect()
    request = fetch_request(topic, 0, max_wait=8_000, min_bytes=1)
    number = waiting.wire.send("fetch", 12, request)
    peer.produce(topic, Batch(records(2)))
    waiting.exchange("the waiting fetch", request, lambda: waiting.wire.receive("fetch", 12, number))


@scenario
def woken_by_enough(peer: Peer) -> None:
    topic = peer.topic()
    waiting = peer.connect()
    request = fetch_request(topic, 0, max_wait=8_000, min_bytes=900)
    number = waiting.wire.send("fetch", 12, request)
    for _ in range(3):
        peer.produce(topic, Batch((Record(value=b"w" * 280),)))
    waiting.exchange("the waiting fetch", request, lambda: waiting.wire.receive("fetch", 12, number))


@scenario
def pipelined_behind_a_wait(peer: Peer) -> None:
    topic = _filled(peer)
    peer.pipelined(
        [
            ("fetch", 12, fetch_request(topic, 12, max_wait=100)),
            ("fetch", 12, fetch_request(topic, 0)),
            ("produce", 9, produce_request(topic, Batch())),
            ("fetch", 12, fetch_request(topic, 12, max_wait=120_000)),
        ]
    )


@scenario_for_each({"committed": 1, "uncommitted": 0, "2": 2, "-1": -1})
def isolation(peer: Peer, level: int) -> None:
    topic = _filled(peer, batches=1)
    for version in VERSIONS:
        peer.fetch(topic, 0, version=version, isolation_level=level)


@scenario_for_each(VERSIONS)
def unknown_isolation_of_several(peer: Peer, version: int) -> None:
    """Ask with an unknown isolation level for known and unknown partitions, and for unknown ones alone."""
    topic = _filled(peer, batches=1)
    nowhere = Topic(peer.name("nowhere"), UNKNOWN_ID)
    for places in (
        ((nowhere, 0), (topic, 0)),
        ((topic, 1), (nowhere, 0)),
        ((nowhere, 0),),
        ((topic, 7),),
        (),
    ):
        topics = [_place(each, partition) for each, partition in places]
        peer.call("fetch", version, **fetch_request(topic, isolation_level=7, max_wait=0, topics=topics))
    peer.fetch(topic, 0, version=version, isolation_level=7, replica_id=77, replica_state={"replica_id": 77})


def _place(topic: Topic, partition: int = 0, offset: int = 0) -> Plain:
    """Return the entry of one partition in the topics of a Fetch request."""
    row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {"topic": topic.name, "topic_id": topic.topic_id, "partitions": [row]}


def _note_order(peer: Peer, answer: Plain, *topics: Topic) -> None:
    """Record the order of the partitions in an answer, which the comparison of fields leaves out."""
    names = {each.topic_id: each.name for each in topics}
    peer.note(
        "the order",
        rows=[
            f"{names.get(row.get('topic_id'), row.get('topic'))} {entry['partition_index']}"
            for row in answer.get("responses", ())
            for entry in row["partitions"]
        ],
    )


@scenario_for_each((4, 7, 12, 13, 18))
def order(peer: Peer, version: int) -> None:
    """Partitions that are read come first, then topic ids that nobody has, then other unknown partitions."""
    first, second = peer.topic("first"), peer.topic("second", partitions=2)
    peer.produce(first, Batch(records(1)))
    peer.produce(second, {0: Batch(records(1)), 1: Batch(records(1))})
    nowhere = Topic(peer.name("nowhere"), UNKNOWN_ID)
    places = (
        (first, 5, 0), (nowhere, 0, 0), (second, 1, 0), (second, 7, 0),
        (nowhere, 1, 0), (first, 0, 9), (second, 0, 0),
    )  # fmt: skip
    topics = [_place(*place) for place in places]
    asked = fetch_request(first, max_wait=0, session_epoch=0, topics=topics)
    opened = peer.call("fetch", version, **asked)
    _note_order(peer, opened, first, second, nowhere)
    if version >= 7:
        more = {"session_id": opened.get("session_id", 0), "max_wait": 0}
        for epoch, named in enumerate(([], [_place(nowhere, 2), _place(second, 1)], []), 1):
            asked = fetch_request(first, session_epoch=epoch, topics=named, **more)
            _note_order(peer, peer.call("fetch", version, **asked), first, second, nowhere)


@scenario_for_each({str(epoch): epoch for epoch in (0, 1, -1, -2)})
def current_leader_epoch(peer: Peer, leader_epoch: int) -> None:
    topic = _filled(peer, batches=1)
    for version in (9, 12, 15, 16, 18):
        peer.fetch(topic, 0, version=version, current_leader_epoch=leader_epoch, max_wait=0)


@scenario_for_each({str(epoch): epoch for epoch in (0, 1, 7, -2)})
def last_fetched_epoch(peer: Peer, leader_epoch: int) -> None:
    topic = _filled(peer, batches=2)
    for offset in (0, 4, 6, 9):
        peer.fetch(topic, offset, version=12, last_fetched_epoch=leader_epoch, max_wait=0)
    peer.fetch(topic, 3, version=17, last_fetched_epoch=leader_epoch, max_wait=0)


@scenario
def after_delete_records(peer: Peer) -> None:
    topic = _filled(peer)
    wanted = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 4}]}]
    peer.call("delete_records", 2, topics=wanted, timeout=5_000)
    for offset in (0, 3, 4, 5):
        peer.fetch(topic, offset, max_wait=0)
        peer.fetch(topic, offset, max_wait=0, version=4)


@scenario_for_each({"-2": -2, "1": 1, "77": 77})
def replica_ids(peer: Peer, replica_id: int) -> None:
    """Fetch as a replica that the partition does not have: the answer names the leader from v16 on."""
    topic = _filled(peer, batches=1)
    asked = {"replica_id": replica_id, "replica_state": {"replica_id": replica_id, "replica_epoch": -1}}
    for version in VERSIONS:
        for places in ([_place(topic)], [_place(topic, 5), _place(topic, 0, 99)]):
            peer.fetch(topic, version=version, max_wait=0, topics=places, **asked)
        for leader_epoch in (0, 5):
            peer.fetch(topic, version=version, max_wait=0, current_leader_epoch=leader_epoch, **asked)


@scenario_for_each((12, 17))
def same_partition_twice(peer: Peer, version: int) -> None:
    topic = _filled(peer, batches=2)
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    rows = [row, {**row, "fetch_offset": 3}]
    topics = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": rows}]
    peer.call("fetch", version, **fetch_request(topic, topics=topics))


@scenario_for_each((4, 12, 17))
def nothing_at_all(peer: Peer, version: int) -> None:
    peer.call("fetch", version, replica_id=-1, max_wait=50, min_bytes=1, max_bytes=1_000, topics=[])


@scenario_for_each({"snappy": "snappy", "zstd": "zstd"})
def compressed_batches_come_whole(peer: Peer, codec: str) -> None:
    topic = peer.topic()
    peer.produce(topic, Batch(records(50, 100), codec=codec))
    for offset in (0, 20, 49):
        peer.fetch(topic, offset)


# --- sessions


def _session(
    peer: Peer, topic: Topic, version: int, session: tuple[int, int], *rows: tuple[int, int]
) -> Plain:
    """Send a fetch within a fetch session; each row is (partition, fetch offset)."""
    wanted = [
        {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for partition, offset in rows
    ]
    topics = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": wanted}] if rows else []
    request = fetch_request(
        topic, max_wait=30, session_id=session[0], session_epoch=session[1], topics=topics
    )
    return peer.call("fetch", version, **request)


@scenario_for_each((7, 9, 12, 13, 15, 17, 18))
def session(peer: Peer, version: int) -> None:
    """Open a fetch session with all partitions; name only changes from then on."""
    topic = peer.topic(partitions=3)
    peer.produce(topic, {0: Batch(records(2)), 1: Batch(records(1))})
    opened = _session(peer, topic, version, (0, 0), (0, 0), (1, 0), (2, 0))
    number = opened.get("session_id", 0)
    _session(peer, topic, version, (number, 1), (0, 2), (1, 1))
    _session(peer, topic, version, (number, 2))
    peer.produce(topic, {2: Batch(records(4))})
    _session(peer, topic, version, (number, 3))
    _session(peer, topic, version, (number, 4), (2, 4))
    _session(peer, topic, version, (number, 5))


@scenario_for_each((7, 12, 13, 18))
def session_epochs(peer: Peer, version: int) -> None:
    """A wrong session epoch is an error, and the session continues with the right one."""
    topic = peer.topic()
    peer.produce(topic, Batch(records(2)))
    number = _session(peer, topic, version, (0, 0), (0, 0)).get("session_id", 0)
    for session_epoch in (5, 1, 1, 2, 0):
        _session(peer, topic, version, (number, session_epoch), (0, 0))
    _session(peer, topic, version, (number, 3))


@scenario_for_each((7, 12, 18))
def unknown_session(peer: Peer, version: int) -> None:
    topic = peer.topic()
    for session_id, session_epoch in ((12_345, 1), (12_345, 0), (12_345, -1), (0, 1), (0, 5)):
        _session(peer, topic, version, (session_id, session_epoch), (0, 0))


@scenario_for_each((7, 12, 18))
def session_closed(peer: Peer, version: int) -> None:
    topic = peer.topic()
    peer.produce(topic, Batch(records(2)))
    number = _session(peer, topic, version, (0, 0), (0, 0)).get("session_id", 0)
    _session(peer, topic, version, (number, -1), (0, 0))
    _session(peer, topic, version, (number, 1), (0, 0))


@scenario_for_each((7, 12, 13, 18))
def session_forgets(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=2)
    peer.produce(topic, {0: Batch(records(2)), 1: Batch(records(1))})
    number = _session(peer, topic, version, (0, 0), (0, 0), (1, 0)).get("session_id", 0)
    forgotten = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [0]}]
    more = {"session_id": number, "topics": [], "max_wait": 30}
    peer.call(
        "fetch", version, **fetch_request(topic, session_epoch=1, forgotten_topics_data=forgotten, **more)
    )
    peer.call("fetch", version, **fetch_request(topic, session_epoch=2, **more))
    peer.call(
        "fetch", version, **fetch_request(topic, session_epoch=3, forgotten_topics_data=forgotten, **more)
    )


@scenario_for_each((7, 12, 13, 18))
def session_with_errors(peer: Peer, version: int) -> None:
    """Every incremental answer repeats the errors of partitions."""
    topic = peer.topic()
    peer.produce(topic, Batch(records(2)))
    number = _session(peer, topic, version, (0, 0), (0, 99), (4, 0)).get("session_id", 0)
    _session(peer, topic, version, (number, 1))
    _session(peer, topic, version, (number, 2), (0, 0))
    _session(peer, topic, version, (number, 3), (0, 2))


@scenario_for_each((12, 13))
def session_of_an_unknown_topic(peer: Peer, version: int) -> None:
    nowhere = Topic(peer.name("nowhere"), UNKNOWN_ID)
    number = _session(peer, nowhere, version, (0, 0), (0, 0)).get("session_id", 0)
    _session(peer, nowhere, version, (number, 1))


@scenario
def session_with_an_empty_start(peer: Peer) -> None:
    topic = peer.topic()
    number = _session(peer, topic, 12, (0, 0)).get("session_id", 0)
    peer.note("a session without partitions", opened=number != 0)


@scenario
def session_over_two_connections(peer: Peer) -> None:
    topic = peer.topic()
    peer.produce(topic, Batch(records(2)))
    other = peer.connect()
    number = _session(peer, topic, 12, (0, 0), (0, 0)).get("session_id", 0)
    _session(other, topic, 12, (number, 1), (0, 1))
    _session(peer, topic, 12, (number, 2), (0, 2))


def _deleted(peer: Peer, topic: Topic) -> None:
    peer.call("delete_topics", 4, topic_names=[topic.name], timeout=5_000)
    asked: dict[str, Any] = {"topics": [{"name": topic.name}], "allow_auto_topic_creation": False}
    peer.eventually("metadata", 12, lambda answer: answer["topics"][0]["error_code"] == 3, **asked)


@scenario_for_each((7, 12, 13, 17, 18))
def session_survives_deletion_of_a_topic(peer: Peer, version: int) -> None:
    """A session knows the name of a topic that is deleted, and so also another topic of that name."""
    topic, kept = peer.topic(), peer.topic("kept")
    peer.produce(topic, Batch(records(2)))
    peer.produce(kept, Batch(records(1)))
    topics = [_place(topic), _place(kept)]
    opened = peer.call("fetch", version, **fetch_request(topic, session_epoch=0, topics=topics))
    _deleted(peer, topic)
    more = {"session_id": opened.get("session_id", 0), "max_wait": 30}
    for epoch, named in enumerate(([], [_place(topic)], [_place(topic, 1)]), 1):
        answer = peer.call(
            "fetch", version, **fetch_request(topic, session_epoch=epoch, topics=named, **more)
        )
        _note_order(peer, answer, topic, kept)
    again = peer.topic()
    peer.produce(again, Batch(records(3)))
    for epoch, named in enumerate(([], [_place(topic)], [_place(again)], []), 4):
        answer = peer.call(
            "fetch", version, **fetch_request(topic, session_epoch=epoch, topics=named, **more)
        )
        _note_order(peer, answer, topic, kept, again)
    peer.call("fetch", version, **fetch_request(topic, max_wait=0))


@scenario_for_each((13, 18))
def session_opened_with_a_deleted_topic(peer: Peer, version: int) -> None:
    """A session that is opened after the deletion does not know the name."""
    topic, kept = peer.topic(), peer.topic("kept")
    _deleted(peer, topic)
    topics = [_place(topic), _place(kept)]
    opened = peer.call("fetch", version, **fetch_request(topic, session_epoch=0, topics=topics))
    more = {"session_id": opened.get("session_id", 0), "max_wait": 30}
    peer.call("fetch", version, **fetch_request(topic, session_epoch=1, topics=[], **more))
    peer.topic()
    peer.call("fetch", version, **fetch_request(topic, session_epoch=2, topics=[], **more))


@scenario_for_each((7, 12, 13, 18))
def session_with_an_unknown_isolation(peer: Peer, version: int) -> None:
    """An unknown isolation level opens no session, and advances the epoch of one that is open."""
    topic = _filled(peer, batches=1)
    opening = fetch_request(topic, session_epoch=0, max_wait=0)
    number = peer.call("fetch", version, **opening).get("session_id", 0)
    steps: tuple[tuple[int, int, list[Plain]], ...] = (
        (7, 1, []), (0, 1, []), (7, 2, [_place(topic, 1)]), (0, 3, []),
        (7, 9, []), (7, 0, [_place(topic)]), (0, 4, []),
    )  # fmt: skip
    for level, epoch, named in steps:
        more = {"session_id": number, "session_epoch": epoch, "isolation_level": level, "max_wait": 0}
        peer.call("fetch", version, **fetch_request(topic, topics=named, **more))
    peer.call("fetch", version, **{**opening, "isolation_level": 7})


@scenario_for_each((7, 12, 13, 17))
def session_forgets_what_it_names(peer: Peer, version: int) -> None:
    """A session that has no partition left ends; what the request names is answered once more."""
    topic = peer.topic(partitions=2)
    peer.produce(topic, {0: Batch(records(2)), 1: Batch(records(1))})
    forgotten = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [0]}]
    for offset in (0, 2, 15):
        number = _session(peer, topic, version, (0, 0), (0, offset)).get("session_id", 0)
        row = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
        topics = [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": [row]}]
        more = {"session_id": number, "topics": topics, "max_wait": 30, "forgotten_topics_data": forgotten}
        peer.call("fetch", version, **fetch_request(topic, session_epoch=1, **more))
        _session(peer, topic, version, (number, 2))
