"""Reads the history of partitions that other gateways lead, from the parts in the bucket.

A reader gets records below the end of the manifest only: all of these are durable, so the leader's high watermark is never lower. A reader of
committed records gets those below the manifest's stable offset. The leader is asked for the log start offset every CONFIRMED_FOR_S, so that
deleted records vanish here, too. What can't be answered from that is the leader's to answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from gateway.cluster.cache.part_reader import PartReader
from gateway.cluster.objects.objects import Missing, ObjectStore, Refused
from gateway.cluster.parts.manifest import (
    FileRef,
    Manifest,
    PartitionKey,
    PartRef,
    decode_manifest,
    manifest_key,
    part_key,
)
from gateway.cluster.parts.part_object import CorruptPart
from gateway.cluster.reading import batches
from gateway.cluster.reading.blocks import BlockKey, Blocks, Stretch, blocks_from
from gateway.cluster.reading.contents import Bounds, Contents, abort_files
from gateway.cluster.reading.known import Known
from gateway.cluster.wal.persistence import PersistentReads
from log import IncompatibleFormat
from log.format.record_batch import HEADER_BYTES
from seq_validator.checksum import crc32c

logger = logging.getLogger(__name__)

PARTITIONS_KEPT: Final = 1024
"""Partitions of which something is known; the least recently read one is forgotten, and its manifest is read again when needed."""
LOADS_AT_ONCE: Final = 16
"""Blocks, manifests and answers of leaders that are fetched at the same time; further ones wait."""
LOAD_TIMEOUT_S: Final = 10.0
"""Time for one of them, waiting included. After it the readers of the partition are sent to the leader."""
BLOCKS_AHEAD: Final = 4
"""Blocks that are fetched ahead of a reader that goes through a part."""
SEEK_BYTES: Final = 1 << 20
"""The most bytes whose batches are gone through at once to find an offset."""


class NotConfirmed(Exception):
    """The leader did not tell its log start offset. The message says why."""


class Found(NamedTuple):
    """Records for a reader; none if they do not fit into its limit."""

    records: bytes
    aborted: list[tuple[int, int]]
    bounds: Bounds


class Loading(NamedTuple):
    """The records are being fetched. The reader waits for the partition, and asks again."""

    partition: PartitionKey
    bounds: Bounds | None


class Waiter:
    """A reader that waits for partitions. Its callback runs once, when something of one of them was fetched or could not be."""

    __slots__ = ("_forget", "callback")

    def __init__(self, callback: Callable[[], None], forget: Callable[[Waiter], None]) -> None:
        """Take the callback, and the function that forgets the reader."""
        self.callback: Callable[[], None] | None = callback
        self._forget = forget

    def cancel(self) -> None:
        """Drop the callback."""
        self.callback = None
        self._forget(self)


class BucketReads:
    """The partitions that clients read here although another gateway leads them. Use it in the event loop."""

    def __init__(
        self,
        objects: ObjectStore,
        ask_leader: Callable[[PartitionKey], Awaitable[int]],
        *,
        cache_bytes: int,
    ) -> None:
        """`ask_leader` returns the log start offset that the leader of a partition tells, and raises NotConfirmed."""
        self._loop = asyncio.get_running_loop()
        self._reads = PersistentReads(objects, "readers of other gateways' partitions wait for the bucket")
        self._ask_leader = ask_leader
        self._blocks = Blocks(PartReader(objects), cache_bytes)
        self._largest_bytes = cache_bytes // 2
        """The largest batch that is read here: all of its blocks must be in memory together."""
        self._known: OrderedDict[PartitionKey, Known] = OrderedDict()
        self._loads: dict[tuple[PartitionKey, object], asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(LOADS_AT_ONCE)
        self._waiting: dict[PartitionKey, dict[Waiter, None]] = {}
        self.bytes_read = 0
        """The bytes of records that readers got since the start."""

    # --- calls by readers

    def read(
        self,
        key: PartitionKey,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        committed_only: bool,
    ) -> Found | Loading | None:
        """Return the batches from the one with the offset on, or None if the leader must answer. Waits for nothing.

        Raises NotConfirmed if the leader did not answer a short time ago.
        """
        known, now_s = self._of(key), self._loop.time()
        if known.is_out(now_s):
            if known.is_leader_silent:
                raise NotConfirmed("the leader did not answer")
            return None
        if not known.is_confirmed(now_s):
            self._load(key, "leader", partial(self._confirm, key, known))
        if known.contents is None:
            self._load(key, "manifest", partial(self._read_manifest, key, known))
        bounds = known.bounds
        if bounds is None or known.contents is None or not known.is_confirmed(now_s):
            return Loading(key, bounds)
        if known.has_deleted(offset):
            return None
        bound = bounds.stable if committed_only else bounds.end
        if offset >= bound:
            if not known.may_be_behind(now_s):
                return None
            self._load(key, "manifest", partial(self._read_manifest, key, known))
            return Loading(key, bounds)
        try:
            return self._batches(key, known, known.contents, offset, bound, max_bytes, min_one_batch, bounds)
        except CorruptPart as error:
            logger.warning("%s can't be read from the bucket: %s", manifest_key(key), error)
            known.failed(now_s)
            return None

    def want(self, partitions: Iterable[PartitionKey], callback: Callable[[], None]) -> Waiter:
        """Call back, never at once, when something was fetched of one of these partitions, which are loading."""
        wanted = list(partitions)
        waiter = Waiter(callback, partial(self._forget, wanted))
        for key in wanted:
            self._waiting.setdefault(key, {})[waiter] = None
        if not any(loading in wanted for loading, _ in self._loads):
            self._loop.call_soon(self._wake, waiter)
        return waiter

    async def stop(self) -> None:
        """End all fetches; no callback runs any more."""
        self._waiting.clear()
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    # --- records in memory

    def _batches(
        self,
        key: PartitionKey,
        known: Known,
        contents: Contents,
        offset: int,
        bound: int,
        max_bytes: int,
        min_one_batch: bool,
        bounds: Bounds,
    ) -> Found | Loading | None:
        """Return batches from memory, or fetch what is missing. Raises CorruptPart."""
        number = contents.part_at(offset)
        part = contents.parts[number]
        place = self._seek(known, part, offset)
        if isinstance(place, BlockKey):
            self._load_blocks(key, known, contents, number, place)
            return Loading(key, bounds)
        stretch = self._blocks.stretch(part, place, place + max(max_bytes, HEADER_BYTES))
        found = batches.whole(stretch.data, max_bytes, bound, offset)
        if not found.size_bytes and min_one_batch and stretch.missing is None:
            size_bytes = batches.first_bytes(stretch.data)
            if size_bytes > self._largest_bytes:
                return None
            stretch = self._blocks.stretch(part, place, place + size_bytes)
            found = batches.whole(stretch.data, size_bytes, bound, offset)
        if stretch.missing is not None:
            self._load_blocks(key, known, contents, number, stretch.missing)
            if not found.size_bytes:
                return Loading(key, bounds)
        if not found.size_bytes and min_one_batch:
            return None
        behind = place + found.size_bytes
        if found.size_bytes and behind < part.length:
            known.note_position(part, found.end_offset, behind)
        self._load_ahead(key, known, contents, number, stretch, place)
        records = stretch.data[: found.size_bytes]
        self.bytes_read += len(records)
        return Found(records, contents.aborted(offset, found.end_offset) if records else [], bounds)

    def _seek(self, known: Known, part: PartRef, offset: int) -> int | BlockKey:
        """Return where in a part the batch with the offset begins, or the block that is missing to find it. Raises CorruptPart."""
        place = known.position_before(part, offset)
        while place < part.length:
            stretch = self._blocks.stretch(part, place, place + SEEK_BYTES)
            skipped, is_found = batches.skip_to(stretch.data, offset)
            place += skipped
            if is_found:
                known.note_position(part, offset, place)
                return place
            if not skipped and stretch.missing is not None:
                return stretch.missing
            if not skipped:
                break
        raise CorruptPart(f"part {part.name} has no batch with the offset {offset}")

    # --- fetches

    def _of(self, key: PartitionKey) -> Known:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Known()
            if len(self._known) > PARTITIONS_KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known

    def _load_ahead(
        self, key: PartitionKey, known: Known, contents: Contents, number: int, stretch: Stretch, place: int
    ) -> None:
        """Fetch the next blocks of a reader that goes on, also those of the next part."""
        left = BLOCKS_AHEAD
        place += len(stretch.data)
        for part in contents.parts[number : number + 2]:
            for block in blocks_from(part, place) if place < part.length else ():
                if left:
                    self._load_block(key, known, contents, part, BlockKey(part.name, block))
                    left -= 1
            place = 0

    def _load_blocks(
        self, key: PartitionKey, known: Known, contents: Contents, number: int, missing: BlockKey
    ) -> None:
        """Fetch a block that a reader waits for, and those behind it."""
        part = contents.parts[number]
        last = blocks_from(part, part.length - 1).start
        for block in range(missing.number, min(missing.number + BLOCKS_AHEAD, last) + 1):
            self._load_block(key, known, contents, part, BlockKey(part.name, block))

    def _load_block(
        self, key: PartitionKey, known: Known, contents: Contents, part: PartRef, block: BlockKey
    ) -> None:
        if not self._blocks.has(block):
            self._load(key, block, partial(self._fetch_block, key, known, contents, part, block))

    def _load(self, key: PartitionKey, what: object, fetch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if (key, what) not in self._loads:
            self._loads[key, what] = self._loop.create_task(self._run(key, what, fetch), name="bucket read")

    async def _run(
        self, key: PartitionKey, what: object, fetch: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S), self._turns:
                await fetch()
        except (NotConfirmed, Missing, CorruptPart, IncompatibleFormat, Refused, TimeoutError) as error:
            logger.info(
                "partition %d of the topic %s can't be read here now, and its readers are sent to its leader: %s",
                key.partition,
                key.topic_id,
                str(error) or "the bucket does not answer",
            )
            is_leader_silent = isinstance(error, NotConfirmed)
            self._of(key).failed(self._loop.time(), is_leader_silent=is_leader_silent)
        except Exception:
            logger.exception("a read from the bucket failed in an unexpected way")
            self._of(key).failed(self._loop.time())
        finally:
            del self._loads[key, what]
        for waiter in list(self._waiting.get(key, ())):
            self._wake(waiter)

    def _wake(self, waiter: Waiter) -> None:
        callback = waiter.callback
        if callback is None:
            return
        waiter.cancel()
        try:
            callback()
        except Exception:
            logger.exception("a reader failed after its data was fetched from the bucket")

    def _forget(self, partitions: Iterable[PartitionKey], waiter: Waiter) -> None:
        for key in partitions:
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.pop(waiter, None)
                if not waiting:
                    del self._waiting[key]

    async def _confirm(self, key: PartitionKey, known: Known) -> None:
        asked_s = self._loop.time()
        known.confirmed(await self._ask_leader(key), asked_s)
        if not known.is_confirmed(self._loop.time()):
            raise NotConfirmed("the leader's answer came too late")

    async def _read_manifest(self, key: PartitionKey, known: Known) -> None:
        path = manifest_key(key)
        try:
            manifest = decode_manifest(await self._reads.get(path), path)
        except Missing:
            manifest = Manifest(*key, "", 0, 0, 0, 0, (), ())  # Nothing is uploaded yet.
        before = {} if known.contents is None else known.contents.indexes
        indexes = {
            file.name: await self._index(manifest, file, before) for file in abort_files(manifest) or ()
        }
        known.read(Contents(manifest, indexes), self._loop.time())

    async def _index(self, manifest: Manifest, file: FileRef, before: Any) -> bytes:
        """Return the transaction index of a closed segment. Raises Missing, CorruptPart, Refused."""
        content = file.content if file.content is not None else before.get(file.name)
        if content is None or (len(content), crc32c(content)) != (file.length, file.crc):
            if file.stored is None:
                raise CorruptPart(
                    f"{manifest_key(manifest.key)} is damaged: {file.name} has another checksum."
                )
            content = await self._reads.get(part_key(manifest.key, file.stored))
        if (len(content), crc32c(content)) != (file.length, file.crc):
            raise CorruptPart(f"the file {file.name} of {manifest_key(manifest.key)} is damaged.")
        return content

    async def _fetch_block(
        self, key: PartitionKey, known: Known, contents: Contents, part: PartRef, block: BlockKey
    ) -> None:
        try:
            await self._blocks.load(key, part, block)
        except Missing:
            # A compaction, retention or a merge of small parts has replaced the part. A newer manifest names others.
            if known.contents is not contents:
                return
            if known.has_missed:
                raise
            known.has_missed, known.contents = True, None
        else:
            known.has_missed = False
