"""Checks that no session confirms an object at the place of its seal or behind: another gateway has read the
log up to there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from seqgate.gateway.cluster.wal.sessions import decode_boundary
from seqgate.gateway.cluster.wal.wal_object import Seal, boundary_key, decode
from tests.support.simulated_objects import SimulatedBucket

_WAL: Final = re.compile(r"wal/\d+/\d+/\d{20}")


class SessionName(NamedTuple):
    node_id: int
    session: int


class Confirmed(NamedTuple):
    """How far a process confirmed the objects of its session: all before `end_seq`."""

    session: SessionName
    nonce: bytes
    end_seq: int


class Sealed(NamedTuple):
    """The place of a session's seal, and whether the session has sealed itself."""

    seq: int
    nonce: bytes


def confirmed_behind_seals(confirmed: Iterable[Confirmed], seals: Mapping[SessionName, Sealed]) -> list[str]:
    """Find sessions that confirmed the place of their seal, unless it is their own, or a later place."""
    breaches = []
    for one in confirmed:
        seal = seals.get(one.session)
        if seal is None:
            continue
        is_own = seal.nonce == one.nonce
        if one.end_seq > seal.seq + is_own:
            breaches.append(
                f"sealed: session {one.session.session} of node {one.session.node_id} confirmed its objects "
                f"up to {one.end_seq - 1}, and its seal is at {seal.seq}"
            )
    return breaches


def seals_of(bucket: SimulatedBucket) -> dict[SessionName, Sealed]:
    """Return the seal of each session. One below the boundary of its log does not count: its place was used,
    and emptied.
    """
    seals: dict[SessionName, Sealed] = {}
    for key in bucket.keys("wal/"):
        found = decode(bucket.get(key), key) if _WAL.fullmatch(key) else None
        if not isinstance(found, Seal):
            continue
        at = boundary_key(found.node_id, found.session)
        boundary = decode_boundary(bucket.get(at), at) if at in bucket.objects else 0
        if found.seq >= boundary:
            seals.setdefault(SessionName(found.node_id, found.session), Sealed(found.seq, found.nonce))
    return seals
