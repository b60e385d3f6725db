"""The sessions that have ended, whose write-ahead logs may still have objects that somebody needs."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.wal.boundary import read_sessions_boundary
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.sealing import seal
from gateway.cluster.wal.sessions import RegisteredSession, Session

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


class WalRange(NamedTuple):
    """The objects of one sealed session that are to be read."""

    node_id: int
    session: int
    nonce: bytes
    first_seq: int
    end_seq: int
    """The place of the seal (exclusive)."""


class EndedSessions(Protocol):
    """The port to the sessions of the cluster."""

    async def ended(self) -> Sequence[EndedSession]:
        """Return all sessions that have ended, ascending, from the boundary of sessions on. Waits until the store answers.

        Raises CorruptWalObject, CorruptRegistration, IncompatibleFormat, Refused.
        """

    async def first_running(self) -> int:
        """Return the number below which all sessions have ended. Raises as `ended`."""

    def collects(self) -> bool:
        """Return whether this gateway collects the logs of ended sessions: one does, and two at once do no harm."""


class SessionState(enum.Enum):
    """The state of a session, as the metadata has it."""

    RUNNING = enum.auto()
    """The session is that of a live broker, or may be that of a gateway that starts."""
    ENDED = enum.auto()
    """Its broker is fenced, unregistered or has a later session. So its log is sealed."""
    NO_BROKER = enum.auto()
    """The session has not become a broker."""


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
        """`registered` returns all sessions, ascending. `state` says what the metadata knows of one. `passed` is called with the boundary of
        sessions: nobody asks for those below it any more.
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
        """The ended sessions whose seal is known, by their numbers. Those below the boundary of sessions are dropped."""

    async def ended(self) -> Sequence[EndedSession]:
        """Return all sessions that have ended; seal those that were abandoned. Raises as `EndedSessions.ended`."""
        return (await self._look())[0]

    async def first_running(self) -> int:
        """Return the number below which all sessions have ended. Raises as `ended`."""
        return (await self._look())[1]

    async def _look(self) -> tuple[list[EndedSession], int]:
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
