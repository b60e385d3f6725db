"""Rebuilds a data directory from the manifests of partitions and the write-ahead logs of all sessions, so that the start after it finds
the files of a crash.

A data row names the segment file and the position of its bytes, so the segment files become those of the gateway that wrote them,
byte by byte. Only after a late manifest they differ (see `segment_ends`). What derives from the records (indexes, producers, transactions, leader epochs) is recovered from them as after
any crash. A side file is written where its row comes; a later row of the same file replaces it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.parts.keys import PartitionKey
from gateway.cluster.parts.manifest import Manifest
from gateway.cluster.rebuild.restoring import Restored, restore
from gateway.cluster.wal.ended import EndedSession, WalRange
from log.rebuilding import RebuiltDirectory


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
) -> Rebuilt:
    """Write all files, and name the partitions of topics that exist. The caller finishes the directory.

    Raises CorruptWalObject, CorruptPart, CorruptRecord for bytes that are missing, IncompatibleFormat, Refused, OSError, and what
    `read_topics` raises.
    """
    ended = [EndedSession(wal.node_id, wal.session, wal.nonce, wal.end_seq) for wal in ranges]
    stored = await restore(objects, ended, directory.partitions, [PartitionKey(metadata.topic_id, 0)])
    _raise_first(stored)
    topics: Mapping[uuid.UUID, StoredTopic] = {}
    if (metadata.topic_id, 0) in directory.staged:
        topics = read_topics(directory.place(metadata.topic_id, 0, metadata.topic))
    existing = [
        PartitionKey(topic_id, partition)
        for topic_id, topic in topics.items()
        for partition in range(topic.partitions)
    ]
    restored = await restore(objects, ended, directory.partitions, existing)
    _raise_first(restored)
    placed = 0
    for topic_id, index in directory.staged:
        directory.place(topic_id, index, topics[topic_id].name)
        placed += 1
    manifests = {**stored.manifests, **restored.manifests}
    return Rebuilt(restored.objects, stored.size_bytes + restored.size_bytes, placed, manifests)


def _raise_first(restored: Restored) -> None:
    """Raise what is wrong with a partition, if anything is."""
    for error in restored.failures.values():
        raise error
