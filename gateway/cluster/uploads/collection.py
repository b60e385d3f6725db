"""Deletes objects of write-ahead logs that no start needs: first the boundary moves, then the objects go.

Seals and registrations stay for ever. What a crash leaves below a boundary is deleted by a sweep (`orphans.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from gateway.cluster.objects.objects import Changed, Missing, ObjectStore, StoreFailed
from gateway.cluster.wal.boundary import decode_boundary, encode_boundary
from gateway.cluster.wal.keys import SESSIONS_BOUNDARY_KEY, boundary_key, object_key
from gateway.cluster.wal.persistence import PersistentReads

logger = logging.getLogger(__name__)

DELETED_AT_ONCE: Final = 16
MOST_IN_FLIGHT: Final = 64
"""The most objects that a session may have put after the place of its seal (`seqgate.cluster.puts.in.flight`)."""


class Collection:
    """Deletes objects of one cluster."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._reads = PersistentReads(objects, "the gateway waits to delete what the bucket needs no more")

    async def collect(self, node_id: int, session: int, boundary: int) -> int:
        """Move the boundary of the session's log, and delete the objects below it; return how many. Waits until the store answers.

        A boundary that is further stays. Raises CorruptWalObject, IncompatibleFormat, Refused.
        """
        before = await self.move_boundary(boundary_key(node_id, session), boundary)
        await self.delete(object_key(node_id, session, seq) for seq in range(before, boundary))
        return max(0, boundary - before)

    async def collect_sealed(self, node_id: int, session: int, end_seq: int) -> int:
        """Delete all objects of a sealed log but for the seal, also those that came too late; return how many. Raises as `collect`."""
        late = range(end_seq + 1, end_seq + 1 + MOST_IN_FLIGHT)
        await self.delete(object_key(node_id, session, seq) for seq in late)
        return await self.collect(node_id, session, end_seq)

    async def end_sessions(self, below: int) -> None:
        """Note that all sessions with a lower number are sealed and collected. Raises as `collect`."""
        await self.move_boundary(SESSIONS_BOUNDARY_KEY, below)

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, several at once. Waits until the store answers. Raises Refused."""
        left = iter(keys)

        async def some() -> None:
            for key in left:
                await self._reads.answered(partial(self._objects.delete, key))

        # A log may have millions of objects, so each task deletes many.
        deleting = [asyncio.create_task(some()) for _ in range(DELETED_AT_ONCE)]
        try:
            await asyncio.gather(*deleting)
        except (Exception, asyncio.CancelledError):
            for task in deleting:
                task.cancel()
            await asyncio.gather(*deleting, return_exceptions=True)
            raise

    async def move_boundary(self, key: str, boundary: int) -> int:
        """Raise the boundary at this key to `boundary`, by a conditional replacement; return the previous one. Waits and raises as `collect`."""
        first = None
        conflicts = self._reads.conflicts()
        while True:
            try:
                content, version = await self._reads.answered(lambda: self._objects.read(key))
                present = decode_boundary(content, key)
            except Missing:
                present, version = 0, None
            first = present if first is None else first
            if present >= boundary:
                return first
            try:
                await self._objects.replace(key, encode_boundary(boundary), version)
            except Changed:  # by an earlier try of ours, or by a gateway that took over
                await asyncio.sleep(conflicts.next_s())
            except StoreFailed as error:
                await self._reads.failed(error)
            else:
                return first
