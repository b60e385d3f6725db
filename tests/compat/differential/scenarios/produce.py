"""Produce: every version, every error of a batch, and what one request may contain."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import cramjam

from tests.compat.differential.peer import Peer, Records, Topic, produce_request
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import CODECS, Batch, Record, records

THREE = Batch(records(3))
HOUR_MS = 3_600_000
NOW_MS = int(time.time() * 1000)
COMPRESSIBLE = Batch(records(20, 100))

# Each case is one Produce request; the log end offset afterwards shows whether anything was appended.
BATCHES: dict[str, Records] = {
    "wrong crc": replace(THREE, crc=1),
    "magic 0": replace(THREE, magic=0),
    "magic 1": replace(THREE, magic=1),
    "magic 3": replace(THREE, magic=3),
    "magic -1": replace(THREE, magic=-1),
    "length too short": replace(THREE, batch_length=20),
    "length too long": replace(THREE, batch_length=5_000),
    "length negative": replace(THREE, batch_length=-1),
    "header cut": THREE.encode()[:40],
    "body cut": THREE.encode()[:-5],
    "empty records": b"",
    "garbage": b"not a record batch, whatever one may say about it",
    "two batches": THREE.encode() + THREE.encode(),
    "batch and a cut one": THREE.encode() + THREE.encode()[:-1],
    "batch and a cut header": THREE.encode() + THREE.encode()[:30],
    "base offset 7": replace(THREE, base_offset=7),
    "base offset -1": replace(THREE, base_offset=-1),
    "leader epoch 5": replace(THREE, partition_leader_epoch=5),
    "no records": Batch(()),
    "record count 0": replace(THREE, record_count=0),
    "record count too high": replace(THREE, record_count=4, last_offset_delta=3),
    "record count too low": replace(THREE, record_count=2, last_offset_delta=1),
    "record count negative": replace(THREE, record_count=-1),
    "last offset delta too high": replace(THREE, last_offset_delta=5),
    "last offset delta too low": replace(THREE, last_offset_delta=1),
    "last offset delta negative": replace(THREE, last_offset_delta=-1),
    "offset deltas with a gap": Batch((Record(), Record(offset_delta=5)), last_offset_delta=5),
    "offset deltas equal": Batch((Record(offset_delta=0), Record(offset_delta=0)), last_offset_delta=1),
    "record body garbage": replace(THREE, payload=b"\xff" * 40),
    "record body too long": replace(
        THREE, payload=Record().encode(0) + b"tail", record_count=1, last_offset_delta=0
    ),
    "codec 5": replace(THREE, codec=5),
    "codec 7": replace(THREE, codec=7),
    "gzip garbage": replace(THREE, codec="gzip", payload=b"no gzip here"),
    "lz4 garbage": replace(THREE, codec="lz4", payload=b"no lz4 here"),
    "lz4 with linked blocks": replace(
        THREE,
        codec="lz4",
        payload=bytes(cramjam.lz4.compress(b"".join(row.encode(0) for row in records(1)))),
        record_count=1,
        last_offset_delta=0,
    ),
    "zstd garbage": replace(THREE, codec="zstd", payload=b"no zstd here"),
    "snappy garbage": replace(THREE, codec="snappy", payload=b"\xff\xff\xff\xff\xff"),
    "control batch": replace(THREE, attributes=0x20),
    "control batch of a producer": replace(THREE, attributes=0x20).of(51_000, 0, 0),
    "transactional without id": replace(THREE, attributes=0x10).of(51_001, 0, 0),
    "transactional without producer": replace(THREE, attributes=0x10),
    "delete horizon bit": replace(THREE, attributes=0x40),
    "unused attribute bit": replace(THREE, attributes=0x80),
    "log append time bit": replace(THREE, attributes=0x08),
    "max timestamp too high": replace(THREE, max_timestamp=THREE.base_timestamp + 60_000),
    "max timestamp too low": replace(Batch(records(3, step_ms=100)), max_timestamp=THREE.base_timestamp),
    "timestamp -1": replace(THREE, base_timestamp=-1),
    "timestamp 0": replace(THREE, base_timestamp=0),
    "timestamp -5": replace(THREE, base_timestamp=-5),
    "two hours ahead": replace(THREE, base_timestamp=NOW_MS + 2 * HOUR_MS),
    "half an hour ahead": replace(THREE, base_timestamp=NOW_MS + HOUR_MS // 2),
    "last record two hours ahead": replace(
        Batch((Record(), Record(timestamp_delta=2 * HOUR_MS))), base_timestamp=NOW_MS
    ),
    "null value": Batch((Record(value=None, key=b"k"),)),
    "null and empty headers": Batch((Record(headers=((b"", None), (b"h", b""), (b"h", b"2"))),)),
    "empty key and value": Batch((Record(value=b"", key=b""),)),
    "large record": Batch((Record(value=b"x" * 900_000),)),
    "over max.message.bytes": Batch((Record(value=b"x" * 1_100_000),)),
}


@scenario_for_each(range(3, 14))
def every_version(peer: Peer, version: int) -> None:
    """Append twice and read everything back."""
    topic = peer.topic()
    peer.produce(topic, THREE, version=version)
    peer.produce(topic, Batch(records(2, 40)), version=version)
    peer.fetch(topic)


@scenario_for_each(range(3, 14))
def errors_of_every_version(peer: Peer, version: int) -> None:
    topic = peer.topic()
    peer.produce(topic, {0: THREE, 5: THREE}, version=version)
    peer.produce(topic, replace(THREE, crc=7), version=version)
    unknown = Topic(peer.name("nowhere"), "11111111-2222-3333-4444-555555555555")
    peer.produce(unknown, THREE, version=version)


@scenario_for_each(BATCHES)
def batch(peer: Peer, sent: Records) -> None:
    topic = peer.topic()
    peer.produce(topic, sent)
    peer.offsets(topic, -1)
    peer.fetch(topic, max_wait=0)


@scenario
def null_records(peer: Peer) -> None:
    topic = peer.topic()
    peer.call_briefly("produce", 9, **produce_request(topic, None))
    peer.offsets(topic, -1)


@scenario_for_each({"0": 0, "1": 1, "all": -1})
def acks(peer: Peer, number: int) -> None:
    topic = peer.topic()
    peer.produce(topic, THREE, acks=number)
    peer.end_offset_reaches(topic, 3)
    peer.fetch(topic)


@scenario_for_each({"2": 2, "-2": -2, "32767": 32767})
def acks_that_do_not_exist(peer: Peer, number: int) -> None:
    topic = peer.topic()
    peer.produce(topic, THREE, acks=number)
    peer.offsets(topic, -1)


@scenario_for_each({"wrong crc": replace(THREE, crc=1), "good": THREE})
def acks_0_to(peer: Peer, sent: Batch) -> None:
    """Produce with acks 0: an error closes the connection, because no answer can report it."""
    topic = peer.topic()
    peer.produce(topic, sent, acks=0)


@scenario
def acks_0_to_unknown_topic(peer: Peer) -> None:
    peer.produce(Topic(peer.name("nowhere"), ""), THREE, acks=0, version=9)


@scenario_for_each({name: name for name in CODECS})
def codec(peer: Peer, name: str) -> None:
    topic = peer.topic()
    peer.produce(topic, replace(COMPRESSIBLE, codec=name))
    peer.produce(topic, replace(COMPRESSIBLE, codec=name).of(52_000, 0, 0))
    peer.fetch(topic)


@scenario_for_each(range(3, 9))
def zstd_in_old_versions(peer: Peer, version: int) -> None:
    topic = peer.topic()
    peer.produce(topic, replace(COMPRESSIBLE, codec="zstd"), version=version)
    peer.offsets(topic, -1)


@scenario_for_each((4, 9, 10, 18))
def zstd_fetched(peer: Peer, version: int) -> None:
    """Fetch zstd with versions before 10: such consumers can't decode zstd and get an error."""
    topic = peer.topic()
    peer.produce(topic, replace(COMPRESSIBLE, codec="zstd"))
    peer.fetch(topic, version=version)


@scenario
def several_partitions(peer: Peer) -> None:
    topic = peer.topic(partitions=3)
    peer.produce(topic, {0: THREE, 1: replace(THREE, crc=0), 2: Batch(records(1)), 9: THREE})
    for partition in range(3):
        peer.offsets(topic, -1, partition=partition)


@scenario_for_each((9, 12, 13))
def same_partition_twice(peer: Peer, version: int) -> None:
    topic = peer.topic()
    request = produce_request(topic, THREE)
    data = request["topic_data"][0]["partition_data"]
    data.append({"index": 0, "records": Batch(records(5)).encode()})
    peer.call("produce", version, **request)
    peer.offsets(topic, -1)


@scenario_for_each((9, 12, 13))
def same_topic_twice(peer: Peer, version: int) -> None:
    topic = peer.topic(partitions=2)
    request = produce_request(topic, THREE)
    request["topic_data"].append(produce_request(topic, {1: Batch(records(5))})["topic_data"][0])
    peer.call("produce", version, **request)
    peer.offsets(topic, -1)
    peer.offsets(topic, -1, partition=1)


@scenario
def nothing_at_all(peer: Peer) -> None:
    peer.call("produce", 9, acks=-1, timeout=1_000, topic_data=[])


@scenario
def topic_without_partitions(peer: Peer) -> None:
    topic = peer.topic()
    peer.call("produce", 9, acks=-1, timeout=1_000, topic_data=[{"name": topic.name, "partition_data": []}])


@scenario_for_each({"empty": "", "illegal": "a b", "dot": ".", "internal": "__cluster_metadata"})
def topic_names(peer: Peer, name: str) -> None:
    peer.produce(Topic(name, ""), THREE, version=9)


@scenario
def negative_partition(peer: Peer) -> None:
    peer.produce(peer.topic(), {-1: THREE})


@scenario_for_each(
    {"zero": "00000000-0000-0000-0000-000000000000", "one": "00000000-0000-0000-0000-000000000001"}
)
def topic_ids(peer: Peer, topic_id: str) -> None:
    peer.produce(Topic("", topic_id), THREE, version=13)


@scenario
def deleted_topic(peer: Peer) -> None:
    topic = peer.topic()
    peer.produce(topic, THREE)
    peer.call("delete_topics", 4, topic_names=[topic.name], timeout=5_000)
    asked: dict[str, Any] = {"topics": [{"name": topic.name}], "allow_auto_topic_creation": False}
    peer.eventually("metadata", 12, lambda answer: answer["topics"][0]["error_code"] == 3, **asked)
    peer.produce(topic, THREE, version=9)
    peer.produce(topic, THREE, version=13)


@scenario
def log_append_time(peer: Peer) -> None:
    topic = peer.topic(configs={"message.timestamp.type": "LogAppendTime"})
    peer.produce(topic, THREE)
    peer.produce(topic, replace(THREE, base_timestamp=NOW_MS + 2 * HOUR_MS))
    peer.produce(topic, replace(COMPRESSIBLE, codec="gzip").of(53_000, 0, 0))
    peer.produce(topic, replace(COMPRESSIBLE, codec="gzip").of(53_000, 0, 0))
    peer.fetch(topic)


@scenario_for_each({"CreateTime": "CreateTime", "LogAppendTime": "LogAppendTime"})
def says_append_time(peer: Peer, kind: str) -> None:
    """A batch whose header says that the broker has set the timestamp (LogAppendTime).

    A topic with CreateTime accepts it only with a timestamp.
    """
    topic = peer.topic(configs={"message.timestamp.type": kind})
    said = replace(THREE, attributes=8)
    for batch in (said, replace(said, base_timestamp=-1), replace(said, base_timestamp=-1, max_timestamp=5)):
        peer.produce(topic, batch)
    peer.offsets(topic, -1)


@scenario_for_each({"before": "message.timestamp.before.max.ms", "after": "message.timestamp.after.max.ms"})
def timestamp_bounds(peer: Peer, name: str) -> None:
    topic = peer.topic(configs={name: "60000"})
    for minutes in (-30, -2, 0, 2, 30):
        peer.produce(topic, replace(THREE, base_timestamp=NOW_MS + minutes * 60_000))
    peer.offsets(topic, -1)


LIES = {
    "late record hidden": Batch(
        (Record(), Record(timestamp_delta=2 * HOUR_MS)), base_timestamp=NOW_MS, max_timestamp=NOW_MS
    ),
    "old record hidden": Batch(
        (Record(), Record(timestamp_delta=-2 * HOUR_MS), Record()),
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
    ),
    "max too late": Batch(records(2), base_timestamp=NOW_MS, max_timestamp=NOW_MS + 2 * HOUR_MS),
    "base too late": Batch(
        (Record(timestamp_delta=-2 * HOUR_MS), Record(timestamp_delta=-2 * HOUR_MS - 5)),
        base_timestamp=NOW_MS + 2 * HOUR_MS,
        max_timestamp=NOW_MS,
    ),
    "base too old": Batch(
        (Record(timestamp_delta=2 * HOUR_MS),), base_timestamp=NOW_MS - 2 * HOUR_MS, max_timestamp=NOW_MS
    ),
    "max none": Batch(records(2), base_timestamp=NOW_MS, max_timestamp=-1),
    "none among others": Batch((Record(), Record(timestamp_delta=-NOW_MS - 1)), base_timestamp=NOW_MS),
}


@scenario_for_each(
    {f"{what}, {codec}": (lie, codec) for what, lie in LIES.items() for codec in ("none", "zstd")}
)
def lying_header_under_limits(peer: Peer, case: tuple[Batch, str]) -> None:
    """The header of a batch says other timestamps than its records; the topic limits both directions."""
    lie, codec = case
    hour = str(HOUR_MS)
    limits = {"message.timestamp.before.max.ms": hour, "message.timestamp.after.max.ms": hour}
    topic = peer.topic(configs=limits)
    peer.produce(topic, replace(lie, codec=codec))
    peer.fetch(topic)
    peer.offsets(topic, -1, -3)


@scenario_for_each(LIES)
def lying_header(peer: Peer, lie: Batch) -> None:
    """The header of a batch says other timestamps than its records; the topic has Kafka's default limits."""
    topic = peer.topic()
    peer.produce(topic, lie)
    peer.fetch(topic)
    peer.offsets(topic, -1, -3)


@scenario_for_each({"99": 99, "100": 100, "101": 101})
def max_message_bytes(peer: Peer, below: int) -> None:
    """Send batches around max.message.bytes, which counts the whole batch with its header."""
    sent = Batch((Record(value=b"y" * 500),))
    topic = peer.topic(configs={"max.message.bytes": str(len(sent.encode()) + below - 100)})
    peer.produce(topic, sent)
    peer.produce(topic, Batch())
    peer.offsets(topic, -1)


@scenario
def batch_larger_than_a_segment(peer: Peer) -> None:
    topic = peer.topic(configs={"segment.bytes": "1048576", "max.message.bytes": "5000000"})
    peer.produce(topic, Batch((Record(value=b"z" * 1_200_000),)))
    peer.offsets(topic, -1)


@scenario
def segments_roll(peer: Peer) -> None:
    topic = peer.topic(configs={"segment.bytes": "1048576"})
    for index in range(4):
        peer.produce(topic, Batch((Record(value=bytes([65 + index]) * 400_000),)))
    peer.offsets(topic, -2, -1, Batch().base_timestamp)
    for offset in range(4):
        peer.fetch(topic, offset, partition_max_bytes=100)


@scenario
def too_few_replicas(peer: Peer) -> None:
    topic = peer.topic(configs={"min.insync.replicas": "2"})
    peer.produce(topic, THREE)
    peer.produce(topic, THREE, acks=1)


@scenario
def compacted_topic(peer: Peer) -> None:
    """Produce records without a key to a compacted topic: they are refused."""
    topic = peer.topic(configs={"cleanup.policy": "compact"})
    peer.produce(topic, THREE)
    peer.produce(topic, Batch((Record(key=b"k"), Record())))
    peer.produce(topic, Batch((Record(key=b"k"),)))
    peer.offsets(topic, -1)


@scenario
def transactional_id_without_transaction(peer: Peer) -> None:
    """Send a batch that is not transactional in a request with a transactional id."""
    topic = peer.topic()
    peer.produce(topic, THREE, transactional_id="a-transaction")
    peer.produce(topic, THREE.of(54_000, 0, 0), transactional_id="a-transaction")
    peer.offsets(topic, -1)


@scenario
def pipelined(peer: Peer) -> None:
    """Pipeline requests: the answers come in request order, whatever each request waits for."""
    topic = peer.topic()
    asked: dict[str, Any] = {"topics": [{"name": topic.name}], "allow_auto_topic_creation": False}
    peer.pipelined(
        [
            ("produce", 9, produce_request(topic, THREE)),
            ("produce", 3, produce_request(topic, THREE, acks=1)),
            ("metadata", 12, asked),
            ("produce", 9, produce_request(topic, replace(THREE, crc=3))),
            ("produce", 13, produce_request(topic, THREE)),
            ("api_versions", 0, {}),
        ]
    )
    peer.end_offset_reaches(topic, 9)
