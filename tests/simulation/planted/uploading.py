"""Mistakes about the history of partitions in a bucket: parts, manifests, and the deletion of what they
cover.
"""

from __future__ import annotations

from typing import Any

from seqgate.gateway.backends import bucket_start
from seqgate.gateway.cluster.objects.objects import Missing, ObjectStore
from seqgate.gateway.cluster.parts.manifest import PREFIX, PartitionKey
from seqgate.gateway.cluster.rebuild import history
from seqgate.gateway.cluster.uploads.collection import Collection, Coverage
from seqgate.gateway.cluster.uploads.partition_uploads import PartitionUploads, Uploaded
from seqgate.gateway.cluster.wal import ended
from seqgate.gateway.cluster.wal.wal_object import WalRow, object_key
from seqgate.log import PartitionLog
from tests.simulation.planted.fault import Change, bucket_fault


@bucket_fault
def manifests_read_before_the_seal() -> list[Change]:
    """a gateway that takes over reads the manifests, and seals the log then"""
    end_earlier, get = bucket_start.end_earlier, history.PersistentReads.get
    before: dict[ObjectStore, dict[str, bytes]] = {}

    async def reading_first(objects: ObjectStore, *arguments: Any, **options: Any) -> Any:
        reads = history.PersistentReads(objects, "the gateway waits")
        keys = await reads.answered(lambda: _manifest_keys(objects))
        before[objects] = {key: await get(reads, key) for key in keys}
        return await end_earlier(objects, *arguments, **options)

    async def get_known(self: history.PersistentReads, key: str) -> bytes:
        if key.endswith("/manifest"):
            if key not in before[self.objects]:
                raise Missing(key)
            return before[self.objects][key]
        return await get(self, key)

    return [(bucket_start, "end_earlier", reading_first), (history.PersistentReads, "get", get_known)]


async def _manifest_keys(objects: ObjectStore) -> list[str]:
    return [entry.key async for entry in objects.list(PREFIX) if entry.key.endswith("/manifest")]


@bucket_fault
def seals_collected() -> list[Change]:
    """the seal of an earlier session is deleted with the log that it ends"""
    collect = Collection.collect

    async def with_the_seal(self: Collection, node_id: int, session: int, boundary: int) -> int:
        count = await collect(self, node_id, session, boundary)
        await self.delete([object_key(node_id, session, boundary)])
        return count

    return [(Collection, "collect", with_the_seal)]


@bucket_fault
def deleted_before_the_boundary() -> list[Change]:
    """objects of a write-ahead log are deleted, and the boundary stays"""

    async def stay(*_: object) -> int:
        return 0

    return [(Collection, "move_boundary", stay)]


@bucket_fault
def missing_object_taken_for_damage() -> list[Change]:
    """a start that misses an object does not look whether the boundary has passed it since"""

    async def read_boundary(*_: object) -> int:
        return 0

    return [(history, "read_boundary", read_boundary), (ended, "read_boundary", read_boundary)]


@bucket_fault
def covered_by_one_partition() -> list[Change]:
    """objects are deleted up to the first that the partition furthest ahead still needs, not the one furthest
    behind
    """

    def first_needed(self: Coverage, confirmed_end: int) -> int:
        return max((entries[0].seq for entries in self._rows.values()), default=confirmed_end)

    return [(Coverage, "first_needed", first_needed)]


@bucket_fault
def rows_replayed_over_parts() -> list[Change]:
    """a start writes rows of the write-ahead log over the segments of a manifest, although a compaction has
    moved their records
    """

    def wants(self: history.History, row: WalRow) -> bool:
        return PartitionKey(row.topic_id, row.partition) in self._manifests

    return [(history.History, "wants", wants)]


@bucket_fault
def named_parts_deleted() -> list[Change]:
    """a round deletes all parts of the manifest that it replaces, not only those that the new one does not
    name
    """
    upload = PartitionUploads.upload

    async def careless(self: PartitionUploads, log: PartitionLog) -> Uploaded:
        replaced = self._ports.manifests.of(PartitionKey(log.topic_id, log.partition))
        uploaded = await upload(self, log)
        return uploaded if replaced is None else uploaded._replace(garbage=replaced.objects)

    return [(PartitionUploads, "upload", careless)]
