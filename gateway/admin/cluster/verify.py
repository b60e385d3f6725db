"""`seqgate cluster verify`: reads everything that a start from the bucket would read, and checks it:
manifests, parts, side files, write-ahead logs.

A gateway may run meanwhile. It replaces manifests and deletes what they no longer name, so an object that is
missing is damage only if the manifest, or the boundary of the log, is still the one that was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Final
from uuid import UUID

import msgspec

from seqgate.gateway.admin.cluster.bucket import Bucket, ProgressLine, in_bucket
from seqgate.gateway.admin.cluster.status import MOST_IN_FLIGHT, check_is_cluster, seal_at
from seqgate.gateway.admin.commands import Output
from seqgate.gateway.admin.tables import Block, Column, count, counted, table
from seqgate.gateway.cluster.metadata.change import CorruptChange, decode_change
from seqgate.gateway.cluster.metadata.shared_log import (
    is_copied,
    read_all_metadata,
    read_metadata,
    read_snapshot,
    snapshot_seqs,
)
from seqgate.gateway.cluster.metadata.snapshot import CorruptMetadataSnapshot
from seqgate.gateway.cluster.objects.objects import Buffer, Missing, ObjectStore
from seqgate.gateway.cluster.parts.manifest import (
    PREFIX,
    FileRef,
    Manifest,
    PartitionKey,
    PartRef,
    SegmentRef,
    decode_manifest,
    manifest_key,
    part_key,
    partition_of,
)
from seqgate.gateway.cluster.parts.part_object import CorruptPart, PartHead, decode_part
from seqgate.gateway.cluster.rebuild.history import SegmentEnds
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import (
    RegisteredSession,
    SharedLogContent,
    read_boundary,
    read_sessions_boundary,
)
from seqgate.gateway.cluster.wal.wal_object import (
    SESSIONS_BOUNDARY_KEY,
    SHORTENED_KEY,
    CorruptWalObject,
    DataRow,
    Seal,
    WalObject,
    boundary_key,
    decode,
    in_one_piece,
    object_key,
    registration_key,
    snapshot_key,
)
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import UnknownRecordError, decode_record
from seqgate.gateway.runtime.topics.metadata_log import METADATA_TOPIC_ID
from seqgate.log import IncompatibleFormat, LogError
from seqgate.log.format.record_batch import whole_batches
from seqgate.log.format.records import iterate_records
from seqgate.seq_validator.checksum import crc32c

READ_AT_ONCE: Final = 8
"""Parts, or objects of a log, that are read at the same time. As many are in memory at most."""
TRIES: Final = 5
"""How often a partition is read whose manifest is replaced meanwhile."""

Progress = Callable[[int, int], None]
#: Takes the numbers of objects and bytes that were read.


class DamagedObject(msgspec.Struct, frozen=True):
    """An object that is missing or damaged."""

    key: Annotated[str, Column("object")]
    reason: str

    @property
    def damage(self) -> Annotated[str, Column("damage")]:
        """The reason without the object key at its front, which has a column of its own."""
        return self.reason.removeprefix(self.key).lstrip(": ")


class Verification(msgspec.Struct, frozen=True):
    """The numbers of objects that were read, and the damaged ones. `unnamed` counts objects that no
    manifest names: a crash left them, or a running gateway is about to delete them.
    """

    address: str
    partitions: int
    parts: int
    wal_objects: int
    size_bytes: int
    unnamed: int
    damaged: list[DamagedObject]


def verified(bucket: Bucket) -> Output:
    """Check the bucket of the command, which exits with 1 when something is damaged. Raises ControlError."""
    show = ProgressLine("checked").show
    found = in_bucket(bucket, lambda objects, address: verify(objects, address, show))
    return Output(found, _text(found), code=1 if found.damaged else 0)


def _text(found: Verification) -> Iterator[Block]:
    """Yield what the check has found."""
    if found.damaged:
        yield table(DamagedObject, found.damaged)
    outcome = f"{counted(len(found.damaged), 'object')} damaged or missing" if found.damaged else "all sound"
    yield (
        f"{counted(found.partitions, 'partition')}, {counted(found.parts, 'part')}, "
        f"{counted(found.wal_objects, 'object')} of write-ahead logs, {count(found.size_bytes)} bytes: "
        f"{outcome}."
    )
    if found.unnamed:
        unnamed = counted(found.unnamed, "object")
        yield f"{unnamed} that no manifest names; a running gateway deletes them later."


async def verify(
    objects: ObjectStore, address: str, progress: Progress = lambda _objects, _bytes: None
) -> Verification:
    """Read and check everything. Waits until the store answers. Raises ControlError for a bucket without a
    cluster, CorruptRegistration, IncompatibleFormat, Refused.
    """
    check = _Check(objects, progress)
    known = await check.shared_log()
    check_is_cluster(known, address)
    check.metadata(known)
    await check.snapshots()
    await check.history()
    first = await check.first_session()
    for session in known.sessions:
        if session.session >= first:
            await check.wal(session)
    await check.gaps()
    return Verification(
        address,
        len(check.manifests),
        check.parts,
        check.wal_objects,
        check.size_bytes,
        check.unnamed,
        check.damaged,
    )


class _Check:
    """One run, and what it has found so far."""

    def __init__(self, objects: ObjectStore, progress: Progress) -> None:
        self._objects = objects
        self._reads = PersistentReads(objects, "the check waits to read the bucket")
        self._progress = progress
        self._turns = asyncio.Semaphore(READ_AT_ONCE)
        self._held = HeldBytes()
        self._topics: set[UUID] | None = None
        """The topics of the shared metadata log; None where an older release has kept the metadata in
        write-ahead logs and parts.
        """
        self._without_manifest: set[PartitionKey] = set()
        """The partitions that have objects, and no manifest that can be read."""
        self.manifests: dict[PartitionKey, Manifest] = {}
        self.parts = self.wal_objects = self.size_bytes = self.unnamed = 0
        self.damaged: list[DamagedObject] = []

    # --- the shared metadata log

    async def shared_log(self) -> SharedLogContent:
        """Return all of `meta/` that a start may read if newer snapshots fail. Raises as `read_metadata`."""
        try:
            return await read_all_metadata(self._objects)
        except CorruptMetadataSnapshot as error:
            self._is_damaged(SHORTENED_KEY, error)
            return await read_metadata(self._objects)

    async def snapshots(self) -> None:
        """Check all snapshots of the metadata. Raises Refused."""
        for seq in await snapshot_seqs(self._reads):
            try:
                found = await read_snapshot(self._reads, seq)
                if found is not None:
                    for batch in found.batches:
                        for record in iterate_records(batch):
                            decode_record(record.value or b"")
                    self._was_read(sum(map(len, found.batches)))
            except (CorruptMetadataSnapshot, UnknownRecordError, LogError, IncompatibleFormat) as error:
                self._is_damaged(snapshot_key(seq), error)

    def metadata(self, known: SharedLogContent) -> None:
        """Check all changes of the metadata. Raises UnknownRecordError, LogError, IncompatibleFormat."""
        image, end_offset = MetadataImage(), 0
        if known.base is not None:
            end_offset = known.base.next_offset
            for batch in known.base.batches:
                for record in iterate_records(batch):
                    image.replay(decode_record(record.value or b""))
        for seq, content in known.changes:
            try:
                change = decode_change(content, seq)
                for record in iterate_records(change.batch):
                    image.replay(decode_record(record.value or b""))
            except CorruptChange as error:
                self._is_damaged(registration_key(seq), error)
                return
            if change.base_offset != end_offset:
                reason = (
                    f"{registration_key(seq)} does not follow on the changes before it, "
                    f"which end at the offset {end_offset}."
                )
                self.damaged.append(DamagedObject(registration_key(seq), reason))
                return
            end_offset = change.end_offset
            self._was_read(len(content))
        if is_copied(known):
            self._topics = set(image.topics_by_id)

    # --- manifests and what they name

    async def history(self) -> None:
        """Check all partitions that have a manifest."""
        keys = await self._reads.answered(lambda: _keys(self._objects, PREFIX))
        places = [place for key in keys if (place := partition_of(key)) is not None]
        for partition, name in places:
            if name is None:
                await self._partition(partition)
        for partition, objects in groupby(places, key=itemgetter(0)):
            manifest = self.manifests.get(partition)
            named = set() if manifest is None else manifest.objects
            self.unnamed += sum(name is not None and name not in named for _, name in objects)
            if manifest is None:
                self._without_manifest.add(partition)

    async def _partition(self, partition: PartitionKey) -> None:
        for _ in range(TRIES):
            try:
                manifest = await self._manifest(partition)
            except CorruptPart as error:
                self._is_damaged(manifest_key(partition), error)
                return
            if manifest is None:
                return  # the topic was deleted
            self._held.begin(manifest)
            found = await asyncio.gather(*self._each(manifest))
            damaged = [damage for damage in found if damage is not None]
            if damaged and await self._is_replaced(manifest):
                continue
            self.damaged += damaged
            self.manifests[partition] = manifest
            return

    async def _manifest(self, partition: PartitionKey) -> Manifest | None:
        key = manifest_key(partition)
        try:
            manifest = decode_manifest(await self._reads.get(key), key)
        except Missing:
            return None
        if manifest.key != partition:
            raise CorruptPart(f"{key} is the manifest of another partition: {manifest.key}.")
        return manifest

    async def _is_replaced(self, manifest: Manifest) -> bool:
        try:
            return await self._manifest(manifest.key) != manifest
        except CorruptPart:
            return False

    def _each(self, manifest: Manifest) -> Iterable[asyncio.Task[DamagedObject | None]]:
        for segment in manifest.segments:
            for part in segment.parts:
                yield asyncio.create_task(self._part(manifest, segment, part))
        for file in manifest.files:
            yield asyncio.create_task(self._file(manifest, file))

    async def _part(self, manifest: Manifest, segment: SegmentRef, part: PartRef) -> DamagedObject | None:
        key = part_key(manifest.key, part.name)
        async with self._turns:
            try:
                content = await self._reads.get(key)
                head, data = decode_part(content, key)
            except Missing:
                return _missing(key)
            except CorruptPart as error:
                return DamagedObject(key, str(error))
            named = PartHead(
                *manifest.key, segment.base, part.position, part.length, head.first_offset, part.end_offset
            )
            if head != named or crc32c(data) != part.crc:
                return DamagedObject(key, f"{key} is another part than its manifest says: {head}.")
            self.parts += 1
            self._was_read(len(content))
            self._held.keep(manifest.key, segment.base, part.position, data)
        return None

    async def _file(self, manifest: Manifest, file: FileRef) -> DamagedObject | None:
        key = manifest_key(manifest.key) if file.stored is None else part_key(manifest.key, file.stored)
        async with self._turns:
            try:
                content = file.content if file.stored is None else await self._reads.get(key)
            except Missing:
                return _missing(key)
            if content is None or (len(content), crc32c(content)) != (file.length, file.crc):
                return DamagedObject(key, f"{key}: the CRC-32C of the side file {file.name} does not fit.")
            self._was_read(len(content))
        return None

    # --- write-ahead logs

    async def first_session(self) -> int:
        """Return the number of the first session whose log may have objects."""
        try:
            return await read_sessions_boundary(self._reads)
        except CorruptWalObject as error:
            self._is_damaged(SESSIONS_BOUNDARY_KEY, error)
            return 0

    async def wal(self, session: RegisteredSession) -> None:
        """Check the log of a session from its boundary to its seal, or to the end of a log that has none."""
        node_id, number = session.node_id, session.session
        seq = await self._boundary(session)
        while True:
            seqs = range(seq, seq + READ_AT_ONCE)
            found = await asyncio.gather(*(self._object(session, each) for each in seqs))
            for each in found:
                if isinstance(each, Seal):
                    return
                if each is None:
                    break
                if isinstance(each, DamagedObject):
                    self.damaged.append(each)
                else:
                    self._held.take(each)
                seq += 1
            else:
                continue
            boundary = await self._boundary(session)
            if boundary > seq:
                seq = boundary
                continue
            following = await self._next_behind(session, seq)
            if following is None:
                return
            key = object_key(node_id, number, seq)
            self.damaged.append(_missing(key, following - seq))
            seq = following

    async def _boundary(self, session: RegisteredSession) -> int:
        try:
            return await read_boundary(self._reads, session.node_id, session.session)
        except CorruptWalObject as error:
            self._is_damaged(boundary_key(session.node_id, session.session), error)
            return 0

    async def _object(self, session: RegisteredSession, seq: int) -> WalObject | Seal | DamagedObject | None:
        key = object_key(session.node_id, session.session, seq)
        try:
            content = await self._reads.get(key)
            found = decode(content, key)
        except Missing:
            return None
        except CorruptWalObject as error:
            return DamagedObject(key, str(error))
        if isinstance(found, Seal):
            return found
        if found[:4] != (session.node_id, session.session, seq, session.nonce):
            return DamagedObject(key, f"{key} is an object of another place or writer.")
        self.wal_objects += 1
        self._was_read(len(content))
        return found

    async def _next_behind(self, session: RegisteredSession, seq: int) -> int | None:
        """Return the object after a missing one; None at the log's end: a session has only some in flight."""
        missing = object_key(session.node_id, session.session, seq)
        folder = boundary_key(session.node_id, session.session).removesuffix("boundary")
        behind = [
            int(key.removeprefix(folder))
            for key in await self._reads.answered(lambda: _keys(self._objects, folder, missing))
            if not key.endswith("/boundary")
        ]
        if behind and behind[-1] > seq + MOST_IN_FLIGHT:
            return behind[0]
        for each in behind:
            if await self._reads.answered(partial(seal_at, self._objects, session, each)):
                return behind[0]
        return None

    # --- both together

    async def gaps(self) -> None:
        """Check that the rows of logs follow on the manifests, for all partitions of present topics."""
        alive = self._held.topics() if self._topics is None else self._topics
        unreadable = {damage.key for damage in self.damaged}
        for partition, reason in self._held.gaps.items():
            manifest = self.manifests.get(partition)
            if partition.topic_id not in alive or manifest_key(partition) in unreadable:
                continue
            if manifest is not None and await self._is_replaced(manifest):
                continue
            self.damaged.append(DamagedObject(manifest_key(partition), reason))
        for partition in self._without_manifest:
            # The first upload of a partition ended before its manifest was created. Then the write-ahead log
            # still has all of it.
            if (
                partition.topic_id in alive
                and not self._held.has_rows(partition)
                and not await self._has_manifest(partition)
            ):
                self.damaged.append(_missing(manifest_key(partition)))

    async def _has_manifest(self, partition: PartitionKey) -> bool:
        """Return whether the partition has a manifest by now, or one whose damage was reported."""
        try:
            return await self._manifest(partition) is not None
        except CorruptPart:
            return True

    def _is_damaged(self, key: str, error: Exception) -> None:
        damage = DamagedObject(key, str(error))
        if damage not in self.damaged:
            self.damaged.append(damage)

    def _was_read(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._progress(self.parts + self.wal_objects, self.size_bytes)


def _missing(key: str, count: int = 1) -> DamagedObject:
    what = f"{key} is missing" if count == 1 else f"{key} and the {count - 1} objects behind it are missing"
    return DamagedObject(key, f"{what}. Records are lost unless a backup of the bucket has them.")


async def _keys(objects: ObjectStore, prefix: str, after: str = "") -> Sequence[str]:
    return [entry.key async for entry in objects.list(prefix, after)]


# Which bytes of each segment the manifests and logs of a bucket hold together, without the bytes but for the
# metadata.

_METADATA = PartitionKey(METADATA_TOPIC_ID, 0)


class HeldBytes:
    """The ends of all partitions, as a start would rebuild them."""

    def __init__(self) -> None:
        self._ends: dict[PartitionKey, int] = {}
        self._places = SegmentEnds()
        self._held: set[PartitionKey] = set()
        """The partitions that have a manifest, or rows that are newer than theirs."""
        self._metadata: dict[int, bytearray] = {}
        self.gaps: dict[PartitionKey, str] = {}
        """The first missing bytes of each partition that lacks some, except for deleted topics."""

    def begin(self, manifest: Manifest) -> None:
        """Take what the manifest of a partition names."""
        if manifest.key == _METADATA:
            self._metadata.clear()
        self._ends[manifest.key] = manifest.end_offset
        self._places.begin(manifest)
        if manifest.segments:
            self._held.add(manifest.key)

    def keep(self, partition: PartitionKey, base: int, position: int, data: Buffer) -> None:
        """Keep bytes of the metadata log."""
        if partition == _METADATA:
            segment = self._metadata.setdefault(base, bytearray())
            segment.extend(bytes(max(0, position - len(segment))))
            segment[position : position + len(data)] = data

    def take(self, wal_object: WalObject) -> None:
        """Take the rows that are newer than the manifests."""
        for row, data in zip(wal_object.rows, wal_object.data, strict=True):
            partition = PartitionKey(row.topic_id, row.partition)
            if not isinstance(row, DataRow) or row.end_offset <= self._ends.get(partition, 0):
                continue
            self._held.add(partition)
            place = self._places.place_unless_records_are_missing(row)
            if place is not None:
                self.keep(partition, *place, in_one_piece(data))
            else:
                self.gaps.setdefault(
                    partition,
                    f"the records before offset {row.first_offset} are missing: manifest and earlier objects "
                    f"do not reach the position {row.position} of the segment {row.segment_base}.",
                )

    def has_rows(self, partition: PartitionKey) -> bool:
        """Return whether a log has rows of the partition that are newer than its manifest."""
        return partition in self._held

    def topics(self) -> set[UUID]:
        """Return the ids of the topics and the metadata's own. Raises LogError, UnknownRecordError."""
        image = MetadataImage()
        for _, segment in sorted(self._metadata.items()):
            view = memoryview(segment)
            for position, batch in whole_batches(segment):
                for record in iterate_records(view[position : position + batch.size_bytes]):
                    image.replay(decode_record(record.value or b""))
        return {METADATA_TOPIC_ID, *image.topics_by_id}
