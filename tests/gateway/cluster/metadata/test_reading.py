"""A start reads the newest sound snapshot of the metadata and the objects behind it, whatever else is there."""

from __future__ import annotations

import asyncio
import logging

import pytest

from seqgate.gateway.cluster.metadata.shared_log import metadata_batches, read_all_metadata, read_metadata
from seqgate.gateway.cluster.metadata.snapshot import CorruptMetadataSnapshot
from seqgate.gateway.cluster.wal.sessions import (
    CorruptRegistration,
    LogShortened,
    SharedLogContent,
    register_next,
)
from seqgate.gateway.cluster.wal.wal_object import registration_key, snapshot_key
from seqgate.log.format.records import iterate_records
from tests.gateway.cluster.metadata.shortened_logs import FACTS, batch, shorten, snapshot, written
from tests.gateway.cluster.wal.virtual import in_virtual_time
from tests.support.simulated_objects import CALM, SimulatedBucket, SimulatedObjects


def values(content: SharedLogContent) -> list[bytes | None]:
    return [record.value for batch in metadata_batches(content) for record in iterate_records(batch)]


def damage(bucket: SimulatedBucket, seq: int) -> None:
    key = snapshot_key(seq)
    content = bucket.get(key)
    bucket.delete(key, 0)
    bucket.create(key, content[:-1] + bytes([content[-1] ^ 1]), 0)


class TestReading:
    def test_without_a_snapshot_all_is_read(self) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            await written(bucket, 3)
            content = await read_metadata(SimulatedObjects(bucket))
            assert (values(content), content.end_seq, content.kept_end) == ([b"0", b"1", b"2"], 4, 1)

        in_virtual_time(scene())

    @pytest.mark.parametrize("is_shortened", [False, True])
    def test_the_newest_snapshot_and_the_changes_behind_it(self, is_shortened: bool) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            shared = await written(bucket, 9)
            snapshot(bucket, shared, 4)
            snapshot(bucket, shared, 8)
            if is_shortened:
                shorten(bucket, 4)
            bucket.calls.clear()
            content = await read_metadata(SimulatedObjects(bucket))
            assert values(content) == [b"image 8", b"7", b"8"]
            assert [each.session for each in content.sessions] == [0]
            assert (content.end_seq, content.cluster_id, content.kept_end) == (10, "cluster-a", 1)
            read = {call.key for call in bucket.calls if call.operation == "get"}
            assert registration_key(7) not in read

        in_virtual_time(scene())

    @pytest.mark.parametrize(
        ("damaged", "expected"), [([8], [b"image 4", b"3", b"4"]), ([4, 8], [b"0", b"1", b"2"])]
    )
    def test_a_damaged_snapshot_is_passed_over(
        self, damaged: list[int], expected: list[bytes], caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            shared = await written(bucket, 9)
            snapshot(bucket, shared, 4)
            snapshot(bucket, shared, 8)
            for seq in damaged:
                damage(bucket, seq)
            assert values(await read_metadata(SimulatedObjects(bucket)))[:3] == expected

        caplog.set_level(logging.WARNING)
        in_virtual_time(scene())
        assert len(caplog.messages) == len(damaged)
        assert "the one before is used: meta/snapshot/00000000000000000008 is damaged" in caplog.messages[0]

    def test_no_start_without_any_sound_snapshot(self) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            shared = await written(bucket, 9)
            snapshot(bucket, shared, 4)
            snapshot(bucket, shared, 8)
            shorten(bucket, 4)
            damage(bucket, 4)
            damage(bucket, 8)
            with pytest.raises(LogShortened, match="begins at object 4 by now"):
                await read_metadata(SimulatedObjects(bucket))
            with pytest.raises(CorruptMetadataSnapshot):
                await read_all_metadata(SimulatedObjects(bucket))

        in_virtual_time(scene())

    def test_a_change_that_somebody_deleted_is_told(self) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            shared = await written(bucket, 9)
            snapshot(bucket, shared, 4)
            bucket.delete(registration_key(6), 0)
            with pytest.raises(CorruptRegistration, match="00006 is missing, and later objects are there"):
                await read_metadata(SimulatedObjects(bucket))

        in_virtual_time(scene())

    def test_a_log_that_is_shortened_meanwhile_is_read_again(self) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            shared = await written(bucket, 9)
            snapshot(bucket, shared, 4)
            objects = SimulatedObjects(bucket, faults=CALM)
            reading = asyncio.create_task(read_metadata(objects))
            while not any(call.key == snapshot_key(4) for call in bucket.calls):
                await asyncio.sleep(0.001)
            snapshot(bucket, shared, 7)
            snapshot(bucket, shared, 9)
            shorten(bucket, 7)
            assert values(await reading) == [b"image 9", b"8"]

        in_virtual_time(scene())

    def test_a_check_reads_all_that_a_start_may_need(self) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            shared = await written(bucket, 9)
            snapshot(bucket, shared, 4)
            snapshot(bucket, shared, 8)
            assert values(await read_all_metadata(SimulatedObjects(bucket)))[0] == b"0"
            shorten(bucket, 4)
            assert values(await read_all_metadata(SimulatedObjects(bucket)))[:2] == [b"image 4", b"3"]

        in_virtual_time(scene())


class TestStallingStarts:
    def test_a_registration_in_an_emptied_place_counts_for_nothing(self) -> None:
        async def scene() -> None:
            bucket = SimulatedBucket()
            objects = SimulatedObjects(bucket)
            shared = await written(bucket, 3)
            stale = await read_metadata(objects)
            for _ in range(5):
                made = await shared.create(batch(b"x"))
                assert made is not None
                shared.take(made)
            snapshot(bucket, shared, 6)
            snapshot(bucket, shared, 8)
            shorten(bucket, 6)
            with pytest.raises(LogShortened):
                await register_next(objects, 2, FACTS, stale)

        in_virtual_time(scene())
