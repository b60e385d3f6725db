"""Finds the parts, side files and manifests that nothing needs: what a crash left between an upload and its manifest, or amid a deletion.

An object is an orphan only if the session has itself replaced the manifest of the partition: a process that has not noticed the end of its
session could still replace an older manifest by one that names the object. It is also older than any upload takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gateway.cluster.objects.objects import Entry, ObjectStore
from gateway.cluster.parts.keys import PREFIX, PartitionKey, partition_of
from gateway.cluster.parts.manifest import Manifest


async def find_orphans(
    objects: ObjectStore,
    present: Callable[[], Collection[PartitionKey]],
    counted: Callable[[PartitionKey], Manifest | None],
    created_before_ms: int,
) -> list[Entry]:
    """Return all orphans. The caller passes the session's barrier before it deletes them. Raises StoreFailed, Refused.

    `present` returns the partitions of the metadata, `counted` the manifest of a partition if this session wrote it and it counts.
    """
    old = [entry async for entry in objects.list(PREFIX) if entry.modified_ms < created_before_ms]
    alive = present()
    orphans = []
    for entry in old:
        place = partition_of(entry.key)
        if place is None:
            continue  # Seqgate did not write an object with such a key.
        partition, name = place
        manifest = counted(partition)
        if partition not in alive or (
            name is not None and manifest is not None and name not in manifest.objects
        ):
            orphans.append(entry)
    return orphans
