"""The local disk as a cache of the segments in a bucket: history may be larger than the disk.

A segment that the bucket has, as a manifest that counts names it, may lose blocks of its local file to an
eviction, and gets them back when they are read. `seqgate.log.sparse` keeps anybody from reading a hole.

`BlockCache` fetches blocks that the local disk lacks, for readers on the event loop. `Eviction` keeps the
local disk within its limit: it evicts the blocks that were not read for the longest time. All bytes that the
bucket does not have stay: records that are not uploaded yet, and indexes. So do the records of internal
topics, which each start reads as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from seqgate.gateway.cluster.cache.bucket import BucketSource, WaitingSource
from seqgate.gateway.cluster.cache.local_caches import CacheState
from seqgate.gateway.cluster.objects.objects import Counts, ObjectStore
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey, decode_manifest, encode_manifest
from seqgate.gateway.cluster.parts.part_object import CorruptPart
from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.tasks import all_of
from seqgate.log import IncompatibleFormat, LocalDurability, LogDirectory, PageRange, Storage
from seqgate.log.rebuilding import RESTORED_MANIFESTS
from seqgate.log.sparse import BLOCK_BYTES, SparseDisk, SparseFile, restore_residency, save_residency

logger = logging.getLogger(__name__)

RESERVES: Final = 2
"""How many times `seqgate.log.min.free.bytes` stay free: eviction comes before producers are refused."""


class LocalCache:
    """The cache of one gateway in a bucket. It lets segment files have holes on the machine's storage."""

    def __init__(self, config: Config, machine: Machine) -> None:
        """Change the machine's storage. No file may be open yet."""
        self._config = config
        self._machine = machine
        self._root = str(Path(config.str("log.dirs")))
        self.sparse = machine.let_files_have_holes()
        self.restored: dict[PartitionKey, Manifest] = {}
        """The manifests by which the segment files of the data directory go."""
        self.blocks: BlockCache
        self._waiting: WaitingSource | None = None
        self.eviction: Eviction | None = None

    @property
    def calls(self) -> Counts:
        """The calls to the bucket by threads that wait; the store that `open` takes counts the others."""
        return Counts() if self._waiting is None else self._waiting.counts

    def restore(self) -> bool:
        """Take over the holes and manifests that the last stop noted; return False if some are unknown.
        Raises OSError.
        """
        storage, path = self._machine.storage, f"{self._root}/{RESTORED_MANIFESTS}"
        try:
            noted = [decode_manifest(line, path) for line in storage.read_file(path).splitlines()]
        except (FileNotFoundError, CorruptPart, IncompatibleFormat):
            return False
        if not restore_residency(storage, self.sparse, self._root):
            return False
        self.restored.update((manifest.key, manifest) for manifest in noted)
        return True

    def save(self, manifests: Iterable[Manifest]) -> None:
        """Note the holes, and the manifests by which the files go, durably for the next start; nothing may
        read or evict any more. Raises OSError.
        """
        durability = LocalDurability(self._machine.storage)
        content = b"\n".join(map(encode_manifest, manifests))
        durability.replace(f"{self._root}/{RESTORED_MANIFESTS}", content)
        save_residency(durability, self.sparse, self._root)

    def open(self, objects: ObjectStore) -> None:
        """Fetch absent blocks from the bucket from now on."""
        self._waiting = WaitingSource(self._machine.bucket_calls(self._config), self.restored)
        self.sparse.source = self._waiting
        self.blocks = BlockCache(self.sparse, BucketSource(objects, self.restored))

    def serve(self, directory: LogDirectory) -> None:
        """Keep the local disk within its limit from now on."""
        config = self._config
        self.eviction = Eviction(
            self._machine.storage,
            self.sparse,
            self._root,
            limit_bytes=lambda: config.int("seqgate.cluster.cache.bytes"),
            reserve_bytes=lambda: RESERVES * config.int("seqgate.log.min.free.bytes"),
            log_bytes=lambda: _log_bytes(directory),
        )
        self.blocks.make_room = self.eviction.make_room
        self.blocks.when_filled.append(self.eviction.filled)
        self.eviction.start()

    def state(self) -> CacheState | None:
        """Return the counts of the cache; None before `serve`."""
        if self.eviction is None:
            return None
        limit_bytes = self._config.int("seqgate.cluster.cache.bytes")
        return CacheState(
            local_bytes=self.eviction.local_bytes,
            max_bytes=None if limit_bytes == NO_LIMIT else limit_bytes,
            blocks_fetched=self.blocks.blocks_fetched + self.sparse.blocks_waited_for,
            blocks_waited_for=self.sparse.blocks_waited_for,
            bytes_evicted=self.eviction.bytes_evicted,
        )

    async def stop(self) -> None:
        """Stop evicting blocks. Reads still fetch absent blocks."""
        if self.eviction is not None:
            await self.eviction.stop()

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.close()


def _log_bytes(directory: LogDirectory) -> int:
    opened = sum(log.size_bytes for log in directory.logs())
    return opened + sum(stored.size_bytes for stored in directory.stored().values())


HELD_AT_ONCE: Final = 8
"""Blocks that are fetched at the same time for a user who needs whole files."""


class BlockCache:
    """The segments in the bucket whose blocks the local disk lacks or has. Use it in the event loop."""

    def __init__(self, sparse: SparseDisk, source: BucketSource) -> None:
        self.sparse = sparse
        self._source = source
        self.blocks_fetched = 0
        self.when_filled: list[Callable[[int], None]] = []
        """Called with the number of bytes that a block added to the local disk."""

        self.make_room: Callable[[int], Awaitable[None]] | None = None
        """Makes room for this number of bytes before whole files are fetched. Raises OSError."""

    def is_absent(self, place: PageRange) -> bool:
        """Return whether the local disk lacks a byte of the place."""
        file = self.sparse.find(place.path)
        return file is not None and file.lacks(place.position, place.size_bytes)

    async def bring_in(self, place: PageRange) -> int:
        """Fetch the block that begins at the place, and return its size in bytes. Raises OSError."""
        file = self.sparse.find(place.path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "the segment is no longer part of the log", place.path)
        number = place.position // BLOCK_BYTES
        await self._fetch(file, number)
        return file.block_bytes(number)

    @contextlib.asynccontextmanager
    async def held(self, paths: Iterable[str]) -> AsyncIterator[None]:
        """Keep whole segment files on the local disk within the `async with` block; fetch what they lack
        first. Raises OSError. For users that read the files past this process: the process that compacts.
        """
        files = [file for path in paths if (file := self.sparse.files.of(path)) is not None]
        for file in files:
            self.sparse.pin(file)
        try:
            absent_bytes = sum(file.absent_bytes for file in files)
            if absent_bytes and self.make_room is not None:
                await self.make_room(absent_bytes)
            await self._fetch_all(files)
            yield
        finally:
            for file in files:
                self.sparse.unpin(file)

    async def _fetch_all(self, files: Iterable[SparseFile]) -> None:
        room = asyncio.Semaphore(HELD_AT_ONCE)

        async def fetch(file: SparseFile, number: int) -> None:
            async with room:
                await self._fetch(file, number)

        for file in files:
            absent = [number for number in range(file.absent.bit_length()) if file.absent >> number & 1]
            await all_of([asyncio.ensure_future(fetch(file, number)) for number in absent])

    async def _fetch(self, file: SparseFile, number: int) -> None:
        key = file.key
        if key is None or not file.absent >> number & 1:
            return
        position, size_bytes = number * BLOCK_BYTES, file.block_bytes(number)
        try:
            data = await self._source.read(key, position, size_bytes)
            await asyncio.to_thread(self.sparse.fill, file, number, data)
        except OSError as error:
            self.sparse.failures[file, number] = error
            raise
        self.blocks_fetched += 1
        for callback in self.when_filled:
            callback(size_bytes)


CHECK_EVERY_S: Final = 1.0
"""Time between two checks. A gateway that fills blocks quickly checks sooner."""
SHARE_EVICTED: Final = 1 / 32
"""The share of the limit that one pass evicts beyond the limit, so that the next fetches find room."""
NO_LIMIT: Final = -1


class Eviction:
    """Checks the local bytes at intervals between `start` and `stop`. Use it in the event loop."""

    def __init__(
        self,
        storage: Storage,
        sparse: SparseDisk,
        path: str,
        *,
        limit_bytes: Callable[[], int],
        reserve_bytes: Callable[[], int],
        log_bytes: Callable[[], int],
    ) -> None:
        """Take the data directory, and three numbers that may change. `limit_bytes` are the most bytes of
        segments on the local disk, NO_LIMIT for as many as fit; `reserve_bytes` stay free on the disk;
        `log_bytes` are the bytes of all segments, holes included.
        """
        self._storage = storage
        self._sparse = sparse
        self._path = path
        self._limit_bytes = limit_bytes
        self._reserve_bytes = reserve_bytes
        self._log_bytes = log_bytes
        self._filled_bytes = 0
        self._allowed_bytes = 0
        """The bytes that may be filled in before the next check."""
        self._timer: asyncio.TimerHandle | None = None
        self._pass: asyncio.Task[None] | None = None
        self._complained = False
        self._has_holes = True
        """Whether the file system can punch holes, as far as it is known."""
        self.bytes_evicted = 0
        self.local_bytes = 0
        """The bytes of segments on the local disk at the last check."""

    def start(self) -> None:
        self._begin_pass()
        self._timer = asyncio.get_running_loop().call_later(CHECK_EVERY_S, self.start)

    async def stop(self) -> None:
        """End the checks; return when nothing is being evicted any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._pass is not None:
            await asyncio.gather(self._pass, return_exceptions=True)

    def filled(self, size_bytes: int) -> None:
        """Count bytes that were fetched; check soon if there may be too many."""
        self._filled_bytes += size_bytes
        if self._filled_bytes > self._allowed_bytes:
            self._begin_pass()

    async def make_room(self, size_bytes: int) -> None:
        """Evict until so many bytes are free, whatever the limit. Raises OSError if that is impossible."""
        missing_bytes = size_bytes - self._free_bytes()
        if missing_bytes <= 0:
            return
        if self._has_holes:
            await asyncio.to_thread(self._evict, missing_bytes)
        if self._free_bytes() < size_bytes:
            raise OSError(
                errno.ENOSPC, f"the disk has no room for {size_bytes} bytes from the bucket", self._path
            )

    def _free_bytes(self) -> int:
        return self._storage.free_bytes(self._path) - self._reserve_bytes()

    def _begin_pass(self) -> None:
        if self._has_holes and (self._pass is None or self._pass.done()):
            self._pass = asyncio.get_running_loop().create_task(self.run_pass(), name="eviction")

    async def run_pass(self) -> None:
        self._filled_bytes = 0
        try:
            excess_bytes = self._excess_bytes()
            if excess_bytes > 0 and self._has_holes:
                await asyncio.to_thread(self._evict, excess_bytes)
        except OSError as error:
            self._complain(error)
        except Exception:
            logger.exception("the eviction from %s failed and is tried again", self._path)

    def _excess_bytes(self) -> int:
        """Return how many bytes to evict; at most 0 if none. Raises OSError."""
        limit_bytes = self._limit_bytes()
        free_bytes = self._free_bytes()
        self.local_bytes = self._log_bytes() - self._sparse.absent_bytes()
        left_bytes = free_bytes
        if limit_bytes != NO_LIMIT:
            left_bytes = min(left_bytes, limit_bytes - self.local_bytes)
        self._allowed_bytes = max(0, left_bytes)
        if left_bytes >= 0:
            return 0
        whole_bytes = self.local_bytes + free_bytes if limit_bytes == NO_LIMIT else limit_bytes
        return -left_bytes + max(BLOCK_BYTES, int(whole_bytes * SHARE_EVICTED))

    def _evict(self, size_bytes: int) -> None:
        for file, numbers in self._sparse.coldest(size_bytes, spares=_is_internal):
            self.bytes_evicted += self._sparse.evict(file, numbers)

    def _complain(self, error: OSError) -> None:
        """Log the reason once. A file system that can't punch holes is not asked again."""
        if self._complained:
            return
        self._complained = True
        if error.errno == errno.EOPNOTSUPP:
            self._has_holes = False
            logger.error(
                "the file system of %s can't punch holes, so seqgate.cluster.cache.bytes limits nothing; use "
                "ext4, xfs, btrfs or tmpfs",
                self._path,
            )
        else:
            logger.warning("blocks can't be evicted from %s and will be tried again: %s", self._path, error)


def _is_internal(path: str) -> bool:
    """Return whether a segment belongs to an internal topic, whose name begins with two underscores."""
    return path.rsplit("/", 2)[-2].startswith("__")
