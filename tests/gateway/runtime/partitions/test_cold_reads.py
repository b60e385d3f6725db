"""Blocks of files are read into the page cache in the right order, and dropped again."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from seqgate.gateway.runtime.loop.memory_room import MemoryRoom
from seqgate.gateway.runtime.partitions.cold_reads import (
    BLOCK_BYTES,
    FETCHED_AHEAD,
    FETCHES_AT_ONCE,
    MEMORY_ASKED_EVERY_S,
    ColdReads,
)
from seqgate.log import NotCached, PageRange, Storage
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import SimulatedClock, SimulatedMachine

KEPT = 8
DEADLINE_S = 120.0


class Disk(Storage):
    """Files of a given number of blocks, which can be read while the gate is open."""

    def __init__(self, **blocks: int) -> None:
        super().__init__()
        self.tells_cached = True
        self.blocks = blocks
        self.gate = threading.Event()
        self.read_blocks: list[tuple[str, int]] = []
        self.dropped: list[tuple[str, int]] = []
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    def bring_in(self, place: PageRange) -> int:
        with self._lock:
            self.read_blocks.append((place.path, place.position // BLOCK_BYTES))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.gate.wait(60.0)
        with self._lock:
            self.at_once -= 1
        if place.path not in self.blocks:
            raise FileNotFoundError(place.path)
        return max(0, min(place.size_bytes, self.blocks[place.path] * BLOCK_BYTES - place.position))

    def drop_cached(self, place: PageRange) -> None:
        assert place.size_bytes
        self.dropped.append((place.path, place.position // BLOCK_BYTES))


class Bucket:
    """Blocks of files that the disk lacks until they are fetched, while the gate is open."""

    def __init__(self, **blocks: int) -> None:
        self.absent = {(path, number) for path, count in blocks.items() for number in range(count)}
        self.gate = asyncio.Event()
        self.fetched: list[tuple[str, int]] = []
        self.lost: set[tuple[str, int]] = set()

    def is_absent(self, place: PageRange) -> bool:
        return (place.path, place.position // BLOCK_BYTES) in self.absent

    async def bring_in(self, place: PageRange) -> int:
        key = place.path, place.position // BLOCK_BYTES
        self.fetched.append(key)
        await self.gate.wait()
        if key in self.lost:
            raise OSError(5, "the part is damaged")
        self.absent.discard(key)
        return BLOCK_BYTES


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., tuple[ColdReads, Disk]]]:
    """Make a disk and its reader; the fixture closes both."""
    made: list[tuple[ColdReads, Disk]] = []

    def make(
        *, threads: int = 2, ahead: int = 0, flusher: Any = None, bucket: Bucket | None = None, **blocks: int
    ) -> tuple[ColdReads, Disk]:
        disk = Disk(**blocks)
        cold_reads = ColdReads(
            asyncio.get_running_loop(),
            disk,
            flusher=flusher,
            threads=threads,
            cache_bytes=KEPT * BLOCK_BYTES,
            ahead_bytes=ahead * BLOCK_BYTES,
            fetcher=bucket,
        )
        cold_reads.start()
        made.append((cold_reads, disk))
        return cold_reads, disk

    yield make
    for cold_reads, disk in made:
        disk.gate.set()
        cold_reads.stop()


def block(path: str, number: int, size_bytes: int = 100) -> PageRange:
    return PageRange(path, number * BLOCK_BYTES + 7, size_bytes)


async def bring_in(cold_reads: ColdReads, *places: PageRange) -> None:
    done = asyncio.Event()
    cold_reads.want(places, done.set)
    async with asyncio.timeout(DEADLINE_S):
        await done.wait()


async def settled(cold_reads: ColdReads) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while cold_reads.blocks_waiting:
            await asyncio.sleep(0.001)


Make = Callable[..., tuple[ColdReads, Disk]]


async def test_a_block_that_several_want_is_read_once(opened: Make) -> None:
    cold_reads, disk = opened(a=9)
    told: list[int] = []
    for number in range(5):
        cold_reads.want([block("a", 3)], lambda number=number: told.append(number))  # type: ignore[misc]
    assert told == [], "the callback must never run at once"
    disk.gate.set()
    await settled(cold_reads)
    assert told == [0, 1, 2, 3, 4]
    assert disk.read_blocks == [("a", 3)]


async def test_a_place_over_several_blocks_is_there_when_all_are(opened: Make) -> None:
    cold_reads, disk = opened(a=9)
    disk.gate.set()
    await bring_in(cold_reads, PageRange("a", 2 * BLOCK_BYTES - 1, 2 * BLOCK_BYTES))
    assert sorted(disk.read_blocks) == [("a", 1), ("a", 2), ("a", 3)]


async def test_a_file_that_is_gone_is_for_the_reader_to_meet(opened: Make) -> None:
    cold_reads, disk = opened(a=1)
    disk.gate.set()
    await bring_in(cold_reads, block("gone", 1), block("a", 0))
    assert cold_reads.blocks_kept == 1


async def test_the_disk_sees_as_many_reads_at_a_time_as_there_are_threads(opened: Make) -> None:
    cold_reads, disk = opened(threads=3, a=100)
    cold_reads.want([block("a", number) for number in range(0, 40, 2)], lambda: None)
    disk.gate.set()
    await settled(cold_reads)
    assert len(disk.read_blocks) == 20
    assert disk.most_at_once <= 3


async def test_what_was_used_least_lately_is_dropped(opened: Make) -> None:
    cold_reads, disk = opened(threads=1, a=100)
    disk.gate.set()
    for number in range(KEPT):
        await bring_in(cold_reads, block("a", number))
    cold_reads.passing(block("a", 0))
    for number in (50, 60, 99):
        await bring_in(cold_reads, block("a", number))
        async with asyncio.timeout(DEADLINE_S):
            while cold_reads.blocks_kept > KEPT:
                await asyncio.sleep(0.001)
    cold_reads.stop()
    assert disk.dropped == [("a", 1), ("a", 2), ("a", 3)]


async def test_a_reader_of_a_whole_file_finds_the_next_blocks_there(opened: Make) -> None:
    cold_reads, disk = opened(threads=1, ahead=2, a=5)
    disk.gate.set()
    await bring_in(cold_reads, block("a", 0))
    await settled(cold_reads)
    assert disk.read_blocks == [("a", 0), ("a", 1), ("a", 2)]
    cold_reads.passing(block("a", 1))
    await settled(cold_reads)
    assert disk.read_blocks[3:] == [("a", 3)]
    cold_reads.passing(block("a", 3))
    await settled(cold_reads)
    # the end of the file behind block 4 is known once block 5 turns out empty
    assert disk.read_blocks[4:] == [("a", 4), ("a", 5)]
    cold_reads.passing(block("a", 4))
    cold_reads.passing(block("a", 5))
    await settled(cold_reads)
    assert len(disk.read_blocks) == 6


async def test_one_who_looks_here_and_there_has_nothing_read_ahead(opened: Make) -> None:
    cold_reads, disk = opened(ahead=2, a=100)
    disk.gate.set()
    await bring_in(cold_reads, block("a", 40))
    await bring_in(cold_reads, block("a", 20))
    await settled(cold_reads)
    assert disk.read_blocks == [("a", 40), ("a", 20)]


async def test_what_someone_waits_for_goes_before_what_is_read_ahead(opened: Make) -> None:
    cold_reads, disk = opened(threads=1, a=100)
    cold_reads.want([block("a", 10)], lambda: None)
    cold_reads.bring_in_ahead([block("a", 20), block("a", 30), block("a", 40)])
    cold_reads.want([block("a", 40)], lambda: None)
    cold_reads.want([block("a", 50)], lambda: None)
    disk.gate.set()
    await settled(cold_reads)
    assert disk.read_blocks == [("a", number) for number in (10, 40, 50, 20, 30)]


async def test_what_is_read_ahead_is_bounded(opened: Make) -> None:
    cold_reads, _ = opened(threads=1, a=100)
    cold_reads.bring_in_ahead([block("a", number) for number in range(50)])
    assert cold_reads.blocks_waiting <= KEPT + 1


async def test_who_goes_away_is_not_called_and_what_only_they_wanted_is_not_read(opened: Make) -> None:
    cold_reads, disk = opened(threads=1, a=100)
    told: list[str] = []
    first = cold_reads.want([block("a", number) for number in range(0, 40, 2)], lambda: told.append("first"))
    cold_reads.want([block("a", 6)], lambda: told.append("second"))
    first.cancel()
    assert cold_reads.blocks_waiting == 2
    disk.gate.set()
    await settled(cold_reads)
    assert told == ["second"]
    assert disk.read_blocks == [("a", 0), ("a", 6)]


async def test_a_callback_that_fails_keeps_nobody_else_waiting(opened: Make) -> None:
    cold_reads, disk = opened(a=100)
    cold_reads.want([block("a", 1)], lambda: 1 // 0)
    disk.gate.set()
    await bring_in(cold_reads, block("a", 1))


async def test_stopping_tells_nobody_and_leaves_nothing(opened: Make) -> None:
    cold_reads, disk = opened(threads=1, a=100)
    told: list[int] = []
    cold_reads.want([block("a", 1), block("a", 3)], lambda: told.append(1))
    cold_reads.bring_in_ahead([block("a", 5)])
    disk.gate.set()
    cold_reads.stop()
    await settled(cold_reads)
    assert not told


class Flushes:
    """Flush rounds that begin and end when the test decides."""

    def __init__(self) -> None:
        self.is_flushing = False
        self.disk_is_busy = False
        self.after_next_round: dict[Callable[[], None], None] = {}

    def end_round(self) -> None:
        for told in list(self.after_next_round):
            del self.after_next_round[told]
            told()


async def test_flushes_go_first_and_leave_room_for_a_block_after_each_round(opened: Make) -> None:
    flushes = Flushes()
    cold_reads, disk = opened(threads=4, flusher=flushes, a=100, b=100)
    disk.gate.set()
    cold_reads.want([block("b", 1)], lambda: None)
    assert flushes.disk_is_busy
    await settled(cold_reads)
    assert not flushes.disk_is_busy
    disk.read_blocks.clear()
    flushes.is_flushing = True
    await bring_in(cold_reads, block("a", 1))
    cold_reads.want([block("a", number) for number in (3, 5, 7)], lambda: None)
    for left in (2, 1):
        flushes.end_round()
        async with asyncio.timeout(DEADLINE_S):
            while cold_reads.blocks_waiting > left:
                await asyncio.sleep(0.001)
        assert cold_reads.blocks_waiting == left, "another round is under way already"
    flushes.is_flushing = False
    flushes.end_round()
    await settled(cold_reads)
    assert disk.read_blocks == [("a", number) for number in (1, 3, 5, 7)]


class TestRun:
    async def test_work_is_done_again_until_nothing_is_missing(self, opened: Make) -> None:
        cold_reads, disk = opened(a=100)
        disk.gate.set()
        steps = [[block("a", 1)], [block("a", 1), block("a", 2)], [block("a", 9)]]

        def work() -> str:
            assert not disk.waits
            for step in steps:
                if not {("a", place.position // BLOCK_BYTES) for place in step} <= set(disk.read_blocks):
                    raise NotCached(step)
            return "done"

        assert await cold_reads.run(work) == "done"
        assert disk.waits

    async def test_what_is_missing_again_is_waited_for(self, opened: Make) -> None:
        cold_reads, disk = opened(a=100)
        disk.gate.set()

        def work() -> str:
            if not disk.waits:
                raise NotCached([block("a", 1)])
            return "done"

        assert await cold_reads.run(work) == "done"
        assert disk.read_blocks == [("a", 1)]

    async def test_one_who_gives_up_leaves_nothing(self, opened: Make) -> None:
        cold_reads, _ = opened(threads=1, a=100)
        cold_reads.want([block("a", 50)], lambda: None)

        def work() -> None:
            raise NotCached([block("a", 1)])

        waiting = asyncio.create_task(cold_reads.run(work))
        while cold_reads.blocks_waiting < 2:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert cold_reads.blocks_waiting == 1


class TestABucket:
    async def test_absent_blocks_do_not_wait_for_the_disk(self, opened: Make) -> None:
        bucket = Bucket(b=9)
        cold_reads, disk = opened(threads=1, bucket=bucket, a=9)
        cold_reads.want([block("a", 1), block("a", 3)], lambda: None)
        bucket.gate.set()
        await bring_in(cold_reads, block("b", 5))
        assert bucket.fetched == [("b", 5)]
        assert cold_reads.blocks_waiting == 2
        disk.gate.set()
        await settled(cold_reads)
        assert disk.read_blocks == [("a", 1), ("a", 3)]

    async def test_the_disk_does_not_wait_for_absent_blocks(self, opened: Make) -> None:
        bucket = Bucket(b=99)
        cold_reads, disk = opened(threads=1, bucket=bucket, a=9)
        for number in range(1, 90, 2):
            cold_reads.want([block("b", number)], lambda: None)
        disk.gate.set()
        await bring_in(cold_reads, block("a", 1))
        assert len(bucket.fetched) == FETCHES_AT_ONCE
        bucket.gate.set()
        await settled(cold_reads)
        assert len(bucket.fetched) == 45

    async def test_a_block_that_was_fetched_is_read_from_the_disk(self, opened: Make) -> None:
        bucket = Bucket(b=9)
        cold_reads, disk = opened(bucket=bucket, b=9)
        bucket.gate.set()
        disk.gate.set()
        await bring_in(cold_reads, block("b", 5))
        await bring_in(cold_reads, block("b", 5))
        assert bucket.fetched == disk.read_blocks == [("b", 5)]

    async def test_the_blocks_behind_are_fetched_at_once(self, opened: Make) -> None:
        bucket = Bucket(b=99)
        cold_reads, _ = opened(ahead=1, bucket=bucket, b=99)
        bucket.gate.set()
        await bring_in(cold_reads, block("b", 0))
        bucket.gate.clear()
        while len(bucket.fetched) < 1 + FETCHED_AHEAD:
            await asyncio.sleep(0)
        assert bucket.fetched == [("b", number) for number in range(1 + FETCHED_AHEAD)]
        bucket.gate.set()
        await settled(cold_reads)
        cold_reads.passing(block("b", FETCHED_AHEAD))
        await settled(cold_reads)
        assert bucket.fetched[-1] == ("b", 2 * FETCHED_AHEAD)

    async def test_nothing_is_fetched_behind_the_end(self, opened: Make) -> None:
        bucket = Bucket(b=3)
        cold_reads, disk = opened(ahead=1, bucket=bucket, b=3)
        disk.gate.set()
        bucket.gate.set()
        await bring_in(cold_reads, block("b", 0))
        await settled(cold_reads)
        assert bucket.fetched == [("b", 0), ("b", 1), ("b", 2)]

    async def test_a_lost_block_is_for_the_reader_to_meet(self, opened: Make) -> None:
        bucket = Bucket(b=3)
        bucket.lost.add(("b", 0))
        cold_reads, _ = opened(bucket=bucket, b=3)
        bucket.gate.set()
        await bring_in(cold_reads, block("b", 0))
        assert cold_reads.blocks_kept == 0

    async def test_stopping_ends_the_fetches(self, opened: Make) -> None:
        bucket = Bucket(b=3)
        cold_reads, _ = opened(bucket=bucket, b=3)
        told: list[int] = []
        cold_reads.want([block("b", 0)], lambda: told.append(1))
        while not bucket.fetched:
            await asyncio.sleep(0)
        cold_reads.stop()
        bucket.gate.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not told
        assert ("b", 0) in bucket.absent


class Roomy(SimulatedMachine):
    """A machine with virtual time whose memory the test chooses."""

    room: MemoryRoom | None = None
    asked_at_s: list[float]

    def memory_room(self) -> MemoryRoom | None:
        assert self._loop.is_in_thread, "the event loop must not read the files of the kernel"
        self.asked_at_s.append(self._loop.time())
        return self.room


class MemoryScene:
    """A reader of real files of old data, in virtual time. The least is KEPT blocks, the most is `most`."""

    def __init__(self, directory: Path, *, old_blocks: int, most: int = 1000, ahead: int = 0) -> None:
        self.loop = SimulatedLoop(Random(1))
        self.machine = Roomy(self.loop, SimulatedClock(self.loop), Storage(), Random(1))
        self.machine.asked_at_s = []
        self.machine.storage.tells_cached = True
        self.old = directory / "old"
        self.tail = directory / "tail"
        for path, blocks in ((self.old, old_blocks), (self.tail, 3)):
            path.write_bytes(os.urandom(blocks * BLOCK_BYTES))
            self.machine.storage.fsync_path(str(path))
        self.machine.storage.drop_cached(PageRange(str(self.old), 0, 0))
        assert cached_blocks(self.old) == 0, (
            f"the file system of {directory} keeps files in memory, as tmpfs does: let --basetemp be on a disk"
        )
        self.cold_reads = ColdReads(
            self.loop,
            self.machine.storage,
            cache_bytes=KEPT * BLOCK_BYTES,
            cache_max_bytes=most * BLOCK_BYTES,
            ahead_bytes=ahead * BLOCK_BYTES,
            machine=self.machine,
        )
        self.cold_reads.start()

    def read(self, *numbers: int) -> None:
        """Read these blocks of the old data one after the other, as far as they are not cached."""
        for number in numbers:
            place = PageRange(str(self.old), number * BLOCK_BYTES, BLOCK_BYTES)
            if cached_blocks(self.old, number) == 0:
                done = self.loop.create_future()
                self.cold_reads.want([place], lambda done=done: done.set_result(None))  # type: ignore[misc]
                self.loop.run_until_complete(done)
            else:
                self.cold_reads.passing(place)

    def pass_time(self, seconds: float) -> None:
        done = self.loop.create_future()
        self.loop.call_later(seconds, done.set_result, None)
        self.loop.run_until_complete(done)
        assert not self.loop.unhandled

    def close(self) -> None:
        self.cold_reads.stop()
        self.loop.close()


def cached_blocks(path: Path, number: int | None = None) -> int:
    """Return how many blocks of the file, or of this one, are in the page cache, as mincore tells. The kernel
    may evict single pages whenever it likes, so more than half of a block's pages are enough.
    """
    size_bytes = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        pages = (ctypes.c_ubyte * -(-size_bytes // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        asked = ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(size_bytes), pages)
        del start
        assert asked == 0, "mincore refused"
    each = BLOCK_BYTES // mmap.PAGESIZE
    blocks = range(size_bytes // BLOCK_BYTES) if number is None else [number]
    cached = [sum(page & 1 for page in pages[block * each : (block + 1) * each]) for block in blocks]
    return sum(2 * count > each for count in cached)


GIB = 1 << 30
PLENTY = MemoryRoom(16 * GIB, 15 * GIB)
SHORT = MemoryRoom(16 * GIB, 4 * GIB)
STALLED = PLENTY._replace(stalled_percent=50.0)


class TestMemory:
    @pytest.fixture
    def make(self, tmp_path: Path) -> Iterator[Callable[..., MemoryScene]]:
        made: list[MemoryScene] = []

        def make(**facts: int) -> MemoryScene:
            made.append(MemoryScene(tmp_path, **facts))
            return made[-1]

        yield make
        for scene in made:
            scene.close()

    def test_with_room_a_second_reader_reads_nothing_from_the_disk(
        self, make: Callable[..., MemoryScene]
    ) -> None:
        scene = make(old_blocks=24)
        scene.machine.room = PLENTY
        scene.read(*range(24))
        scene.pass_time(60.0)
        assert cached_blocks(scene.old) == 24
        assert scene.cold_reads.blocks_read == 24
        scene.read(*range(24))
        assert scene.cold_reads.blocks_read == 24

    @pytest.mark.parametrize("room", [SHORT, STALLED, None], ids=["short", "stalled", "unknown"])
    def test_without_room_old_data_leaves_the_cache_to_the_tail(
        self, make: Callable[..., MemoryScene], room: MemoryRoom | None
    ) -> None:
        scene = make(old_blocks=24)
        scene.machine.room = room
        scene.read(*range(24))
        scene.pass_time(MEMORY_ASKED_EVERY_S)
        assert cached_blocks(scene.old) == KEPT
        assert cached_blocks(scene.tail) == 3

    def test_memory_that_gets_short_while_nobody_reads_is_given_back(
        self, make: Callable[..., MemoryScene], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The blocks go in runs, so that the disk's threads can read in between; one question is enough."""
        monkeypatch.setattr("seqgate.gateway.runtime.partitions.cold_reads.DROPPED_AT_ONCE", 8)
        blocks = 4 * 8 + KEPT
        scene = make(old_blocks=blocks)
        scene.machine.room = PLENTY
        scene.read(*range(blocks))
        scene.pass_time(60.0)
        assert cached_blocks(scene.old) == blocks
        scene.machine.room = SHORT
        asked = len(scene.machine.asked_at_s)
        scene.pass_time(1.9 * MEMORY_ASKED_EVERY_S)
        assert len(scene.machine.asked_at_s) <= asked + 2
        assert scene.cold_reads.blocks_kept == cached_blocks(scene.old) == KEPT
        assert cached_blocks(scene.tail) == 3

    def test_the_setting_limits_what_stays(self, make: Callable[..., MemoryScene]) -> None:
        scene = make(old_blocks=24, most=12)
        scene.machine.room = PLENTY
        scene.read(*range(24))
        scene.pass_time(MEMORY_ASKED_EVERY_S)
        assert cached_blocks(scene.old) == 12

    @pytest.mark.parametrize("most", [0, KEPT])
    def test_the_memory_is_not_asked_for_where_it_changes_nothing(
        self, make: Callable[..., MemoryScene], most: int
    ) -> None:
        scene = make(old_blocks=12, most=most)
        scene.read(*range(12))
        scene.pass_time(60.0)
        assert not scene.machine.asked_at_s
        assert cached_blocks(scene.old) == KEPT

    def test_the_memory_is_asked_for_once_a_second_and_not_for_ever(
        self, make: Callable[..., MemoryScene]
    ) -> None:
        scene = make(old_blocks=24)
        for number in range(24):
            scene.read(number)
            scene.pass_time(MEMORY_ASKED_EVERY_S / 6)
        scene.pass_time(60.0)
        asked = scene.machine.asked_at_s
        assert 4 <= len(asked) <= 6, "nothing is asked when only the least is cached and nobody reads"
        assert min(late - early for early, late in pairwise(asked)) >= MEMORY_ASKED_EVERY_S

    def test_what_the_kernel_evicted_is_read_ahead_again(self, make: Callable[..., MemoryScene]) -> None:
        scene = make(old_blocks=12, ahead=2)
        scene.machine.room = PLENTY
        scene.read(*range(6))
        scene.pass_time(MEMORY_ASKED_EVERY_S)
        read = scene.cold_reads.blocks_read
        scene.machine.storage.drop_cached(PageRange(str(scene.old), 0, 0))
        scene.read(0)
        scene.pass_time(MEMORY_ASKED_EVERY_S / 2)
        assert cached_blocks(scene.old) == 3, "the block and the two after it"
        assert scene.cold_reads.blocks_read == read + 3
