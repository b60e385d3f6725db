"""The boundary of a session's write-ahead log: objects with a lower seq may be deleted, because no start needs them any more.

Whoever deletes objects moves the boundary first, by a conditional replacement, and never back. So a taker that sealed the log at
`seq` and then finds the boundary above `seq` knows that the place was used and emptied, and that its seal means nothing.

The object is JSON: `version` and `boundary`. Without the object the boundary is 0.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.cluster.objects.objects import Missing
from gateway.cluster.wal.keys import SESSIONS_BOUNDARY_KEY, SHORTENED_KEY, boundary_key
from gateway.cluster.wal.persistence import PersistentReads
from gateway.cluster.wal.wal_object import CorruptWalObject
from log import IncompatibleFormat

VERSION: Final = 1


class _Stored(msgspec.Struct):
    version: int
    boundary: int = 0


def encode_boundary(boundary: int) -> bytes:
    """Return the content of the boundary object."""
    return msgspec.json.encode(_Stored(VERSION, boundary))


def decode_boundary(content: bytes, key: str) -> int:
    """Return the boundary. Raises CorruptWalObject, IncompatibleFormat; `key` is for the messages."""
    try:
        stored = msgspec.json.decode(content, type=_Stored)
    except msgspec.DecodeError as error:
        raise CorruptWalObject(f"{key} is damaged: {error}.") from error
    if stored.version > VERSION:
        raise IncompatibleFormat(f"{key} has version {stored.version}; this program reads version {VERSION}.")
    if stored.version < 1 or stored.boundary < 0:
        raise CorruptWalObject(f"{key} is damaged: it has impossible values: {stored}.")
    return stored.boundary


async def read_boundary(reads: PersistentReads, node_id: int, session: int) -> int:
    """Return the boundary of the session. Raises CorruptWalObject, IncompatibleFormat, Refused."""
    return await _read(reads, boundary_key(node_id, session))


async def read_sessions_boundary(reads: PersistentReads) -> int:
    """Return the number below which all sessions are sealed and their objects deleted. Raises as `read_boundary`."""
    return await _read(reads, SESSIONS_BOUNDARY_KEY)


async def read_shortened(reads: PersistentReads) -> int:
    """Return the number below which objects of `meta/` may be deleted. Raises as `read_boundary`."""
    return await _read(reads, SHORTENED_KEY)


async def _read(reads: PersistentReads, key: str) -> int:
    try:
        return decode_boundary(await reads.get(key), key)
    except Missing:
        return 0
