"""Writes snapshots of the shared metadata, and deletes the objects of `meta/` that two of them stand for.

The live gateway with the lowest node id does so, as a courtesy: two at once do no harm. A snapshot says what
the objects before it say, so it does not matter who wrote it, or when it arrives. It is made from what the
bucket has, as a start reads it: a gateway that can't start from the bucket writes no snapshot.

Objects are deleted below the snapshot before the newest one, after this gateway has known that snapshot for a
while and has read both. The boundary moves first. Gateways that follow the log are far behind it by then only
if they stood still, and they look at the boundary.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from seqgate.gateway.cluster.metadata.shared_log import (
    SharedLog,
    end_offset_of,
    read_metadata,
    read_snapshot,
    snapshot_seqs,
)
from seqgate.gateway.cluster.metadata.snapshot import CorruptMetadataSnapshot, encode_snapshot, image_batches
from seqgate.gateway.cluster.objects.objects import AlreadyThere, ObjectStore, Refused, StoreFailed
from seqgate.gateway.cluster.uploads.collection import Collection as Deletions
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.sessions import (
    SNAPSHOTS_SINCE,
    RegisteredSession,
    SharedLogContent,
    Snapshot,
)
from seqgate.gateway.cluster.wal.wal_object import SHORTENED_KEY, registration_key, snapshot_key
from seqgate.gateway.metadata.image import MetadataImage, records_of
from seqgate.gateway.metadata.records import encode_record
from seqgate.gateway.runtime.topics.stored_image import image_of
from seqgate.gateway.tasks import end_tasks
from seqgate.log import IncompatibleFormat

logger = logging.getLogger(__name__)

CHECKED_EVERY_S: Final = 1.0
RETRIED_AFTER_S: Final = 60.0
"""How long nothing is written or deleted after an attempt that failed."""


class MetadataSnapshots:
    def __init__(
        self,
        objects: ObjectStore,
        shared: SharedLog,
        image: MetadataImage,
        is_our_turn: Callable[[], bool],
        every: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        """`every` returns the objects of `meta/` per snapshot, `is_our_turn` whether this gateway works."""
        self._objects = objects
        self._reads = PersistentReads(objects, "the gateway waits to write a snapshot of the metadata")
        self._deletions = Deletions(objects)
        self._shared = shared
        self._image = image
        self._is_our_turn = is_our_turn
        self._every = every
        self._now_ms = now_ms
        self._known_s: dict[int, float] = {}
        """Since when each snapshot is known here, by its number, ascending."""
        self._listed_at: int | None = None
        """The end of the log at the last listing of snapshots."""
        self._shortened_to = 0
        """The newest snapshot below which nothing is left that may be deleted."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="snapshots of the metadata")

    async def stop(self) -> None:
        """End the work. What is unfinished is left to the next gateway."""
        await end_tasks(self._task)

    async def _run(self) -> None:
        pause_s = 0.0
        while True:
            await asyncio.sleep(max(CHECKED_EVERY_S, pause_s))
            pause_s = 0.0
            try:
                await self.work()
            except (StoreFailed, Refused) as error:
                logger.warning("no snapshot of the metadata can be written now: %s", error)
                pause_s = RETRIED_AFTER_S
            except Exception:
                logger.exception("no snapshot of the metadata can be written now; this is tried again later")
                pause_s = RETRIED_AFTER_S

    async def work(self) -> None:
        """Write a snapshot, forget sessions, and delete objects, as far as each is due. Raises StoreFailed,
        Refused, and what `read_metadata` and `image_of` raise.
        """
        if self._image.brokers.cluster_version < SNAPSHOTS_SINCE:
            return  # an earlier release may be live, which knows no snapshots
        if self._is_due():
            await self._list()
            if not self._is_our_turn():
                await self._learn_sessions()
            elif self._is_due():
                await self._write()
                await self._list()
        if self._is_our_turn():
            await self._shorten()

    def _is_due(self) -> bool:
        """Return whether the log grew enough since the newest snapshot (its writer) or listing (others)."""
        if self._listed_at is None:
            return True
        begin = max(self._known_s, default=0) if self._is_our_turn() else self._listed_at
        return self._shared.next_seq - begin >= self._every()

    async def _list(self) -> None:
        self._listed_at = self._shared.next_seq
        now_s = self._shared.seconds()
        found = await snapshot_seqs(self._reads)
        self._known_s = {seq: self._known_s.get(seq, now_s) for seq in found}

    async def _learn_sessions(self) -> None:
        """Forget the sessions that the newest snapshot has left out."""
        newest = max(self._known_s, default=0)
        snapshot = await self._sound(newest) if newest else None
        if snapshot is not None:
            needed = {each.session for each in snapshot.sessions}
            known = [each.session for each in self._shared.sessions]
            self._shared.drop({each for each in known if each < snapshot.seq and each not in needed})

    # --- writing

    async def _write(self) -> None:
        end_seq, left = self._shared.next_seq, {each.session for each in self._shared.sessions}
        content = await read_metadata(self._objects)
        dropped = {
            each.session for each in content.sessions if each.session < end_seq and each.session not in left
        }
        snapshot, encoded = await asyncio.to_thread(snapshot_of, content, dropped, self._now_ms())
        key = snapshot_key(snapshot.seq)
        try:
            await self._reads.answered(lambda: self._objects.create(key, encoded))
        except AlreadyThere:
            return  # by an earlier try, or by another gateway
        logger.info(
            "wrote a snapshot of the metadata up to change %d: bytes %d, sessions %d",
            snapshot.seq,
            len(encoded),
            len(snapshot.sessions),
        )

    # --- shortening

    async def _shorten(self) -> None:
        """Delete what the last two snapshots stand for, if the older of them is known for long enough."""
        if len(self._known_s) < 2:
            return
        older, newest = sorted(self._known_s)[-2:]
        is_old = self._shared.seconds() - self._known_s[older] >= self._shared.kept_s
        if older <= self._shortened_to or not is_old:
            return
        first, second = [await self._sound(seq) for seq in (older, newest)]
        if first is None or second is None:
            return
        if first.kept_end is None:
            self._shortened_to = older
            return
        if first.kept_end < older:
            await self._deletions.move_boundary(SHORTENED_KEY, older)
            deleted = await self._delete_below(older, first.kept_end)
            logger.info("shortened the metadata log to change %d: objects deleted %d", older, deleted)
        await self._deletions.delete(snapshot_key(seq) for seq in self._known_s if seq < older)
        self._known_s = {seq: since_s for seq, since_s in self._known_s.items() if seq >= older}
        self._shortened_to = older

    async def _sound(self, seq: int) -> Snapshot | None:
        try:
            snapshot = await read_snapshot(self._reads, seq)
        except (CorruptMetadataSnapshot, IncompatibleFormat) as error:
            logger.warning(
                "a snapshot of the metadata can't be read, so no object of the metadata log is deleted for "
                "it: %s",
                error,
            )
            snapshot = None
        if snapshot is None:
            self._known_s.pop(seq, None)
        return snapshot

    async def _delete_below(self, boundary: int, kept_end: int) -> int:
        """Delete the objects of `meta/` from `kept_end` to the boundary; return how many."""

        async def listed() -> list[str]:
            keys = []
            async for entry in self._objects.list("meta/", registration_key(kept_end - 1)):
                if entry.key >= registration_key(boundary):
                    break
                keys.append(entry.key)
            return keys

        keys = await self._reads.answered(listed)
        await self._deletions.delete(keys)
        return len(keys)


def snapshot_of(content: SharedLogContent, dropped: Collection[int], now_ms: int) -> tuple[Snapshot, bytes]:
    """Return the snapshot of all that was read, which has a session and a change, and its bytes. `dropped`
    are sessions that have ended, and whose logs have no objects.

    The last session of all stays, and those that brokers are registered for: a start compares the session of
    its data directory with them.

    Raises as `image_of`, ValueError.
    """
    image = image_of(content)
    current = {broker.broker_epoch for broker in image.brokers.by_id.values()}
    last = content.sessions[-1].session

    def is_needed(session: RegisteredSession) -> bool:
        number = session.session
        return number not in dropped or number in current or number == last

    sessions = tuple(filter(is_needed, content.sessions))
    records = records_of(image, {each.session for each in sessions})
    next_offset = end_offset_of(content)
    assert content.cluster_id is not None
    snapshot = Snapshot(
        content.end_seq,
        next_offset,
        content.cluster_id,
        content.kept_end,
        sessions,
        image_batches(map(encode_record, records), next_offset, now_ms),
    )
    return snapshot, encode_snapshot(snapshot)
