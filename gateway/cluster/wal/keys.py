"""The keys of a session's objects in the bucket."""

from __future__ import annotations

from typing import Final

WAL_PREFIX: Final = "wal/"


def object_key(node_id: int, session: int, seq: int) -> str:
    """Return the key of object `seq` of the session's write-ahead log."""
    return f"{WAL_PREFIX}{node_id}/{session}/{seq:020}"


def boundary_key(node_id: int, session: int) -> str:
    """Return the key of the session's boundary: the objects below the boundary may be deleted."""
    return f"{WAL_PREFIX}{node_id}/{session}/boundary"


def registration_key(session: int) -> str:
    """Return the key of the object that registers the session."""
    return f"meta/{session:020}"


SESSIONS_BOUNDARY_KEY: Final = "meta/boundary"
"""The key of the boundary of sessions: those with a lower number are sealed, and no object of their logs is needed."""

SNAPSHOT_PREFIX: Final = "meta/snapshot/"
SHORTENED_KEY: Final = "meta/shortened"
"""The key of the boundary of the metadata log: objects of `meta/` below it may be deleted, because snapshots have what they say."""


def snapshot_key(seq: int) -> str:
    """Return the key of the snapshot of the metadata before object `seq` of `meta/`."""
    return f"{SNAPSHOT_PREFIX}{seq:020}"
