"""Topics with a `compression.type`: which bytes are stored, which batches are refused, and which values are
valid.

Only the codec and the records in the batch are compared, because compressed bytes differ between
implementations.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import replace

from tests.compat.differential.peer import (
    SETTLE_TIMEOUT_S,
    Peer,
    Records,
    Topic,
    fetch_request,
    produce_request,
)
from tests.compat.differential.scenario import scenario, scenario_for_each
from tests.support.batches import CODECS, Batch, BatchView, Record, decompress, read_batches, records
from tests.support.wire import Plain

TYPE = "compression.type"
STORED = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
TYPES = (*STORED, "producer")
MANY = Batch(records(20, 100, step_ms=7))
THREE = Batch(records(3))
TOPIC_RESOURCE, SET, DELETE = 2, 0, 1
MIB = 1 << 20


def _stored(peer: Peer, topic: Topic, label: str = "stored") -> None:
    """Note every batch of partition 0 with its records."""
    request = fetch_request(topic, max_bytes=16 * MIB, partition_max_bytes=16 * MIB)
    fetched = peer.wire.call("fetch", 12, request).fields["responses"][0]["partitions"][0]
    views, _ = read_batches(fetched["records"] or b"")
    peer.note(
        label,
        high_watermark=fetched["high_watermark"],
        batches=[{"order": order, **_shown(view)} for order, view in enumerate(views)],
    )


def _shown(view: BatchView) -> Plain:
    codec = view.attributes & 7
    plain = decompress(codec, view.payload)
    return {
        "codec": codec,
        "other attributes": view.attributes & ~7,
        "base_offset": view.base_offset,
        "last_offset_delta": view.last_offset_delta,
        "record_count": view.record_count,
        "crc_is_right": view.crc_is_right,
        "max_timestamp": view.max_timestamp,
        "producer": view.producer_id,
        "epoch": view.producer_epoch,
        "sequence": view.base_sequence,
        "the records": [f"{offset}@{timestamp}" for offset, timestamp in _places(view, plain)],
        "plain bytes": len(plain),
    }


def _places(view: BatchView, plain: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offset and the timestamp of each record."""
    position = 0
    for _ in range(view.record_count):
        size, start = _varint(plain, position)
        timestamp_delta, after = _varint(plain, start + 1)
        offset_delta, _ = _varint(plain, after)
        yield view.base_offset + offset_delta, view.base_timestamp + timestamp_delta
        position = start + size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


@scenario_for_each({f"{kind} from {sent}": (kind, sent) for kind in TYPES for sent in CODECS})
def stored_in(peer: Peer, pair: tuple[str, str]) -> None:
    kind, sent = pair
    topic = peer.topic(configs={TYPE: kind})
    batch = replace(MANY, codec=sent)
    peer.produce(topic, batch)
    peer.produce(topic, batch.of(61_000, 0, 0))
    peer.produce(topic, batch.of(61_000, 0, 0))
    peer.produce(topic, batch.of(61_000, 0, 20), acks=1)
    peer.produce(topic, batch.of(61_000, 0, 50))
    _stored(peer, topic)


SHAPES: dict[str, Batch] = {
    "one": Batch(records(1)),
    "null and empty values": Batch((Record(None), Record(b""), Record(b"v", b"k"), Record(None, b""))),
    "headers": Batch((Record(headers=((b"name", b"value"), (b"", None), (b"name", b""))),)),
    "timestamps go back": Batch(tuple(Record(timestamp_delta=delta) for delta in (0, -50, 20, -7))),
    "large": Batch(records(40, 3_000)),
    "no timestamp": Batch(records(2), base_timestamp=-1),
    "leader epoch": replace(THREE, partition_leader_epoch=7),
}


@scenario_for_each(
    {f"{name} to {kind}": (name, kind) for name in SHAPES for kind in ("zstd", "uncompressed")}
)
def shape(peer: Peer, case: tuple[str, str]) -> None:
    name, kind = case
    topic = peer.topic(configs={TYPE: kind})
    for codec in ("none", "lz4"):
        peer.produce(topic, replace(SHAPES[name], codec=codec))
    _stored(peer, topic)


@scenario_for_each(STORED)
def append_time(peer: Peer, kind: str) -> None:
    """Recompress where the gateway sets the timestamps: all records get the same one."""
    topic = peer.topic(configs={TYPE: kind, "message.timestamp.type": "LogAppendTime"})
    for codec in CODECS:
        peer.produce(topic, replace(MANY, codec=codec))
    asked = peer.wire.call("fetch", 12, fetch_request(topic)).fields["responses"][0]["partitions"][0]
    views, _ = read_batches(asked["records"])
    peer.note("attributes", attributes=[view.attributes for view in views])


@scenario_for_each(
    {"of any codec": {}, "recompressed": {TYPE: "lz4"}, "compacted": {"cleanup.policy": "compact"}}
)
def largest_record(peer: Peer, configs: Plain) -> None:
    """Send records above and below `max.decompressed.message.bytes`, which counts for compressed batches."""
    topic = peer.topic(configs={**configs, "max.decompressed.message.bytes": "512"})
    for codec in CODECS:
        for size in (400, 4_000):
            two = (Record(b"small", b"k"), Record(bytes(size), b"k"))
            peer.produce(topic, replace(Batch(two), codec=codec))


REFUSED: dict[str, Records] = {
    "wrong crc": replace(THREE, crc=1),
    "wrong crc of gzip": replace(THREE, crc=1, codec="gzip"),
    "magic 1": replace(THREE, magic=1),
    "length too long": replace(THREE, batch_length=5_000),
    "header cut": THREE.encode()[:40],
    "two batches": THREE.encode() + THREE.encode(),
    "base offset 7": replace(THREE, base_offset=7),
    "record count 0": replace(THREE, record_count=0),
    "last offset delta too high": replace(THREE, last_offset_delta=5),
    "says append time": replace(THREE, attributes=8, max_timestamp=-1, base_timestamp=-1),
    "control": replace(Batch((Record(struct.pack(">hi", 0, 0), struct.pack(">hh", 0, 1)),)), attributes=0x20),
    "sequence without a producer": THREE.of(-1, -1, 5),
    "producer without a sequence": THREE.of(61_000, 0, -1),
    "far timestamp": replace(THREE, base_timestamp=2**50),
}


@scenario_for_each(
    {f"{name} to {kind}": (name, kind) for name in REFUSED for kind in ("lz4", "uncompressed")}
)
def refused(peer: Peer, case: tuple[str, str]) -> None:
    name, kind = case
    topic = peer.topic(configs={TYPE: kind})
    peer.produce(topic, REFUSED[name])
    peer.produce(topic, replace(THREE, codec="gzip"))
    _stored(peer, topic)


@scenario_for_each({"gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"})
def unreadable(peer: Peer, codec: str) -> None:
    """Send compressed records that can't be decompressed to a topic of another codec."""
    kind = "gzip" if codec == "lz4" else "lz4"
    topic = peer.topic(configs={TYPE: kind})
    whole = read_batches(replace(MANY, codec=codec).encode())[0][0].payload
    peer.produce(topic, replace(MANY, codec=codec, payload=whole[: len(whole) // 2]))
    peer.produce(topic, replace(MANY, codec=codec, payload=b"nothing that this codec has made"))
    peer.offsets(topic, -1)


@scenario_for_each({"grows": ("uncompressed", "gzip"), "shrinks": ("gzip", "none")})
def max_message_bytes(peer: Peer, case: tuple[str, str]) -> None:
    """Send a batch that max.message.bytes allows in one codec only."""
    kind, sent = case
    topic = peer.topic(configs={TYPE: kind, "max.message.bytes": "1000"})
    peer.produce(topic, replace(Batch((Record(b"z" * 5_000),)), codec=sent))
    peer.produce(topic, replace(Batch((Record(b"z" * 500),)), codec=sent))
    _stored(peer, topic)


@scenario_for_each({"grows": ("uncompressed", "gzip"), "shrinks": ("gzip", "none")})
def larger_than_a_segment(peer: Peer, case: tuple[str, str]) -> None:
    """Send a batch that a segment can hold in one codec only."""
    kind, sent = case
    topic = peer.topic(configs={TYPE: kind, "segment.bytes": str(MIB), "max.message.bytes": "5000000"})
    peer.produce(topic, replace(Batch((Record(b"z" * 1_200_000),)), codec=sent))
    _stored(peer, topic)


@scenario_for_each((3, 6, 7, 9, 13))
def produce_versions(peer: Peer, version: int) -> None:
    """Produce to topics of zstd and of another codec; zstd came with version 7."""
    for kind in ("zstd", "gzip"):
        topic = peer.topic(kind, configs={TYPE: kind})
        peer.produce(topic, MANY, version=version)
        peer.produce(topic, replace(MANY, codec="zstd"), version=version)
        _stored(peer, topic)


@scenario_for_each((4, 9, 10, 12))
def fetch_versions(peer: Peer, version: int) -> None:
    """Fetch from a topic that stores zstd, which consumers know since version 10, and from one that stores
    what it gets.
    """
    for kind in ("zstd", "producer", "lz4"):
        topic = peer.topic(kind, configs={TYPE: kind})
        peer.produce(topic, replace(MANY, codec="lz4"))
        fetched = peer.wire.call("fetch", version, fetch_request(topic)).fields["responses"][0]["partitions"][
            0
        ]
        peer.note(
            f"fetched from {kind}",
            error_code=fetched["error_code"],
            high_watermark=fetched["high_watermark"],
            has_records=bool(fetched["records"]),
        )


@scenario
def without_acks(peer: Peer) -> None:
    topic = peer.topic(configs={TYPE: "zstd"})
    peer.produce(topic, MANY, acks=0)
    peer.end_offset_reaches(topic, 20)
    peer.produce(topic, replace(MANY, crc=1), acks=0)
    _stored(peer, topic)


@scenario
def several_partitions(peer: Peer) -> None:
    topic = peer.topic(partitions=3, configs={TYPE: "gzip"})
    peer.produce(topic, {0: MANY, 1: replace(MANY, crc=0), 2: replace(MANY, codec="gzip"), 9: THREE})
    for partition in range(3):
        peer.offsets(topic, -1, partition=partition)


@scenario
def pipelined(peer: Peer) -> None:
    """Pipeline batches of one producer in turns of codecs: they are stored in the order in which they were
    sent.
    """
    topic = peer.topic(configs={TYPE: "gzip"})
    codecs = ("none", "gzip", "zstd", "gzip", "lz4")
    batches = [replace(MANY, codec=codec).of(61_000, 0, 20 * index) for index, codec in enumerate(codecs)]
    peer.pipelined([("produce", 9, produce_request(topic, batch)) for batch in [*batches, batches[2]]])
    _stored(peer, topic)


@scenario
def compacted(peer: Peer) -> None:
    topic = peer.topic(configs={TYPE: "lz4", "cleanup.policy": "compact"})
    peer.produce(topic, Batch((Record(key=b"k"), Record(), Record())))
    peer.produce(topic, Batch((Record(key=b"k"),)))
    _stored(peer, topic)


@scenario
def internal_topics(peer: Peer) -> None:
    """Describe the codec of the topics in which coordinators keep their state."""
    peer.group()
    wanted = {
        "transactional_id": peer.name(),
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }
    peer.until("init_producer_id", 4, lambda answer: not answer["error_code"], wanted)
    for name in ("__consumer_offsets", "__transaction_state"):
        asked = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": [TYPE]}
        peer.call("describe_configs", 4, resources=[asked], include_synonyms=True)


@scenario
def altered(peer: Peer) -> None:
    """Alter the codec: from then on batches are stored in it. Kafka answers before the change is in effect."""
    topic = peer.topic()
    for kind, codec in (
        ("lz4", 3),
        ("uncompressed", 0),
        ("zstd", 4),
        ("producer", 1),
        ("snappy", 2),
        (None, 1),
    ):
        _alter(peer, topic, TYPE, kind, DELETE if kind is None else SET)
        request = produce_request(topic, replace(MANY, codec="gzip"))

        def newest_codec(request: Plain = request) -> int:
            offset = peer.wire.call("produce", 9, request).fields["responses"][0]["partition_responses"][0][
                "base_offset"
            ]
            fetched = peer.wire.call("fetch", 12, fetch_request(topic, offset)).fields["responses"][0][
                "partitions"
            ][0]
            return read_batches(fetched["records"])[0][0].attributes

        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while newest_codec() != codec and time.monotonic() < deadline:
            time.sleep(0.01)
        peer.note(f"altered to {kind}", codec=newest_codec())


def _alter(peer: Peer, topic: Topic, name: str, value: str | None, operation: int = SET) -> None:
    config = {"name": name, "config_operation": operation, "value": value}
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic.name, "configs": [config]}
    peer.call("incremental_alter_configs", 1, resources=[resource], validate_only=False)


VALUES = {
    TYPE: (*TYPES, "none", "GZIP", "", " gzip ", "zip"),
    "compression.gzip.level": ("-1", "1", "9", "0", "10", "-2", "x", ""),
    "compression.lz4.level": ("1", "17", "0", "18", "-1"),
    "compression.zstd.level": ("-131072", "22", "0", "-131073", "23"),
}


@scenario_for_each({name: (name, given) for name, given in VALUES.items()})
def values(peer: Peer, case: tuple[str, tuple[str, ...]]) -> None:
    name, given = case
    topic = peer.topic()
    for value in given:
        _alter(peer, topic, name, value)
    configs = [{"name": name, "value": value} for value in given[-2:]]
    for number, config in enumerate(configs):
        wanted = {
            "name": peer.name(f"n{number}"),
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [config],
        }
        peer.call("create_topics", 7, topics=[wanted], timeout=10_000)
