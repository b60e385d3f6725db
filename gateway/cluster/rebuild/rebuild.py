"""Rebuilds a data directory from the write-ahead logs of all sessions, so that the start after it finds the files of a crash.

A data row names the segment file and the position of its bytes, so the segment files become those of the gateway that wrote them,
byte by byte. What derives from the records (indexes, producers, transactions, leader epochs) is recovered from them as after
any crash. A side file is written where its row comes; a later row of the same file replaces it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.rebuild.wal_reader import WalRange, read_objects
from gateway.cluster.wal.wal_object import DataRow, WalObject
from log.rebuilding import RebuiltDirectory

logger = logging.getLogger(__name__)

ReadTopics = Callable[[Path], Mapping[uuid.UUID, str]]
#: Returns the names of all topics, by topic id, from the directory of the metadata log.


class MetadataPlace(NamedTuple):
    """The partition that has the names of all others."""

    topic_id: uuid.UUID
    topic: str


class Rebuilt(NamedTuple):
    """What a rebuild read and wrote."""

    objects: int
    size_bytes: int
    partitions: int


async def rebuild(
    objects: ObjectStore,
    ranges: Sequence[WalRange],
    directory: RebuiltDirectory,
    metadata: MetadataPlace,
    read_topics: ReadTopics,
) -> Rebuilt:
    """Write all files, and name the partitions of topics that exist. The caller finishes the directory.

    Raises CorruptWalObject, CorruptRecord for bytes that are missing, IncompatibleFormat, Refused, OSError, and what `read_topics`
    raises.
    """
    count = size_bytes = 0
    async for wal_object in read_objects(objects, ranges):
        size_bytes += _write(wal_object, directory)
        count += 1
    names: dict[uuid.UUID, str] = {}
    if (metadata.topic_id, 0) in directory.staged:
        names.update(read_topics(directory.place(metadata.topic_id, 0, metadata.topic)))
    placed = 0
    for topic_id, partition in directory.staged:
        name = names.get(topic_id)
        if name is not None:
            directory.place(topic_id, partition, name)
            placed += 1
    return Rebuilt(count, size_bytes, placed)


def _write(wal_object: WalObject, directory: RebuiltDirectory) -> int:
    """Write the bytes of one object; return how many."""
    for row, data in zip(wal_object.rows, wal_object.data, strict=True):
        if isinstance(row, DataRow):
            directory.write(row.topic_id, row.partition, row.segment_base, row.position, data)
        else:
            directory.write_file(row.topic_id, row.partition, row.name, bytes(data))
    return sum(row.length for row in wal_object.rows)
