"""Restores partitions from the bucket: what their manifests name, and what rows of ended write-ahead logs
have since. A start restores all partitions that the gateway leads (`rebuild`), and later adopted ones.

**The order of the reads** makes this safe. The sessions that led the partitions are sealed before (the caller
has seen to that), so a manifest on which a session relied is read here. Then the boundaries of their logs are
read, then the manifests, then the rows: below the boundaries, manifests have all rows. Other gateways may
collect objects of these logs meanwhile. If that happens to an object that is needed, a manifest has its rows
by then, and everything is read again.

**Several leaders.** A partition has rows in the logs of several sessions if it had several leaders. The logs
are read one after the other, so the rows of a later leader may come first. Such rows are put off and read
again at the end, in the order of leader epochs. Of the same side file the last one written counts. A leader
has all records of the leaders before it when it begins, and writes its own behind these. So what an earlier
leader has at or beyond the first offset of a later one is superseded: nobody has seen these records, or been
told that they are stored. Where rows of two leaders overlap, the partition is restored anew at the end,
without what the later leader has superseded.

**The files.** A data row names the segment file and the position of its bytes, so the segment files become
those of the gateway that wrote them, byte by byte. Only after a late manifest they differ (see
`SegmentEnds`). What derives from the records (indexes, producers, transactions, leader epochs) is recovered
from them as after any crash.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Final, NamedTuple

from seqgate.gateway.cluster.objects.objects import Buffer, ObjectStore
from seqgate.gateway.cluster.parts.manifest import (
    FileRef,
    Manifest,
    PartitionKey,
    PartRef,
    SegmentRef,
    WalPlace,
    decode_manifest,
    manifest_key,
    part_key,
)
from seqgate.gateway.cluster.parts.part_object import CorruptPart, PartHead, decode_part
from seqgate.gateway.cluster.wal.ended import Collected, EndedRows, EndedSession, RowAt
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import read_boundary
from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject, DataRow, WalRow
from seqgate.gateway.tasks import end_tasks
from seqgate.log import CorruptRecord, IncompatibleFormat
from seqgate.log.format.record_batch import parse_header
from seqgate.log.rebuilding import RebuiltDirectory, StagedPartitions
from seqgate.log.uploading import LOG_START_OFFSET, index_names, log_start_content, log_start_in
from seqgate.seq_validator.checksum import crc32c

MANIFESTS_AT_ONCE: Final = 64
PARTS_AT_ONCE: Final = 8
"""Parts that are read at the same time. As many are in memory at most."""

Damage = CorruptPart | CorruptRecord | CorruptWalObject | IncompatibleFormat
RunFiles = Callable[[Callable[[], None]], Awaitable[None]]
#: Runs work that writes files, in a thread or at once; one piece after the other.
Write = tuple[PartitionKey, Callable[[], None]]


async def at_once(work: Callable[[], None]) -> None:
    """Run work on files in the event loop, while nothing else needs the loop."""
    work()


class History:
    """The partitions that are restored, and what their manifests say."""

    def __init__(
        self,
        objects: ObjectStore,
        staged: StagedPartitions,
        wanted: Collection[PartitionKey],
        run_files: RunFiles = at_once,
    ) -> None:
        self._reads = PersistentReads(objects, "the gateway waits to read the history of the cluster")
        self._staged = staged
        self._wanted = wanted
        self._run_files = run_files
        self._manifests: dict[PartitionKey, Manifest | None] = {}
        self._ends = SegmentEnds()
        self._log_starts: dict[PartitionKey, int] = {}
        self._file_places: dict[tuple[PartitionKey, str], WalPlace] = {}
        """The place of the row from which a side file is."""
        self._put_off: list[RowAt] = []
        """The rows whose predecessors have not come yet, of partitions that lost two leaders in a minute."""
        self._disagreeing: set[PartitionKey] = set()
        """The partitions of which rows of several leaders overlap."""
        self._incomplete: dict[PartitionKey, Damage] = {}
        """The partitions of which something is missing."""
        self.size_bytes = 0
        self.with_rows: set[PartitionKey] = set()
        """The partitions of which a write-ahead log has what no manifest has."""

    @property
    def restored(self) -> Mapping[PartitionKey, Manifest]:
        return {key: manifest for key, manifest in self._manifests.items() if manifest is not None}

    def check(self, partition: PartitionKey) -> None:
        """Check that all of a partition could be written. Raises a `Damage`."""
        if partition in self._incomplete:
            raise self._incomplete[partition]

    async def restore_manifests(self, partitions: Collection[PartitionKey] | None = None) -> None:
        """Restore what the manifests of some or all partitions name; many manifests are read at once. Waits
        until the store answers. Raises Refused, OSError; `check` tells of damage.
        """
        turns = asyncio.Semaphore(MANIFESTS_AT_ONCE)
        writing = asyncio.Lock()

        async def one(partition: PartitionKey) -> None:
            async with turns:
                content = await self._reads.find(manifest_key(partition))
            self._manifests[partition] = None
            if content is None:
                return
            async with writing:
                try:
                    await self._restore(partition, content)
                except (CorruptPart, IncompatibleFormat) as error:
                    self._incomplete[partition] = error

        restoring = [asyncio.create_task(one(partition)) for partition in partitions or self._wanted]
        try:
            await asyncio.gather(*restoring)
        except (Exception, asyncio.CancelledError):
            for task in restoring:
                # A second cancellation would end the wait for a thread that still writes.
                if not task.cancelling():
                    task.cancel()
            await asyncio.gather(*restoring, return_exceptions=True)
            raise

    async def _restore(self, partition: PartitionKey, content: bytes) -> None:
        key = manifest_key(partition)
        manifest = decode_manifest(content, key)
        if manifest.key != partition:
            raise CorruptPart(f"{key} is the manifest of another partition: {manifest.key}.")
        self._manifests[partition] = manifest
        self._ends.begin(manifest)
        absent = _absent(manifest) if self._staged.may_have_holes else frozenset()
        await self._run_files(partial(self._begin_segments, manifest, absent))
        async for segment, part, data in self._parts(manifest, absent):
            place = (*partition, segment.base, part.position)
            await self._run_files(partial(self._staged.write, *place, data))
            self.size_bytes += part.length
        files = [(file.name, await self._content(partition, file)) for file in manifest.files]
        if manifest.log_start_offset:
            self._log_starts[partition] = manifest.log_start_offset
            start = log_start_content(manifest.topic, manifest.partition, manifest.log_start_offset)
            files.append((LOG_START_OFFSET, start))
        await self._run_files(partial(self._write_files, partition, files))

    def _begin_segments(self, manifest: Manifest, absent: Collection[int]) -> None:
        partition, staged = manifest.key, self._staged
        for segment in manifest.segments:
            if segment.base in absent:
                staged.write_absent(*partition, segment.base, segment.size_bytes, manifest.generation)
            else:
                staged.write(*partition, segment.base, 0, b"")
        staged.vouch_for(*partition, manifest.end_offset)

    def _write_files(self, partition: PartitionKey, files: Iterable[tuple[str, Buffer]]) -> None:
        for name, content in files:
            self._staged.write_file(*partition, name, bytes(content))

    # --- rows of write-ahead logs

    def wants(self, row: WalRow) -> bool:
        """Return whether the history needs the data of a row, after the manifests are restored."""
        partition = PartitionKey(row.topic_id, row.partition)
        if (
            partition not in self._manifests
            or partition in self._incomplete
            or partition in self._disagreeing
        ):
            return False
        manifest = self._manifests[partition]
        if not isinstance(row, DataRow) or manifest is None:
            return True
        # A later leader had all records before it. What an earlier one has beyond was never acknowledged.
        return row.end_offset > manifest.end_offset and row.leader_epoch >= manifest.leader_epoch

    async def apply(self, rows: Sequence[tuple[RowAt, memoryview | CorruptWalObject]]) -> None:
        """Write the rows of an object that are newer than their partition's manifest. Raises OSError."""
        writes: list[Write] = []
        for found, data in rows:
            if not self.wants(found.row):
                continue
            if isinstance(data, CorruptWalObject):
                self._incomplete[_partition_of(found)] = data
            elif not isinstance(found.row, DataRow):
                writes += self._file_writes(found, found.row.name, bytes(data))
            elif self._ends.disagrees(found.row):
                self._disagreeing.add(_partition_of(found))
            elif self._ends.is_next(found.row):
                writes += self._data_writes(_partition_of(found), found.row, data)
            else:
                self._put_off.append(found)
            self.size_bytes += found.row.length
        if writes:
            await self._run_files(lambda: self._write_all(writes))

    async def finish(self, rows: EndedRows, ranges: Sequence[EndedSession]) -> None:
        """Write the rows that were put off, after all objects. Raises as `EndedRows.read`, and OSError."""
        put_off, self._put_off = self._put_off, []
        for found in sorted(put_off, key=lambda each: each.place):
            await self._write_now(found, rows)
        if self._disagreeing:
            partitions, self._disagreeing = self._disagreeing, set()
            await self._begin_again(partitions)
            for found in await _rows_of(partitions, rows, ranges):
                await self._write_now(found, rows)
        for partition in self._disagreeing:
            self._incomplete[partition] = CorruptRecord(
                f"partition {partition.partition} of the topic {partition.topic_id}: a row of a leader has "
                "records of the next one"
            )

    async def _begin_again(self, partitions: Collection[PartitionKey]) -> None:
        """Restore partitions anew from their manifests. Raises as `restore_manifests`."""
        for partition in partitions:
            await self._run_files(partial(self._staged.discard, *partition))
            self._ends.forget(partition)
            self._log_starts.pop(partition, None)
        for key in [key for key in self._file_places if key[0] in partitions]:
            del self._file_places[key]
        await self.restore_manifests(partitions)

    async def _write_now(self, found: RowAt, rows: EndedRows) -> None:
        """Write one row; what is missing before it never comes. Raises as `EndedRows.data`, and OSError."""
        row, partition = found.row, _partition_of(found)
        if not self.wants(row):
            return
        if isinstance(row, DataRow) and self._ends.disagrees(row):
            self._disagreeing.add(partition)
        elif isinstance(row, DataRow) and not self._ends.is_next(row):
            self._lack(partition, row)
        else:
            data: memoryview | CorruptWalObject
            try:
                data = await rows.data(found)
            except CorruptWalObject as error:
                data = error
            await self.apply([(found, data)])

    def _write_all(self, writes: Iterable[Write]) -> None:
        for partition, write in writes:
            try:
                write()
            except CorruptRecord as error:
                self._incomplete.setdefault(partition, error)

    def _data_writes(self, partition: PartitionKey, row: DataRow, data: Buffer) -> list[Write]:
        self.with_rows.add(partition)
        place = self._ends.place_unless_records_are_missing(row)
        if place is None:
            self._lack(partition, row)
            return []
        return [(partition, partial(self._staged.write, *partition, *place, data))]

    def _lack(self, partition: PartitionKey, row: DataRow) -> None:
        error = CorruptRecord(
            f"partition {row.partition} of the topic {row.topic_id}: the records before offset "
            f"{row.first_offset} are missing"
        )
        self._incomplete.setdefault(partition, error)

    def _file_writes(self, found: RowAt, name: str, content: bytes) -> list[Write]:
        """Return what writes a side file, unless a newer one, or a later log start offset, is known."""
        partition, manifest = _partition_of(found), self._manifests[_partition_of(found)]
        if name == LOG_START_OFFSET:
            offset = log_start_in(content)
            if offset <= self._log_starts.get(partition, 0):
                return []
            self._log_starts[partition] = offset
        else:
            known = self._file_places.get((partition, name), (-1, -1, -1))
            newest = known if manifest is None else max(known, manifest.place)
            if found.place < newest:
                return []
            self._file_places[partition, name] = found.place
        self.with_rows.add(partition)
        return [(partition, partial(self._staged.write_file, *partition, name, content))]

    async def _parts(
        self, manifest: Manifest, absent: frozenset[int]
    ) -> AsyncIterator[tuple[SegmentRef, PartRef, memoryview]]:
        """Yield all parts in order, with their bytes, but for absent segments; several are read at once."""
        present = (segment for segment in manifest.segments if segment.base not in absent)
        left = ((segment, part) for segment in present for part in segment.parts)
        ahead: deque[tuple[SegmentRef, PartRef, asyncio.Task[memoryview]]] = deque()
        try:
            while True:
                for segment, part in islice(left, PARTS_AT_ONCE - len(ahead)):
                    ahead.append((segment, part, asyncio.create_task(self._read(manifest, segment, part))))
                if not ahead:
                    return
                segment, part, reading = ahead.popleft()
                yield segment, part, await reading
        finally:
            await end_tasks(*(each for _, _, each in ahead))

    async def _read(self, manifest: Manifest, segment: SegmentRef, part: PartRef) -> memoryview:
        key = part_key(manifest.key, part.name)
        head, data = decode_part(await self._get(key), key)
        expected = PartHead(
            *manifest.key, segment.base, part.position, part.length, head.first_offset, part.end_offset
        )
        if head != expected or crc32c(data) != part.crc:
            raise CorruptPart(f"{key} does not match its manifest: its header or checksum differs ({head}).")
        return data

    async def _content(self, partition: PartitionKey, file: FileRef) -> bytes:
        key = manifest_key(partition) if file.stored is None else part_key(partition, file.stored)
        content = file.content if file.stored is None else await self._get(key)
        if content is None or (len(content), crc32c(content)) != (file.length, file.crc):
            raise CorruptPart(f"{key} is damaged: the CRC-32C of the side file {file.name} does not fit.")
        return content

    async def _get(self, key: str) -> bytes:
        content = await self._reads.find(key)
        if content is None:
            raise CorruptPart(
                f"{key} is missing, and a manifest names it. Records are lost unless a backup of the bucket "
                "has the object."
            )
        return content


async def _rows_of(
    partitions: Collection[PartitionKey], rows: EndedRows, ranges: Sequence[EndedSession]
) -> list[RowAt]:
    """Return the rows of each partition in order, without superseded ones. Raises as `EndedRows.read`."""
    found: dict[PartitionKey, list[RowAt]] = {partition: [] for partition in partitions}
    for wal in ranges:
        for seq in range(wal.first_seq, wal.end_seq):
            for placed in (await rows.index(wal, seq))[0].rows:
                row = RowAt(wal, seq, placed)
                if _partition_of(row) in found:
                    found[_partition_of(row)].append(row)
    return [row for each in found.values() for row in in_order(each)]


def _partition_of(found: RowAt) -> PartitionKey:
    return PartitionKey(found.row.topic_id, found.row.partition)


def _absent(manifest: Manifest) -> frozenset[int]:
    """Return the base offsets of the segments that stay in the bucket until somebody reads them. The last
    segment with records is needed at once, and so is a segment without its index files. A start reads the
    records of internal topics, whose names begin with two underscores.
    """
    if manifest.topic.startswith("__"):
        return frozenset()
    names = {file.name for file in manifest.files}
    filled = [segment.base for segment in manifest.segments if segment.parts]
    return frozenset(base for base in filled[:-1] if names.issuperset(index_names(base)))


_WHAT: Final = "the gateway waits to read the records of the cluster"


@dataclass(frozen=True, slots=True)
class RestoredState:
    objects: int
    size_bytes: int
    manifests: Mapping[PartitionKey, Manifest]
    with_rows: Collection[PartitionKey]
    """The partitions of which a write-ahead log has what no manifest has."""
    failures: Mapping[PartitionKey, Damage]
    """The partitions that can't be restored: bytes are missing or damaged, or of a later release."""


async def restore(
    objects: ObjectStore,
    ended: Sequence[EndedSession],
    staged: StagedPartitions,
    partitions: Collection[PartitionKey],
    run_files: RunFiles = at_once,
) -> RestoredState:
    """Write the files of all partitions that the bucket has anything of. Waits until the store answers.
    Raises CorruptWalObject for an object of which nobody knows whose rows it has, IncompatibleFormat,
    Refused, OSError. Nothing is staged then.
    """
    try:
        while True:
            try:
                return await _restore(objects, ended, staged, partitions, run_files)
            except Collected:
                await _discard(staged, partitions, run_files)
    except (Exception, asyncio.CancelledError):
        await _discard(staged, partitions, at_once)
        raise


async def _restore(
    objects: ObjectStore,
    ended: Sequence[EndedSession],
    staged: StagedPartitions,
    partitions: Collection[PartitionKey],
    run_files: RunFiles,
) -> RestoredState:
    """Restore everything once. Raises Collected, and as `restore`."""
    reads = PersistentReads(objects, _WHAT)
    boundaries = await asyncio.gather(*(read_boundary(reads, each.node_id, each.session) for each in ended))
    ranges = [
        session._replace(first_seq=boundary) for session, boundary in zip(ended, boundaries, strict=True)
    ]
    history = History(objects, staged, frozenset(partitions), run_files)
    await history.restore_manifests()
    rows = EndedRows(objects, _WHAT)
    async for found in rows.read(ranges, history.wants):
        await history.apply(found)
    await history.finish(rows, ranges)
    failures: dict[PartitionKey, Damage] = {}
    for partition in partitions:
        try:
            history.check(partition)
        except (CorruptPart, CorruptRecord, CorruptWalObject, IncompatibleFormat) as error:
            failures[partition] = error
            await run_files(partial(staged.discard, *partition))
    count = sum(max(0, wal.end_seq - wal.first_seq) for wal in ranges)
    return RestoredState(count, history.size_bytes, history.restored, history.with_rows, failures)


async def _discard(
    staged: StagedPartitions, partitions: Collection[PartitionKey], run_files: RunFiles
) -> None:
    for partition in partitions:
        await run_files(partial(staged.discard, *partition))


def in_order(rows: Iterable[RowAt]) -> list[RowAt]:
    """Return the rows of one partition in the order in which they were written, without superseded ones."""
    placed = sorted(rows, key=lambda found: (*found.place, found.placed.start))
    kept: list[list[RowAt]] = []
    begun: int | None = None
    for _, group in groupby(reversed(placed), key=lambda found: found.place[:2]):
        leaders = [found for found in group if begun is None or not _begins_at(found, begun)]
        kept.append(leaders)
        firsts = [found.row.first_offset for found in leaders if isinstance(found.row, DataRow)]
        begun = min([*firsts, *([] if begun is None else [begun])], default=None)
    return [found for leaders in reversed(kept) for found in reversed(leaders)]


def _begins_at(found: RowAt, offset: int) -> bool:
    """Return whether a row has only records at or beyond an offset."""
    return isinstance(found.row, DataRow) and found.row.first_offset >= offset


class SegmentPlace(NamedTuple):
    segment_base: int
    position: int


class _End(NamedTuple):
    """The end of a partition: the next free place, and the offset of the next record."""

    place: SegmentPlace
    end_offset: int
    leader_epoch: int
    """The leader epoch of the last row; −1 without a row."""


_NOTHING: Final = _End(SegmentPlace(-1, 0), -1, -1)


class SegmentEnds:
    """The ends of all partitions, where the next records belong, while manifests and logs are put together.

    A row of a log names the place of its bytes on the disk of the session that wrote it. Nearly always they
    continue what the manifest and the rows before it made. But an ended session can replace a manifest late,
    when a taker has already begun with the one before. If its segments had changed by then without a new
    record (a roll by time, a compaction, retention), the taker's rows name other places. Offsets tell where
    they belong: each row continues the records before it, in whatever segments these are.
    """

    def __init__(self) -> None:
        self._ends: dict[PartitionKey, _End] = {}

    def begin(self, manifest: Manifest) -> None:
        if manifest.segments:
            last = max(manifest.segments, key=lambda segment: segment.base)
            self._ends[manifest.key] = _End(SegmentPlace(last.base, last.size_bytes), manifest.end_offset, -1)

    def forget(self, partition: PartitionKey) -> None:
        self._ends.pop(partition, None)

    def disagrees(self, row: DataRow) -> bool:
        """Return whether a row and the rows before it are of several leaders and do not follow each other."""
        end = self._ends.get(PartitionKey(row.topic_id, row.partition), _NOTHING)
        if end.leader_epoch < 0:
            return False
        return row.leader_epoch < end.leader_epoch or (
            row.leader_epoch > end.leader_epoch and row.first_offset < end.end_offset
        )

    def is_next(self, row: DataRow) -> bool:
        """Return whether no records are missing before those of a row."""
        return row.first_offset <= max(
            0, self._ends.get(PartitionKey(row.topic_id, row.partition), _NOTHING).end_offset
        )

    def place_unless_records_are_missing(self, row: DataRow) -> SegmentPlace | None:
        """Return where the bytes of a row belong, and move the end behind them; None if records before the
        row are missing. Give rows in the order of their log, without those whose records the manifest has.
        """
        partition = PartitionKey(row.topic_id, row.partition)
        end = self._ends.get(partition, _NOTHING)
        place = SegmentPlace(row.segment_base, row.position)
        if not _continues(place, end.place):
            if row.first_offset != end.end_offset:
                return None
            place = end.place
        behind = SegmentPlace(place.segment_base, place.position + row.length)
        self._ends[partition] = _End(
            max(behind, end.place), max(row.end_offset, end.end_offset), row.leader_epoch
        )
        return place


def _continues(place: SegmentPlace, end: SegmentPlace) -> bool:
    """Return whether a place is in the last segment, with no gap before it, or begins a later segment."""
    if place.segment_base == end.segment_base:
        return place.position <= end.position
    return place.segment_base > end.segment_base and place.position == 0


SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""The size of a segment of the metadata log beyond which the next one begins."""


class StoredTopic(NamedTuple):
    name: str
    partitions: int


ReadTopics = Callable[[Path], Mapping[uuid.UUID, StoredTopic]]
#: Returns all topics, by topic id, from the directory of the metadata log.


class MetadataPlace(NamedTuple):
    """The metadata partition, whose records name all other partitions."""

    topic_id: uuid.UUID
    topic: str


class Rebuilt(NamedTuple):
    """The result of a rebuild: the objects and bytes that it read, and the partitions that it wrote."""

    objects: int
    size_bytes: int
    partitions: int
    manifests: Mapping[PartitionKey, Manifest]


async def rebuild(
    objects: ObjectStore,
    ended: Sequence[EndedSession],
    directory: RebuiltDirectory,
    metadata: MetadataPlace,
    read_topics: ReadTopics,
    wanted: Collection[PartitionKey] | None = None,
) -> Rebuilt:
    """Write all files, and name the partitions of topics that exist. The caller finishes the directory.

    The metadata log is staged in `directory` already (`write_metadata`). Where it is not, a release before
    the shared metadata log has written the bucket; then the metadata log is rebuilt as any partition.

    Raises CorruptWalObject, CorruptPart, CorruptRecord for bytes that are missing, IncompatibleFormat,
    Refused, OSError, and what `read_topics` raises.
    """
    own = PartitionKey(metadata.topic_id, 0)
    if tuple(own) in directory.staged:
        manifests: dict[PartitionKey, Manifest] = {}
        size_bytes = 0
    else:
        stored = await restore(objects, ended, directory.partitions, [own])
        _raise_first(stored)
        manifests, size_bytes = dict(stored.manifests), stored.size_bytes
    topics: Mapping[uuid.UUID, StoredTopic] = {}
    if tuple(own) in directory.staged:
        topics = read_topics(directory.place(metadata.topic_id, 0, metadata.topic))
    existing = [
        PartitionKey(topic_id, partition)
        for topic_id, topic in topics.items()
        for partition in range(topic.partitions)
    ]
    if wanted is not None:
        existing = [partition for partition in existing if partition in wanted]
    restored = await restore(objects, ended, directory.partitions, existing)
    _raise_first(restored)
    placed = 0
    for topic_id, index in directory.staged:
        if topic_id in topics:
            directory.place(topic_id, index, topics[topic_id].name)
            placed += 1
    manifests.update(restored.manifests)
    return Rebuilt(restored.objects, size_bytes + restored.size_bytes, placed, manifests)


def _raise_first(restored: RestoredState) -> None:
    for error in restored.failures.values():
        raise error


def write_metadata(directory: RebuiltDirectory, metadata: MetadataPlace, batches: Sequence[bytes]) -> int:
    """Stage the metadata log of these batches, which follow each other; return its end offset. The log begins
    at the offset of the first record. Raises OSError.
    """
    directory.partitions.stage(metadata.topic_id, 0)
    base = end_offset = parse_header(batches[0]).base_offset if batches else 0
    position = 0
    for batch in batches:
        if position and position + len(batch) > SEGMENT_BYTES:
            base, position = end_offset, 0
        directory.partitions.write(metadata.topic_id, 0, base, position, batch)
        position += len(batch)
        end_offset = parse_header(batch).last_offset + 1
    return end_offset
