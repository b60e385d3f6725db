"""Restores partitions from the bucket: at a start those that the gateway leads, and later those that it adopts.

The order of the reads is what makes this safe: the sessions that led the partitions before are sealed (the caller has seen to that), then the
boundaries of their logs are read, then the manifests, then the rows. Other gateways may collect objects of these logs meanwhile. If that
happens to an object that is needed, a manifest has its rows by then, and everything is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.parts.manifest import Manifest, PartitionKey
from gateway.cluster.parts.part_object import CorruptPart
from gateway.cluster.rebuild.history import Damage, History, RunFiles, at_once
from gateway.cluster.wal.boundary import read_boundary
from gateway.cluster.wal.ended import EndedSession, WalRange
from gateway.cluster.wal.ended_rows import Collected, EndedRows
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.wal_object import CorruptWalObject
from log import CorruptRecord, IncompatibleFormat
from log.rebuilding import StagedPartitions

_WHAT: Final = "the gateway waits to read the records of the cluster"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was read and written."""

    objects: int
    size_bytes: int
    manifests: Mapping[PartitionKey, Manifest]
    """The manifests that were restored."""
    with_rows: Collection[PartitionKey]
    """The partitions of which a write-ahead log has what no manifest has."""
    failures: Mapping[PartitionKey, Damage]
    """The partitions that can't be restored, because bytes are missing or damaged, or a later release wrote them."""


async def restore(
    objects: ObjectStore,
    ended: Sequence[EndedSession],
    staged: StagedPartitions,
    partitions: Collection[PartitionKey],
    run_files: RunFiles = at_once,
) -> Restored:
    """Write the files of all partitions that the bucket has anything of. Waits until the store answers.

    Raises CorruptWalObject for an object of which nobody knows whose rows it has, IncompatibleFormat, Refused, OSError. Nothing is staged
    then.
    """
    try:
        while True:
            try:
                return await _restore(objects, ended, staged, partitions, run_files)
            except Collected:
                await _discard(staged, partitions, run_files)
    except (Exception, asyncio.CancelledError):
        await _discard(staged, partitions, at_once)
        raise


async def _restore(
    objects: ObjectStore,
    ended: Sequence[EndedSession],
    staged: StagedPartitions,
    partitions: Collection[PartitionKey],
    run_files: RunFiles,
) -> Restored:
    """Restore everything once. Raises Collected, and as `restore`."""
    reads = PersistentReads(objects, _WHAT)
    boundaries = await asyncio.gather(*(read_boundary(reads, each.node_id, each.session) for each in ended))
    ranges = [
        WalRange(session.node_id, session.session, session.nonce, boundary, session.end_seq)
        for session, boundary in zip(ended, boundaries, strict=True)
    ]
    history = History(objects, staged, frozenset(partitions), run_files)
    await history.restore_manifests()
    rows = EndedRows(objects, _WHAT)
    async for found in rows.read(ranges, history.wants):
        await history.apply(found)
    await history.finish(rows, ranges)
    failures: dict[PartitionKey, Damage] = {}
    for partition in partitions:
        try:
            history.check(partition)
        except (CorruptPart, CorruptRecord, CorruptWalObject, IncompatibleFormat) as error:
            failures[partition] = error
            await run_files(partial(staged.discard, *partition))
    count = sum(max(0, wal.end_seq - wal.first_seq) for wal in ranges)
    return Restored(count, history.size_bytes, history.restored, history.with_rows, failures)


async def _discard(
    staged: StagedPartitions, partitions: Collection[PartitionKey], run_files: RunFiles
) -> None:
    for partition in partitions:
        await run_files(partial(staged.discard, *partition))
