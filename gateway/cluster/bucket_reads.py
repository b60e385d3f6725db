"""Reads the history of partitions that other gateways lead, from the parts in the bucket.

A reader gets records below the end of the manifest only: all of these are durable, so the leader's high
watermark is never lower. A reader of committed records gets those below the manifest's stable offset. The
leader is asked for the log start offset every CONFIRMED_FOR_S, so that deleted records vanish here, too. What
can't be answered from that is the leader's to answer.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from seqgate.gateway.cluster.cache.bucket import PartReader
from seqgate.gateway.cluster.objects.objects import Missing, ObjectStore, Refused
from seqgate.gateway.cluster.parts.manifest import (
    FileRef,
    Manifest,
    PartitionKey,
    PartRef,
    manifest_key,
    part_key,
    read_manifest,
)
from seqgate.gateway.cluster.parts.part_object import BLOCK_BYTES, CorruptPart
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.tasks import end_tasks
from seqgate.log import IncompatibleFormat
from seqgate.log.format.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from seqgate.log.uploading import TransactionIndex, aborts_name
from seqgate.seq_validator.checksum import crc32c

logger = logging.getLogger(__name__)

PARTITIONS_KEPT: Final = 1024
"""Partitions of which something is known; the least recently read one is forgotten, and read again later."""
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


class FoundRecords(NamedTuple):
    """Records for a reader; none if they do not fit into its limit."""

    records: bytes
    aborted: list[tuple[int, int]]
    bounds: Bounds


class Loading(NamedTuple):
    """The records are being fetched. The reader waits for the partition, and asks again."""

    partition: PartitionKey
    bounds: Bounds | None


class Waiter:
    """A reader that waits for partitions. Its callback runs once, after a fetch of one of them has ended."""

    __slots__ = ("_forget", "callback")

    def __init__(self, callback: Callable[[], None], forget: Callable[[Waiter], None]) -> None:
        self.callback: Callable[[], None] | None = callback
        self._forget = forget

    def cancel(self) -> None:
        self.callback = None
        self._forget(self)


class BucketReads:
    """The partitions that clients read here although another gateway leads them. Use it in the event loop."""

    def __init__(
        self, objects: ObjectStore, ask_leader: Callable[[PartitionKey], Awaitable[int]], *, cache_bytes: int
    ) -> None:
        """`ask_leader` returns the log start offset that a partition's leader tells. Raises NotConfirmed."""
        self._loop = asyncio.get_running_loop()
        self._reads = PersistentReads(objects, "readers of other gateways' partitions wait for the bucket")
        self._ask_leader = ask_leader
        self._blocks = Blocks(PartReader(objects), cache_bytes)
        self._largest_bytes = cache_bytes // 2
        """The largest batch that is read here: all of its blocks must be in memory together."""
        self._known: OrderedDict[PartitionKey, KnownPartition] = OrderedDict()
        self._loads: dict[tuple[PartitionKey, object], asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(LOADS_AT_ONCE)
        self._waiting: dict[PartitionKey, dict[Waiter, None]] = {}
        self.bytes_read = 0
        """The bytes of records that readers got since the start."""

    # --- calls by readers

    def read(
        self, key: PartitionKey, offset: int, max_bytes: int, *, min_one_batch: bool, committed_only: bool
    ) -> FoundRecords | Loading | None:
        """Return the batches from the one with the offset on, or None if the leader must answer. Waits for
        nothing. Raises NotConfirmed if the leader did not answer a short time ago.
        """
        known, now_s = self._of(key), self._loop.time()
        if known.is_out(now_s):
            if known.is_leader_silent:
                raise NotConfirmed("the leader did not answer")
            return None
        if not known.is_confirmed(now_s):
            self._load(key, "leader", partial(self._confirm, known))
        if known.contents is None:
            self._load(key, "manifest", partial(self._read_manifest, known))
        bounds = known.bounds
        if bounds is None or known.contents is None or not known.is_confirmed(now_s):
            return Loading(key, bounds)
        if known.has_deleted(offset):
            return None
        bound = bounds.stable if committed_only else bounds.end
        if offset >= bound:
            if not known.may_be_behind(now_s):
                return None
            self._load(key, "manifest", partial(self._read_manifest, known))
            return Loading(key, bounds)
        try:
            return self._batches(known, known.contents, offset, bound, max_bytes, min_one_batch, bounds)
        except CorruptPart as error:
            logger.warning("%s can't be read from the bucket: %s", manifest_key(key), error)
            known.failed(now_s)
            return None

    def want(self, partitions: Iterable[PartitionKey], callback: Callable[[], None]) -> Waiter:
        """Call back, never at once, when bytes of one of these loading partitions were fetched."""
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
        await end_tasks(*self._loads.values())

    # --- records in memory

    def _batches(
        self,
        known: KnownPartition,
        contents: Contents,
        offset: int,
        bound: int,
        max_bytes: int,
        min_one_batch: bool,
        bounds: Bounds,
    ) -> FoundRecords | Loading | None:
        """Return batches from memory, or fetch what is missing. Raises CorruptPart."""
        number = contents.part_at(offset)
        part = contents.parts[number]
        place = self._seek(known, part, offset)
        if isinstance(place, BlockKey):
            self._load_blocks(known, contents, number, place)
            return Loading(known.key, bounds)
        stretch = self._blocks.stretch(part, place, place + max(max_bytes, HEADER_BYTES))
        found = whole(stretch.data, max_bytes, bound, offset)
        if not found.size_bytes and min_one_batch and stretch.missing is None:
            size_bytes = first_bytes(stretch.data)
            if size_bytes > self._largest_bytes:
                return None
            stretch = self._blocks.stretch(part, place, place + size_bytes)
            found = whole(stretch.data, size_bytes, bound, offset)
        if stretch.missing is not None:
            self._load_blocks(known, contents, number, stretch.missing)
            if not found.size_bytes:
                return Loading(known.key, bounds)
        if not found.size_bytes and min_one_batch:
            return None
        behind = place + found.size_bytes
        if found.size_bytes and behind < part.length:
            known.note_position(part, found.end_offset, behind)
        self._load_ahead(known, contents, number, stretch, place)
        records = stretch.data[: found.size_bytes]
        self.bytes_read += len(records)
        return FoundRecords(records, contents.aborted(offset, found.end_offset) if records else [], bounds)

    def _seek(self, known: KnownPartition, part: PartRef, offset: int) -> int | BlockKey:
        """Return where the batch with the offset begins, or the block that is missing. Raises CorruptPart."""
        place = known.position_before(part, offset)
        while place < part.length:
            stretch = self._blocks.stretch(part, place, place + SEEK_BYTES)
            skipped, is_found = skip_to(stretch.data, offset)
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

    def _of(self, key: PartitionKey) -> KnownPartition:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = KnownPartition(key)
            if len(self._known) > PARTITIONS_KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known

    def _load_ahead(
        self, known: KnownPartition, contents: Contents, number: int, stretch: CachedStretch, place: int
    ) -> None:
        """Fetch the next blocks of a reader that goes on, also those of the next part."""
        left = BLOCKS_AHEAD
        place += len(stretch.data)
        for part in contents.parts[number : number + 2]:
            for block in blocks_from(part, place) if place < part.length else ():
                if left:
                    self._load_block(known, contents, part, BlockKey(part.name, block))
                    left -= 1
            place = 0

    def _load_blocks(self, known: KnownPartition, contents: Contents, number: int, missing: BlockKey) -> None:
        """Fetch a block that a reader waits for, and those behind it."""
        part = contents.parts[number]
        last = blocks_from(part, part.length - 1).start
        for block in range(missing.number, min(missing.number + BLOCKS_AHEAD, last) + 1):
            self._load_block(known, contents, part, BlockKey(part.name, block))

    def _load_block(self, known: KnownPartition, contents: Contents, part: PartRef, block: BlockKey) -> None:
        if not self._blocks.has(block):
            self._load(known.key, block, partial(self._fetch_block, known, contents, part, block))

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
                "partition %d of the topic %s can't be read here now, and its readers are sent to its "
                "leader: %s",
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

    async def _confirm(self, known: KnownPartition) -> None:
        asked_s = self._loop.time()
        known.confirmed(await self._ask_leader(known.key), asked_s)
        if not known.is_confirmed(self._loop.time()):
            raise NotConfirmed("the leader's answer came too late")

    async def _read_manifest(self, known: KnownPartition) -> None:
        manifest = await read_manifest(self._reads, known.key)
        if manifest is None:
            manifest = Manifest(*known.key, "", 0, 0, 0, 0, (), ())  # Nothing is uploaded yet.
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
        self, known: KnownPartition, contents: Contents, part: PartRef, block: BlockKey
    ) -> None:
        try:
            await self._blocks.load(known.key, part, block)
        except Missing:
            # A compaction, retention or a merge replaced the part. A newer manifest has others.
            if known.contents is not contents:
                return
            if known.has_missed:
                raise
            known.has_missed, known.contents = True, None
        else:
            known.has_missed = False


# Finds whole record batches in bytes of a part.

_HEAD: Final = struct.Struct(">qi11xi")
"""The base offset of a batch, the bytes after this field and the next, and the delta of its last offset."""


class Whole(NamedTuple):
    size_bytes: int
    end_offset: int
    """The offset after the last record; that of the caller without a batch."""


def skip_to(data: bytes, offset: int) -> tuple[int, bool]:
    """Return where the first batch begins that has the offset or a later one, and whether its head is in the
    data. The data begin with a batch. Without that batch, the place is the end of the last batch that is
    known, maybe beyond the data. Raises CorruptPart.
    """
    at, last_at = 0, len(data) - HEADER_BYTES
    while at <= last_at:
        base_offset, length, delta = _HEAD.unpack_from(data, at)
        if base_offset + delta >= offset:
            return at, True
        at += _checked(length, delta)
    return at, False


def whole(data: bytes, max_bytes: int, bound: int, offset: int) -> Whole:
    """Return the whole batches in the data, below the bound and within `max_bytes`. Raises CorruptPart."""
    at, last_at = 0, len(data) - HEADER_BYTES
    while at <= last_at:
        base_offset, length, delta = _HEAD.unpack_from(data, at)
        behind = at + _checked(length, delta)
        if behind > min(len(data), max_bytes) or base_offset + delta >= bound:
            break
        at, offset = behind, base_offset + delta + 1
    return Whole(at, offset)


def first_bytes(data: bytes) -> int:
    """Return the size of the first batch, whose head is in the data. Raises CorruptPart."""
    _, length, delta = _HEAD.unpack_from(data, 0)
    return _checked(length, delta)


def _checked(length: int, delta: int) -> int:
    size_bytes = length + LOG_OVERHEAD_BYTES
    if size_bytes < HEADER_BYTES or delta < 0:
        raise CorruptPart(f"a batch can't have {size_bytes} bytes and {delta + 1} offsets")
    return size_bytes


# Blocks of parts in memory, for readers of the event loop. The least recently used ones are dropped first.


class BlockKey(NamedTuple):
    """A block: the name of a part, which no other one has, and the block's number in the segment file."""

    part: str
    number: int


class CachedStretch(NamedTuple):
    """Bytes of a part from a position on, as far as they are in memory, and the first block that is not."""

    data: bytes
    missing: BlockKey | None


class Blocks:
    """The blocks of all partitions, of at most `max_bytes` together."""

    def __init__(self, reader: PartReader, max_bytes: int) -> None:
        self._reader = reader
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[BlockKey, bytes] = OrderedDict()
        self.size_bytes = 0
        self.bytes_fetched = 0

    def has(self, key: BlockKey) -> bool:
        return key in self._blocks

    def stretch(self, part: PartRef, start: int, stop: int) -> CachedStretch:
        """Return a part's bytes from `start` to `stop`, as far as its blocks are in memory without a gap."""
        pieces: list[bytes] = []
        stop = min(stop, part.length)
        while start < stop:
            key = BlockKey(part.name, (part.position + start) // BLOCK_BYTES)
            block = self._blocks.get(key)
            if block is None:
                return CachedStretch(b"".join(pieces), key)
            self._blocks.move_to_end(key)
            first, last = place_of(part, key.number)
            pieces.append(block[start - first : min(stop, last) - first])
            start = last
        return CachedStretch(b"".join(pieces), None)

    async def load(self, partition: PartitionKey, part: PartRef, key: BlockKey) -> None:
        """Fetch a block; wait for the store. Raises Missing, CorruptPart, IncompatibleFormat, Refused."""
        if key in self._blocks:
            return
        data = await self._reader.read(partition, part, *place_of(part, key.number))
        self._blocks[key] = data
        self.size_bytes += len(data)
        self.bytes_fetched += len(data)
        while self.size_bytes > self._max_bytes and len(self._blocks) > 1:
            self.size_bytes -= len(self._blocks.popitem(last=False)[1])


def place_of(part: PartRef, number: int) -> tuple[int, int]:
    """Return where in the part's data a block begins and ends."""
    start = number * BLOCK_BYTES - part.position
    return max(0, start), min(part.length, start + BLOCK_BYTES)


def blocks_from(part: PartRef, place: int) -> range:
    """Return the numbers of the blocks from a byte of the part's data to its end."""
    last = (part.position + part.length - 1) // BLOCK_BYTES
    return range((part.position + place) // BLOCK_BYTES, last + 1)


# The facts that this gateway has read about a partition of another gateway, and how long they are valid.

CONFIRMED_FOR_S: Final = 2.0
"""How long the leader's answer counts: deleted records may be read elsewhere for this time."""
READ_EVERY_S: Final = 1.0
"""The least time between two reads of a manifest for readers that have come to its end."""
FAILED_FOR_S: Final = 5.0
"""How long readers are sent to the leader after the bucket or the leader did not answer."""
POSITIONS_KEPT: Final = 32
"""Places kept at which readers go on. A dropped place costs the headers of a part, of 8 MiB at most."""
NEVER: Final = float("-inf")


class KnownPartition:
    """One partition. Times are of the event loop's clock."""

    __slots__ = (
        "_confirmed_s",
        "_failed_s",
        "_positions",
        "_read_s",
        "contents",
        "has_missed",
        "is_leader_silent",
        "key",
        "leader_start",
    )

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.contents: Contents | None = None
        """The contents by the newest manifest that was read; None before the first one."""
        self.leader_start = 0
        """The log start offset that the leader has told."""
        self.is_leader_silent = False
        self.has_missed = False
        """Whether the bucket lacked a part of the newest manifest: another manifest has replaced it."""
        self._read_s = self._confirmed_s = self._failed_s = NEVER
        self._positions: OrderedDict[tuple[str, int], int] = OrderedDict()
        """The place in a part of the first batch at or after an offset."""

    def read(self, contents: Contents, now_s: float) -> None:
        """Take what a manifest tells that has come now."""
        self.contents = contents
        self._read_s = now_s

    def confirmed(self, log_start_offset: int, now_s: float) -> None:
        """Take the leader's log start offset, asked for at this time."""
        self.leader_start = max(self.leader_start, log_start_offset)
        self._confirmed_s = now_s

    def failed(self, now_s: float, *, is_leader_silent: bool = False) -> None:
        """Note that the partition can't be read here for a while."""
        self._failed_s = now_s
        self.is_leader_silent = is_leader_silent
        self.contents = None

    def is_out(self, now_s: float) -> bool:
        """Return whether the partition could not be read a short time ago."""
        return now_s < self._failed_s + FAILED_FOR_S

    def is_confirmed(self, now_s: float) -> bool:
        return now_s < self._confirmed_s + CONFIRMED_FOR_S

    def may_be_behind(self, now_s: float) -> bool:
        """Return whether the bucket may have a newer manifest, and may be asked for it."""
        return now_s >= self._read_s + READ_EVERY_S

    @property
    def bounds(self) -> Bounds | None:
        """The offsets that a reader is told; None while nothing is known."""
        if self.contents is None:
            return None
        _, stable, end = self.contents.bounds
        # The manifest may have a later start, which the leader tells only when it is durable.
        start = min(self.leader_start, end)
        return Bounds(start, max(start, stable), end)

    def has_deleted(self, offset: int) -> bool:
        """Return whether the record at an offset was deleted, by the leader's answer or by the manifest."""
        return self.contents is None or offset < max(self.contents.bounds.log_start, self.leader_start)

    def note_position(self, part: PartRef, offset: int, place: int) -> None:
        """Note where in a part the first batch at or after an offset is."""
        self._positions[part.name, offset] = place
        self._positions.move_to_end((part.name, offset))
        if len(self._positions) > POSITIONS_KEPT:
            self._positions.popitem(last=False)

    def position_before(self, part: PartRef, offset: int) -> int:
        """Return a place in a part at which a batch begins that is at or before the one with this offset."""
        exact = self._positions.get((part.name, offset))
        if exact is not None:
            return exact
        places = (
            place for (name, noted), place in self._positions.items() if name == part.name and noted <= offset
        )
        return max(places, default=0)


# The contents of a partition in the bucket, by a manifest: parts, end of the records, aborted transactions.

MOST_ABORTS_BYTES: Final = 8 << 20
"""The most bytes of a partition's transaction indexes. Beyond, the leader alone serves committed records."""


class Bounds(NamedTuple):
    log_start: int
    stable: int
    end: int


class Contents:
    """The parts of a manifest in the order of their offsets, and the transaction indexes of its segments."""

    def __init__(self, manifest: Manifest, indexes: Mapping[str, bytes]) -> None:
        """Take the contents of the files of `abort_files`, by name."""
        self.parts: list[PartRef] = [part for segment in manifest.segments for part in segment.parts]
        self._ends = [part.end_offset for part in self.parts]
        self.indexes = indexes
        end = min(manifest.end_offset, self._ends[-1]) if self.parts else 0
        files = abort_files(manifest)
        stable = 0 if files is None else max(0, min(manifest.stable_offset, end))
        self.bounds = Bounds(manifest.log_start_offset, stable, end)
        self._aborting: list[tuple[int, TransactionIndex]] = []
        """The transaction indexes with entries, each with the offset at which the next segment begins."""
        bases = [segment.base for segment in manifest.segments]
        for number, base in enumerate(bases):
            is_last = number + 1 == len(bases)
            entries = manifest.last_aborts if is_last else indexes.get(aborts_name(base), b"")
            if entries:
                behind = manifest.end_offset if is_last else bases[number + 1]
                self._aborting.append((behind, TransactionIndex(entries)))

    def part_at(self, offset: int) -> int:
        """Return the number of the part with the first records from an offset on; that of all if none has."""
        return bisect_right(self._ends, offset)

    def aborted(self, first_offset: int, upper_bound: int) -> list[tuple[int, int]]:
        """Return (producer_id, first_offset) of the aborted transactions that reach into [first_offset,
        upper_bound). Ask below the stable offset only: of transactions beyond, not all are known.
        """
        found: list[tuple[int, int]] = []
        first = bisect_right(self._aborting, first_offset, key=lambda each: each[0])
        for _, index in self._aborting[first:]:
            if index.collect(first_offset, upper_bound, found):
                break
        return found


def abort_files(manifest: Manifest) -> list[FileRef] | None:
    """Return the files with the transaction indexes of closed segments; None if they are too large."""
    names = {aborts_name(segment.base) for segment in manifest.segments[:-1]}
    files = [file for file in manifest.files if file.name in names]
    return None if sum(file.length for file in files) > MOST_ABORTS_BYTES else files


def left_bytes(manifest: Manifest, offset: int, bound: int, enough: int) -> int:
    """Return about how many bytes there are between an offset and a bound; `enough` ends the count."""
    found = 0
    for segment in reversed(manifest.segments):
        for part in reversed(segment.parts):
            if part.end_offset <= offset or found >= enough:
                return found
            found += part.length if part.end_offset <= bound else 0
    return found
