"""Collects the write-ahead logs of ended sessions: deletes the objects whose rows manifests have.

The index of each object is read once. A row is covered once the manifest of its partition has the row, whoever wrote the manifest, or once
the topic is deleted. The boundary of a log moves before objects are deleted, and never over a row that is not covered. So a gateway
that adopts a partition, and reads the boundary first and the manifest then, finds each row in one of both. Several gateways may
collect the same log at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from gateway.cluster.objects.objects import Buffer, ObjectStore
from gateway.cluster.parts.manifest import Manifest, PartitionKey
from gateway.cluster.parts.part_object import CorruptPart
from gateway.cluster.uploads.collection import Collection as Deletions
from gateway.cluster.uploads.coverage import Coverage
from gateway.cluster.wal.boundary import read_boundary
from gateway.cluster.wal.ended import EndedSession, EndedSessions, WalRange
from gateway.cluster.wal.ended_rows import Collected, EndedRows, RowAt
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.wal_object import CorruptWalObject, FileRow
from log import IncompatibleFormat
from log.uploading import LOG_START_OFFSET

logger = logging.getLogger(__name__)

READ_AT_ONCE: Final = 16
"""Indexes that are read at the same time."""
MANIFESTS_AT_ONCE: Final = 16
_WHAT: Final = "the gateway waits to read which records the logs of ended sessions have"
_DAMAGE: Final = (CorruptWalObject, IncompatibleFormat)


@dataclass(slots=True)
class _EndedLog:
    """The log of one ended session."""

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
        sessions: EndedSessions,
        present: Callable[[PartitionKey], Awaitable[Manifest | None]],
        exists: Callable[[PartitionKey], bool],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`present` reads the manifest that the bucket has now. `exists` returns whether the metadata has a partition, as far as
        `catch_up` has read the metadata.
        """
        self._sessions = sessions
        self._present = present
        self._exists = exists
        self._catch_up = catch_up
        self._reads = PersistentReads(objects, _WHAT)
        self._rows = EndedRows(objects, _WHAT)
        self._deletions = Deletions(objects)
        self._logs: dict[int, _EndedLog] = {}
        """The logs whose indexes are known, by the number of their session."""
        self._turn = asyncio.Lock()
        self._done: set[int] = set()
        """The sessions whose logs have no object left but the seal, from the boundary of sessions on."""
        self.when_collected: list[Callable[[int], None]] = []
        """Called with the number of each session whose log has no object left but the seal."""

    async def uncovered(self) -> Collection[PartitionKey]:
        """Return the partitions that no manifest covers so far. Raises as `collect`."""
        async with self._turn:
            await self._look()
            return {key for log in self._logs.values() for key in log.coverage.partitions()}

    async def collect(self) -> int:
        """Delete what is not needed; return how many objects. Waits until the store answers.

        Raises CorruptWalObject for a boundary, CorruptRegistration, IncompatibleFormat, StorageFailed, Refused.
        """
        async with self._turn:
            return await self._collect()

    async def _collect(self) -> int:
        await self._look()
        deleted = 0
        for log in list(self._logs.values()):
            node_id, session, _, end_seq = log.session
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
            # In this order: a session that ends between the two calls is in both answers, and with the other order in none.
            running = await self._sessions.first_running()
            left = [each.session for each in await self._sessions.ended() if each.session not in self._done]
            first = min((*left, running))
            await self._deletions.end_sessions(first)
            self._done = {session for session in self._done if session >= first}
        return deleted

    async def _look(self) -> None:
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
        judging = [asyncio.create_task(judge(*each)) for each in of_partition.items()]
        try:
            await asyncio.gather(*judging)
        finally:
            for task in judging:
                task.cancel()

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
            wal = WalRange(session.node_id, session.session, session.nonce, first, session.end_seq)
            log = _EndedLog(session, Coverage(session=session.session), session.end_seq)
            try:
                for seq in range(first, session.end_seq, READ_AT_ONCE):
                    await self._read_some(log, wal, range(seq, min(seq + READ_AT_ONCE, session.end_seq)))
            except Collected:
                continue  # by another gateway
            except _DAMAGE as error:
                logger.error("the log of session %d can't be collected: %s", session.session, error)  # noqa: TRY400
            return log

    async def _read_some(self, log: _EndedLog, wal: WalRange, seqs: range) -> None:
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
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
            raise
