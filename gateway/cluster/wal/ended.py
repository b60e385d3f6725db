"""Sessions that have ended: which they are, how another gateway seals their write-ahead logs, and their rows.

`StoredSessions` knows the ended sessions whose logs may still have objects that somebody needs.

`seal` ends the write-ahead log of a session; another gateway calls it, the taker. The taker reads the
boundary, finds the first missing object from there on, and creates the seal in its place, only if the place
is still empty. Then no create of that object by the session can succeed any more, however long the session's
process was stopped and wherever its call waits. An object is acknowledged only when all before it are in the
store, so the session acknowledges nothing from the seal on; the taker saw the rest.

Then the taker reads the boundary again. If the boundary is above the seal, the session used that place and
its object was deleted since; the seal ends nothing, and the taker begins anew. The first sealed place counts,
whoever sealed it, so several takers, and one that begins again after a crash, come to the same end.

`EndedRows` reads the rows of some partitions from ended write-ahead logs, in order, several objects at once.
The index of an object is at its end, so the end is read first, of many objects at once. It is all there is of
a small object. Of a larger one the bytes from the first to the last row that is wanted follow, in one call,
and none if no row is wanted.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from seqgate.gateway.cluster.objects.objects import AlreadyThere, Missing, ObjectStore, StoreFailed
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import (
    RegisteredSession,
    Session,
    read_boundary,
    read_sessions_boundary,
)
from seqgate.gateway.cluster.wal.wal_object import END_BYTES as OBJECT_END_BYTES
from seqgate.gateway.cluster.wal.wal_object import (
    NONCE_BYTES,
    CorruptWalObject,
    Index,
    PlacedRow,
    Seal,
    WalObjectIdentity,
    WalRow,
    checked_data,
    decode_index,
    encode_seal,
    identify,
    index_bytes,
    object_key,
)
from seqgate.gateway.tasks import all_of, end_tasks

logger = logging.getLogger(__name__)


ABANDONED_AFTER_MS: Final = 3_600_000
"""The age from which a session that never became a broker is sealed and passed over: its start failed."""


class EndedSession(NamedTuple):
    """A session that has ended: its log is sealed."""

    node_id: int
    session: int
    nonce: bytes
    """The nonce of the session's registration, which each of its objects has."""
    end_seq: int
    """The place of the seal (exclusive)."""
    first_seq: int = 0
    """The boundary, once it is read: objects below it are not read."""


class SessionState(enum.Enum):
    RUNNING = enum.auto()
    """The session is that of a live broker, or may be that of a gateway that starts."""
    ENDED = enum.auto()
    """Its broker is fenced, unregistered or has a later session. So its log is sealed."""
    NO_BROKER = enum.auto()


class StoredSessions:
    """The ended sessions as the registrations in the bucket and the metadata tell them."""

    def __init__(
        self,
        objects: ObjectStore,
        own: Session,
        registered: Callable[[], Awaitable[Sequence[RegisteredSession]]],
        state: Callable[[RegisteredSession], SessionState],
        collects: Callable[[], bool],
        now_ms: Callable[[], int],
        passed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`registered` returns all sessions, ascending. `state` says what the metadata knows of one.
        `collects` says whether this gateway collects the logs of ended sessions: one does, and two at once do
        no harm. `passed` is called with the boundary of sessions: nobody asks for those below it any more.
        """
        self._objects = objects
        self._reads = PersistentReads(objects, "the gateway waits to learn which sessions are over")
        self._own = own
        self._registered = registered
        self._state = state
        self.collects = collects
        self._now_ms = now_ms
        self._passed = passed
        self._ends: dict[int, EndedSession] = {}
        """The ended sessions whose seal is known, by number, from the boundary of sessions on."""

    async def ended(self) -> Sequence[EndedSession]:
        """Return all sessions that have ended, ascending, from the boundary of sessions on; seal those that
        were abandoned. Waits until the store answers. Raises CorruptWalObject, CorruptRegistration,
        IncompatibleFormat, Refused.
        """
        return (await self._read_sessions())[0]

    async def first_running(self) -> int:
        """Return the number below which all sessions have ended. Raises as `ended`."""
        return (await self._read_sessions())[1]

    async def _read_sessions(self) -> tuple[list[EndedSession], int]:
        done = await read_sessions_boundary(self._reads)
        self._passed(done)
        known = [session for session in await self._registered() if session.session >= done]
        ended = [await self._end_of(session) for session in known if self._has_ended(session)]
        self._ends = {session.session: session for session in ended}
        running = [session.session for session in known if session.session not in self._ends]
        return ended, min((*running, self._own.session))

    def _has_ended(self, session: RegisteredSession) -> bool:
        if session.session == self._own.session:
            return False
        if session.session in self._ends:
            return True
        state = self._state(session)
        is_old = self._now_ms() - session.registered_ms >= ABANDONED_AFTER_MS
        return state is SessionState.ENDED or (state is SessionState.NO_BROKER and is_old)

    async def _end_of(self, session: RegisteredSession) -> EndedSession:
        known = self._ends.get(session.session)
        if known is None:
            number, node_id, nonce, *_ = session
            log = await seal(
                self._objects, node_id, number, self._own.node_id, "the session was abandoned", nonce=nonce
            )
            known = EndedSession(node_id, number, nonce, log.end_seq)
        return known


FIRST_READS: Final = 4
"""Objects requested together at first, as most logs are short; the number doubles while none is missing."""
MOST_READS: Final = 64
SEALED_AT_ONCE: Final = 8


class SealedWal(NamedTuple):
    first_seq: int
    """The boundary before the log was sealed: objects below it need not be there."""
    end_seq: int
    """The place of the seal. All objects from `first_seq` to here belong to the log, and no others."""
    seal: Seal


async def seal(
    objects: ObjectStore,
    node_id: int,
    session: int,
    by: int,
    reason: str,
    *,
    nonce: bytes | None = None,
    chance: random.Random | None = None,
) -> SealedWal:
    """Seal the log of the session, or find the seal that it has. Waits until the store answers. `nonce` is
    the session's, if known. Raises CorruptWalObject for an object that is not what its key says, or that
    another program wrote, IncompatibleFormat, Refused.
    """
    reads = PersistentReads(objects, f"the gateway waits to seal session {session} of node {node_id}", chance)
    taker = _Taker(reads, node_id, session, by, reason, nonce)
    while True:
        first_seq = await read_boundary(reads, node_id, session)
        found = await taker.sealed_from(first_seq)
        boundary = await read_boundary(reads, node_id, session)
        if boundary <= found.seq:
            return SealedWal(first_seq, found.seq, found)
        logger.info(
            "The seal at %d of session %d came too late; the boundary is %d", found.seq, session, boundary
        )


async def seal_all(
    objects: ObjectStore,
    own: Session,
    earlier: Sequence[RegisteredSession],
    reason: str,
    *,
    chance: random.Random | None = None,
) -> list[tuple[RegisteredSession, SealedWal]]:
    """Seal sessions, several at once; return them with their sealed logs, in order.

    Call this after the own session is registered, and read data after this. Of two gateways that register at
    the same time, the one with the higher number then seals the other. If the sessions were sealed before the
    registration, both would run. Sessions below the boundary of sessions are left out: they are sealed, and
    their logs are empty. Waits and raises as `seal`.
    """
    if not earlier:
        return []
    turns = asyncio.Semaphore(SEALED_AT_ONCE)

    async def sealed(session: RegisteredSession) -> SealedWal:
        async with turns:
            node_id, number, nonce = session.node_id, session.session, session.nonce
            return await seal(objects, node_id, number, own.node_id, reason, nonce=nonce, chance=chance)

    reads = PersistentReads(objects, "the gateway waits to learn which sessions are over", chance)
    done = await read_sessions_boundary(reads)
    wanted = [each for each in earlier if each.session >= done]
    logs = await all_of([asyncio.create_task(sealed(each)) for each in wanted])
    return list(zip(wanted, logs, strict=True))


async def sealed_at(objects: ObjectStore, node_id: int, session: int, seq: int) -> bool:
    """Return whether the log of the session has its seal at this place. Waits until the store answers. Raises
    CorruptWalObject, IncompatibleFormat, Refused.
    """
    reads = PersistentReads(objects, f"the gateway waits to find the seal of session {session}")
    key = object_key(node_id, session, seq)
    try:
        return identify(await reads.get_end(key, OBJECT_END_BYTES), key).is_seal
    except Missing:
        return False


class _Taker:
    def __init__(
        self, reads: PersistentReads, node_id: int, session: int, by: int, reason: str, writer: bytes | None
    ) -> None:
        self._reads = reads
        self._node_id = node_id
        self._session = session
        self._by = by
        self._reason = reason
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._writer = writer
        """The nonce of the session, or of the objects before where that is not known."""

    async def sealed_from(self, seq: int) -> Seal:
        """Return the first seal from this place on; seal the first empty place if that comes first."""
        count = FIRST_READS
        while True:
            seqs = range(seq, seq + count)
            count = min(MOST_READS, count * 2)
            for found in await asyncio.gather(*map(self._read_object, seqs), return_exceptions=True):
                if isinstance(found, BaseException):
                    raise found
                if isinstance(found, Seal):
                    return found
                if found is None:
                    made = await self._create_at(seq)
                    if made is not None:
                        return made
                    break  # the session was quicker: look again behind its object
                self._writer = self._writer or found.nonce
                if found.nonce != self._writer:
                    key = object_key(self._node_id, self._session, seq)
                    raise CorruptWalObject(
                        f"{key} has another nonce than its session: two programs wrote into the log."
                    )
                seq += 1

    async def _create_at(self, seq: int) -> Seal | None:
        """Create the seal at an empty place; return the seal that is there then, or None for an object."""
        key = object_key(self._node_id, self._session, seq)
        content = encode_seal(Seal(self._node_id, self._session, seq, self._nonce, self._by, self._reason))
        while True:
            failure: Exception | None = None
            try:
                await self._reads.objects.create(key, content)
            except (AlreadyThere, StoreFailed) as error:
                failure = error  # perhaps our seal is there nevertheless
            found = await self._read_object(seq)
            if found is not None:
                return found if isinstance(found, Seal) else None
            if failure is not None:
                await self._reads.failed(failure)

    async def _read_object(self, seq: int) -> Seal | WalObjectIdentity | None:
        """Return the object at this place, or None. Raises CorruptWalObject, IncompatibleFormat, Refused."""
        key = object_key(self._node_id, self._session, seq)
        try:
            end = await self._reads.get_end(key, OBJECT_END_BYTES)
        except Missing:
            return None
        identity = identify(end, key)
        if identity[:3] != (self._node_id, self._session, seq):
            raise CorruptWalObject(
                f"{key} is an object of another place: node {identity.node_id}, session {identity.session}, "
                f"seq {identity.seq}."
            )
        if not identity.is_seal:
            return identity
        found = decode_index(end, key)
        assert isinstance(found, Seal)
        return found


READ_AT_ONCE: Final = 8
"""Objects whose rows are read at the same time. The rows that are wanted of as many are in memory at most."""
INDEXES_AT_ONCE: Final = 64
"""Objects whose ends are read at once: a log of ten minutes may have thousands, and most are small."""
END_BYTES: Final = 64 << 10
"""The bytes at the end of an object that are read first. A longer index needs a second call."""


class Collected(Exception):
    """Objects of an ended log were deleted, as manifests had their rows: read the manifests again."""


class RowAt(NamedTuple):
    wal: EndedSession
    seq: int
    placed: PlacedRow

    @property
    def row(self) -> WalRow:
        return self.placed.row

    @property
    def place(self) -> tuple[int, int, int]:
        """The place in the order in which the partition was written."""
        return self.row.leader_epoch, self.wal.session, self.seq


FoundRow = tuple[RowAt, memoryview | CorruptWalObject]
#: A row with its data, or with what is wrong with the data.


class EndedRows:
    """The rows in the logs of ended sessions. Waits until the store answers."""

    def __init__(self, objects: ObjectStore, what: str) -> None:
        """`what` says for the log lines of an outage what the gateway waits for."""
        self._objects = objects
        self._reads = PersistentReads(objects, what)

    async def read(
        self, ranges: Sequence[EndedSession], wants: Callable[[WalRow], bool]
    ) -> AsyncIterator[list[FoundRow]]:
        """Yield the wanted rows of each object, in the order of the ranges. Raises Collected,
        CorruptWalObject for an object that is missing, damaged or of another session, IncompatibleFormat,
        Refused.
        """
        places = ((wal, seq) for wal in ranges for seq in range(wal.first_seq, wal.end_seq))
        indexes: deque[tuple[EndedSession, int, asyncio.Task[tuple[Index, bytes]]]] = deque()
        ahead: deque[asyncio.Task[list[FoundRow]]] = deque()
        try:
            while True:
                for wal, seq in islice(places, INDEXES_AT_ONCE - len(indexes)):
                    indexes.append((wal, seq, asyncio.create_task(self.index(wal, seq))))
                while indexes and len(ahead) < READ_AT_ONCE:
                    ahead.append(asyncio.create_task(self._wanted(*indexes.popleft(), wants)))
                if not ahead:
                    return
                yield await ahead.popleft()
        finally:
            await end_tasks(*ahead, *(index for _, _, index in indexes))

    async def index(self, wal: EndedSession, seq: int) -> tuple[Index, bytes]:
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
                f"{key} is an object of another place or writer: node {index.node_id}, session "
                f"{index.session}, seq {index.seq}."
            )
        return index, end

    async def data(self, found: RowAt) -> memoryview:
        """Read the data of one row. Raises as `read`."""
        wal, seq, placed = found
        key = object_key(wal.node_id, wal.session, seq)
        return checked_data(
            placed, memoryview(await self._get(wal, seq, placed.start, placed.row.length)), key
        )

    async def _wanted(
        self,
        wal: EndedSession,
        seq: int,
        read: asyncio.Task[tuple[Index, bytes]],
        wants: Callable[[WalRow], bool],
    ) -> list[FoundRow]:
        index, end = await read
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

    async def _get(self, wal: EndedSession, seq: int, first: int, size_bytes: int) -> bytes:
        key = object_key(wal.node_id, wal.session, seq)
        if not size_bytes:
            return b""
        try:
            return await self._reads.answered(lambda: self._objects.get(key, first, size_bytes))
        except Missing as error:
            raise await self._missing(wal, seq, key) from error

    async def _missing(self, wal: EndedSession, seq: int, key: str) -> Exception:
        if seq < await read_boundary(self._reads, wal.node_id, wal.session):
            return Collected(key)
        return CorruptWalObject(
            f"{key} is missing, and the log of its session ends at {wal.end_seq}. Records are lost unless a "
            "backup of the bucket has the object."
        )
