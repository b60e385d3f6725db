"""The manifest of a partition: which parts hold its segments, its side files, and up to where in the log both reach.

It is JSON: `version`, `crc32c` and `manifest`, where the checksum is that of the bytes of `manifest`. Each replacement has the next
generation, so no two versions have the same content.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from gateway.cluster.parts.keys import PartitionKey
from gateway.cluster.parts.part_object import CorruptPart
from log import IncompatibleFormat
from seq_validator.checksum import crc32c

VERSION: Final = 1
UNKNOWN: Final = -1
Place = tuple[int, int, int]
#: (leader epoch, session, seq) of an object with rows of one partition. Each leader epoch of a partition belongs to one node, and the
#: sessions of a node follow each other. So places ascend in the order in which the partition was written, whoever led it.


class PartRef(msgspec.Struct, frozen=True):
    """A part of a segment."""

    name: str
    position: int
    """The place of its first byte in the segment file."""
    length: int
    """The number of its bytes."""
    end_offset: int
    crc: int
    """The CRC-32C of its bytes."""


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
    """The CRC-32C of the content."""
    content: bytes | None = None
    stored: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The content of the object."""

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
    """The offset below which all transactions had ended; `files` and `last_aborts` name all aborted ones that reach below it. UNKNOWN where
    they may not, and in manifests of earlier releases."""
    last_aborts: bytes = b""
    """The transaction index of the last segment, whose index files are not kept."""

    @property
    def key(self) -> PartitionKey:
        """The partition."""
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
    def place(self) -> Place:
        """The place in all write-ahead logs before which side files count as older than those of the manifest."""
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
        if version > VERSION:
            raise IncompatibleFormat(
                f"{key} has version {version}; this program reads version {VERSION}. Run the release that wrote it."
            )
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
    """Return why a manifest can't be right, or None if it can."""
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
