"""Ends the earlier sessions of a node that starts again.

A start seals the earlier sessions of its own node id, and of no other. If one of them may still run somewhere, the start waits until that
session's lease is over: from the seal on no object of it is confirmed, so a lease lasts at most as long from then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from gateway.cluster.membership.lease import conviction_s
from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.wal.sealing import SealedWal, seal
from gateway.cluster.wal.sessions import RegisteredSession, Session

logger = logging.getLogger(__name__)


async def end_earlier(
    objects: ObjectStore,
    own: Session,
    earlier: Sequence[RegisteredSession],
    reason: str,
    *,
    lease_s: float,
    may_serve: Callable[[int], bool],
) -> list[tuple[RegisteredSession, SealedWal]]:
    """Seal the earlier sessions of the node, and wait until none of them serves; return them with the ends of their logs.

    `may_serve` says for the number of a session whether its process may still answer clients: not if the metadata shows its end, and not if
    the lock of this data directory proves that the process is dead. Waits until the store answers. Raises as `seal`.
    """
    ended = []
    must_wait = False
    for session in earlier:
        if session.node_id != own.node_id or session.session >= own.session:
            continue
        sealed = await seal(
            objects, session.node_id, session.session, own.node_id, reason, nonce=session.nonce
        )
        ended.append((session, sealed))
        stopped = sealed.seal.nonce == session.nonce
        """Whether the session has sealed itself, by a clean stop: it answers nobody any more."""
        must_wait = must_wait or (not stopped and may_serve(session.session))
    if must_wait:
        wait_s = conviction_s(lease_s)
        logger.info(
            "an earlier session of node %d may still answer clients; waiting %.1f s until its lease is over",
            own.node_id,
            wait_s,
        )
        await asyncio.sleep(wait_s)
    return ended
