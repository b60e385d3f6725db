"""Reads the shared metadata from the bucket: the newest snapshot that is sound, and the objects of `meta/` behind it.

Without a snapshot the log is read from its beginning. A snapshot that is damaged, or that a later release has written, is passed over.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.cluster.metadata.change import CorruptChange, decode_change
from gateway.cluster.metadata.snapshot import CorruptSnapshot, decode_snapshot
from gateway.cluster.objects.objects import Missing, ObjectStore
from gateway.cluster.wal.boundary import read_shortened
from gateway.cluster.wal.keys import SNAPSHOT_PREFIX, registration_key, snapshot_key
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.sessions import LogShortened, SharedLogContent, Snapshot, read_on
from log import IncompatibleFormat

logger = logging.getLogger(__name__)

_WHAT: Final = "the gateway waits to read the metadata"
_KEY: Final = re.compile(re.escape(SNAPSHOT_PREFIX) + r"([0-9]{20})")


async def read_metadata(objects: ObjectStore, *, chance: random.Random | None = None) -> SharedLogContent:
    """Return the newest snapshot and all objects behind it. Waits until the store answers.

    Raises CorruptRegistration for an object that somebody deleted, LogShortened where no snapshot stands for what was deleted,
    IncompatibleFormat, CorruptWalObject, Refused.
    """
    reads = PersistentReads(objects, _WHAT, chance)
    tried: int | None = None
    while True:
        content = SharedLogContent.behind(await newest_snapshot(reads))
        begin = content.end_seq
        try:
            await read_on(reads, content)
        except LogShortened:
            # Meanwhile a newer snapshot was written, and what is before it is deleted; or there is none that can be read.
            if begin == tried:
                raise
            tried = begin
        else:
            return content


async def read_all_metadata(objects: ObjectStore) -> SharedLogContent:
    """Return all that a start could read, if newer snapshots were damaged: the oldest snapshot that is needed, and the objects behind it.

    Raises CorruptSnapshot, and as `read_metadata`.
    """
    reads = PersistentReads(objects, _WHAT)
    while True:
        boundary = await read_shortened(reads)
        oldest = None
        if boundary:
            oldest = await read_snapshot(reads, boundary)
            if oldest is None and await read_shortened(reads) == boundary:
                raise CorruptSnapshot(
                    f"{snapshot_key(boundary)} is missing, and the objects before it are deleted."
                )
        if oldest is not None or not boundary:
            content = SharedLogContent.behind(oldest)
            try:
                await read_on(reads, content)
            except LogShortened:
                continue
            return content


async def newest_snapshot(reads: PersistentReads) -> Snapshot | None:
    """Return the newest sound snapshot, or None. Raises Refused."""
    for seq in reversed(await snapshot_seqs(reads)):
        try:
            found = await read_snapshot(reads, seq)
        except (CorruptSnapshot, IncompatibleFormat) as error:
            logger.warning("a snapshot of the metadata can't be read, and the one before is used: %s", error)
            continue
        if found is not None:
            return found
    return None


async def snapshot_seqs(reads: PersistentReads) -> Sequence[int]:
    """Return the numbers of all snapshots, ascending. Raises Refused."""

    async def listed() -> list[int]:
        keys = [entry.key async for entry in reads.objects.list(SNAPSHOT_PREFIX)]
        return sorted(int(match[1]) for key in keys if (match := _KEY.fullmatch(key)))

    return await reads.answered(listed)


async def read_snapshot(reads: PersistentReads, seq: int) -> Snapshot | None:
    """Return one snapshot; None if it is missing. Raises CorruptSnapshot, IncompatibleFormat, Refused."""
    try:
        return decode_snapshot(await reads.get(snapshot_key(seq)), seq)
    except Missing:
        return None


def metadata_batches(content: SharedLogContent) -> Iterator[bytes]:
    """Yield the record batches of the metadata log, in order. Raises CorruptChange also for a change that does not follow, IncompatibleFormat."""
    yield from () if content.base is None else content.base.batches
    end_offset = 0 if content.base is None else content.base.next_offset
    for seq, stored in content.changes:
        change = decode_change(stored, seq)
        if change.base_offset != end_offset:
            raise CorruptChange(
                f"{registration_key(seq)} does not follow on the changes before it, which end at the offset {end_offset}."
            )
        end_offset = change.end_offset
        yield change.batch


def end_offset_of(content: SharedLogContent) -> int:
    """Return the offset behind the last record. Raises CorruptChange, IncompatibleFormat."""
    if content.changes:
        seq, stored = content.changes[-1]
        return decode_change(stored, seq).end_offset
    return 0 if content.base is None else content.base.next_offset
