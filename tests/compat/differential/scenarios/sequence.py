"""Idempotent producers: which sequences are appended, which are answered as duplicates, which are refused."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tests.compat.differential.peer import Peer, produce_request
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import Batch, Record, records

LAST_SEQUENCE = 2**31 - 1
PRODUCER = 60_000
NOW_MS = int(time.time() * 1000)

# (producer id, producer epoch, base sequence, number of records), one Produce each.
Sent = tuple[int, int, int, int]
P = PRODUCER

CONVERSATIONS: dict[str, list[Sent]] = {
    "in order": [(P, 0, 0, 3), (P, 0, 3, 2), (P, 0, 5, 1)],
    "unknown producer starts at 7": [(P, 0, 7, 3), (P, 0, 10, 1)],
    "unknown producer with epoch 9": [(P, 9, 0, 1), (P, 9, 1, 1)],
    "duplicate of the last": [(P, 0, 0, 3), (P, 0, 3, 2), (P, 0, 3, 2), (P, 0, 3, 2)],
    "duplicate of each of the last five": [(P, 0, i, 1) for i in range(5)] + [(P, 0, i, 1) for i in range(5)],
    "duplicate of the sixth": [(P, 0, i, 1) for i in range(6)] + [(P, 0, 0, 1), (P, 0, 1, 1)],
    "old duplicate far back": [(P, 0, i, 1) for i in range(9)] + [(P, 0, 2, 1), (P, 0, 9, 1)],
    "duplicate with other record count": [(P, 0, 0, 3), (P, 0, 0, 2), (P, 0, 0, 4), (P, 0, 0, 3)],
    "duplicate over two batches": [(P, 0, 0, 2), (P, 0, 2, 2), (P, 0, 0, 4)],
    "overlap at the end": [(P, 0, 0, 4), (P, 0, 2, 4)],
    "overlap inside": [(P, 0, 0, 5), (P, 0, 1, 2)],
    "last record again": [(P, 0, 0, 5), (P, 0, 4, 1)],
    "gap": [(P, 0, 0, 2), (P, 0, 3, 1), (P, 0, 2, 1), (P, 0, 3, 1)],
    "gap of a thousand": [(P, 0, 0, 1), (P, 0, 1_000, 1), (P, 0, 1, 1)],
    "back to zero": [(P, 0, 0, 1), (P, 0, 1, 1), (P, 0, 2, 1), (P, 0, 0, 2)],
    "wraps between batches": [(P, 0, LAST_SEQUENCE - 1, 2), (P, 0, 0, 2), (P, 0, 2, 1)],
    "wraps inside a batch": [(P, 0, LAST_SEQUENCE - 1, 4), (P, 0, 2, 1), (P, 0, LAST_SEQUENCE - 1, 4)],
    "wraps with a gap": [(P, 0, LAST_SEQUENCE, 1), (P, 0, 1, 1), (P, 0, 0, 1)],
    "duplicate of a wrapped batch": [(P, 0, LAST_SEQUENCE, 3), (P, 0, 2, 1), (P, 0, LAST_SEQUENCE, 3)],
    "zero after the last but one": [(P, 0, LAST_SEQUENCE - 1, 1), (P, 0, 0, 1), (P, 0, LAST_SEQUENCE, 1)],
    "new epoch from zero": [(P, 0, 0, 3), (P, 1, 0, 2), (P, 1, 2, 1)],
    "new epoch not from zero": [(P, 0, 0, 3), (P, 1, 3, 1), (P, 0, 3, 1), (P, 1, 0, 1)],
    "epoch skips": [(P, 0, 0, 1), (P, 7, 0, 1), (P, 7, 1, 1)],
    "stale epoch": [(P, 5, 0, 3), (P, 4, 3, 1), (P, 4, 0, 1), (P, 5, 3, 1)],
    "duplicate of the former epoch": [(P, 0, 0, 3), (P, 1, 0, 2), (P, 0, 0, 3)],
    "same sequence in a new epoch": [(P, 0, 0, 3), (P, 1, 0, 3), (P, 1, 0, 3)],
    "highest epoch": [(P, 32_766, 0, 1), (P, 32_767, 0, 1), (P, 32_766, 1, 1)],
    "epoch -1": [(P, -1, 0, 2), (P, -1, 2, 1), (P, -1, 0, 2)],
    "epoch -2": [(P, -2, 0, 2)],
    "negative id": [(-7, 0, 0, 2), (-7, 0, 2, 1), (-7, 0, 0, 2)],
    "id -1 with sequences": [(-1, 0, 0, 2), (-1, 0, 0, 2)],
    "sequence -1": [(P, 0, -1, 2)],
    "sequence -2": [(P, 0, -2, 1), (P, 0, 0, 1)],
    "negative sequence later": [(P, 0, 0, 1), (P, 0, -1, 1), (P, 0, 1, 1)],
    "highest id": [(2**63 - 1, 0, 0, 1), (2**63 - 1, 0, 1, 1), (2**63 - 1, 0, 0, 1)],
    "two producers": [(P, 0, 0, 2), (P + 1, 0, 0, 3), (P, 0, 2, 1), (P + 1, 0, 3, 1), (P, 0, 0, 2)],
    "refused first, then in order": [(P, 0, 0, 1), (P, 0, 5, 1), (P, 0, 5, 1), (P, 0, 1, 1), (P, 0, 2, 1)],
}


@scenario_for_each(CONVERSATIONS)
def conversation(peer: Peer, batches: list[Sent]) -> None:
    topic = peer.topic()
    for producer_id, producer_epoch, base_sequence, count in batches:
        peer.produce(topic, Batch(records(count)).of(producer_id, producer_epoch, base_sequence))
    peer.offsets(topic, -1)
    partitions = [{"name": topic.name, "partition_indexes": [0]}]
    peer.call("describe_producers", 0, topics=partitions)
    peer.fetch(topic)


@scenario_for_each(range(3, 14))
def errors_of_every_version(peer: Peer, version: int) -> None:
    """A gap, a stale epoch and a duplicate, as each version words them."""
    topic = peer.topic()
    one = Batch(records(1))
    for sent in (one.of(P, 3, 0), one.of(P, 3, 5), one.of(P, 2, 1), one.of(P, 3, 0), one.of(P, 3, -4)):
        peer.produce(topic, sent, version=version)


@scenario
def duplicate_with_other_content(peer: Peer) -> None:
    topic = peer.topic()
    peer.produce(topic, Batch(records(2, prefix="a")).of(P, 0, 0))
    peer.produce(topic, Batch(records(2, prefix="b")).of(P, 0, 0))
    peer.produce(topic, replace(Batch(records(2)), base_timestamp=5).of(P, 0, 0))
    peer.fetch(topic)


@scenario
def duplicate_with_wrong_crc(peer: Peer) -> None:
    """Retry a batch with damaged bytes: the CRC is checked before the sequence."""
    topic = peer.topic()
    sent = Batch(records(2)).of(P, 0, 0)
    peer.produce(topic, sent)
    peer.produce(topic, replace(sent, crc=1))
    peer.produce(topic, sent)


@scenario
def each_partition_counts_for_itself(peer: Peer) -> None:
    topic = peer.topic(partitions=2)
    first, second = Batch(records(2)).of(P, 0, 0), Batch(records(1)).of(P, 0, 2)
    peer.produce(topic, {0: first, 1: second})
    peer.produce(topic, {0: second, 1: second})
    peer.produce(topic, {0: replace(second, base_sequence=9), 1: replace(second, base_sequence=3)})


@scenario_for_each({"0": 0, "1": 1, "all": -1})
def duplicates_with_acks(peer: Peer, acks: int) -> None:
    topic = peer.topic()
    for sequence in (0, 1, 1, 0, 2):
        peer.produce(topic, Batch(records(1)).of(P, 0, sequence), acks=acks)
    peer.end_offset_reaches(topic, 3)


@scenario
def in_flight(peer: Peer) -> None:
    """Send five requests at once, with their retries behind them."""
    topic = peer.topic()
    batches = [Batch(records(2)).of(P, 0, 2 * index) for index in range(5)]
    peer.pipelined([("produce", 9, produce_request(topic, batch)) for batch in batches + batches])
    peer.offsets(topic, -1)


@scenario
def in_flight_behind_a_gap(peer: Peer) -> None:
    """Send several requests at once of which the first is refused: the others must be refused too."""
    topic = peer.topic()
    batches = [Batch(records(1)).of(P, 0, sequence) for sequence in (0, 2, 3, 1, 2, 3)]
    peer.pipelined([("produce", 9, produce_request(topic, batch)) for batch in batches])
    peer.offsets(topic, -1)


FIRST_REFUSED: dict[str, tuple[dict[str, str], Batch]] = {
    "too large": ({"max.message.bytes": "400"}, Batch(records(20)).of(P, 0, 0)),
    "a wrong checksum": ({}, replace(Batch(records(20)), crc=1).of(P, 0, 0)),
    "a timestamp": ({"message.timestamp.before.max.ms": "36000000"}, Batch(records(20)).of(P, 0, 0)),
    "no key": ({"cleanup.policy": "compact"}, Batch([Record(key=None)] * 20).of(P, 0, 0)),
}


@scenario_for_each(FIRST_REFUSED)
def behind_a_refused_first_batch(peer: Peer, case: tuple[dict[str, str], Batch]) -> None:
    """Send two requests at once, of which the first is refused; then the first batch again, in two parts, and
    the second.
    """
    configs, refused = case
    topic = peer.topic(configs=configs)
    keyed = Batch([Record(key=b"k", value=b"v")] * 10, base_timestamp=NOW_MS)
    later, first, second = (keyed.of(P, 0, sequence) for sequence in (20, 0, 10))
    sent = [refused, later, first, second, later]
    peer.pipelined([("produce", 8, produce_request(topic, batch)) for batch in sent])
    peer.offsets(topic, -1)


@scenario
def two_connections(peer: Peer) -> None:
    topic = peer.topic()
    other = peer.connect()
    first, second = Batch(records(1)).of(P, 0, 0), Batch(records(1)).of(P, 0, 1)
    peer.produce(topic, first)
    other.produce(topic, first)
    other.produce(topic, second)
    peer.produce(topic, second)


@scenario
def survives_delete_records(peer: Peer) -> None:
    topic = peer.topic()
    peer.produce(topic, Batch(records(4)).of(P, 0, 0))
    wanted = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": -1}]}]
    peer.call("delete_records", 2, topics=wanted, timeout=5_000)
    peer.produce(topic, Batch(records(4)).of(P, 0, 0))
    peer.produce(topic, Batch(records(1)).of(P, 0, 9))
    peer.produce(topic, Batch(records(1)).of(P, 0, 4))


@scenario
def forgotten_with_the_topic(peer: Peer) -> None:
    topic = peer.topic()
    peer.produce(topic, Batch(records(4)).of(P, 0, 0))
    peer.call("delete_topics", 4, topic_names=[topic.name], timeout=5_000)
    asked: dict[str, Any] = {"topics": [{"name": topic.name}], "allow_auto_topic_creation": False}
    peer.eventually("metadata", 12, lambda answer: answer["topics"][0]["error_code"] == 3, **asked)
    again = peer.topic()
    peer.produce(again, Batch(records(1)).of(P, 0, 7))
    peer.produce(again, Batch(records(1)).of(P, 0, 0))
    peer.call("describe_producers", 0, topics=[{"name": again.name, "partition_indexes": [0]}])


@scenario
def refused_batch_leaves_no_producer(peer: Peer) -> None:
    topic = peer.topic()
    peer.produce(topic, replace(Batch(records(1)), crc=5).of(P, 0, 0))
    peer.produce(topic, Batch(records(1)).of(P, 0, -3))
    peer.call("describe_producers", 0, topics=[{"name": topic.name, "partition_indexes": [0]}])
    peer.produce(topic, Batch(records(1)).of(P, 0, 0))


@scenario
def producers_described(peer: Peer) -> None:
    topic = peer.topic(partitions=2)
    peer.produce(topic, {0: Batch(records(2)).of(P, 3, 0), 1: Batch(records(1)).of(P + 1, 0, 4)})
    peer.produce(topic, Batch(records(2, step_ms=50)).of(P + 2, 0, 0))
    wanted = [
        {"name": topic.name, "partition_indexes": [0, 1, 2]},
        {"name": peer.name("nowhere"), "partition_indexes": [0]},
    ]
    peer.call("describe_producers", 0, topics=wanted)
    peer.call("describe_producers", 0, topics=[])


@scenario
def idempotent_session(peer: Peer) -> None:
    """Behave as a client does: get a producer id, send batches, retry one."""
    topic = peer.topic()
    handed = peer.call("init_producer_id", 5, transactional_id=None, transaction_timeout=60_000)
    producer_id, producer_epoch = handed.get("producer_id", -1), handed.get("producer_epoch", -1)
    for sequence in (0, 1, 1, 3, 2):
        peer.produce(topic, Batch(records(1)).of(producer_id, producer_epoch, sequence), version=13)
    peer.call("describe_producers", 0, topics=[{"name": topic.name, "partition_indexes": [0]}])
    peer.fetch(topic, version=18)
