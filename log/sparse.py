"""Segment files with holes, whose bytes a bucket has: the face for a cluster's cache, and `residency`.

A clean stop writes the file, JSON, so that the next start knows the holes of the files that it reuses:

    version      of this content
    crc32c       of the bytes of `files`
    files        of each segment that the bucket has: path below the data directory, topic id, partition,
                 base offset, generation of the manifest, size in bytes, and the absent blocks as a number in
                 hexadecimal digits, whose bit n stands for block n

A start without a clean stop must make the data directory anew: nothing else tells its holes.
"""

from __future__ import annotations

import uuid
from typing import Final

import msgspec

from seqgate.log.directory.stored_logs import RESIDENCY
from seqgate.log.files.page_cache import BLOCK_BYTES, SegmentKey, SparseFile, without_fetching
from seqgate.log.files.sparse_disk import SparseDisk
from seqgate.log.files.storage import DurableFiles, Storage
from seqgate.seq_validator.checksum import crc32c

# names of other modules that belong to this face
__all__ = ["BLOCK_BYTES", "SegmentKey", "SparseDisk", "SparseFile", "without_fetching"]

_VERSION: Final = 1


class _File(msgspec.Struct, frozen=True, array_like=True):
    path: str
    topic_id: uuid.UUID
    partition: int
    base_offset: int
    generation: int
    size_bytes: int
    absent: str


class _Content(msgspec.Struct, frozen=True):
    version: int
    crc32c: int
    files: msgspec.Raw


def save_residency(durable: DurableFiles, sparse: SparseDisk, root: str) -> None:
    """Persist the residency of the directory `root`, which must not change meanwhile. Raises OSError."""
    rows = []
    for file in sparse.files:
        path, key = file.path, file.key
        if key is not None and path is not None and path.startswith(f"{root}/"):
            absent = f"{file.absent:x}"
            rows.append(_File(path[len(root) + 1 :], *key, file.size_bytes, absent))
    files = msgspec.json.encode(rows)
    content = _Content(_VERSION, crc32c(files), msgspec.Raw(files))
    durable.replace(f"{root}/{RESIDENCY}", msgspec.json.encode(content))


def restore_residency(storage: Storage, sparse: SparseDisk, root: str) -> bool:
    """Read the residency of the data directory `root`, before a file of it is opened. Return False, with the
    holes unknown, if the file is missing or damaged or a size differs. Raises OSError.
    """
    try:
        content = msgspec.json.decode(storage.read_file(f"{root}/{RESIDENCY}"), type=_Content)
        if content.version != _VERSION or crc32c(content.files) != content.crc32c:
            return False
        rows = msgspec.json.decode(content.files, type=list[_File])
        if any(storage.size_bytes(f"{root}/{row.path}") != row.size_bytes for row in rows):
            return False
        for row in rows:
            key = SegmentKey(row.topic_id, row.partition, row.base_offset, row.generation)
            if not sparse.restore(f"{root}/{row.path}", key, row.size_bytes, int(row.absent, 16)):
                return False
    except (FileNotFoundError, msgspec.MsgspecError, ValueError):
        return False
    return True
