"""Watches the next gateways in the ring, and takes over those that are gone: seals the session, then ends it in the metadata.

Two takers at once come to the same end: the first seal counts, and the metadata ends a session once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from gateway.cluster.membership.lease import conviction_s
from gateway.cluster.membership.silence import watched_by
from gateway.cluster.membership.watch import Verdict, Watch, Watched
from gateway.cluster.objects.objects import ObjectStore
from gateway.cluster.wal.sealing import seal
from log import StorageFailed

logger = logging.getLogger(__name__)

RETRIED_AFTER_S: Final = 1.0
"""How long a taker waits before it tries again to end a session, when that has failed."""

EndSession = Callable[[int, int], Awaitable[object]]
"""Ends a session of a node in the metadata, whose log is sealed."""


class Watcher:
    """The watches of this gateway. Call `follow` after each change of the live gateways."""

    def __init__(
        self,
        objects: ObjectStore,
        node_id: int,
        seconds: Callable[[], float],
        end_session: EndSession,
    ) -> None:
        self._objects = objects
        self._node_id = node_id
        self._seconds = seconds
        self._end_session = end_session
        self._tasks: dict[Watched, asyncio.Task[None]] = {}

    @property
    def watched(self) -> list[Watched]:
        """The sessions that are watched now."""
        return sorted(self._tasks)

    def follow(self, live: Mapping[int, Watched]) -> None:
        """Watch the next of the live gateways; `live` has the session of each node, this one included."""
        wanted = {live[node_id] for node_id in watched_by(self._node_id, live)}
        for watched in self._tasks.keys() - wanted:
            self._tasks.pop(watched).cancel()
        for watched in wanted - self._tasks.keys():
            self._tasks[watched] = asyncio.create_task(
                self._watch(watched), name=f"watch over session {watched.session} of node {watched.node_id}"
            )

    async def stop(self) -> None:
        """End all watches."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, watched: Watched) -> None:
        verdict = await Watch(self._objects, watched, self._seconds).verdict()
        while True:
            try:
                await self._take_over(watched, verdict)
            except StorageFailed as error:
                logger.warning(
                    "session %d of node %d can't be ended now: %s", watched.session, watched.node_id, error
                )
            except Exception:
                logger.exception("session %d of node %d can't be ended", watched.session, watched.node_id)
            # The task is cancelled once the metadata shows the end of the session.
            await asyncio.sleep(RETRIED_AFTER_S)

    async def _take_over(self, watched: Watched, verdict: Verdict) -> None:
        node_id, session, lease_s = watched
        if verdict.is_sealed:
            # Whoever sealed it also ends it in the metadata. If not, its lease is over by then.
            await asyncio.sleep(conviction_s(lease_s))
        else:
            reason = f"node {self._node_id} saw no sign of life for {verdict.silent_s:.1f} s"
            logger.warning("node %d is taken over: %s", node_id, reason)
            sealed = await seal(self._objects, node_id, session, self._node_id, reason)
            if sealed.end_seq > verdict.end_seq:
                # The session lived on after the watch, so its lease may last until now.
                await asyncio.sleep(conviction_s(lease_s))
        await self._end_session(node_id, session)
