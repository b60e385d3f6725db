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
from gateway.cluster.wal.sealing import SealedWal, seal_all
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
    """Seal the earlier sessions of the node, and wait until none of them serves; return them as `seal_all` does.

    `may_serve` says for the number of a session whether its process may still answer clients: not if the metadata shows its end, and not if
    the lock of this data directory proves that the process is dead. Waits until the store answers. Raises as `seal_all`.
    """
    own_earlier = [
        session for session in earlier if session.node_id == own.node_id and session.session < own.session
    ]
    ended = await seal_all(objects, own, own_earlier, reason)
    # A session that has sealed itself, by a clean stop, answers nobody any more.
    must_wait = any(
        sealed.seal.nonce != session.nonce and may_serve(session.session) for session, sealed in ended
    )
    if must_wait:
        wait_s = conviction_s(lease_s)
        logger.info(
            "an earlier session of node %d may still answer clients; waiting %.1f s until its lease is over",
            own.node_id,
            wait_s,
        )
        await asyncio.sleep(wait_s)
    return ended
