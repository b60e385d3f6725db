"""Reads old data into the page cache in threads, and drops it from there when its readers have passed.

The event loop never waits for the disk on a reader's behalf. A reader passes the places that are not cached
to `want`. Threads read their blocks into the page cache, and then the reader tries again. For a reader that
goes from block to block, the next blocks are read ahead. Only the most recently used of these blocks stay
cached, as many as the memory has room for: a thread asks for that once a second while old data is read or
kept. A reader of a whole log therefore takes a bounded part of the page cache from the tail of the logs, and
later readers of the same blocks read nothing from the disk. Flushes go first: during a flush round no new
block is read, except for one block per round, so that readers progress beside a producer that never pauses.
On a disk that is busy with large reads a flush of a few pages takes tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, Protocol, TypeVar

from seqgate.gateway.runtime.loop.machine import Machine, Workers
from seqgate.gateway.runtime.loop.memory_room import MemoryRoom, bytes_to_keep
from seqgate.gateway.runtime.partitions.flusher import LogFlusher
from seqgate.gateway.tasks import start_task
from seqgate.log import NotCached, PageRange, Storage
from seqgate.log.sparse import without_fetching

logger = logging.getLogger(__name__)

FETCHES_AT_ONCE: Final = 16
"""Blocks that are fetched from a bucket at the same time."""
FETCHED_AHEAD: Final = 8
"""Blocks fetched ahead of a reader, all at once: a bucket answers late, and many requests at a time."""
MEMORY_ASKED_EVERY_S: Final = 1.0
"""Seconds between two questions for the memory. A disk reads about a gigabyte in that time, which is little
beside the reserve that the rule leaves.
"""
DROPPED_AT_ONCE: Final = 64
"""Blocks of one file that are dropped together, in a few milliseconds; then the threads may read again."""
T = TypeVar("T")


class _Job(Enum):
    """The job of a thread that is about no block."""

    ASK_MEMORY = 0


class Fetcher(Protocol):
    """Fetches the blocks that the local disk lacks from a bucket."""

    def is_absent(self, place: PageRange) -> bool:
        """Return whether the local disk lacks a byte of the place."""

    async def bring_in(self, place: PageRange) -> int:
        """Fetch a block; return its size in bytes. Waits while the bucket is silent. Raises OSError."""


class ColdReads:
    """Reads blocks into the page cache with `threads` threads; with 0 readers wait for the disk themselves.

    Blocks of `cache_bytes` stay cached, and up to `cache_max_bytes` while the memory has room, which
    `processes` like this one share. `ahead_bytes` is how far blocks are read ahead of a reader. A `fetcher`
    brings in the blocks that only a bucket has; these do not wait for the disk's threads, nor for flushes.
    Call all methods in the event loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        storage: Storage,
        *,
        flusher: LogFlusher | None = None,
        threads: int = 1,
        cache_bytes: int = 64 << 20,
        cache_max_bytes: int = 0,
        processes: int = 1,
        ahead_bytes: int = 2 << 20,
        machine: Machine | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        self.storage = storage
        self._machine = machine or Machine()
        self._loop = loop
        self._flusher = flusher
        self._has_turn = True
        """Whether one block may be read although a flush round is under way."""
        self._thread_count = threads
        self._workers: Workers[Load | PageRange | _Job] | None = None
        self._least_kept = self._most_kept = max(1, cache_bytes // BLOCK_BYTES)
        self._cache_max_bytes = cache_max_bytes
        self._processes = processes
        self._blocks_ahead = min(-(-ahead_bytes // BLOCK_BYTES), self._least_kept // 2)
        self._next_question: asyncio.TimerHandle | None = None
        self._asks_memory = False
        """Whether a thread asks for the memory, or the time to the next question runs."""
        self._has_read = False
        """Whether a block was read since the last question."""
        self._is_dropping = False
        self._known: OrderedDict[BlockKey, PageRange] = OrderedDict()
        """The blocks that were read and not dropped yet, the least recently used first."""
        self._loads: dict[BlockKey, Load] = {}
        self._disk = Lane(threads)
        self._bucket = Lane(FETCHES_AT_ONCE)
        self._fetcher = fetcher
        self._fetches: set[asyncio.Task[None]] = set()
        self.blocks_read = 0
        """The number of blocks read since the start."""

    def start(self) -> None:
        if self._thread_count:
            self._workers = self._machine.workers("cold-read", self._thread_count, self._work)

    def stop(self) -> None:
        """End the threads when their current reads are done; no callback runs any more."""
        for wanted in [wanted for load in self._loads.values() for wanted in load.waiting]:
            wanted.cancel()
        for queue in (self._disk.urgent, self._disk.ahead, self._bucket.urgent, self._bucket.ahead):
            while queue:
                del self._loads[queue.popitem()[0]]
        for fetch in self._fetches:
            fetch.cancel()
        if self._next_question is not None:
            self._next_question.cancel()
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()

    @property
    def is_on(self) -> bool:
        """Whether readers need not wait for the disk: setting, system and file system allow it."""
        return self._workers is not None and self.storage.tells_cached

    @property
    def blocks_kept(self) -> int:
        """Return the number of blocks that were read and may still be in the page cache."""
        return len(self._known)

    @property
    def blocks_waiting(self) -> int:
        return len(self._loads)

    # --- calls by readers

    def attempt(self, work: Callable[[], T]) -> T:
        """Run `work` without waiting for the disk. Raises NotCached, and the errors of `work`."""
        storage = self.storage
        storage.waits = not self.is_on
        try:
            return work()
        finally:
            storage.waits = True

    async def run(self, work: Callable[[], T]) -> T:
        """Repeat `work` until all that it reads is cached; `work` must change nothing before it returns. If
        the blocks were dropped again, `work` waits for the disk. Raises the errors of `work`.
        """
        return await self._repeated(work, self.attempt, goes_on=True)

    async def fetched(self, work: Callable[[], T]) -> T:
        """Repeat `work` until the local disk, for which it may wait, has all that it reads.

        `work` must change nothing that matters before it returns. If a block was evicted again, `work` waits
        for the bucket. Raises the errors of `work`.
        """
        return await self._repeated(work, self._attempt_without_bucket, goes_on=False)

    def _attempt_without_bucket(self, work: Callable[[], T]) -> T:
        if self._workers is None:
            return work()
        with without_fetching(self.storage):
            return work()

    async def _repeated(
        self, work: Callable[[], T], attempt: Callable[[Callable[[], T]], T], *, goes_on: bool
    ) -> T:
        """Attempt the work, and bring in what it lacks. What is missing twice, the work waits for itself."""
        seen: set[PageRange] = set()
        while True:
            try:
                return attempt(work)
            except NotCached as missing:
                if seen.issuperset(missing.places):
                    return work()
                seen.update(missing.places)
                await self._brought_in(missing.places, goes_on=goes_on)

    async def _brought_in(self, places: Iterable[PageRange], *, goes_on: bool = True) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        wanted = self.want(places, lambda: done.set_result(None), goes_on=goes_on)
        try:
            await done
        finally:
            wanted.cancel()

    def want(
        self, places: Iterable[PageRange], callback: Callable[[], None], *, goes_on: bool = True
    ) -> ColdReader:
        """Read all of the places into the page cache, then call back, never at once. For a reader that
        `goes_on` to the following blocks, blocks are read ahead.
        """
        wanted = ColdReader(callback, self._forget_reader)
        for place in places:
            for key, part in blocks_of(place):
                load = self._loads.get(key)
                was_evicted = False
                if load is None:
                    was_evicted = self._known.pop(key, None) is not None
                    load = self._loads[key] = Load(key, part, self._lane_of(part), is_ahead=False)
                else:
                    load.become_urgent()
                load.waiting[wanted] = None
                wanted.loads[load] = None
                if goes_on and self._is_in_sequence(key):
                    load.blocks_ahead = self._blocks_ahead
                    if was_evicted:
                        self._forget_next(key)
        self._start_loads()
        return wanted

    def bring_in_ahead(self, places: Iterable[PageRange]) -> None:
        """Read the places into the page cache for a reader who will come back, unless the queue is long."""
        for place in places:
            for key, part in blocks_of(place):
                self._read_ahead(key, part)
        self._start_loads()

    def passing(self, place: PageRange) -> None:
        """Keep the blocks of a cached place for a while, and read ahead of its reader."""
        if not self._known:
            return
        for key, _ in blocks_of(place):
            if key in self._known:
                self._known.move_to_end(key)
                if self._is_in_sequence(key):
                    self._read_on(key, self._blocks_ahead)
        self._start_loads()

    def _forget_reader(self, load: Load, wanted: ColdReader) -> None:
        load.waiting.pop(wanted, None)
        if not load.waiting and load.queue is not None:
            load.leave_queue()
            del self._loads[load.key]

    # --- internals

    def _is_in_sequence(self, key: BlockKey) -> bool:
        """Whether the reader seems to read in sequence: the block is the first, or follows a known one."""
        path, number = key
        return number == 0 or (number > 0 and (path, number - 1) in self._known)

    def _read_on(self, key: BlockKey, blocks: int) -> None:
        """Read the following blocks of the file, as many as the reader has asked for, up to its end."""
        path, number = key
        while blocks > 0 and self._known[path, number].size_bytes == BLOCK_BYTES:
            number += 1
            blocks -= 1
            if (path, number) not in self._known:
                key, place = block(path, number)
                if not self._fetch_on(place):
                    self._read_ahead(key, place, blocks)
                return

    def _fetch_on(self, place: PageRange) -> bool:
        """Fetch blocks from the bucket ahead of a reader. Return False if the disk has the block."""
        if self._fetcher is None or not self._fetcher.is_absent(place):
            return False
        path, position, _ = place
        for number in range(position // BLOCK_BYTES, position // BLOCK_BYTES + FETCHED_AHEAD):
            key, part = block(path, number)
            if key not in self._known and self._fetcher.is_absent(part):
                self._read_ahead(key, part)
        return True

    def _read_ahead(self, key: BlockKey, place: PageRange, blocks_ahead: int = 0) -> None:
        load = self._loads.get(key)
        if load is None:
            lane = self._lane_of(place)
            if len(lane.ahead) >= self._least_kept:
                return
            load = self._loads[key] = Load(key, place, lane, is_ahead=True)
        load.blocks_ahead = max(load.blocks_ahead, blocks_ahead)

    def _lane_of(self, place: PageRange) -> Lane:
        return self._bucket if self._fetcher is not None and self._fetcher.is_absent(place) else self._disk

    def _start_loads(self) -> None:
        workers = self._workers
        if workers is None:
            return
        if self._fetcher is not None:
            self._start_fetches(self._fetcher)
        while self._disk.has_next:
            if self._flusher is not None and self._flusher.is_flushing:
                self._flusher.after_next_round[self._take_turn] = None
                if not self._has_turn:
                    return
                self._has_turn = False
            load = self._disk.take()
            self._show_use()
            workers.put(load)

    def _start_fetches(self, fetcher: Fetcher) -> None:
        while self._bucket.has_next:
            start_task(self._fetches, self._fetch(fetcher, self._bucket.take()))

    async def _fetch(self, fetcher: Fetcher, load: Load) -> None:
        load.failed = True
        try:
            load.size_bytes = await fetcher.bring_in(load.place)
            load.failed = False
        except OSError as error:
            logger.debug("%s could not be fetched: %s", load.place, error)
        except Exception:
            logger.exception("old data could not be fetched from the bucket")
        self._finish(load)

    def _show_use(self) -> None:
        if self._flusher is not None:
            self._flusher.disk_is_busy = self._disk.running > 0

    def _take_turn(self) -> None:
        """Read the next block: a flush round is over."""
        self._has_turn = True
        self._start_loads()

    def _work(self, job: Load | PageRange | _Job) -> None:
        """Do a job in a thread, and report to the event loop."""
        if isinstance(job, Load):
            self._read(job)
            self._loop.call_soon_threadsafe(self._finish, job)
        elif isinstance(job, PageRange):
            try:
                self.storage.drop_cached(job)
            except OSError as error:
                logger.debug("%s could not be dropped from the page cache: %s", job, error)
            except Exception:
                logger.exception("old data could not be dropped from the page cache")
            self._loop.call_soon_threadsafe(self._finish_drop)
        else:
            room = None
            try:
                room = self._machine.memory_room()
            except Exception:
                logger.exception("the available memory could not be read, so little old data stays cached")
            self._loop.call_soon_threadsafe(self._take_room, room)

    def _read(self, load: Load) -> None:
        load.failed = True
        try:
            load.size_bytes = self.storage.bring_in(load.place)
            load.failed = False
        except OSError as error:
            logger.debug(
                "%s could not be read ahead: %s", load, error
            )  # The reader of this block will get the same error when it reads.
        except Exception:
            logger.exception("old data could not be read ahead")

    def _finish(self, load: Load) -> None:
        load.lane.running -= 1
        self._show_use()
        self.blocks_read += 1
        del self._loads[load.key]
        path, position, _ = load.place
        self.storage.brought_in(path)
        if not load.failed:
            self._keep(load.key, PageRange(path, position, load.size_bytes))
            self._read_on(load.key, load.blocks_ahead)
        for wanted in load.waiting:
            wanted.loads.pop(load, None)
            callback = wanted.callback
            if callback is not None and not wanted.loads:
                wanted.callback = None
                _call(callback)
        self._start_loads()

    def _keep(self, key: BlockKey, place: PageRange) -> None:
        self._known[key] = place
        self._known.move_to_end(key)
        self._has_read = True
        self._ask_memory()
        self._drop_surplus()

    def _forget_next(self, key: BlockKey) -> None:
        """Forget the blocks after an evicted one: they are probably gone, too, and are read ahead again."""
        path, number = key
        for ahead in range(1, self._blocks_ahead + 1):
            self._known.pop((path, number + ahead), None)

    # How many blocks stay cached, and the drop of the others.

    def _ask_memory(self) -> None:
        """Let a thread ask for the memory, unless it was asked just before."""
        workers = self._workers
        if workers is None or self._asks_memory or self._cache_max_bytes <= self._least_kept * BLOCK_BYTES:
            return
        self._asks_memory = True
        self._has_read = False
        workers.put(_Job.ASK_MEMORY)

    def _take_room(self, room: MemoryRoom | None) -> None:
        if self._workers is None:
            return
        kept_bytes = bytes_to_keep(
            room, least=self._least_kept * BLOCK_BYTES, most=self._cache_max_bytes, processes=self._processes
        )
        self._most_kept = kept_bytes // BLOCK_BYTES
        self._drop_surplus()
        self._next_question = self._loop.call_later(MEMORY_ASKED_EVERY_S, self._ask_again)

    def _ask_again(self) -> None:
        self._next_question = None
        self._asks_memory = False
        if self._has_read or len(self._known) > self._least_kept:
            self._ask_memory()

    def _drop_surplus(self) -> None:
        """Let a thread drop the blocks that were unused longest, a run of them; the others follow it."""
        while not self._is_dropping and self._workers is not None and len(self._known) > self._most_kept:
            run = self._take_run(len(self._known) - self._most_kept)
            if run.size_bytes:  # POSIX_FADV takes length 0 for "to the end of the file"
                self._is_dropping = True
                self._workers.put(run)

    def _take_run(self, most: int) -> PageRange:
        """Forget the block unused longest, and those next to it in file and order; return their place."""
        (path, number), place = self._known.popitem(last=False)
        first, size_bytes, last_bytes = place.position, place.size_bytes, place.size_bytes
        for _ in range(min(most, DROPPED_AT_ONCE) - 1):
            number += 1
            if number == 0 or last_bytes != BLOCK_BYTES or next(iter(self._known)) != (path, number):
                break
            last_bytes = self._known.popitem(last=False)[1].size_bytes
            size_bytes += last_bytes
        return PageRange(path, first, size_bytes)

    def _finish_drop(self) -> None:
        self._is_dropping = False
        self._drop_surplus()


def _call(callback: Callable[[], None]) -> None:
    """Call a reader back; log its error, so that the other readers are called, too."""
    try:
        callback()
    except Exception:
        logger.exception("a reader failed after its data was read into the page cache")


# Blocks to read, and the order in which they are read: those that a reader waits for go before those read
# ahead.

BLOCK_BYTES: Final = 1 << 20
_WHOLE: Final = -1
BlockKey = tuple[str, int]
"""The path of a file, and the number of a block in it, or `_WHOLE`."""


class ColdReader:
    """A reader that waits for blocks. Its callback runs once, when all are cached or failed."""

    __slots__ = ("_give_up", "callback", "loads")

    def __init__(self, callback: Callable[[], None], give_up: Callable[[Load, ColdReader], None]) -> None:
        """Take the callback, and the function that forgets the reader of a block."""
        self._give_up = give_up
        self.callback: Callable[[], None] | None = callback
        self.loads: dict[Load, None] = {}

    def cancel(self) -> None:
        """Drop the callback; a block without another reader is not read unless its read has begun."""
        self.callback = None
        loads, self.loads = self.loads, {}
        for load in loads:
            self._give_up(load, self)


class Load:
    """One block to read, and the readers that wait for it; none when the block is read ahead."""

    __slots__ = ("blocks_ahead", "failed", "key", "lane", "place", "queue", "size_bytes", "waiting")

    def __init__(self, key: BlockKey, place: PageRange, lane: Lane, *, is_ahead: bool) -> None:
        self.key = key
        self.place = place
        self.lane = lane
        self.waiting: dict[ColdReader, None] = {}
        self.queue: OrderedDict[BlockKey, Load] | None = lane.ahead if is_ahead else lane.urgent
        """The queue that the block is in until its read begins; None after that."""
        self.blocks_ahead = 0
        """The number of following blocks to read too, up to the end of the file."""
        self.size_bytes = 0
        self.failed = False
        self.queue[key] = self

    def become_urgent(self) -> None:
        """Move a block from the queue of blocks read ahead to that of blocks a reader waits for."""
        if self.queue is self.lane.ahead:
            del self.lane.ahead[self.key]
            self.queue = self.lane.urgent
            self.queue[self.key] = self

    def leave_queue(self) -> None:
        if self.queue is not None:
            del self.queue[self.key]
            self.queue = None


class Lane:
    """The blocks that come from one place, the disk or the bucket; at most `limit` are read at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.urgent: OrderedDict[BlockKey, Load] = OrderedDict()
        self.ahead: OrderedDict[BlockKey, Load] = OrderedDict()
        self.running = 0

    @property
    def has_next(self) -> bool:
        """Whether a block waits, and may be read now."""
        return self.running < self.limit and bool(self.urgent or self.ahead)

    def take(self) -> Load:
        load = next(iter((self.urgent or self.ahead).values()))
        load.leave_queue()
        self.running += 1
        return load


def blocks_of(place: PageRange) -> Iterator[tuple[BlockKey, PageRange]]:
    """Yield the blocks that hold a place, with their own places; of a whole file, one."""
    path, position, size_bytes = place
    if not size_bytes:
        yield (path, _WHOLE), place
        return
    for number in range(position // BLOCK_BYTES, (position + size_bytes - 1) // BLOCK_BYTES + 1):
        yield block(path, number)


def block(path: str, number: int) -> tuple[BlockKey, PageRange]:
    return (path, number), PageRange(path, number * BLOCK_BYTES, BLOCK_BYTES)
