"""Rebuilds a data directory from the manifests of partitions and the write-ahead logs of all sessions, so
that the start after it finds the files of a crash.

A data row names the segment file and the position of its bytes, so the segment files become those of the
gateway that wrote them, byte by byte. Only after a late manifest they differ (see `segment_ends`). What
derives from the records (indexes, producers, transactions, leader epochs) is recovered from them as after any
crash. A side file is written where its row comes; a later row of the same file replaces it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from seqgate.gateway.cluster.metadata.change import CorruptChange, StoredChange
from seqgate.gateway.cluster.objects.objects import ObjectStore
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey
from seqgate.gateway.cluster.rebuild.history import Restored, restore
from seqgate.gateway.cluster.wal.ended import EndedSession, WalRange
from seqgate.gateway.cluster.wal.sessions import Snapshot
from seqgate.log.format.record_batch import parse_header
from seqgate.log.rebuilding import RebuiltDirectory

SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""The size of a segment of the metadata log beyond which the next one begins."""


class StoredTopic(NamedTuple):
    """A topic as the metadata has it."""

    name: str
    partitions: int


ReadTopics = Callable[[Path], Mapping[uuid.UUID, StoredTopic]]
#: Returns all topics, by topic id, from the directory of the metadata log.


class MetadataPlace(NamedTuple):
    """The metadata partition, whose records name all other partitions."""

    topic_id: uuid.UUID
    topic: str


class Rebuilt(NamedTuple):
    """What a rebuild read and wrote."""

    objects: int
    size_bytes: int
    partitions: int
    manifests: Mapping[PartitionKey, Manifest]
    """The manifests that were restored."""


async def rebuild(
    objects: ObjectStore,
    ranges: Sequence[WalRange],
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
    ended = [EndedSession(wal.node_id, wal.session, wal.nonce, wal.end_seq) for wal in ranges]
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


def _raise_first(restored: Restored) -> None:
    """Raise what is wrong with a partition, if anything is."""
    for error in restored.failures.values():
        raise error


def write_metadata(
    directory: RebuiltDirectory,
    metadata: MetadataPlace,
    changes: Iterable[StoredChange],
    snapshot: Snapshot | None = None,
) -> int:
    """Stage the metadata log of a snapshot and these changes; without a snapshot, the first change begins the
    log. Return its end offset.

    With a snapshot the log begins at the offset of the snapshot's first record. Raises CorruptChange if a
    change does not follow on what is before it, OSError.
    """
    directory.partitions.stage(metadata.topic_id, 0)
    end_offset = 0 if snapshot is None else parse_header(snapshot.batches[0]).base_offset
    base, position = end_offset, 0
    for batch, seq in _metadata_batches(changes, snapshot):
        header = parse_header(batch)
        if header.base_offset != end_offset:
            raise CorruptChange(
                f"change {seq} of the metadata begins at the offset {header.base_offset}, and the changes "
                f"before it end at {end_offset}."
            )
        if position and position + len(batch) > SEGMENT_BYTES:
            base, position = end_offset, 0
        directory.partitions.write(metadata.topic_id, 0, base, position, batch)
        position += len(batch)
        end_offset = header.last_offset + 1
    return end_offset


def _metadata_batches(
    changes: Iterable[StoredChange], snapshot: Snapshot | None
) -> Iterator[tuple[bytes, int]]:
    """Yield the record batches of the metadata, each with the number of its snapshot or change."""
    if snapshot is not None:
        yield from ((batch, snapshot.seq) for batch in snapshot.batches)
    yield from ((change.batch, change.seq) for change in changes)
