"""Reads the rows of some partitions from ended write-ahead logs, in order, several objects at once.

The index of an object is at its end, so the end is read first, of many objects at once. It is all there is of a small object. Of a larger one the bytes from the
first to the last row that is wanted follow, in one call, and none if no row is wanted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from gateway.cluster.objects.objects import Missing, ObjectStore
from gateway.cluster.wal.boundary import read_boundary
from gateway.cluster.wal.ended import WalRange
from gateway.cluster.wal.keys import object_key
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.wal_object import (
    CorruptWalObject,
    Index,
    PlacedRow,
    Row,
    Seal,
    checked_data,
    decode_index,
    index_bytes,
)

READ_AT_ONCE: Final = 8
"""Objects whose rows are read at the same time. The rows that are wanted of as many are in memory at most."""
INDEXES_AT_ONCE: Final = 64
"""Objects whose ends are read at the same time: a log of ten minutes may have thousands, and most are small."""
END_BYTES: Final = 64 << 10
"""The bytes at the end of an object that are read first. A longer index needs a second call."""


class Collected(Exception):
    """Objects of an ended log were deleted since its boundary was read, because manifests had their rows: read the manifests again."""


class RowAt(NamedTuple):
    """A row, and where it is."""

    wal: WalRange
    seq: int
    placed: PlacedRow

    @property
    def row(self) -> Row:
        return self.placed.row

    @property
    def place(self) -> tuple[int, int, int]:
        """The place in the order in which the partition was written."""
        return self.row.leader_epoch, self.wal.session, self.seq


class _Indexed(NamedTuple):
    """An object whose index is being read."""

    wal: WalRange
    seq: int
    read: asyncio.Task[tuple[Index, bytes]]


FoundRow = tuple[RowAt, memoryview | CorruptWalObject]
#: A row with its data, or with what is wrong with the data.


class EndedRows:
    """The rows in the logs of ended sessions. Waits until the store answers."""

    def __init__(self, objects: ObjectStore, what: str) -> None:
        """`what` says for the log lines of an outage what the gateway waits for."""
        self._objects = objects
        self._reads = PersistentReads(objects, what)

    async def read(
        self, ranges: Sequence[WalRange], wants: Callable[[Row], bool]
    ) -> AsyncIterator[list[FoundRow]]:
        """Yield the wanted rows of each object, in the order of the ranges.

        Raises Collected, CorruptWalObject for an object that is missing, damaged or of another session, IncompatibleFormat, Refused.
        """
        places = ((wal, seq) for wal in ranges for seq in range(wal.first_seq, wal.end_seq))
        indexes: deque[_Indexed] = deque()
        ahead: deque[asyncio.Task[list[FoundRow]]] = deque()
        try:
            while True:
                for wal, seq in islice(places, INDEXES_AT_ONCE - len(indexes)):
                    indexes.append(_Indexed(wal, seq, asyncio.create_task(self.index(wal, seq))))
                while indexes and len(ahead) < READ_AT_ONCE:
                    ahead.append(asyncio.create_task(self._wanted(indexes.popleft(), wants)))
                if not ahead:
                    return
                yield await ahead.popleft()
        finally:
            tasks = [*ahead, *(indexed.read for indexed in indexes)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def index(self, wal: WalRange, seq: int) -> tuple[Index, bytes]:
        """Return the index of an object, and the end of the object that was read for it. Raises as `read`."""
        key = object_key(wal.node_id, wal.session, seq)
        try:
            end = await self._reads.get_end(key, END_BYTES)
            if index_bytes(end, key) > len(end):
                end = await self._reads.get_end(key, index_bytes(end, key))
        except Missing as error:
            raise await self._missing(wal, seq, key) from error
        index = decode_index(end, key)
        if isinstance(index, Seal):
            raise CorruptWalObject(f"{key} is a seal, and the log of its session ends at {wal.end_seq}.")
        if index[:4] != (wal.node_id, wal.session, seq, wal.nonce):
            raise CorruptWalObject(
                f"{key} is an object of another place or writer: node {index.node_id}, session {index.session}, seq {index.seq}."
            )
        return index, end

    async def data(self, found: RowAt) -> memoryview:
        """Read the data of one row. Raises as `read`."""
        wal, seq, placed = found
        key = object_key(wal.node_id, wal.session, seq)
        return checked_data(
            placed, memoryview(await self._get(wal, seq, placed.start, placed.row.length)), key
        )

    async def _wanted(self, indexed: _Indexed, wants: Callable[[Row], bool]) -> list[FoundRow]:
        wal, seq = indexed.wal, indexed.seq
        index, end = await indexed.read
        wanted = [placed for placed in index.rows if wants(placed.row)]
        if not wanted:
            return []
        first, stop = wanted[0].start, wanted[-1].start + wanted[-1].row.length
        begin = index.size_bytes - len(end)
        if first >= begin:
            content = memoryview(end)[first - begin : stop - begin]
        else:
            content = memoryview(await self._get(wal, seq, first, stop - first))
        key = object_key(wal.node_id, wal.session, seq)
        rows: list[FoundRow] = []
        for placed in wanted:
            start = placed.start - first
            try:
                data = checked_data(placed, content[start : start + placed.row.length], key)
            except CorruptWalObject as error:
                rows.append((RowAt(wal, seq, placed), error))
            else:
                rows.append((RowAt(wal, seq, placed), data))
        return rows

    async def _get(self, wal: WalRange, seq: int, first: int, size_bytes: int) -> bytes:
        key = object_key(wal.node_id, wal.session, seq)
        if not size_bytes:
            return b""
        try:
            return await self._reads.answered(lambda: self._objects.get(key, first, size_bytes))
        except Missing as error:
            raise await self._missing(wal, seq, key) from error

    async def _missing(self, wal: WalRange, seq: int, key: str) -> Exception:
        """Return the error of a missing object."""
        if seq < await read_boundary(self._reads, wal.node_id, wal.session):
            return Collected(key)
        return CorruptWalObject(
            f"{key} is missing, and the log of its session ends at {wal.end_seq}. Records are lost unless a backup of the bucket has the object."
        )
