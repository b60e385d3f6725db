from __future__ import annotations

import asyncio

import pytest

from seqgate.gateway.backends.local_cache import HELD_AT_ONCE, BlockCache
from seqgate.log.sparse import BLOCK_BYTES
from tests.gateway.cluster.cache.scene import CachedDirectory


@pytest.fixture
def directory() -> CachedDirectory:
    directory = CachedDirectory()
    directory.place(0, 3)
    directory.place(9, 40)
    return directory


@pytest.fixture
def cache(directory: CachedDirectory) -> BlockCache:
    return BlockCache(directory.sparse, directory.bucket)


async def test_a_block_is_absent_until_it_is_fetched(directory: CachedDirectory, cache: BlockCache) -> None:
    filled: list[int] = []
    cache.when_filled.append(filled.append)
    assert cache.is_absent(directory.block(0, 1))
    assert await cache.bring_in(directory.block(0, 1)) == BLOCK_BYTES
    assert not cache.is_absent(directory.block(0, 1))
    assert cache.is_absent(directory.block(0, 2))
    assert not cache.is_absent(directory.block(0, 3)), "the file ends before"
    assert filled == [BLOCK_BYTES]
    assert directory.read(0, 1) == directory.bucket.segments[directory.file(0).key][BLOCK_BYTES:][:100]  # type: ignore[index]
    assert directory.bucket.reads == [(0, 1)]


async def test_a_resident_block_is_not_fetched_again(directory: CachedDirectory, cache: BlockCache) -> None:
    await cache.bring_in(directory.block(0, 1))
    await cache.bring_in(directory.block(0, 1))
    assert cache.blocks_fetched == 1


async def test_a_file_that_is_gone(directory: CachedDirectory, cache: BlockCache) -> None:
    directory.storage.delete(directory.path(0))
    assert not cache.is_absent(directory.block(0, 1))
    with pytest.raises(FileNotFoundError):
        await cache.bring_in(directory.block(0, 1))


async def test_the_next_reader_gets_the_error_without_a_call(
    directory: CachedDirectory, cache: BlockCache
) -> None:
    directory.bucket.error = OSError(5, "the part is damaged")
    with pytest.raises(OSError, match="damaged"):
        await cache.bring_in(directory.block(0, 1))
    directory.bucket.error = None
    with pytest.raises(OSError, match="damaged"):
        directory.read(0, 1)
    assert len(directory.bucket.reads) == 1
    assert len(directory.read(0, 1)) == 100


async def test_a_disk_without_room_fails_the_fetch(directory: CachedDirectory, cache: BlockCache) -> None:
    directory.disk.capacity_bytes = directory.disk.used_bytes
    directory.disk.plan.rates.write_enospc = 1.0
    with pytest.raises(OSError, match="space"):
        await cache.bring_in(directory.block(0, 1))
    directory.disk.plan.rates.write_enospc = 0.0
    assert cache.is_absent(directory.block(0, 1))


async def test_held_files_are_whole_and_stay(directory: CachedDirectory, cache: BlockCache) -> None:
    directory.read(9, 7)
    async with cache.held([directory.path(9), "/data/t-0/partition.metadata"]):
        assert directory.file(9).absent == 0
        assert directory.sparse.evict(directory.file(9), [0]) == 0
        assert directory.file(0).absent != 0
    assert directory.bucket.most_at_once == HELD_AT_ONCE
    assert sorted(directory.bucket.reads) == [(9, number) for number in range(40)]
    assert directory.sparse.evict(directory.file(9), [0]) == 2 * BLOCK_BYTES


async def test_room_is_made_before_files_are_held(directory: CachedDirectory, cache: BlockCache) -> None:
    asked: list[int] = []

    async def make_room(size_bytes: int) -> None:
        asked.append(size_bytes)
        raise OSError(28, "no room")

    cache.make_room = make_room
    directory.read(0, 1)
    with pytest.raises(OSError, match="no room"):
        async with cache.held([directory.path(0), directory.path(9)]):
            pytest.fail("the files are not whole")
    assert asked == [42 * BLOCK_BYTES]
    assert len(directory.bucket.reads) == 1
    for number in (0, 2):
        directory.read(0, number)
    async with cache.held([directory.path(0)]):
        assert len(asked) == 1


async def test_nothing_is_held_after_a_failure(directory: CachedDirectory, cache: BlockCache) -> None:
    directory.bucket.error = OSError(5, "the part is damaged")
    with pytest.raises(OSError, match="damaged"):
        async with cache.held([directory.path(0)]):
            pytest.fail("the file is not whole")
    assert directory.file(0).pins == 0
    assert directory.bucket.at_once == 0


async def test_one_who_gives_up_holds_nothing(directory: CachedDirectory, cache: BlockCache) -> None:
    directory.bucket.gate.clear()

    async def hold() -> None:
        async with cache.held([directory.path(9)]):
            pytest.fail("the file is not whole")

    holding = asyncio.create_task(hold())
    while directory.bucket.at_once < HELD_AT_ONCE:
        await asyncio.sleep(0)
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await asyncio.sleep(0)
    assert directory.file(9).pins == 0
    assert directory.bucket.at_once == 0
