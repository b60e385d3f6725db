"""The shared metadata log in the bucket: how it is extended, copied from a data directory, and read.

`SharedLog` is the end of the log, as this process knows it, and extends the log. A change is created as the
next object of `meta/`, if that place is empty. So changes of several gateways have one order, and each was
decided on all changes before it: its gateway had read these, otherwise the place were taken. A creation that
failed is settled by reading the place, and tried again with the same bytes, so a change is there once, or
never.

Old objects are deleted once snapshots have them, so a place may be empty again. A boundary moves above such
places first, and whoever creates an object reads the boundary afterwards: below it, the object is void.

`copy_log` copies a metadata log into a bucket without one: at an import, or a first start on an older bucket.
The copy consists of pieces, and all but the last say that more follow. So a copy that ended early is known,
and goes on where it ended.

`read_metadata` reads the newest sound snapshot, and the objects of `meta/` behind it. Without a snapshot the
log is read from its beginning. A snapshot that is damaged, or that a later release has written, is passed
over.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from seqgate.gateway.cluster.metadata.change import (
    CHANGE,
    PIECE,
    CorruptChange,
    StoredChange,
    decode_change,
    encode_change,
    placed_batch,
)
from seqgate.gateway.cluster.metadata.snapshot import CorruptMetadataSnapshot, decode_snapshot
from seqgate.gateway.cluster.objects.objects import Missing, ObjectStore
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import (
    CHANGE_MAGIC,
    SHARED_METADATA_SINCE,
    LogShortened,
    RegisteredSession,
    Session,
    SharedLogContent,
    Snapshot,
    check_not_shortened,
    create_or_read,
    decode_registration,
    read_on,
    read_shortened,
)
from seqgate.gateway.cluster.wal.wal_object import SNAPSHOT_PREFIX, registration_key, snapshot_key
from seqgate.log import CorruptRecord, IncompatibleFormat
from seqgate.log.format.record_batch import BatchHeader
from seqgate.log.format.records import Record, build_batch, iterate_records

logger = logging.getLogger(__name__)


MOST_READS: Final = 64
"""Objects that are requested at the same time. The number doubles up to this while no object is missing."""

NEVER_DELETED_S: Final = 3_600.0

Entry = StoredChange | RegisteredSession


def decode_entry(content: bytes, seq: int) -> Entry:
    """Return object `seq` of `meta/`. Raises CorruptChange, CorruptRegistration, IncompatibleFormat."""
    if content.startswith(CHANGE_MAGIC):
        return decode_change(content, seq)
    return decode_registration(content, seq)


class SharedLog:
    """The log from `next_seq` and `next_offset` on: what is before was read and folded in."""

    def __init__(
        self,
        objects: ObjectStore,
        session: Session,
        *,
        next_seq: int,
        next_offset: int,
        sessions: Iterable[RegisteredSession] = (),
        seconds: Callable[[], float] | None = None,
        kept_s: float = NEVER_DELETED_S,
        chance: random.Random | None = None,
    ) -> None:
        """Take the sessions that were registered before `next_seq`. `seconds` is a clock that is never set,
        and that goes on while the process or the machine stands still; by default the event loop's. An object
        stays at least `kept_s` after it was created, by any clock that is not much too fast.
        """
        self._objects = objects
        self.seconds = seconds or asyncio.get_running_loop().time
        self.kept_s = kept_s
        self._looked_s = -math.inf
        """When the last look began that found the end of the log. No object that is created later was deleted
        less than `kept_s` after it.
        """
        self._reads = PersistentReads(objects, "changes of the metadata wait for the store", chance)
        self._session = session
        self.next_seq = next_seq
        """The number of the first object that was not taken."""
        self.next_offset = next_offset
        """The offset of the next record of the metadata."""
        self.sessions = list(sessions)
        """The sessions that were registered before `next_seq`, but for those that nobody needs."""

    async def has_more(self) -> bool:
        """Return whether an object was not taken, or may have been there. Raises StoreFailed, Refused."""
        began_s = self.seconds()
        try:
            await self._objects.get_end(registration_key(self.next_seq), 1)
        except Missing:
            if self._may_be_deleted(began_s):
                return True  # `read` finds out
            self._looked_s = began_s
            return False
        return True

    async def read(self, at_once: int = 1) -> Sequence[Entry]:
        """Return the next objects in order, at most so many; none at the end of the log. Waits until the
        store answers. Raises CorruptChange, CorruptRegistration, CorruptWalObject, LogShortened,
        IncompatibleFormat, Refused.
        """
        began_s = self.seconds()
        seqs = range(self.next_seq, self.next_seq + min(at_once, MOST_READS))
        entries: list[Entry] = []
        contents = await asyncio.gather(*(self._reads.find(registration_key(seq)) for seq in seqs))
        for seq, content in zip(seqs, contents, strict=True):
            if content is None:
                break
            entries.append(decode_entry(content, seq))
        # An object in an emptied place was created by a gateway that stood still, and belongs to no log.
        if entries or self._may_be_deleted(began_s):
            await check_not_shortened(self._reads, self.next_seq)
        if not entries:
            self._looked_s = began_s
        return entries

    async def create(self, batch: bytes, kind: int = CHANGE) -> StoredChange | None:
        """Make a record batch the next change; return None if the place is taken. Waits until the store
        answers. The caller then passes the change, or what `read` returns, to `take`. Raises LogShortened,
        CorruptWalObject, IncompatibleFormat, Refused.
        """
        seq, offset, session = self.next_seq, self.next_offset, self._session
        change = StoredChange(
            kind, session.node_id, session.session, seq, session.nonce, offset, placed_batch(batch, offset)
        )
        content = encode_change(change)
        present = await create_or_read(self._reads, registration_key(seq), content, is_read_back=False)
        if present != content:
            return None
        # The place may have been empty because another change was there before, and was deleted.
        await check_not_shortened(self._reads, seq)
        return change

    def take(self, entry: Entry) -> None:
        """Move the end behind the next object. Raises CorruptChange if it does not follow."""
        if isinstance(entry, StoredChange):
            if (entry.seq, entry.base_offset) != (self.next_seq, self.next_offset):
                raise CorruptChange(
                    f"{registration_key(entry.seq)} begins at the offset {entry.base_offset}, and the "
                    f"changes before it end at {self.next_offset}."
                )
            self.next_offset = entry.end_offset
        else:
            self.sessions.append(entry)
        self.next_seq += 1

    def drop(self, sessions: Collection[int]) -> None:
        """Forget sessions that have ended, and whose write-ahead logs have no objects any more."""
        self.sessions = [each for each in self.sessions if each.session not in sessions]

    def _may_be_deleted(self, began_s: float) -> bool:
        """Return whether the next object may have been created and deleted since the last look at the end."""
        return began_s - self._looked_s > self.kept_s / 2


PIECE_BYTES: Final = 4 * 1024 * 1024
"""The size from which a piece takes no more batches."""

Batches = Iterable[tuple[BatchHeader, memoryview]]


def is_copied(content: SharedLogContent) -> bool:
    """Return whether `meta/` has the whole metadata: no older release has used the bucket, or its metadata
    was copied. Raises CorruptChange, IncompatibleFormat.
    """
    if content.changes:
        seq, last = content.changes[-1]
        return decode_change(last, seq).kind != PIECE
    if content.base is not None:
        return True
    return all(known.cluster_version >= SHARED_METADATA_SINCE for known in content.sessions)


async def copy_log(shared: SharedLog, batches: Batches, start_offset: int = 0) -> None:
    """Write the batches of a metadata log, which begins at `start_offset`, into the shared log, which begins
    at 0, but for those that it has. Waits until the store answers. Raises CorruptChange if the shared log is
    no beginning of this log, CorruptRecord, CorruptRegistration, IncompatibleFormat, Refused.
    """
    left = deque(batches)
    end_offset = left[-1][0].last_offset + 1 - start_offset if left else 0
    while shared.next_offset < end_offset:
        batch, piece_end = _piece(left, start_offset + shared.next_offset)
        is_last = piece_end == start_offset + end_offset
        made = await shared.create(batch, CHANGE if is_last else PIECE)
        for entry in await shared.read() if made is None else [made]:
            shared.take(entry)
    if shared.next_offset != end_offset:
        raise CorruptChange(
            f"the metadata in the bucket ends at {shared.next_offset}, and the log that was copied at "
            f"{end_offset}."
        )


def _piece(left: deque[tuple[BatchHeader, memoryview]], first_offset: int) -> tuple[bytes, int]:
    """Return a batch from `first_offset` on, and the next offset; drop those before. Raises CorruptRecord."""
    while left[0][0].last_offset < first_offset:
        left.popleft()
    records: list[Record] = []
    end_offset, size = first_offset, 0
    for header, batch in left:
        if header.base_offset != end_offset:
            raise CorruptRecord(f"the metadata log has no batch that begins at the offset {end_offset}")
        records += iterate_records(batch)
        end_offset = header.last_offset + 1
        size += header.size_bytes
        if size >= PIECE_BYTES:
            break
    if len(records) != end_offset - first_offset:
        raise CorruptRecord(
            f"the metadata log lacks records between the offsets {first_offset} and {end_offset}"
        )
    return build_batch(records), end_offset


_WHAT: Final = "the gateway waits to read the metadata"
_KEY: Final = re.compile(re.escape(SNAPSHOT_PREFIX) + r"([0-9]{20})")


async def read_metadata(objects: ObjectStore, *, chance: random.Random | None = None) -> SharedLogContent:
    """Return the newest snapshot and all objects behind it. Waits until the store answers. Raises
    CorruptRegistration for an object that somebody deleted, LogShortened where no snapshot stands for what
    was deleted, IncompatibleFormat, CorruptWalObject, Refused.
    """
    reads = PersistentReads(objects, _WHAT, chance)
    tried: int | None = None
    while True:
        content = SharedLogContent.behind(await newest_snapshot(reads))
        begin = content.end_seq
        try:
            await read_on(reads, content)
        except LogShortened:
            # Meanwhile a newer snapshot was written, and what is before it is deleted; or none can be read.
            if begin == tried:
                raise
            tried = begin
        else:
            return content


async def read_all_metadata(objects: ObjectStore) -> SharedLogContent:
    """Return all that a start could read, if newer snapshots were damaged: the oldest snapshot that is
    needed, and the objects behind it. Raises CorruptSnapshot, and as `read_metadata`.
    """
    reads = PersistentReads(objects, _WHAT)
    while True:
        boundary = await read_shortened(reads)
        oldest = None
        if boundary:
            oldest = await read_snapshot(reads, boundary)
            if oldest is None and await read_shortened(reads) == boundary:
                raise CorruptMetadataSnapshot(
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
        except (CorruptMetadataSnapshot, IncompatibleFormat) as error:
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
    content = await reads.find(snapshot_key(seq))
    return None if content is None else decode_snapshot(content, seq)


def metadata_batches(content: SharedLogContent) -> Iterator[bytes]:
    """Yield the record batches of the metadata log, in order. Raises CorruptChange also for a change that
    does not follow, IncompatibleFormat.
    """
    yield from () if content.base is None else content.base.batches
    end_offset = 0 if content.base is None else content.base.next_offset
    for seq, stored in content.changes:
        change = decode_change(stored, seq)
        if change.base_offset != end_offset:
            raise CorruptChange(
                f"{registration_key(seq)} does not follow on the changes before it, which end at the offset "
                f"{end_offset}."
            )
        end_offset = change.end_offset
        yield change.batch


def end_offset_of(content: SharedLogContent) -> int:
    """Return the offset behind the last record. Raises CorruptChange, IncompatibleFormat."""
    if content.changes:
        seq, stored = content.changes[-1]
        return decode_change(stored, seq).end_offset
    return 0 if content.base is None else content.base.next_offset
