"""The checkers of the bucket find breaches in small buckets that are written by hand, and accept a bucket at
rest.
"""

from __future__ import annotations

from uuid import UUID

from crc32c import crc32c

from seqgate.gateway.cluster.parts.manifest import (
    FileRef,
    Manifest,
    PartitionKey,
    PartRef,
    SegmentRef,
    encode_manifest,
    file_name,
    manifest_key,
    part_key,
    part_name,
)
from seqgate.gateway.cluster.wal.sessions import encode_boundary
from seqgate.gateway.cluster.wal.wal_object import (
    DataRow,
    Seal,
    WalObject,
    boundary_key,
    encode,
    encode_seal,
    object_key,
)
from tests.simulation.checkers.bucket import SMALL_BYTES, missing_objects, surplus
from tests.support.simulated_objects import SimulatedBucket

FLIGHTS = PartitionKey(UUID(int=7), 0)
DELETED = PartitionKey(UUID(int=8), 0)
NODE, SESSION, NONCE = 1, 0, bytes(16)
LIVE_BYTES = 100_000
PART = part_name(0, f"{1:032x}")
SIDE_FILE = file_name(f"{2:032x}")


def bucket_with(size_bytes: int = LIVE_BYTES, partition: PartitionKey = FLIGHTS) -> SimulatedBucket:
    """Return a bucket at rest: a manifest with one part of this size and a stored side file."""
    bucket = SimulatedBucket()
    part = PartRef(PART, 0, size_bytes, 10, 0)
    side_file = FileRef("00000000000000000010.names", 5_000, crc32c(b""), stored=SIDE_FILE)
    manifest = Manifest(
        partition.topic_id, 0, "flights", SESSION, 3, 0, 10, (SegmentRef(0, (part,)),), (side_file,)
    )
    put(bucket, manifest_key(partition), encode_manifest(manifest))
    for name in (PART, SIDE_FILE):
        put(bucket, part_key(partition, name), b"")
    return bucket


def put(bucket: SimulatedBucket, key: str, content: bytes) -> None:
    bucket.create(key, content, 0.0)


def put_logged(bucket: SimulatedBucket, seq: int, size_bytes: int = 0) -> str:
    """Put an object of the write-ahead log with so many bytes of records; return its key."""
    row = DataRow(FLIGHTS.topic_id, 0, 0, 10, 11, 0, LIVE_BYTES, size_bytes)
    rows, data = ([row], [bytes(size_bytes)]) if size_bytes else ([], [])
    key = object_key(NODE, SESSION, seq)
    put(bucket, key, b"".join(encode(WalObject(NODE, SESSION, seq, NONCE, rows, data))))
    return key


def put_seal(bucket: SimulatedBucket, seq: int) -> str:
    key = object_key(NODE, SESSION, seq)
    put(bucket, key, encode_seal(Seal(NODE, SESSION, seq, NONCE, NODE, "the gateway stopped")))
    return key


class TestSurplus:
    def test_a_bucket_at_rest_has_none(self) -> None:
        bucket = bucket_with()
        put(bucket, boundary_key(NODE, SESSION), encode_boundary(3))
        put_logged(bucket, 3)
        put_seal(bucket, 4)
        assert surplus(bucket, {FLIGHTS: LIVE_BYTES}) == []

    def test_an_object_that_no_manifest_names(self) -> None:
        bucket = bucket_with()
        orphan = part_key(FLIGHTS, part_name(0, f"{9:032x}"))
        put(bucket, orphan, b"")
        assert surplus(bucket, {FLIGHTS: LIVE_BYTES}) == [f"bucket: no manifest names {orphan}"]

    def test_an_object_that_only_the_manifest_of_another_partition_names(self) -> None:
        bucket = bucket_with()
        other = PartitionKey(FLIGHTS.topic_id, 1)
        put(bucket, part_key(other, PART), b"")
        found = surplus(bucket, {FLIGHTS: LIVE_BYTES, other: 0})
        assert found == [f"bucket: no manifest names {part_key(other, PART)}"]

    def test_what_is_left_of_a_deleted_topic(self) -> None:
        bucket = bucket_with(partition=DELETED)
        found = surplus(bucket, {FLIGHTS: LIVE_BYTES})
        keys = sorted([manifest_key(DELETED), part_key(DELETED, PART), part_key(DELETED, SIDE_FILE)])
        assert found == [f"bucket: {key} is left of a partition that does not exist" for key in keys]

    def test_an_object_below_the_boundary_of_its_log(self) -> None:
        bucket = bucket_with()
        put(bucket, boundary_key(NODE, SESSION), encode_boundary(3))
        late = put_logged(bucket, 2)
        put_logged(bucket, 3)
        assert surplus(bucket, {FLIGHTS: LIVE_BYTES}) == [
            f"bucket: {late} lies below the boundary of its log"
        ]

    def test_a_seal_below_the_boundary_of_its_log(self) -> None:
        bucket = bucket_with()
        put(bucket, boundary_key(NODE, SESSION), encode_boundary(3))
        void = put_seal(bucket, 2)
        assert surplus(bucket, {FLIGHTS: LIVE_BYTES}) == [
            f"bucket: {void} lies below the boundary of its log"
        ]

    def test_another_log_has_another_boundary(self) -> None:
        bucket = bucket_with()
        put(bucket, boundary_key(NODE, SESSION + 1), encode_boundary(3))
        put_logged(bucket, 2)
        assert surplus(bucket, {FLIGHTS: LIVE_BYTES}) == []

    def test_parts_of_more_than_the_logs(self) -> None:
        most = int(1.2 * LIVE_BYTES) + SMALL_BYTES
        assert surplus(bucket_with(most), {FLIGHTS: LIVE_BYTES}) == []
        found = surplus(bucket_with(most + 1), {FLIGHTS: LIVE_BYTES})
        assert found == [
            f"bucket: {most + 1} bytes of parts and 0 of write-ahead logs for {LIVE_BYTES} bytes of logs"
        ]

    def test_records_of_write_ahead_logs_count_with_the_parts(self) -> None:
        bucket = bucket_with()
        put_logged(bucket, 3, 20_000)
        assert surplus(bucket, {FLIGHTS: LIVE_BYTES}) == []
        put_logged(bucket, 4, 20_000)
        assert surplus(bucket, {FLIGHTS: LIVE_BYTES}) == [
            (
                f"bucket: {LIVE_BYTES} bytes of parts and 40000 of write-ahead logs for {LIVE_BYTES} bytes of "
                "logs"
            )
        ]


class TestMissingObjects:
    def test_all_that_is_named_is_there(self) -> None:
        assert missing_objects(bucket_with()) == []

    def test_a_part_and_a_side_file_that_are_named_and_missing(self) -> None:
        for name in (PART, SIDE_FILE):
            bucket = bucket_with()
            bucket.delete(part_key(FLIGHTS, name), 1.0)
            found = missing_objects(bucket)
            assert found == [f"bucket: {manifest_key(FLIGHTS)} names {name}, which is missing"]
