"""Old data on its way to readers: brought into the page cache by threads, dropped from it behind them.

The event loop never waits for the disk on a reader's behalf. What a read finds missing is `want`ed here, in blocks;
threads bring the blocks in, and the reader looks again. A reader that goes on from block to block finds the next ones
brought in ahead of it. Of all that was brought in only the blocks used last stay, so that a reader of a whole log takes
a bounded part of the page cache from what is written and read at the tail, and another reader close behind shares it.
Flushes go first: while a round of them is under way no block is begun, but for one after the round before, so that
reading goes on beside a producer that never pauses. A disk that is given large reads without end lets a flush of a few
pages wait for tens of milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from gateway.runtime.loop.machine import Machine, Workers
from gateway.runtime.partitions.flusher import Flusher
from log import NotCached, Place, Storage

logger = logging.getLogger(__name__)

BLOCK_BYTES: Final = 1 << 20
_WHOLE: Final = -1
T = TypeVar("T")
BlockKey = tuple[str, int]
"""A path, and the number of a block of the file or `_WHOLE`."""


class Wanted:
    """Someone who waits for blocks, and is called back once when all are there or could not be read."""

    __slots__ = ("_cold_reads", "callback", "loads")

    def __init__(self, cold_reads: ColdReads, callback: Callable[[], None]) -> None:
        self._cold_reads = cold_reads
        self.callback: Callable[[], None] | None = callback
        self.loads: dict[_Load, None] = {}

    def cancel(self) -> None:
        """Call nobody back; what nobody else waits for and is not begun is not read."""
        self.callback = None
        loads, self.loads = self.loads, {}
        for load in loads:
            self._cold_reads.give_up(load, self)


class _Load:
    """One block that is to be brought in, and who waits for it; nobody, when it is read ahead."""

    __slots__ = ("blocks_ahead", "failed", "key", "place", "queue", "size_bytes", "waiting")

    def __init__(self, key: BlockKey, place: Place, queue: OrderedDict[BlockKey, _Load]) -> None:
        self.key = key
        self.place = place
        self.waiting: dict[Wanted, None] = {}
        self.queue: OrderedDict[BlockKey, _Load] | None = queue
        """Where it waits for a thread; None once it has one."""
        self.blocks_ahead = 0
        """How many of the blocks after it to read, if it is not the last of its file."""
        self.size_bytes = 0
        self.failed = False
        queue[key] = self


class ColdReads:
    """Brings blocks in with `threads` threads (0: readers wait for the disk themselves).

    `cache_bytes` bounds what stays in the page cache of what was brought in, `ahead_bytes` how far ahead of a reader the
    disk is read. All methods belong to the event loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        storage: Storage,
        *,
        flusher: Flusher | None = None,
        threads: int = 1,
        cache_bytes: int = 64 << 20,
        ahead_bytes: int = 2 << 20,
        machine: Machine | None = None,
    ) -> None:
        self.storage = storage
        self._machine = machine or Machine()
        self._loop = loop
        self._flusher = flusher
        self._has_turn = True
        """Whether a block may be begun though a flush round is under way."""
        if flusher is not None:
            flusher.after_round.append(self._take_turn)
        self._thread_count = threads
        self._workers: Workers[_Load | Place] | None = None
        self._blocks_kept = max(1, cache_bytes // BLOCK_BYTES)
        self._blocks_ahead = min(-(-ahead_bytes // BLOCK_BYTES), self._blocks_kept // 2)
        self._known: OrderedDict[BlockKey, Place] = OrderedDict()
        """What was brought in and not dropped yet, the least recently used first."""
        self._loads: dict[BlockKey, _Load] = {}
        self._urgent: OrderedDict[BlockKey, _Load] = OrderedDict()
        self._ahead: OrderedDict[BlockKey, _Load] = OrderedDict()
        self._running = 0
        self.blocks_read = 0
        """Since the start."""

    def start(self) -> None:
        """Start the threads."""
        if self._thread_count:
            self._workers = self._machine.workers("cold-read", self._thread_count, self._work)

    def stop(self) -> None:
        """End the threads when what they are at is done; nobody is called back any more."""
        for wanted in [wanted for load in self._loads.values() for wanted in load.waiting]:
            wanted.cancel()
        for queue in (self._urgent, self._ahead):
            while queue:
                del self._loads[queue.popitem()[0]]
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()

    @property
    def is_on(self) -> bool:
        """Whether readers can be kept from waiting for the disk: here, and on this system and file system."""
        return self._workers is not None and self.storage.tells_cached

    @property
    def blocks_kept(self) -> int:
        """How many blocks that were brought in may still be in the page cache."""
        return len(self._known)

    @property
    def blocks_waiting(self) -> int:
        """How many blocks wait for a thread or have one."""
        return len(self._loads)

    # For those who read.

    def attempt(self, work: Callable[[], T]) -> T:
        """Run `work`; it raises NotCached where it would wait for the disk, and whatever else it raises."""
        storage = self.storage
        storage.waits = not self.is_on
        try:
            return work()
        finally:
            storage.waits = True

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` again and again until all that it reads is cached. It changes nothing until it returns.

        Where all that is missing was brought in before, and is gone again, the disk is waited for. Raises what `work` raises.
        """
        seen: set[Place] = set()
        while True:
            try:
                return self.attempt(work)
            except NotCached as missing:
                if seen.issuperset(missing.places):
                    return work()
                seen.update(missing.places)
                await self._brought_in(missing.places)

    async def _brought_in(self, places: Iterable[Place]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        wanted = self.want(places, lambda: done.set_result(None))
        try:
            await done
        finally:
            wanted.cancel()

    def want(self, places: Iterable[Place], callback: Callable[[], None]) -> Wanted:
        """Have all of the places brought in, then call back, never at once."""
        wanted = Wanted(self, callback)
        for place in places:
            for key, block in _blocks_of(place):
                load = self._loads.get(key)
                if load is None:
                    load = self._loads[key] = _Load(key, block, self._urgent)
                elif load.queue is self._ahead:
                    load.queue = self._urgent
                    self._urgent[key] = self._ahead.pop(key)
                load.waiting[wanted] = None
                wanted.loads[load] = None
                if self._is_in_sequence(key):
                    load.blocks_ahead = self._blocks_ahead
        self._start_loads()
        return wanted

    def bring_in_ahead(self, places: Iterable[Place]) -> None:
        """Have the places brought in for one who will come back, unless much is waited for already."""
        for place in places:
            for key, block in _blocks_of(place):
                self._read_ahead(key, block)
        self._start_loads()

    def passing(self, place: Place) -> None:
        """A reader goes over a cached place: keep its blocks a while, and go ahead of it."""
        if not self._known:
            return
        for key, _ in _blocks_of(place):
            if key in self._known:
                self._known.move_to_end(key)
                if self._is_in_sequence(key):
                    self._read_on(key, self._blocks_ahead)
        self._start_loads()

    def give_up(self, load: _Load, wanted: Wanted) -> None:
        """`wanted` does not wait for the block any more."""
        load.waiting.pop(wanted, None)
        if not load.waiting and load.queue is not None:
            del load.queue[load.key]
            del self._loads[load.key]

    # Inside.

    def _is_in_sequence(self, key: BlockKey) -> bool:
        """Whether a reader of this block seems to go through the file: it is the first, or comes from the one before."""
        path, number = key
        return number == 0 or (number > 0 and (path, number - 1) in self._known)

    def _read_on(self, key: BlockKey, blocks: int) -> None:
        """Read the blocks after one that is known, as many as asked for and as there are in the file."""
        path, number = key
        while blocks > 0 and self._known[path, number].size_bytes == BLOCK_BYTES:
            number += 1
            blocks -= 1
            if (path, number) not in self._known:
                self._read_ahead((path, number), Place(path, number * BLOCK_BYTES, BLOCK_BYTES), blocks)
                return

    def _read_ahead(self, key: BlockKey, place: Place, blocks_ahead: int = 0) -> None:
        load = self._loads.get(key)
        if load is None:
            if len(self._ahead) >= self._blocks_kept:
                return
            load = self._loads[key] = _Load(key, place, self._ahead)
        load.blocks_ahead = max(load.blocks_ahead, blocks_ahead)

    def _start_loads(self) -> None:
        workers = self._workers
        while workers is not None and self._running < self._thread_count:
            queue = self._urgent or self._ahead
            if not queue:
                return
            if self._flusher is not None and self._flusher.is_flushing:
                if not self._has_turn:
                    return
                self._has_turn = False
            _, load = queue.popitem(last=False)
            load.queue = None
            self._count_running(1)
            workers.put(load)

    def _count_running(self, more: int) -> None:
        self._running += more
        if self._flusher is not None:
            self._flusher.disk_is_busy = self._running > 0

    def _take_turn(self) -> None:
        """A flush round is over."""
        self._has_turn = True
        self._start_loads()

    def _work(self, job: _Load | Place) -> None:
        failed = True
        try:
            if isinstance(job, Place):
                self.storage.drop_cached(job)
                return
            job.size_bytes = self.storage.bring_in(job.place)
            failed = False
        except OSError as error:
            logger.debug("%s: %s", job, error)  # who reads it meets the error
        except Exception:
            logger.exception("old data could not be read ahead")
        if isinstance(job, _Load):
            job.failed = failed
            self._loop.call_soon_threadsafe(self._finish, job)

    def _finish(self, load: _Load) -> None:
        self._count_running(-1)
        self.blocks_read += 1
        del self._loads[load.key]
        path, position, _ = load.place
        self.storage.brought_in(path)
        if not load.failed:
            self._keep(load.key, Place(path, position, load.size_bytes))
            self._read_on(load.key, load.blocks_ahead)
        for wanted in load.waiting:
            wanted.loads.pop(load, None)
            callback = wanted.callback
            if callback is not None and not wanted.loads:
                wanted.callback = None
                _call(callback)
        self._start_loads()

    def _keep(self, key: BlockKey, place: Place) -> None:
        self._known[key] = place
        self._known.move_to_end(key)
        while len(self._known) > self._blocks_kept:
            _, dropped = self._known.popitem(last=False)
            if dropped.size_bytes and self._workers is not None:  # 0 would be everything from there on
                self._workers.put(dropped)


def _blocks_of(place: Place) -> Iterator[tuple[BlockKey, Place]]:
    path, position, size_bytes = place
    if not size_bytes:
        yield (path, _WHOLE), place
        return
    for number in range(position // BLOCK_BYTES, (position + size_bytes - 1) // BLOCK_BYTES + 1):
        yield (path, number), Place(path, number * BLOCK_BYTES, BLOCK_BYTES)


def _call(callback: Callable[[], None]) -> None:
    """What goes wrong with one reader must not keep the others waiting."""
    try:
        callback()
    except Exception:
        logger.exception("a read could not go on")
