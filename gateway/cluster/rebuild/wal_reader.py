"""Reads the objects of sealed write-ahead logs in order, several at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from gateway.cluster.objects.objects import Missing, ObjectStore
from gateway.cluster.wal.boundary import read_boundary
from gateway.cluster.wal.keys import object_key
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.wal_object import CorruptWalObject, Seal, WalObject, decode

READ_AT_ONCE: Final = 16
"""Objects that are read at the same time. As many are in memory at most."""


class WalRange(NamedTuple):
    """The objects of one sealed session that are to be read."""

    node_id: int
    session: int
    nonce: bytes
    """The nonce of the session's registration, which each of its objects has."""
    first_seq: int
    end_seq: int
    """The place of the seal (exclusive)."""


async def read_objects(objects: ObjectStore, ranges: Sequence[WalRange]) -> AsyncIterator[WalObject]:
    """Yield the objects of all ranges in order. Waits until the store answers.

    Raises CorruptWalObject for an object that is missing, damaged or of another session, IncompatibleFormat, Refused.
    """
    reads = PersistentReads(objects, "the gateway waits to read the records of the cluster")
    places = ((wal, seq) for wal in ranges for seq in range(wal.first_seq, wal.end_seq))
    ahead: deque[asyncio.Task[WalObject | None]] = deque()
    try:
        for wal, seq in places:
            ahead.append(asyncio.create_task(_read(reads, wal, seq)))
            if len(ahead) >= READ_AT_ONCE:
                found = await ahead.popleft()
                if found is not None:
                    yield found
        while ahead:
            found = await ahead.popleft()
            if found is not None:
                yield found
    finally:
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)


async def _read(reads: PersistentReads, wal: WalRange, seq: int) -> WalObject | None:
    """Return the object; None if its session has deleted it since the log was sealed, because manifests had its rows by then."""
    key = object_key(wal.node_id, wal.session, seq)
    try:
        found = decode(await reads.get(key), key)
    except Missing as error:
        if seq < await read_boundary(reads, wal.node_id, wal.session):
            return None
        raise CorruptWalObject(
            f"{key} is missing, and the log of its session ends at {wal.end_seq}. Records are lost unless a backup of the bucket has the object."
        ) from error
    if isinstance(found, Seal):
        raise CorruptWalObject(f"{key} is a seal, and the log of its session ends at {wal.end_seq}.")
    if (found.node_id, found.session, found.seq, found.nonce) != (wal.node_id, wal.session, seq, wal.nonce):
        raise CorruptWalObject(
            f"{key} is an object of another place or writer: node {found.node_id}, session {found.session}, seq {found.seq}."
        )
    return found
