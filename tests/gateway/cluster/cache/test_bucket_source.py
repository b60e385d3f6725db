from __future__ import annotations

import asyncio
import random
import threading
import uuid
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.cluster.cache.bucket import BucketSource, BucketThread, WaitingSource
from seqgate.gateway.cluster.objects.directory_objects import DirectoryObjects
from seqgate.gateway.cluster.objects.objects import Missing, ObjectStore
from seqgate.gateway.cluster.parts.manifest import (
    Manifest,
    PartitionKey,
    PartRef,
    SegmentRef,
    encode_manifest,
    manifest_key,
    part_key,
    part_name,
)
from seqgate.gateway.cluster.parts.part_object import BLOCK_BYTES, PartHead, encode_part
from seqgate.log.sparse import SegmentKey

PARTITION = PartitionKey(uuid.UUID(int=7), 3)
KEY = SegmentKey(*PARTITION, 100)


class Store:
    """Objects in memory, of which ranges are read."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.gets = 0

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        self.gets += 1
        if key not in self.objects:
            raise Missing(key)
        content = self.objects[key]
        return content[first : len(content) if size_bytes is None else first + size_bytes]


class Bucket:
    """One segment in parts of given lengths, and a manifest of generation 5."""

    def __init__(self, *lengths: int) -> None:
        self.objects: dict[str, bytes] = {}
        self.content = random.Random(1).randbytes(sum(lengths))
        self.segment = SegmentRef(100, tuple(self.parts(lengths)))
        self.publish(5, self.segment)

    def publish(self, generation: int, *segments: SegmentRef) -> None:
        """Replace the manifest."""
        manifest = Manifest(*PARTITION, "flights", 1, 1, 0, 10_000, segments, (), generation)
        self.objects[manifest_key(PARTITION)] = encode_manifest(manifest)

    def parts(self, lengths: tuple[int, ...]) -> list[PartRef]:
        """Store the content in other parts, and return them."""
        refs, position, offset = [], 0, 100
        for length in lengths:
            data = self.content[position : position + length]
            name = part_name(100, uuid.uuid4().hex)
            head = PartHead(*PARTITION, 100, position, length, offset, offset + 10)
            self.objects[part_key(PARTITION, name)] = b"".join(encode_part(head, data).content)
            refs.append(PartRef(name, position, length, offset + 10, 0))
            position, offset = position + length, offset + 10
        return refs

    def source(self) -> tuple[BucketSource, Store]:
        store = Store(self.objects)
        return BucketSource(cast("ObjectStore", store)), store


def read(bucket: Bucket, *ranges: tuple[int, int]) -> list[bytes]:
    async def run() -> list[bytes]:
        source, _ = bucket.source()
        return [await source.read(KEY, position, size_bytes) for position, size_bytes in ranges]

    return asyncio.run(run())


@given(st.lists(st.integers(1, 2 * BLOCK_BYTES), min_size=1, max_size=4), st.data())
def test_any_range_of_any_parts(lengths: list[int], data: st.DataObject) -> None:
    bucket = Bucket(*lengths)
    position = data.draw(st.integers(0, sum(lengths) - 1))
    size_bytes = data.draw(st.integers(1, sum(lengths) - position))
    assert read(bucket, (position, size_bytes)) == [bucket.content[position : position + size_bytes]]


async def test_a_block_of_a_large_part_costs_one_request_and_the_index_another() -> None:
    bucket = Bucket(5 * BLOCK_BYTES)
    source, store = bucket.source()
    for number in range(4):
        await source.read(KEY, number * BLOCK_BYTES, BLOCK_BYTES)
    assert store.gets == 6, "the manifest is read once, too"


@pytest.mark.parametrize("lengths", [(5 * BLOCK_BYTES,), (1000,)], ids=["large", "small"])
def test_each_flipped_byte_is_found(lengths: tuple[int, ...]) -> None:
    bucket = Bucket(*lengths)
    name = next(key for key in bucket.objects if not key.endswith("manifest"))
    whole = bucket.objects[name]
    size_bytes = min(BLOCK_BYTES, lengths[0])
    places = [0, *range(6, 6 + size_bytes, size_bytes // 7), *range(6 + lengths[0], len(whole), 3)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 4
        bucket.objects[name] = bytes(damaged)
        try:
            assert read(bucket, (0, size_bytes)) == [bucket.content[:size_bytes]]
        except OSError:
            continue
        assert lengths[0] > BLOCK_BYTES, place
        assert place == 0, "only the magic of a large part is not read"


def test_what_the_manifest_lost_is_gone() -> None:
    bucket = Bucket(1000)
    with pytest.raises(OSError, match="does not have the segment"):
        read(bucket, (990, 11))
    bucket.publish(6)
    with pytest.raises(OSError, match="does not have the segment"):
        read(bucket, (0, 10))
    del bucket.objects[manifest_key(PARTITION)]
    with pytest.raises(OSError, match="does not have the segment"):
        read(bucket, (0, 10))


async def test_parts_that_were_merged_meanwhile_are_found() -> None:
    bucket = Bucket(1000, 500)
    source, _ = bucket.source()
    assert await source.read(KEY, 900, 200) == bucket.content[900:1100]
    for part in bucket.segment.parts:
        del bucket.objects[part_key(PARTITION, part.name)]
    bucket.publish(6, SegmentRef(100, tuple(bucket.parts((1500,)))))
    assert await source.read(KEY, 900, 200) == bucket.content[900:1100]


async def test_a_compacted_segment_is_read_by_the_manifest_that_has_it() -> None:
    """The parts of the manifest before are still there: only the generation tells that they are older."""
    bucket = Bucket(1000)
    source, _ = bucket.source()
    before = await source.read(KEY, 0, 10)
    bucket.content = random.Random(2).randbytes(800)
    bucket.publish(6, SegmentRef(100, tuple(bucket.parts((800,)))))
    assert await source.read(KEY, 0, 10) == before
    assert await source.read(KEY._replace(generation=6), 0, 10) == bucket.content[:10]
    with pytest.raises(OSError, match="does not have the segment"):
        await source.read(KEY._replace(generation=7), 0, 10)


def test_a_part_that_is_missing_is_an_error() -> None:
    bucket = Bucket(1000)
    del bucket.objects[part_key(PARTITION, bucket.segment.parts[0].name)]
    with pytest.raises(OSError, match="lacks a part"):
        read(bucket, (0, 10))


async def test_indexes_that_are_not_used_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqgate.gateway.cluster.cache.bucket.INDEXES_KEPT", 1)
    bucket = Bucket(2 * BLOCK_BYTES, 2 * BLOCK_BYTES)
    source, store = bucket.source()
    for position in (0, 2 * BLOCK_BYTES, 0):
        await source.read(KEY, position, BLOCK_BYTES)
    assert store.gets == 7


async def test_manifests_that_are_not_used_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqgate.gateway.cluster.cache.bucket.MANIFESTS_KEPT", 1)
    bucket = Bucket(10)
    source, store = bucket.source()
    other = PartitionKey(uuid.UUID(int=8), 0)
    bucket.objects[manifest_key(other)] = encode_manifest(
        Manifest(*other, "deleted", 1, 1, 0, 10_000, (), (), 5)
    )
    await source.read(KEY, 0, 10)
    with pytest.raises(OSError, match="does not have the segment"):
        await source.read(SegmentKey(*other, 100), 0, 10)
    before = store.gets
    await source.read(KEY, 0, 10)
    assert store.gets - before == 2, "the manifest was read again, and the part"


class TestThreads:
    async def _stored(self, bucket: Bucket, path: Path) -> None:
        objects = DirectoryObjects(path)
        for key, content in bucket.objects.items():
            await objects.create(key, content)
        await objects.close()

    async def test_the_thread_of_the_event_loop_gets_its_bytes(self, tmp_path: Path) -> None:
        bucket = Bucket(3 * BLOCK_BYTES)
        await self._stored(bucket, tmp_path)
        source = WaitingSource(BucketThread(lambda: DirectoryObjects(tmp_path)))
        found = [source.fetch(KEY, 10, BLOCK_BYTES)]
        other = threading.Thread(target=lambda: found.append(source.fetch(KEY, 20, 30)))
        other.start()
        other.join()
        source.close()
        assert found == [bucket.content[10 : 10 + BLOCK_BYTES], bucket.content[20:50]]
        assert source.counts.gets >= 3, "the manifest, and a part twice"
        assert source.counts.bytes_down > BLOCK_BYTES

    async def test_a_lost_part_is_an_error_of_the_disk(self, tmp_path: Path) -> None:
        bucket = Bucket(1000)
        del bucket.objects[part_key(PARTITION, bucket.segment.parts[0].name)]
        await self._stored(bucket, tmp_path)
        source = WaitingSource(BucketThread(lambda: DirectoryObjects(tmp_path)))
        with pytest.raises(OSError, match="lacks a part"):
            source.fetch(KEY, 0, 10)
        source.close()
