"""A partition's manifest: the parts of its segments, its side files, and up to where in the log both reach.

It is JSON: `version`, `crc32c` and `manifest`, where the checksum is that of the bytes of `manifest`. Each
replacement has the next generation, so no two versions have the same content.

`Manifests` reads and replaces the manifests of one session. A replacement is conditional, so a process that
has not noticed the end of its session can't undo one.

A manifest that another process wrote meanwhile tells by its leader epoch and its session who that was. One of
an earlier leadership is replaced: that process does not lead the partition any more, and does not delete what
our manifest names. One of a later leadership is never replaced: with a later leader epoch it ends our
leadership of the partition, and with a later session of this node it ends our session.

A process whose session has ended may replace a manifest even after this session's local files were made from
it. The newer manifest may name a compacted segment, which has other bytes than the local file. So the parts
of the manifest that was restored are the ones that are kept.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from seqgate.gateway.cluster.objects.objects import Changed, Missing, ObjectStore, StoreFailed
from seqgate.gateway.cluster.parts.part_object import CorruptPart
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.wal_object import check_version
from seqgate.seq_validator.checksum import crc32c

VERSION: Final = 1
UNKNOWN: Final = -1
WalPlace = tuple[int, int, int]
#: (leader epoch, session, seq) of an object with rows of one partition. Each leader epoch of a partition
#: belongs to one node, and the sessions of a node follow each other. So places ascend in the order in which
#: the partition was written, whoever led it.


class PartRef(msgspec.Struct, frozen=True):
    name: str
    position: int
    """The place of its first byte in the segment file."""
    length: int
    end_offset: int
    crc: int


class SegmentRef(msgspec.Struct, frozen=True):
    """The part of a segment file that is in the bucket, as parts one after the other."""

    base: int
    parts: tuple[PartRef, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The number of bytes of the segment file that are in the bucket, from its beginning on."""
        return self.parts[-1].position + self.parts[-1].length if self.parts else 0


class FileRef(msgspec.Struct, frozen=True):
    """A side file, and its whole content or the name of the object that has it."""

    name: str
    length: int
    crc: int
    content: bytes | None = None
    stored: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    topic_id: UUID
    partition: int
    topic: str
    """The name of the topic, for people."""
    session: int
    """The session that wrote the manifest."""
    seq: int
    """The side files are as new as the write-ahead log of the session before this object."""
    log_start_offset: int
    end_offset: int
    """The offset after the last record that the parts hold, or that retention deleted."""
    segments: tuple[SegmentRef, ...]
    files: tuple[FileRef, ...]
    generation: int = 0
    leader_epoch: int = 0
    """The newest leader epoch in which the records or side files were written."""
    stable_offset: int = UNKNOWN
    """The offset below which all transactions had ended; `files` and `last_aborts` name all aborted ones that
    reach below it. UNKNOWN where they may not, and in manifests of earlier releases."""
    last_aborts: bytes = b""
    """The transaction index of the last segment, whose index files are not kept."""

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic_id, self.partition)

    @property
    def objects(self) -> frozenset[str]:
        """The names of all objects of the partition except the manifest: parts and large side files."""
        parts = (part.name for segment in self.segments for part in segment.parts)
        return frozenset((*parts, *(file.stored for file in self.files if file.stored is not None)))

    @property
    def leadership(self) -> tuple[int, int]:
        """The leader epoch and the session: a later one of the partition is greater."""
        return self.leader_epoch, self.session

    @property
    def place(self) -> WalPlace:
        """The place in all write-ahead logs before which side files are older than the manifest's."""
        return self.leader_epoch, self.session, self.seq


class _Stored(msgspec.Struct):
    version: int
    crc32c: int
    manifest: msgspec.Raw


class _Version(msgspec.Struct):
    version: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of the object. Raises ValueError for a manifest that no decoder would accept."""
    wrong = _fault_of(manifest)
    if wrong is not None:
        raise ValueError(f"the manifest of {manifest.topic}-{manifest.partition} can't be stored: {wrong}")
    content = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Stored(VERSION, crc32c(content), msgspec.Raw(content)))


def decode_manifest(content: bytes, key: str) -> Manifest:
    """Return the manifest. Raises CorruptPart, IncompatibleFormat; `key` is for the messages."""
    try:
        version = msgspec.json.decode(content, type=_Version).version
        check_version(key, version, VERSION)
        stored = msgspec.json.decode(content, type=_Stored)
        if crc32c(stored.manifest) != stored.crc32c:
            raise CorruptPart(f"{key} is damaged: its CRC-32C does not fit.")
        manifest = msgspec.json.decode(stored.manifest, type=Manifest)
    except msgspec.MsgspecError as error:
        raise CorruptPart(f"{key} is damaged: {error}.") from error
    wrong = _fault_of(manifest)
    if version < 1 or wrong is not None:
        raise CorruptPart(f"{key} is damaged: {wrong or 'its version is impossible'}.")
    return manifest


def _fault_of(manifest: Manifest) -> str | None:
    numbers = (manifest.partition, *manifest.place, manifest.log_start_offset)
    highest = max(manifest.log_start_offset, manifest.stable_offset)
    if min(numbers) < 0 or manifest.stable_offset < UNKNOWN or highest > manifest.end_offset:
        return "it has impossible numbers"
    end_offset = 0
    for segment in manifest.segments:
        if segment.base < end_offset:
            return f"the segment {segment.base} begins before the one before it ends"
        position, end_offset = 0, segment.base
        for part in segment.parts:
            if part.position != position or part.length <= 0 or part.end_offset <= end_offset:
                return f"the parts of the segment {segment.base} do not follow each other"
            position, end_offset = position + part.length, part.end_offset
    if any((file.content is None) == (file.stored is None) for file in manifest.files):
        return "a side file has no content, or two"
    return None if end_offset <= manifest.end_offset else "its parts go beyond its end"


# The keys of a partition's parts and of its manifest.

PREFIX: Final = "parts/"
_KEY: Final = re.compile(r"parts/([0-9a-f]{32})/(\d+)/(?:manifest|((?:\d{20}|files)-[0-9a-f]{32}))")


class PartitionKey(NamedTuple):
    """A partition, whatever its topic is called."""

    topic_id: UUID
    partition: int


def manifest_key(partition: PartitionKey) -> str:
    return f"{PREFIX}{partition.topic_id.hex}/{partition.partition}/manifest"


def part_key(partition: PartitionKey, name: str) -> str:
    """Return the key of a part by its name in the manifest."""
    return f"{PREFIX}{partition.topic_id.hex}/{partition.partition}/{name}"


def part_name(segment_base: int, unique: str) -> str:
    """Return the name of a part; `unique` has 32 hexadecimal digits that no other part has."""
    return f"{segment_base:020}-{unique}"


def file_name(unique: str) -> str:
    """Return the name of the object of a large side file."""
    return f"files-{unique}"


def partition_of(key: str) -> tuple[PartitionKey, str | None] | None:
    """Return an object's partition and name, which is None for the manifest; None for any other key."""
    found = _KEY.fullmatch(key)
    return None if found is None else (PartitionKey(UUID(hex=found[1]), int(found[2])), found[3])


async def read_manifest(reads: PersistentReads, partition: PartitionKey) -> Manifest | None:
    """Return the bucket's manifest, or None. Raises CorruptPart, IncompatibleFormat, Refused."""
    key = manifest_key(partition)
    content = await reads.find(key)
    return None if content is None else decode_manifest(content, key)


class Overtaken(Exception):
    """A later session of this node has replaced the manifest: our session has ended."""


class NoLongerLed(Exception):
    """The leader of a later epoch has replaced the manifest: this gateway no longer leads the partition."""


class KnownManifest(NamedTuple):
    """A manifest, and the version of the object that has it."""

    manifest: Manifest | None
    version: str | None
    leadership: tuple[int, int] = (-1, -1)
    """The leader epoch and the session that wrote the object; -1 without one."""


class Manifests:
    """The manifests that one session has read or written."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        restored: Mapping[PartitionKey, Manifest] | None = None,
        session: int | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """Take the store, and the manifests from which the local files were made: a mapping that may change.
        `session` is the number of the own session.
        """
        self._objects = objects
        self._restored = {} if restored is None else restored
        self._session = session
        self._reads = PersistentReads(objects, "the gateway waits to read and replace manifests", chance)
        self._known: dict[PartitionKey, KnownManifest] = {}

    def of(self, partition: PartitionKey) -> Manifest | None:
        """Return the manifest as it was last read or written here; None without one."""
        known = self._known.get(partition)
        return None if known is None else known.manifest

    def partitions(self) -> list[PartitionKey]:
        return [partition for partition, known in self._known.items() if known.manifest is not None]

    async def load(self, partition: PartitionKey) -> Manifest | None:
        """Return the manifest, and read it at first; None without one. Waits until the store answers.

        Returns the parts and files of the restored manifest where an ended session has replaced it since.

        Raises CorruptPart, IncompatibleFormat, Refused.
        """
        if partition not in self._known:
            self._known[partition] = self._as_restored(await self._read(partition))
        return self._known[partition].manifest

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace the manifest by this one in the next generation; return what was stored. Waits until the
        store answers. Raises NoLongerLed, Overtaken, CorruptPart, IncompatibleFormat, Refused.
        """
        partition = manifest.key
        await self.load(partition)
        known = self._known[partition]
        conflicts = self._reads.conflicts()
        while True:
            _check_leadership(known, manifest)
            generation = 0 if known.manifest is None else known.manifest.generation + 1
            stored = msgspec.structs.replace(manifest, generation=generation)
            try:
                version = await self._objects.replace(
                    manifest_key(partition), encode_manifest(stored), known.version
                )
            except (Changed, StoreFailed) as error:
                # An earlier attempt of this call may have replaced the manifest, so it is read again.
                if isinstance(error, StoreFailed):
                    await self._reads.failed(error)
                known = await self._read(partition)
                if known.manifest != stored:
                    await asyncio.sleep(conflicts.next_s())
                    continue
            else:
                known = KnownManifest(stored, version, stored.leadership)
            self._known[partition] = known
            return stored

    async def present(self, partition: PartitionKey) -> Manifest | None:
        """Return the bucket's present manifest, None without one; it stays unknown here. Raises as `load`."""
        return (await self._read(partition)).manifest

    def forget(self, partition: PartitionKey) -> None:
        """Forget a partition that another gateway leads."""
        self._known.pop(partition, None)

    async def delete(self, partition: PartitionKey) -> None:
        """Delete the manifest. Waits until the store answers. Raises Refused."""
        await self._reads.answered(lambda: self._objects.delete(manifest_key(partition)))
        self._known.pop(partition, None)

    async def _read(self, partition: PartitionKey) -> KnownManifest:
        key = manifest_key(partition)
        try:
            content, version = await self._reads.answered(lambda: self._objects.read(key))
        except Missing:
            return KnownManifest(None, None)
        manifest = decode_manifest(content, key)
        return KnownManifest(manifest, version, manifest.leadership)

    def _as_restored(self, known: KnownManifest) -> KnownManifest:
        present = known.manifest
        if present is None or present.session == self._session:
            return known  # the own uploads went on from what was restored
        restored = self._restored.get(present.key)
        if restored is None or present.generation <= restored.generation:
            return known
        return known._replace(manifest=msgspec.structs.replace(restored, generation=present.generation))


def _check_leadership(known: KnownManifest, manifest: Manifest) -> None:
    """Check that the manifest may replace the known one. Raises NoLongerLed, Overtaken."""
    leader_epoch, session = known.leadership
    if leader_epoch > manifest.leader_epoch:
        raise NoLongerLed(
            f"session {session} leads the partition in epoch {leader_epoch} and has replaced "
            f"{manifest_key(manifest.key)}"
        )
    if known.leadership > manifest.leadership:
        raise Overtaken(f"session {session} has replaced {manifest_key(manifest.key)}")
