"""Kafka and Seqgate compact the same records and keep the same batches."""

from __future__ import annotations

import time
from dataclasses import replace

from seqgate.log.format.record_batch import DELETE_HORIZON_FLAG, parse_header, whole_batches
from seqgate.log.format.records import iterate_records
from tests.compat.differential.peer import Peer, Topic, Unsettled, fetch_request
from tests.compat.differential.scenario import scenario
from tests.compat.differential.transactional import ABORT, COMMIT, TransactionalProducer
from tests.support.batches import Batch, Record

BROKER, SET = 4, 0
SEGMENT_MS = 600_000
TIMEOUT_S = 120.0
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": str(SEGMENT_MS)}


def _eager(peer: Peer) -> None:
    """Let the endpoint's cleaner look for work every 50 ms."""
    configs = [{"name": "log.cleaner.backoff.ms", "config_operation": SET, "value": "50"}]
    resource = {"resource_type": BROKER, "resource_name": "", "configs": configs}
    answer = peer.wire.call("incremental_alter_configs", 1, resources=[resource]).fields
    assert answer["responses"][0]["error_code"] == 0, answer


def _batch(segment: int, *records: tuple[str, str | None], codec: str = "none") -> Batch:
    """Return a batch whose timestamp is so late for each further `segment` that it begins a new segment of
    the log.
    """
    started = int(time.time() * 1000) + segment * (SEGMENT_MS + 60_000)
    listed = tuple(
        Record(
            key=key.encode(), value=None if value is None else value.encode(), headers=((b"h", key.encode()),)
        )
        for key, value in records
    )
    return Batch(listed, codec=codec, base_timestamp=started)


def _stored(peer: Peer, topic: Topic, end_offset: int) -> list[tuple[object, ...]]:
    """Return (base_offset, last_offset, attributes, base_sequence, records) of every batch in the log."""
    found: list[tuple[object, ...]] = []
    offset = 0
    while offset < end_offset:
        answer = peer.wire.call("fetch", 12, fetch_request(topic, offset)).fields
        data = answer["responses"][0]["partitions"][0]["records"]
        for position, header in whole_batches(data):
            kept = [
                (record.offset, record.key, record.value, record.headers)
                for record in iterate_records(data[position : position + header.size_bytes])
            ]
            # The flag of the delete horizon is not compared. An endpoint sets it for a marker in a second
            # cleaning, and the endpoints may have cleaned a different number of times.
            attributes = header.attributes & ~DELETE_HORIZON_FLAG
            found.append((header.base_offset, header.last_offset, attributes, header.base_sequence, kept))
            offset = parse_header(data, position).last_offset + 1
    return found


def _await_cleaned(peer: Peer, topic: Topic, end_offset: int, *gone: int) -> None:
    """Wait until compaction removed the records at these offsets; record the remaining batches."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        stored = _stored(peer, topic, end_offset)
        offsets = {record[0] for *_, kept in stored for record in kept}  # type: ignore[attr-defined]
        if offsets.isdisjoint(gone):
            peer.note("what stays", batches=[repr(batch) for batch in stored])
            return
        if time.monotonic() > deadline:
            raise Unsettled(f"still there: {sorted(offsets & set(gone))}")
        time.sleep(0.05)


@scenario
def newest_values(peer: Peer) -> None:
    """Compact several segments with all codecs, tombstones, and a producer of which only the sequence
    remains."""
    _eager(peer)
    topic = peer.topic(configs=CONFIGS)
    peer.produce(topic, _batch(0, ("a", "1"), ("b", "1"), ("a", "2")))
    peer.produce(topic, _batch(0, ("c", "1"), ("d", None), ("e", "1"), codec="gzip"))
    peer.produce(topic, _batch(0, ("a", "3"), ("b", "2")).of(4711, 0, 0))
    peer.produce(topic, _batch(1, ("b", None), ("e", "2"), codec="zstd"))
    peer.produce(topic, _batch(1, ("a", "4"), ("c", "2")).of(4712, 3, 7))
    peer.produce(topic, _batch(2, ("a", "5"), ("f", "1"), codec="lz4"))
    peer.produce(topic, _batch(2, ("g", "1"), ("g", None), ("g", "2"), codec="snappy"))
    peer.produce(topic, _batch(3, ("a", "active")))
    _await_cleaned(peer, topic, 18, 0, 1, 2, 3, 5, 6, 7, 10, 14)
    peer.produce(topic, _batch(3, ("h", "1")).of(4711, 0, 2))
    peer.produce(topic, _batch(3, ("h", "1")).of(4712, 3, 9))


@scenario
def decided_transactions(peer: Peer) -> None:
    """Remove aborted records and keep markers. Leave everything from the first open transaction on as it is."""
    _eager(peer)
    topic = peer.topic(configs=CONFIGS)
    one, two = TransactionalProducer(peer, "one"), TransactionalProducer(peer, "two")
    one.init()
    two.init()

    def send(producer: TransactionalProducer, batch: Batch) -> None:
        fields = {"records": batch.records, "base_timestamp": batch.base_timestamp}
        producer.produce(topic, len(batch.records), **fields)

    send(one, _batch(0, ("a", "aborted"), ("b", "aborted")))
    peer.produce(topic, replace(_batch(0, ("a", "1"), ("b", "1")), producer_id=-1))
    one.end(ABORT)
    send(one, _batch(0, ("a", "2")))
    one.end(COMMIT)
    send(two, _batch(0, ("b", "aborted")))
    two.end(ABORT)
    peer.produce(topic, _batch(1, ("a", "3"), ("c", "1")))
    send(two, _batch(2, ("c", "open")))
    peer.produce(topic, _batch(3, ("c", "2")))
    peer.produce(topic, _batch(4, ("z", "active")))
    _await_cleaned(peer, topic, 14, 0, 1, 2, 5, 7)
