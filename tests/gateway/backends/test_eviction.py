from __future__ import annotations

import asyncio
import errno
import logging
import math

import pytest

from seqgate.gateway.backends.local_cache import NO_LIMIT, SHARE_EVICTED, BlockCache, Eviction
from seqgate.log.sparse import BLOCK_BYTES, SegmentKey
from tests.gateway.cluster.cache.scene import TOPIC_ID, CachedDirectory

BLOCKS = 8


class Scene(CachedDirectory):
    """Ten segments of eight blocks, all of them resident, and how many blocks may stay."""

    def __init__(self) -> None:
        super().__init__()
        self.limit_blocks: int | None = None
        self.free_blocks = 1000
        for base_offset in range(10):
            self.place(base_offset, BLOCKS)
            for number in range(BLOCKS):
                self.read(base_offset, number)
        self.storage.free_bytes = lambda _: self.free_blocks * BLOCK_BYTES  # type: ignore[method-assign]
        self.eviction = Eviction(
            self.storage,
            self.sparse,
            "/data",
            limit_bytes=lambda: NO_LIMIT if self.limit_blocks is None else self.limit_blocks * BLOCK_BYTES,
            reserve_bytes=lambda: 10 * BLOCK_BYTES,
            log_bytes=lambda: self.size_bytes,
        )

    def resident(self, base_offset: int) -> int:
        return BLOCKS - self.file(base_offset).absent.bit_count()

    @property
    def resident_blocks(self) -> int:
        return sum(map(self.resident, range(10)))


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_nothing_goes_while_all_fits(scene: Scene) -> None:
    await scene.eviction.run_pass()
    scene.limit_blocks = 80
    await scene.eviction.run_pass()
    assert scene.resident_blocks == 80
    assert scene.eviction.local_bytes == 80 * BLOCK_BYTES


async def test_what_was_read_least_lately_goes(scene: Scene) -> None:
    scene.read(0, 0)
    scene.read(1, 5)
    scene.limit_blocks = 70
    await scene.eviction.run_pass()
    pairs = math.ceil((10 + 70 * SHARE_EVICTED) / 2)
    assert scene.resident_blocks == 80 - 2 * pairs
    assert scene.eviction.bytes_evicted == 2 * pairs * BLOCK_BYTES
    assert (scene.resident(0), scene.resident(1)) == (2, 2)
    assert not scene.file(0).absent & 1
    assert not scene.file(1).absent >> 5 & 1


async def test_room_is_made_when_the_disk_is_short(scene: Scene) -> None:
    scene.free_blocks = 4
    await scene.eviction.run_pass()
    assert scene.resident_blocks == 80 - 2 * math.ceil((6 + (80 - 6) * SHARE_EVICTED) / 2)


async def test_records_of_internal_topics_stay(scene: Scene) -> None:
    scene.disk.provide_directory("/data/__consumer_offsets-0")
    path = scene.path(0, "__consumer_offsets")
    scene.storage.write_file(path, bytes(BLOCK_BYTES))
    file = scene.sparse.files.of(path)
    assert file is not None
    scene.sparse.stored(file, SegmentKey(TOPIC_ID, 1, 0), BLOCK_BYTES)
    scene.limit_blocks = 0
    await scene.eviction.run_pass()
    assert scene.resident_blocks == 0
    assert file.absent == 0


async def test_fetches_wake_the_eviction(scene: Scene) -> None:
    scene.limit_blocks = 40
    cache = BlockCache(scene.sparse, scene.bucket)
    cache.when_filled.append(scene.eviction.filled)
    await scene.eviction.run_pass()
    for base_offset in range(10):
        for number in range(BLOCKS):
            await cache.bring_in(scene.block(base_offset, number))
            for _ in range(5):  # the eviction runs beside the reader
                await asyncio.sleep(0)
    await scene.eviction.stop()
    assert scene.resident_blocks <= 40 + 8
    assert scene.eviction.bytes_evicted > 40 * BLOCK_BYTES


class TestMakingRoom:
    async def test_nothing_goes_while_the_disk_has_room(self, scene: Scene) -> None:
        scene.limit_blocks = 80
        scene.free_blocks = 30
        await scene.eviction.make_room(20 * BLOCK_BYTES)
        assert scene.resident_blocks == 80

    async def test_blocks_go_until_the_bytes_fit(self, scene: Scene) -> None:
        scene.storage.free_bytes = lambda _: (100 - scene.resident_blocks) * BLOCK_BYTES  # type: ignore[method-assign]
        await scene.eviction.make_room(25 * BLOCK_BYTES)  # 10 are free, and 10 of them must stay
        assert scene.resident_blocks == 80 - 16

    async def test_too_large_a_file_is_refused(self, scene: Scene) -> None:
        scene.storage.free_bytes = lambda _: (100 - scene.resident_blocks) * BLOCK_BYTES  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no room"):
            await scene.eviction.make_room(91 * BLOCK_BYTES)


async def test_the_checks_end(scene: Scene) -> None:
    scene.limit_blocks = 70
    scene.eviction.start()
    await scene.eviction.stop()
    assert scene.resident_blocks < 70


async def test_a_file_system_without_holes_is_reported_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    def punch(descriptor: int, position: int, size_bytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    scene.sparse._below.punch = punch  # type: ignore[method-assign]  # the disk can't be chosen otherwise
    scene.limit_blocks = 70
    with caplog.at_level(logging.ERROR):
        await scene.eviction.run_pass()
        await scene.eviction.run_pass()
    assert scene.resident_blocks == 78, "one pair was tried"
    assert [record.message for record in caplog.records if "punch holes" in record.message] == [
        caplog.records[0].message
    ]
