"""Brings the parts and the manifest of a partition up to its log.

A segment file only grows, so its next part begins where the last one ends. A compaction replaces the file,
which is uploaded as a whole then. A known `DataFile` is the same file; the checksums of all parts tell
whether a log that was loaded again has the same bytes, and after a restart that of the last part does. Only
durable records are uploaded.

The side files of the local disk may be ahead of what is durable. So after they are read, all records that the
log has then are made durable before the manifest is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from seqgate.gateway.cluster.objects.objects import (
    AlreadyThere,
    Buffer,
    Missing,
    ObjectStore,
    Refused,
    StoreFailed,
)
from seqgate.gateway.cluster.parts.manifest import (
    UNKNOWN,
    FileRef,
    Manifest,
    Manifests,
    PartitionKey,
    PartRef,
    SegmentRef,
    file_name,
    part_key,
    part_name,
)
from seqgate.gateway.cluster.parts.part_object import PartHead, encode_part
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.log import CorruptRecord, PartitionLog, Storage
from seqgate.log.sparse import SegmentKey, SparseFile
from seqgate.log.uploading import (
    DataFile,
    LogView,
    SegmentView,
    SoundBatches,
    aborts_name,
    index_files,
    is_index,
    read_sound,
    side_files,
    view,
)
from seqgate.seq_validator.checksum import crc32c

PART_BYTES: Final = 8 << 20
"""The most bytes of a part, and of the upload's memory. A larger batch has a part of its own."""
MOST_PARTS: Final = 16
"""A closed segment with more parts that are not full is uploaded again as a whole."""
INLINE_BYTES: Final = 4 << 10
"""The largest side file that is in the manifest itself."""
LAST_ABORTS_BYTES: Final = 64 << 10
"""The newest segment's largest transaction index; beyond it, the leader alone serves committed records."""


class ClosedFile(NamedTuple):
    """The local file of a closed segment, all of which the manifest names."""

    file: SparseFile
    base_offset: int
    size_bytes: int


class Uploaded(NamedTuple):
    """The new manifest of a partition, and the objects that only the previous manifest names."""

    manifest: Manifest
    garbage: frozenset[str]
    closed: tuple[ClosedFile, ...]


@dataclass(frozen=True, slots=True)
class UploadPorts:
    """The bucket, the local files and the session, as uploads use them."""

    objects: ObjectStore
    storage: Storage
    manifests: Manifests
    session: int
    next_seq: Callable[[], int]
    flushed: Callable[[PartitionLog], Awaitable[None]]
    """Makes everything now in a log durable. Raises StorageFailed."""
    log_start: Callable[[PartitionKey], int] = lambda _: 0
    """Returns the newest log start offset of a partition in the session's log."""


class _Upload(NamedTuple):
    key: PartitionKey
    before: Manifest | None
    created: list[str]
    closed: list[ClosedFile]


class PartitionUploads:
    """The partitions whose parts this session has written, and their files."""

    def __init__(self, ports: UploadPorts) -> None:
        self._ports = ports
        self._store = PersistentReads(ports.objects, "the gateway waits to upload parts of segments")
        self._files: dict[PartitionKey, dict[int, DataFile]] = {}
        """The files that the manifest of a partition is about, by the base offset of the segment."""

    def knows(self, partition: PartitionKey) -> bool:
        return partition in self._files

    def is_changed(self, log: PartitionLog) -> bool:
        """Return whether files were replaced or removed since the last upload."""
        known = self._files.get(PartitionKey(log.topic_id, log.partition))
        if known is None:
            return False
        present = {segment.base_offset: segment.file for segment in log.segments.segments}
        return any(present.get(base) is not file for base, file in known.items())

    def forget(self, partition: PartitionKey) -> None:
        self._files.pop(partition, None)

    async def upload(self, log: PartitionLog) -> Uploaded:
        """Upload what the bucket lacks, and replace the manifest. Waits until the store answers. Raises
        OSError, LogError (the log can't be read, or is offline), CorruptPart, NoLongerLed, Overtaken,
        IncompatibleFormat, Refused.
        """
        ports, key = self._ports, PartitionKey(log.topic_id, log.partition)
        upload = _Upload(key, await ports.manifests.load(key), [], [])
        seen = view(log)
        seq, leader_epoch = ports.next_seq(), max(0, log.epochs.latest)
        # A start would take the later one. So the manifest has it; otherwise its object must stay for ever.
        log_start_offset = max(seen.log_start_offset, min(ports.log_start(key), seen.end_offset))
        try:
            ends = [*(each.base_offset for each in seen.segments[1:]), seen.end_offset]
            segments = [
                await self._segment(upload, each, end_offset, is_last=each is seen.segments[-1])
                for each, end_offset in zip(seen.segments, ends, strict=True)
            ]
            indexes = [
                file
                for each, segment in zip(seen.segments[:-1], segments, strict=False)
                for file in await self._indexes(upload, each, segment)
            ]
            contents = await asyncio.to_thread(side_files, ports.storage, log.directory)
            files = [await self._file(upload, name, contents[name]) for name in sorted(contents)]
            await ports.flushed(log)
        except Exception:
            await self._delete(key, upload.created)
            raise
        manifest = Manifest(
            log.topic_id,
            log.partition,
            log.topic,
            ports.session,
            seq,
            log_start_offset,
            seen.end_offset,
            tuple(segments),
            tuple(files + indexes),
            leader_epoch=leader_epoch,
            stable_offset=_stable_offset(seen, indexes),
            last_aborts=_last_aborts(seen) or b"",
        )
        replaced = ports.manifests.of(key)
        stored = await ports.manifests.replace(manifest)
        self._files[key] = {each.base_offset: each.file for each in seen.segments}
        garbage = frozenset() if replaced is None else replaced.objects - stored.objects
        return Uploaded(stored, garbage, tuple(upload.closed))

    async def _segment(
        self, upload: _Upload, seen: SegmentView, end_offset: int, *, is_last: bool
    ) -> SegmentRef:
        """Upload the segment up to `end_offset`; return all its parts. Raises OSError, LogError, Refused."""
        descriptors = self._ports.storage.descriptors
        descriptors.pin(seen.file)
        try:
            parts = list(await self._kept_parts(upload, seen, is_last=is_last))
            position = parts[-1].position + parts[-1].length if parts else 0
            reached = parts[-1].end_offset if parts else seen.base_offset
            while position < seen.size_bytes:
                found = await asyncio.to_thread(
                    read_sound, self._ports.storage, seen.file, position, PART_BYTES, reached, end_offset
                )
                if not found.data:
                    break
                parts.append(await self._part(upload, seen, position, reached, found))
                position, reached = position + len(found.data), found.end_offset
            sparse = self._ports.storage.sparse
            file = None if sparse is None else sparse.opened(seen.file.descriptor)
            if file is not None and not is_last:
                upload.closed.append(ClosedFile(file, seen.base_offset, seen.size_bytes))
        finally:
            descriptors.unpin(seen.file)
        # The manifest covers all records below the end, and the write-ahead log loses those. Compaction
        # leaves gaps in closed segments only.
        if reached != end_offset if is_last else position != seen.size_bytes:
            raise CorruptRecord(
                f"{seen.file.path} has no whole batch at position {position}, and should have records up to "
                f"offset {end_offset - 1}"
            )
        return SegmentRef(seen.base_offset, tuple(parts))

    async def _kept_parts(self, upload: _Upload, seen: SegmentView, *, is_last: bool) -> tuple[PartRef, ...]:
        """Return the parts of the manifest that still hold the bytes of the file."""
        key, before, *_ = upload
        segments = () if before is None else before.segments
        kept = next((each for each in segments if each.base == seen.base_offset), None)
        if kept is None or not kept.parts or kept.size_bytes > seen.size_bytes:
            return ()
        if (
            not is_last
            and len(kept.parts) > MOST_PARTS
            and kept.size_bytes < len(kept.parts) * PART_BYTES // 2
        ):
            return ()
        known = self._files.get(key, {}).get(seen.base_offset)
        if known is seen.file or (before is not None and self._is_from_bucket(seen.file, before.generation)):
            return kept.parts
        # Another file than at the last upload: a compaction replaced it, or the offline log was reloaded.
        for part in kept.parts[-1:] if known is None else kept.parts:
            content = await asyncio.to_thread(
                self._ports.storage.read_pinned, seen.file, part.length, part.position
            )
            if crc32c(content) != part.crc:
                return ()
        return kept.parts

    def _is_from_bucket(self, file: DataFile, generation: int) -> bool:
        """Return whether a pinned file has the manifest's bytes: an earlier one that counted had them."""
        sparse = self._ports.storage.sparse
        found = None if sparse is None else sparse.opened(file.descriptor)
        return found is not None and found.key is not None and found.key.generation <= generation

    def counts(self, uploaded: Uploaded) -> None:
        """Let blocks of closed segments be evicted: the manifest counts."""
        sparse = self._ports.storage.sparse
        if sparse is not None:
            manifest = uploaded.manifest
            for file, base_offset, size_bytes in uploaded.closed:
                if file.key is None:
                    sparse.stored(
                        file, SegmentKey(*manifest.key, base_offset, manifest.generation), size_bytes
                    )

    async def _indexes(self, upload: _Upload, seen: SegmentView, segment: SegmentRef) -> list[FileRef]:
        """Upload the written index files of a closed segment, so that a start need not read the segment."""
        if not seen.has_indexes:
            return []
        stem, before = seen.file.path.rpartition("/")[2].removesuffix(".log"), upload.before
        if before is not None and segment in before.segments:
            known = [
                file for file in before.files if file.name.startswith(f"{stem}.") and is_index(file.name)
            ]
            if known:
                return known
        contents = await asyncio.to_thread(index_files, self._ports.storage, seen)
        if contents is None or seen.file.retired:
            return []
        fresh = upload._replace(before=None)
        return [await self._file(fresh, name, content) for name, content in contents.items()]

    async def _part(
        self, upload: _Upload, seen: SegmentView, position: int, first_offset: int, found: SoundBatches
    ) -> PartRef:
        name = part_name(seen.base_offset, uuid.uuid4().hex)
        head = PartHead(
            *upload.key, seen.base_offset, position, len(found.data), first_offset, found.end_offset
        )
        content, crc = await asyncio.to_thread(encode_part, head, found.data)
        await self._create(upload.key, name, content, upload.created)
        return PartRef(name, position, len(found.data), found.end_offset, crc)

    async def _file(self, upload: _Upload, name: str, content: bytes) -> FileRef:
        crc = crc32c(content)
        if len(content) <= INLINE_BYTES:
            return FileRef(name, len(content), crc, content)
        for known in upload.before.files if upload.before else ():
            if known.stored is not None and (known.length, known.crc) == (len(content), crc):
                return FileRef(name, len(content), crc, stored=known.stored)
        stored = file_name(uuid.uuid4().hex)
        await self._create(upload.key, stored, content, upload.created)
        return FileRef(name, len(content), crc, stored=stored)

    async def _create(
        self, key: PartitionKey, name: str, content: bytes | Sequence[Buffer], created: list[str]
    ) -> None:
        """Create an object under a name of our own. Waits until the store answers. Raises Refused."""
        created.append(name)
        path = part_key(key, name)
        conflicts = self._store.conflicts()
        while True:
            try:
                await self._store.answered(lambda: self._ports.objects.create(path, content))
            except AlreadyThere:
                # An earlier try of ours, whose answer was lost; or two tries met, and neither took effect.
                try:
                    await self._store.get_end(path, 1)
                except Missing:
                    await asyncio.sleep(conflicts.next_s())
                    continue
            return

    async def _delete(self, key: PartitionKey, names: list[str]) -> None:
        """Delete objects that no manifest names. What is left at a failure is an orphan."""
        with contextlib.suppress(StoreFailed, Refused):
            for name in names:
                await self._ports.objects.delete(part_key(key, name))


def _last_aborts(seen: LogView) -> bytes | None:
    """Return the newest segment's transaction index for the manifest; None: unknown, or too large."""
    entries = seen.last_aborts
    return None if entries is None or len(entries) > LAST_ABORTS_BYTES else entries


def _stable_offset(seen: LogView, indexes: Sequence[FileRef]) -> int:
    """Return the offset below which the indexes tell of all aborted transactions; UNKNOWN if one is missing.
    A compaction may replace a segment meanwhile. Then the manifest names the old bytes and no index.
    """
    names = {file.name for file in indexes}
    known = all(
        aborts_name(segment.base_offset) in names for segment in seen.segments[:-1] if segment.has_aborts
    )
    return seen.stable_offset if known and _last_aborts(seen) is not None else UNKNOWN


# What uploads need of the gateway: its partitions, and when to begin.


@dataclass(frozen=True, slots=True)
class UploadedPartitions:
    """The partitions of the cluster, as uploads see them."""

    all: Callable[[], Iterable[PartitionKey]]
    """Returns all partitions that this gateway leads."""
    open_log: Callable[[PartitionKey], Awaitable[PartitionLog | None]]
    """Returns a log, opened if need be; None without one. Raises OSError, LogError, IncompatibleFormat."""
    flushed: Callable[[PartitionLog], Awaitable[None]]
    """Makes everything now in a log durable. Raises StorageFailed."""
    exists: Callable[[PartitionKey], bool]
    """Returns whether the metadata that is known here has a partition; another gateway may lead it."""
    catch_up: Callable[[], Awaitable[None]]
    """Reads what the metadata log has and the metadata lacks. Raises StorageFailed."""
    is_withheld: Callable[[PartitionKey], bool]
    """Returns whether a partition is being handed over; if that fails, this gateway goes on to lead it."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    interval_s: float
    """The seconds after the one before."""
    wal_max_bytes: int
    """The bytes in the session's write-ahead log since the last round that begin the next one at once."""
    orphan_age_s: float
    """The age at which an object without a manifest is an orphan, and the seconds between two searches."""
