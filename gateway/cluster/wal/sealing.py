"""The end of a session's write-ahead log, made by another gateway: the taker.

The taker reads the boundary, finds the first missing object from there on, and creates the seal in its place, only if the place is
still empty. Then no create of that object by the session can succeed any more, however long the session's process was stopped
and wherever its call waits. An object is acknowledged only when all before it are in the store, so the session acknowledges nothing
at or behind the seal, and the taker has seen all before it.

Then the taker reads the boundary again. If the boundary is above the seal, the session used that place and its object was deleted
since; the seal ends nothing, and the taker begins anew. The first sealed place counts, whoever sealed it, so several takers, and one that
begins again after a crash, come to the same end.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.cluster.objects.objects import AlreadyThere, Missing, ObjectStore, StoreFailed
from gateway.cluster.wal.boundary import read_boundary, read_sessions_boundary
from gateway.cluster.wal.keys import object_key
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.sessions import RegisteredSession, Session, sessions
from gateway.cluster.wal.wal_object import (
    END_BYTES,
    NONCE_BYTES,
    CorruptWalObject,
    Identity,
    Seal,
    decode_index,
    encode_seal,
    identify,
)

logger = logging.getLogger(__name__)

FIRST_LOOKS: Final = 4
"""Objects that are requested at the same time in the beginning. The number doubles while no object is missing, because most logs are short."""
MOST_LOOKS: Final = 64
SEALED_AT_ONCE: Final = 8
"""Sessions that are sealed at the same time."""


class SealedWal(NamedTuple):
    """A write-ahead log that has ended."""

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
    """Seal the log of the session, or find the seal that it has. Waits until the store answers. `nonce` is the session's, if known.

    Raises CorruptWalObject for an object that is not what its key says, or that another program wrote, IncompatibleFormat, Refused.
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


async def seal_earlier(
    objects: ObjectStore,
    own: Session,
    reason: str,
    *,
    known: Sequence[RegisteredSession] | None = None,
    chance: random.Random | None = None,
) -> list[tuple[RegisteredSession, SealedWal]]:
    """Seal all sessions with a lower number than our own, in order; return them with their sealed logs.

    `known` are the sessions if the caller has read them since the registration.

    Call this after the own session is registered, and read data after this. A gateway that registers at the same time gets a lower
    number, and is sealed here, or a higher one, and seals us. If the sessions were sealed before the registration, two gateways that start
    together would both run. Waits until the store answers. Raises as `seal` and `sessions`.
    """
    if known is None:
        known = await sessions(objects, chance=chance)
    earlier = [each for each in known if each.session < own.session]
    return await seal_all(objects, own, earlier, reason, chance=chance)


async def seal_all(
    objects: ObjectStore,
    own: Session,
    earlier: Sequence[RegisteredSession],
    reason: str,
    *,
    chance: random.Random | None = None,
) -> list[tuple[RegisteredSession, SealedWal]]:
    """Seal sessions, several at once; return them with their sealed logs, in order.

    Sessions below the boundary of sessions are left out: they are sealed, and their logs are empty. Waits and raises as `seal`.
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
    sealing = [asyncio.create_task(sealed(each)) for each in wanted]
    try:
        return [(each, await log) for each, log in zip(wanted, sealing, strict=True)]
    except (Exception, asyncio.CancelledError):
        for log in sealing:
            log.cancel()
        await asyncio.gather(*sealing, return_exceptions=True)
        raise


async def sealed_at(objects: ObjectStore, node_id: int, session: int, seq: int) -> bool:
    """Return whether the log of the session has its seal at this place. Waits until the store answers.

    Raises CorruptWalObject, IncompatibleFormat, Refused.
    """
    reads = PersistentReads(objects, f"the gateway waits to find the seal of session {session}")
    key = object_key(node_id, session, seq)
    try:
        return identify(await reads.get_end(key, END_BYTES), key).is_seal
    except Missing:
        return False


class _Taker:
    """Finds the first empty place of a log and seals it."""

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
        looks = FIRST_LOOKS
        while True:
            seqs = range(seq, seq + looks)
            looks = min(MOST_LOOKS, looks * 2)
            for found in await asyncio.gather(*map(self._look, seqs), return_exceptions=True):
                if isinstance(found, BaseException):
                    raise found
                if isinstance(found, Seal):
                    return found
                if found is None:
                    made = await self._create_at(seq)
                    if made is not None:
                        return made
                    break  # the session was quicker: look again behind its object
                self._check_writer(found)
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
            found = await self._look(seq)
            if found is not None:
                return found if isinstance(found, Seal) else None
            if failure is not None:
                await self._reads.failed(failure)

    def _check_writer(self, found: Identity) -> None:
        self._writer = self._writer or found.nonce
        if found.nonce != self._writer:
            key = object_key(self._node_id, self._session, found.seq)
            raise CorruptWalObject(
                f"{key} has another nonce than its session: two programs wrote into the log."
            )

    async def _look(self, seq: int) -> Seal | Identity | None:
        """Return the object at this place as its footer and index describe it, or None. Raises CorruptWalObject, IncompatibleFormat, Refused."""
        key = object_key(self._node_id, self._session, seq)
        try:
            end = await self._reads.get_end(key, END_BYTES)
        except Missing:
            return None
        identity = identify(end, key)
        if identity[:3] != (self._node_id, self._session, seq):
            raise CorruptWalObject(
                f"{key} is an object of another place: node {identity.node_id}, session {identity.session}, seq {identity.seq}."
            )
        if not identity.is_seal:
            return identity
        found = decode_index(end, key)
        assert isinstance(found, Seal)
        return found
