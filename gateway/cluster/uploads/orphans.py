"""Finds the objects that nothing needs: what a crash left between an upload and its manifest, or amid a deletion.

An object is an orphan only if the session has itself replaced the manifest of the partition: a process that has not noticed the end of its
session could still replace an older manifest by one that names the object. It is also older than any upload takes.

An object of a write-ahead log is an orphan below the boundary of its log. A call that was late may have created the object again after
its deletion.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, NamedTuple, Protocol

from gateway.cluster.objects.objects import Entry, ObjectStore
from gateway.cluster.parts.manifest import PREFIX, Manifest, Manifests, PartitionKey, partition_of
from gateway.cluster.wal.boundary import read_boundary
from gateway.cluster.wal.keys import WAL_PREFIX
from gateway.cluster.wal.persistence import PersistentReads

_LOGGED: Final = re.compile(r"wal/(\d+)/(\d+)/(\d{20})")


class LedPartitions(Protocol):
    """The port to the partitions of the metadata."""

    @property
    def all(self) -> Callable[[], Iterable[PartitionKey]]:
        """Returns all partitions that this gateway leads."""

    @property
    def exists(self) -> Callable[[PartitionKey], bool]:
        """Returns whether the metadata has a partition, as far as the metadata is known here."""

    @property
    def catch_up(self) -> Callable[[], Awaitable[None]]:
        """Reads what the metadata log has and the metadata lacks."""


class Orphans(NamedTuple):
    """What a search has found."""

    entries: list[Entry]
    unsure: dict[PartitionKey, list[str]]
    """The names of old objects, by partitions whose manifest this session has not replaced yet."""


async def search(
    objects: ObjectStore,
    partitions: LedPartitions,
    manifests: Manifests,
    counted: Callable[[PartitionKey], Manifest | None],
    upload: Callable[[Collection[PartitionKey]], None],
    created_before_ms: int,
    *,
    running: tuple[int, int],
) -> list[Entry]:
    """Return all objects that nothing needs. The caller passes the session's barrier before it deletes them.

    Partitions of which a search can't tell orphans are given to `upload`, whose next round replaces their manifests.
    Raises StoreFailed, StorageFailed, CorruptPart, CorruptWalObject, IncompatibleFormat, Refused.
    """
    found = await find_orphans(objects, partitions, counted, created_before_ms)
    led = set(partitions.all())
    for partition, names in found.unsure.items():
        if partition in led and not await manifests.names_all(partition, names):
            upload([partition])
    return found.entries + await find_collected(objects, created_before_ms, running=running)


async def find_orphans(
    objects: ObjectStore,
    partitions: LedPartitions,
    counted: Callable[[PartitionKey], Manifest | None],
    created_before_ms: int,
) -> Orphans:
    """Find all orphans. The caller passes the session's barrier before it deletes them. Raises StoreFailed, StorageFailed, Refused.

    `counted` returns the manifest of a partition if this session wrote it and it counts.
    """
    old = [entry async for entry in objects.list(PREFIX) if entry.modified_ms < created_before_ms]
    # Whoever created an object knew its topic. So the metadata has the topic after this, or it is deleted.
    await partitions.catch_up()
    orphans: list[Entry] = []
    unsure: dict[PartitionKey, list[str]] = {}
    for entry in old:
        place = partition_of(entry.key)
        if place is None:
            continue  # Seqgate did not write an object with such a key.
        partition, name = place
        manifest = counted(partition)
        if not partitions.exists(partition):
            orphans.append(entry)
        elif name is not None and manifest is None:
            unsure.setdefault(partition, []).append(name)
        elif name is not None and manifest is not None and name not in manifest.objects:
            orphans.append(entry)
    return Orphans(orphans, unsure)


async def find_collected(
    objects: ObjectStore, created_before_ms: int, *, running: tuple[int, int]
) -> list[Entry]:
    """Return the old objects below the boundaries of their write-ahead logs. `running` are the node id and number of our own session.

    Waits for the boundaries until the store answers. Raises StoreFailed, CorruptWalObject, IncompatibleFormat, Refused.
    """
    logs: dict[tuple[int, int], list[tuple[int, Entry]]] = {}
    async for entry in objects.list(WAL_PREFIX):
        match = _LOGGED.fullmatch(entry.key)
        if match is not None and entry.modified_ms < created_before_ms:
            logs.setdefault((int(match[1]), int(match[2])), []).append((int(match[3]), entry))
    reads = PersistentReads(objects, "the gateway waits to find what is left of write-ahead logs")
    found: list[Entry] = []
    for (node_id, session), old in logs.items():
        # An ended log with one object has its seal left, which stays for ever. Our own log has none.
        if len(old) > 1 or (node_id, session) == running:
            boundary = await read_boundary(reads, node_id, session)
            found += [entry for seq, entry in old if seq < boundary]
    return found
