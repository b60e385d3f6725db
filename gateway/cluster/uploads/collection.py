"""Deletes objects of write-ahead logs that no start needs.

**Covered rows.** A row is covered once a manifest that counts has what the row says: its records, its side
file, or its log start offset; or once the topic is deleted. A manifest of the session itself counts when an
object that was put after the manifest's replacement is confirmed, because the session was in force then. A
manifest of a later leader counts at once: that leader had all rows before it replaced the manifest. An object
may be deleted when all its rows are covered, and all objects before it may be deleted, too (`Coverage`).

**Deletion.** First the boundary of the log moves, then the objects go. The boundary never moves over a row
that is not covered. So a gateway that adopts a partition, and reads the boundary first and the manifest then,
finds each row in one of both. Several gateways may collect the log of an ended session at once; the index of
each object is read once. Seals and registrations stay for ever.

**Orphans** are what a crash left between an upload and its manifest, or amid a deletion. An object of a part
is an orphan only if the session has itself replaced the manifest of the partition: a process that has not
noticed the end of its session could still replace an older manifest by one that names the object. It is also
older than any upload takes. An object of a write-ahead log is an orphan below the boundary of its log: a call
that was late may have created the object again after its deletion. A sweep deletes orphans.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Collection as AbcCollection
from dataclasses import dataclass
from functools import partial
from typing import Final

from seqgate.gateway.cluster.objects.objects import Buffer, Changed, Entry, Missing, ObjectStore, StoreFailed
from seqgate.gateway.cluster.parts.manifest import Manifest, PartitionKey, WalPlace
from seqgate.gateway.cluster.parts.part_object import CorruptPart
from seqgate.gateway.cluster.wal.ended import Collected, EndedRows, EndedSession, RowAt, StoredSessions
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.session_wal import SessionWal
from seqgate.gateway.cluster.wal.sessions import decode_boundary, encode_boundary, read_boundary
from seqgate.gateway.cluster.wal.wal_object import (
    SESSIONS_BOUNDARY_KEY,
    WAL_PREFIX,
    CorruptWalObject,
    DataRow,
    FileRow,
    RowData,
    WalRow,
    boundary_key,
    in_one_piece,
    object_key,
)
from seqgate.gateway.tasks import all_of, end_tasks
from seqgate.log import IncompatibleFormat
from seqgate.log.uploading import LOG_START_OFFSET, log_start_in

logger = logging.getLogger(__name__)

DELETED_AT_ONCE: Final = 16
MOST_IN_FLIGHT: Final = 64
"""The most objects that a session may put after the place of its seal (`seqgate.cluster.puts.in.flight`)."""


class Collection:
    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._reads = PersistentReads(objects, "the gateway waits to delete what the bucket needs no more")

    async def collect(self, node_id: int, session: int, boundary: int) -> int:
        """Move the boundary of the session's log, and delete the objects below it; return how many. Waits
        until the store answers. A boundary that is further stays. Raises CorruptWalObject,
        IncompatibleFormat, Refused.
        """
        before = await self.move_boundary(boundary_key(node_id, session), boundary)
        await self.delete(object_key(node_id, session, seq) for seq in range(before, boundary))
        return max(0, boundary - before)

    async def collect_sealed(self, node_id: int, session: int, end_seq: int) -> int:
        """Delete a sealed log, with late objects, but for the seal; return how many. Raises as `collect`."""
        late = range(end_seq + 1, end_seq + 1 + MOST_IN_FLIGHT)
        await self.delete(object_key(node_id, session, seq) for seq in late)
        return await self.collect(node_id, session, end_seq)

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, several at once. Waits until the store answers. Raises Refused."""
        left = iter(keys)

        async def some() -> None:
            for key in left:
                await self._reads.answered(partial(self._objects.delete, key))

        # A log may have millions of objects, so each task deletes many.
        await all_of([asyncio.create_task(some()) for _ in range(DELETED_AT_ONCE)])

    async def move_boundary(self, key: str, boundary: int) -> int:
        """Raise this boundary by a conditional write; return the one before. Waits, raises as `collect`."""
        first = None
        conflicts = self._reads.conflicts()
        while True:
            try:
                content, version = await self._reads.answered(lambda: self._objects.read(key))
                present = decode_boundary(content, key)
            except Missing:
                present, version = 0, None
            first = present if first is None else first
            if present >= boundary:
                return first
            try:
                await self._objects.replace(key, encode_boundary(boundary), version)
            except Changed:  # by an earlier try of ours, or by a gateway that took over
                await asyncio.sleep(conflicts.next_s())
            except StoreFailed as error:
                await self._reads.failed(error)
            else:
                return first


READ_AT_ONCE: Final = 16
"""Indexes that are read at the same time."""
MANIFESTS_AT_ONCE: Final = 16
_WHAT: Final = "the gateway waits to read which records the logs of ended sessions have"
_DAMAGE: Final = (CorruptWalObject, IncompatibleFormat)


@dataclass(slots=True)
class _EndedLog:
    session: EndedSession
    coverage: Coverage
    """The rows that no manifest covers."""
    known_end: int
    """The seq of the first object whose index was not read: that of the seal, unless an object is damaged."""


class EndedLogs:
    """The logs of ended sessions that still have objects."""

    def __init__(
        self,
        objects: ObjectStore,
        sessions: StoredSessions,
        present: Callable[[PartitionKey], Awaitable[Manifest | None]],
        exists: Callable[[PartitionKey], bool],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`present` reads the manifest that the bucket has now. `exists` returns whether the metadata has a
        partition, as far as `catch_up` has read the metadata.
        """
        self._sessions = sessions
        self._present = present
        self._exists = exists
        self._catch_up = catch_up
        self._reads = PersistentReads(objects, _WHAT)
        self._rows = EndedRows(objects, _WHAT)
        self._deletions = Collection(objects)
        self._logs: dict[int, _EndedLog] = {}
        """The logs whose indexes are known, by the number of their session."""
        self._turn = asyncio.Lock()
        self._done: set[int] = set()
        """The sessions whose logs have no object left but the seal, from the boundary of sessions on."""
        self.when_collected: list[Callable[[int], None]] = []
        """Called with the number of each session whose log has no object left but the seal."""

    async def uncovered(self) -> AbcCollection[PartitionKey]:
        """Return the partitions that no manifest covers so far. Raises as `collect`."""
        async with self._turn:
            await self._read_coverage()
            return {key for log in self._logs.values() for key in log.coverage.partitions()}

    async def collect(self) -> int:
        """Delete what is not needed; return how many objects. Waits until the store answers. Raises
        CorruptWalObject for a boundary, CorruptRegistration, IncompatibleFormat, StorageFailed, Refused.
        """
        async with self._turn:
            return await self._collect()

    async def _collect(self) -> int:
        await self._read_coverage()
        deleted = 0
        for log in list(self._logs.values()):
            node_id, session, _, end_seq, _ = log.session
            needed = log.coverage.first_needed(log.known_end)
            if needed < end_seq:
                deleted += await self._deletions.collect(node_id, session, needed)
            else:
                deleted += await self._deletions.collect_sealed(node_id, session, end_seq)
                self._done.add(session)
                del self._logs[session]
                for collected in self.when_collected:
                    collected(session)
        if self._done:
            # In this order a session that ends between the calls is in both answers; otherwise in none.
            running = await self._sessions.first_running()
            left = [each.session for each in await self._sessions.ended() if each.session not in self._done]
            first = min((*left, running))
            await self._deletions.move_boundary(SESSIONS_BOUNDARY_KEY, first)
            self._done = {session for session in self._done if session >= first}
        return deleted

    async def _read_coverage(self) -> None:
        """Read the indexes of logs that are new, and the manifests of partitions with rows."""
        for session in await self._sessions.ended():
            if session.session not in self._done and session.session not in self._logs:
                self._logs[session.session] = await self._read_log(session)
        # Whoever wrote a row knew its topic. So the metadata has the topic after this, or it is deleted.
        await self._catch_up()
        turns = asyncio.Semaphore(MANIFESTS_AT_ONCE)

        async def judge(partition: PartitionKey, logs: list[_EndedLog]) -> None:
            async with turns:
                if not self._exists(partition):
                    for log in logs:
                        log.coverage.forget([partition])
                elif (manifest := await self._manifest(partition)) is not None:
                    for log in logs:
                        log.coverage.counts(manifest)

        of_partition: dict[PartitionKey, list[_EndedLog]] = {}
        for log in self._logs.values():
            for partition in log.coverage.partitions():
                of_partition.setdefault(partition, []).append(log)
        await all_of([asyncio.create_task(judge(*each)) for each in of_partition.items()])

    async def _manifest(self, partition: PartitionKey) -> Manifest | None:
        try:
            return await self._present(partition)
        except (CorruptPart, IncompatibleFormat) as error:
            logger.warning("a manifest can't be read, so the logs of ended sessions stay: %s", error)
            return None

    async def _read_log(self, session: EndedSession) -> _EndedLog:
        """Read the indexes of all objects. Where one is damaged, the log stays from there on."""
        while True:
            first = await read_boundary(self._reads, session.node_id, session.session)
            wal = session._replace(first_seq=first)
            log = _EndedLog(session, Coverage(session=session.session), session.end_seq)
            try:
                for seq in range(first, session.end_seq, READ_AT_ONCE):
                    await self._read_some(log, wal, range(seq, min(seq + READ_AT_ONCE, session.end_seq)))
            except Collected:
                continue  # by another gateway
            except _DAMAGE as error:
                logger.error(  # noqa: TRY400
                    "the log of session %d can't be collected: %s", session.session, error
                )
            return log

    async def _read_some(self, log: _EndedLog, wal: EndedSession, seqs: range) -> None:
        """Raises Collected, CorruptWalObject, IncompatibleFormat, Refused."""
        reading = [asyncio.create_task(self._rows.index(wal, seq)) for seq in seqs]
        try:
            for seq, index in zip(seqs, reading, strict=True):
                log.known_end = seq
                placed = (await index)[0].rows
                data: list[Buffer] = []
                for each in placed:
                    is_start = isinstance(each.row, FileRow) and each.row.name == LOG_START_OFFSET
                    data.append(await self._rows.data(RowAt(wal, seq, each)) if is_start else b"")
                log.coverage.put(seq, [each.row for each in placed], data)
            log.known_end = seqs.stop
        except (Exception, asyncio.CancelledError):
            await end_tasks(*reading)
            raise


_LOGGED: Final = re.compile(r"wal/(\d+)/(\d+)/(\d{20})")


async def find_collected(
    objects: ObjectStore, created_before_ms: int, *, running: tuple[int, int]
) -> list[Entry]:
    """Return the old objects below the boundaries of their write-ahead logs. `running` are the node id and
    number of our own session. Waits for the boundaries until the store answers. Raises StoreFailed,
    CorruptWalObject, IncompatibleFormat, Refused.
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


_NO_PLACE: Final = (-1, -1, -1)
MOST_ROWS: Final = 1024
"""The most entries of a partition. With more, neighbours are joined, and count as covered only together."""


@dataclass(slots=True)
class _Rows:
    """The rows of one partition in one object, or in several that follow each other."""

    seq: int
    """The first object."""
    put_s: float
    size_bytes: int = 0
    end_offset: int = 0
    files_place: WalPlace = _NO_PLACE
    """The place of the last object with a side file."""
    log_start_offset: int = 0

    def add(self, row: WalRow, data: RowData, session: int) -> None:
        self.size_bytes += row.length
        if isinstance(row, DataRow):
            self.end_offset = row.end_offset
        elif row.name == LOG_START_OFFSET:
            self.log_start_offset = max(self.log_start_offset, log_start_in(bytes(in_one_piece(data))))
        else:
            self.files_place = row.leader_epoch, session, self.seq

    def join(self, later: _Rows) -> None:
        self.size_bytes += later.size_bytes
        self.end_offset = max(self.end_offset, later.end_offset)
        self.files_place = max(self.files_place, later.files_place)
        self.log_start_offset = max(self.log_start_offset, later.log_start_offset)

    def are_in(self, manifest: Manifest) -> bool:
        return (
            self.end_offset <= manifest.end_offset
            and self.files_place < manifest.place
            and self.log_start_offset <= manifest.log_start_offset
        )


class Coverage:
    """The rows of one session that no manifest covers, by partition and in the order of their objects."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic, session: int = 0) -> None:
        """`seconds` is a clock that is never set."""
        self._seconds = seconds
        self.session = session
        self._rows: dict[PartitionKey, deque[_Rows]] = {}
        self._from_before: set[PartitionKey] = set()
        self.size_bytes = 0

    def begin(self, partitions: Iterable[PartitionKey]) -> None:
        """Take partitions that need a manifest of this session, such as those with records in ended logs."""
        self._from_before.update(partitions)

    def put(self, seq: int, rows: Sequence[WalRow], data: Sequence[RowData]) -> None:
        """Note an object that was put. Of the data only that of log start offsets is looked at."""
        for row, content in zip(rows, data, strict=True):
            entries = self._rows.setdefault(PartitionKey(row.topic_id, row.partition), deque())
            if not entries or entries[-1].seq != seq:
                if len(entries) >= MOST_ROWS:
                    _join_pairs(entries)
                entries.append(_Rows(seq, self._seconds()))
            entries[-1].add(row, content, self.session)
            self.size_bytes += row.length

    def wanting(self) -> set[PartitionKey]:
        return self._from_before | self._rows.keys()

    def log_start_of(self, partition: PartitionKey) -> int:
        """Return the newest log start offset of the partition in an object, 0 without one. The log itself may
        have an earlier one: it was loaded again, or the local disk was full, when the object was confirmed.
        """
        return max((rows.log_start_offset for rows in self._rows.get(partition, ())), default=0)

    def has_rows(self, partition: PartitionKey) -> bool:
        """Return whether the log has rows of the partition that no manifest covers."""
        return partition in self._rows

    def partitions(self) -> AbcCollection[PartitionKey]:
        return list(self._rows)

    def counts(self, manifest: Manifest) -> None:
        """Take a manifest that counts now."""
        partition = manifest.key
        self._from_before.discard(partition)
        entries = self._rows.get(partition, deque())
        while entries and entries[0].are_in(manifest):
            self.size_bytes -= entries.popleft().size_bytes
        if not entries:
            self._rows.pop(partition, None)

    def has_nothing(self, partition: PartitionKey) -> None:
        """Note that nobody has written anything of a partition that exists."""
        self._from_before.discard(partition)

    def forget(self, partitions: Iterable[PartitionKey]) -> None:
        """Need nothing of these partitions any more: the deletion of their topics is durable, for example."""
        for partition in partitions:
            self._from_before.discard(partition)
            self.size_bytes -= sum(rows.size_bytes for rows in self._rows.pop(partition, ()))

    @property
    def oldest_s(self) -> float | None:
        """When the oldest object with rows that are not covered was put; None without such rows."""
        return min((entries[0].put_s for entries in self._rows.values()), default=None)

    def first_needed(self, confirmed_end: int) -> int:
        """Return the seq of the first needed object; `confirmed_end` is the first unconfirmed one."""
        return min(confirmed_end, *(entries[0].seq for entries in self._rows.values()), confirmed_end)


def _join_pairs(entries: deque[_Rows]) -> None:
    whole = list(entries)
    entries.clear()
    for number in range(0, len(whole), 2):
        entries.append(whole[number])
        if number + 1 < len(whole):
            entries[-1].join(whole[number + 1])


class RecordingWal:
    """The log of this process's session, as flush rounds use it."""

    def __init__(self, wal: SessionWal, coverage: Coverage) -> None:
        self._wal = wal
        self._coverage = coverage
        coverage.session = wal.session.session
        self.on_fenced: list[Callable[[str], None]] = wal.on_fenced

    def put(self, rows: Sequence[WalRow], data: Sequence[RowData], confirmed: Callable[[], None]) -> None:
        if rows:
            self._coverage.put(self._wal.next_seq, rows, data)
        self._wal.put(rows, data, confirmed)
