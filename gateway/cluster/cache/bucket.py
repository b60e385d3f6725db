"""The bytes of segments from their parts in the bucket, for the event loop and for threads that wait.

A reader gets stretches of parts, not whole parts, and each stretch is checked by its CRC (`PartReader`).

A read of absent bytes may come from any thread, also from the one of the gateway's event loop, where no
coroutine of that loop could answer it. So calls for threads that wait have a thread and an event loop of
their own, and connections of their own (`BucketThread`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeVar

from seqgate.gateway.cluster.objects.objects import (
    CountedObjects,
    Counts,
    Missing,
    ObjectStore,
    Refused,
    StoreFailed,
)
from seqgate.gateway.cluster.parts.manifest import (
    Manifest,
    PartitionKey,
    PartRef,
    SegmentRef,
    part_key,
    read_manifest,
)
from seqgate.gateway.cluster.parts.part_object import (
    BLOCK_BYTES,
    CorruptPart,
    PartIndex,
    data_place,
    decode_part,
    decode_part_index,
    index_place,
)
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.log import IncompatibleFormat
from seqgate.log.sparse import SegmentKey

ATTEMPTS: Final = 5
"""Reads of a segment whose parts are replaced while they are read."""
MANIFESTS_KEPT: Final = 4096
"""Manifests kept in memory; the least recently used one is read again when needed."""


class BucketSource:
    """Reads segments from one store, by manifests that it reads itself. Use it in one event loop."""

    def __init__(
        self,
        objects: ObjectStore,
        restored: Mapping[PartitionKey, Manifest] | None = None,
        *,
        one_by_one: bool = False,
    ) -> None:
        """Take the store. With `one_by_one` a read makes one call after the other, and starts no task.
        `restored` are the manifests from which the local files were made. A process whose session has ended
        may have replaced one since, by one with other bytes.
        """
        self._one_by_one = one_by_one
        self._restored = {} if restored is None else restored
        self._parts = PartReader(objects)
        self._reads = PersistentReads(objects, "readers of old data wait for the bucket")
        self._manifests: OrderedDict[PartitionKey, Manifest] = OrderedDict()

    async def read(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        """Return checked bytes of a segment file; wait until the store answers. Raises OSError."""
        partition = PartitionKey(key.topic_id, key.partition)
        before: SegmentRef | None = None
        try:
            for _ in range(ATTEMPTS):
                segment = await self._segment(partition, key, is_new_wanted=before is not None)
                if segment is None or segment.size_bytes < position + size_bytes:
                    raise OSError(errno.ENOENT, f"the bucket does not have the segment any more: {key}")
                if segment == before:
                    break
                before = segment
                try:
                    return await self._read_parts(partition, segment.parts, position, size_bytes)
                except Missing:
                    continue  # Other parts with the same bytes replaced these. A newer manifest names them.
        except (CorruptPart, IncompatibleFormat, Refused) as error:
            raise OSError(errno.EIO, f"the bucket can't be read: {error}") from error
        raise OSError(errno.EIO, f"the bucket lacks a part that its manifest names, of the segment {key}")

    async def _read_parts(
        self, partition: PartitionKey, parts: tuple[PartRef, ...], position: int, size_bytes: int
    ) -> bytes:
        """Return bytes of a segment file from its parts, which follow each other and hold all these bytes."""
        end = position + size_bytes
        reads = [
            self._parts.read(
                partition, each, max(0, position - each.position), min(each.length, end - each.position)
            )
            for each in parts
            if each.position < end and position < each.position + each.length
        ]
        if self._one_by_one:
            return b"".join([await read for read in reads])
        return b"".join(await asyncio.gather(*reads))

    async def _segment(
        self, partition: PartitionKey, key: SegmentKey, *, is_new_wanted: bool
    ) -> SegmentRef | None:
        """Return a segment of a manifest as new as the key. Raises as `read_manifest`."""
        manifest = _newest(self._manifests.get(partition), self._restored.get(partition))
        if manifest is None or is_new_wanted or manifest.generation < key.generation:
            manifest = await read_manifest(self._reads, partition)
            if manifest is None:
                self._manifests.pop(partition, None)
                return None
            self._manifests[partition] = manifest
        if partition in self._manifests:
            self._manifests.move_to_end(partition)
        while len(self._manifests) > MANIFESTS_KEPT:
            self._manifests.popitem(last=False)
        if manifest.generation < key.generation:
            return None
        return next((segment for segment in manifest.segments if segment.base == key.base_offset), None)


def _newest(read: Manifest | None, restored: Manifest | None) -> Manifest | None:
    """Return the newer manifest: the gateway may have adopted the partition since it read one."""
    if read is None or restored is None:
        return read or restored
    return restored if restored.generation > read.generation else read


class WaitingSource:
    """Reads segments for threads that wait. Any thread may use it."""

    def __init__(self, calls: BucketCalls, restored: Mapping[PartitionKey, Manifest] | None = None) -> None:
        """Take the calls to the store, and the manifests from which the local files were made."""
        self._restored = restored
        self.counts = Counts()
        """Counted in the thread of the calls."""
        self._calls = calls
        self._source: BucketSource | None = None

    def fetch(self, key: SegmentKey, position: int, size_bytes: int) -> bytes:
        """Return checked bytes of a segment file. Raises OSError, also if the store answers too late."""

        async def read(objects: ObjectStore) -> bytes:
            if self._source is None:
                self._source = BucketSource(
                    CountedObjects(objects, self.counts), self._restored, one_by_one=True
                )
            return await self._source.read(key, position, size_bytes)

        try:
            return self._calls.run(read)
        except (Refused, StoreFailed) as error:
            raise OSError(errno.EIO, f"the bucket can't be read: {error}") from error

    def close(self) -> None:
        self._calls.close()


T = TypeVar("T")
TIMEOUT_S: Final = 30.0


class BucketCalls(Protocol):
    """Calls to the store that the calling thread waits for."""

    def run(self, call: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        """Return what the coroutine returns. Raises its errors, and OSError if it takes too long."""

    def close(self) -> None:
        """Release the connections."""


class BucketThread:
    """The thread, which the first call starts. Any thread may use it, and several at once."""

    def __init__(self, open_objects: Callable[[], ObjectStore], timeout_s: float = TIMEOUT_S) -> None:
        self._open_objects = open_objects
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop = asyncio.new_event_loop()
        self._objects: ObjectStore | None = None

    def run(self, call: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        """Return what the coroutine returns. Raises its errors, and OSError after the timeout."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="bucket-reads", daemon=True)
                self._thread.start()
        future = asyncio.run_coroutine_threadsafe(self._call(call), self._loop)
        try:
            return future.result(self._timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise OSError(errno.ETIMEDOUT, f"the bucket did not answer for {self._timeout_s:.0f} s") from None

    async def _call(self, call: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
        if self._objects is None:
            self._objects = self._open_objects()
        return await call(self._objects)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            if self._objects is not None:
                self._loop.run_until_complete(self._objects.close())
        finally:
            self._loop.close()

    def close(self) -> None:
        """End the thread; calls under way get no answer."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
        elif not self._loop.is_closed():
            self._loop.close()


INDEXES_KEPT: Final = 4096
"""Part indexes kept in memory; the least recently used one is read again when needed."""
WHOLE_BYTES: Final = BLOCK_BYTES
"""A part up to this size is read as a whole, index included, with one request."""


class PartReader:
    """Reads parts from one store. Waits while the store does not answer."""

    def __init__(self, objects: ObjectStore) -> None:
        """Take the store. Call in an event loop, and use the reader in no other."""
        self._objects = objects
        self._reads = PersistentReads(objects, "readers of old data wait for the bucket")
        self._indexes: OrderedDict[str, PartIndex] = OrderedDict()

    async def read(self, partition: PartitionKey, part: PartRef, start: int, stop: int) -> bytes:
        """Return the bytes `start` to `stop` of the part's data. Raises Missing, CorruptPart, Refused."""
        key = part_key(partition, part.name)
        if part.length <= WHOLE_BYTES:
            _, data = decode_part(await self._reads.answered(lambda: self._objects.get(key)), key)
            return bytes(data[start:stop])
        index = await self._index(key, part)
        first, last = index.stretch_at(start), index.stretch_at(stop - 1)
        begin, end = index.stretches[first][0], index.stretches[last][1]
        data_start = data_place(begin)
        found = await self._reads.answered(lambda: self._objects.get(key, data_start, end - begin))
        index.check(memoryview(found), first, last, key)
        return found[start - begin : stop - begin]

    async def _index(self, key: str, part: PartRef) -> PartIndex:
        index = self._indexes.get(key)
        if index is None:
            place, size_bytes = index_place(part.position, part.length)
            content = await self._reads.answered(lambda: self._objects.get(key, place, size_bytes))
            index = decode_part_index(content, part.position, part.length, key)
        self._indexes[key] = index
        self._indexes.move_to_end(key)
        while len(self._indexes) > INDEXES_KEPT:
            self._indexes.popitem(last=False)
        return index
