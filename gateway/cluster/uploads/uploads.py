"""The rounds in which a session uploads its partitions' history, and deletes what the bucket can spare.

A round uploads the partitions whose rows no manifest covers, or whose files a compaction or retention has
changed. Then it passes the session's barrier: after it the new manifests count, because a gateway that takes
over from now on reads these or later ones. Only then the objects that they replace are deleted, and the
objects of write-ahead logs that they cover.

Before a partition is led elsewhere, `hand_over` uploads the rest of it at once, beside a round.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from seqgate.gateway.cluster.objects.objects import Entry, ObjectStore, Refused, StoreFailed
from seqgate.gateway.cluster.parts.manifest import (
    PREFIX,
    Manifest,
    Manifests,
    NoLongerLed,
    Overtaken,
    PartitionKey,
    part_key,
    partition_of,
)
from seqgate.gateway.cluster.parts.part_object import CorruptPart
from seqgate.gateway.cluster.uploads.collection import Collection as Deletions
from seqgate.gateway.cluster.uploads.collection import Coverage, EndedLogs, find_collected
from seqgate.gateway.cluster.uploads.partition_uploads import (
    PartitionUploads,
    Uploaded,
    UploadedPartitions,
    UploadLimits,
    UploadPorts,
)
from seqgate.gateway.cluster.uploads.progress import Rounds, UploadProgress
from seqgate.gateway.cluster.wal.backups import is_pinned
from seqgate.gateway.cluster.wal.ended import StoredSessions
from seqgate.gateway.cluster.wal.persistence import PersistentReads
from seqgate.gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from seqgate.gateway.cluster.wal.sessions import CorruptRegistration
from seqgate.gateway.cluster.wal.wal_object import CorruptWalObject
from seqgate.gateway.tasks import end_tasks
from seqgate.log import IncompatibleFormat, LogError, PartitionLog, Storage, StorageFailed

logger = logging.getLogger(__name__)

UPLOADED_AT_ONCE: Final = 2
CHECKED_EVERY_S: Final = 1.0
ADOPTED_AFTER_S: Final = 60.0
"""The time after a start, or an adoption, at which a round begins if logs of ended sessions have records of
our partitions. A gateway that never runs for a whole interval uploads, too; otherwise these logs would grow
for ever, and each start would read all of them. If that fails, it is tried again as much later."""
COLLECTED_EVERY_S: Final = 60.0
"""The time between two collections of the logs of ended sessions, beside those in rounds."""
MOST_TRIES: Final = 5
"""Uploads of a partition that is handed over, before that is given up because it changes all the time."""


class HandOverFailed(Exception):
    """A partition can't be handed over now: it stays with this gateway. The message says why."""


class Uploads:
    def __init__(
        self,
        objects: ObjectStore,
        storage: Storage,
        wal: SessionWal,
        coverage: Coverage,
        sessions: StoredSessions,
        partitions: UploadedPartitions,
        limits: UploadLimits,
        seconds: Callable[[], float],
        now_ms: Callable[[], int],
        restored: Mapping[PartitionKey, Manifest] | None = None,
    ) -> None:
        """`seconds` is never set. `restored` are the manifests from which the local files were made."""
        self._wal = wal
        self._coverage = coverage
        self._sessions = sessions
        self._asks_s = -math.inf
        """When the session asks which of its partitions have records in logs of ended sessions: never again
        once it knows."""
        self._adopted_s: float | None = None
        """When partitions were adopted that no round has uploaded yet, or when a round failed to."""
        self._held_bytes = 0
        """The bytes of the session's write-ahead log that were not covered after the last round."""
        self._partitions = partitions
        self._limits = limits
        self._seconds = seconds
        self._now_ms = now_ms
        self._objects = objects
        self._counted: dict[PartitionKey, Manifest] = {}
        """The manifests of this session that count, but for those that an upload may have replaced since."""
        self._unsure: set[PartitionKey] = set()
        """The partitions that may get a newer manifest: an upload has begun, and has not ended well."""
        self._back: set[PartitionKey] = set()
        """The partitions that were adopted since the round began."""
        self._stored: list[Uploaded] = []
        """The uploads whose manifests do not count yet. A round that ends early leaves them to the next."""
        self._searched_s = seconds()
        self._restored = {} if restored is None else restored
        self._manifests = Manifests(objects, restored=restored, session=wal.session.session)
        self._deletions = Deletions(objects)
        self._reads = PersistentReads(objects, "the gateway waits to learn whether a backup is under way")
        self.ended = EndedLogs(
            objects, sessions, self._manifests.present, partitions.exists, partitions.catch_up
        )
        self._collected_s = seconds()
        self._busy: dict[PartitionKey, asyncio.Lock] = {}
        """Held while a partition is uploaded."""
        session = wal.session.session
        ports = UploadPorts(
            objects,
            storage,
            self._manifests,
            session,
            lambda: wal.next_seq,
            partitions.flushed,
            coverage.log_start_of,
        )
        self._uploads = PartitionUploads(ports)
        self._turn = asyncio.Lock()
        """Held by a round, and by a search for orphans."""
        self._task: asyncio.Task[None] | None = None
        self._collected_end = 0
        """The seq of the first object of the session's log that is not deleted."""
        self._rounds = Rounds(seconds)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="uploads")

    async def stop(self) -> None:
        """End the rounds. What is unfinished is left to the next session."""
        await end_tasks(self._task)

    async def _run(self) -> None:
        begun_s = self._seconds()
        while True:
            await asyncio.sleep(min(CHECKED_EVERY_S, self._limits.interval_s))
            try:
                if self._seconds() - self._collected_s >= COLLECTED_EVERY_S:
                    await self._collect_ended()
                if not await self._is_due(self._seconds() - begun_s):
                    continue
                begun_s = self._seconds()
                try:
                    await self.round()
                finally:
                    self._held_bytes = self._coverage.size_bytes
            except (SessionFenced, Overtaken):
                return  # the end of the session stops the gateway
            except (Refused, StoreFailed, StorageFailed) as error:
                logger.warning("A round of uploads ended early, and the next one goes on: %s", error)
            except Exception:
                logger.exception("a round of uploads failed in an unexpected way; the next one begins later")

    async def _is_due(self, waited_s: float) -> bool:
        """Return whether a round must begin, so long after the one before."""
        # What the last round could not upload, say of an offline partition, would begin round after round.
        grown_bytes = self._coverage.size_bytes - self._held_bytes
        if waited_s >= self._limits.interval_s or grown_bytes >= self._limits.wal_max_bytes:
            return True
        if self._adopted_s is not None and self._seconds() - self._adopted_s >= ADOPTED_AFTER_S:
            return True
        return waited_s >= ADOPTED_AFTER_S and await self._learn_earlier()

    async def _learn_earlier(self) -> bool:
        """Learn once which partitions of ours need a manifest for ended logs; return whether any does. A
        failure holds up no upload, and the session asks again ADOPTED_AFTER_S later.
        """
        if self._seconds() < self._asks_s:
            return False
        self._asks_s = self._seconds() + ADOPTED_AFTER_S
        try:
            uncovered = await self.ended.uncovered()
        except (Refused, StorageFailed, CorruptWalObject, CorruptRegistration, IncompatibleFormat) as error:
            logger.warning("the records of earlier sessions can't be looked up now to upload them: %s", error)
            return False
        self._asks_s = math.inf
        ours = set(uncovered).intersection(self._partitions.all())
        self.adopted(ours)
        return bool(ours)

    def adopted(self, partitions: Iterable[PartitionKey]) -> None:
        """Upload adopted partitions within ADOPTED_AFTER_S, so that earlier leaders' logs are collected."""
        wanting = list(partitions)
        if wanting:
            self._back.update(wanting)
            self._coverage.begin(wanting)
            self._adopted_s = self._seconds() if self._adopted_s is None else self._adopted_s

    async def round(self) -> None:
        """Upload the history that the bucket lacks, and delete the objects that are then not needed any more.
        Waits until the store answers. Raises SessionFenced, Overtaken, StoreFailed, StorageFailed, Refused.
        """
        try:
            async with self._turn:
                self._rounds.begin()
                await self._round()
        except Exception as error:
            self._rounds.end(error)
            raise
        self._rounds.end()
        if self._seconds() - self._searched_s >= self._limits.orphan_age_s:
            self._searched_s = self._seconds()
            await self.sweep()

    def rewritten(self, log: PartitionLog) -> None:
        """In the next round, upload a log whose segments were replaced, even if this session never did."""
        self._coverage.begin([PartitionKey(log.topic_id, log.partition)])

    def progress(self) -> UploadProgress:
        wal_objects = self._wal.next_seq - self._collected_end
        return self._rounds.progress(wal_objects, self._coverage.size_bytes, self._coverage.oldest_s)

    async def _round(self) -> None:
        await self._learn_earlier()
        has_adopted, self._adopted_s = self._adopted_s is not None, None
        self._back.clear()
        present = set(self._partitions.all())
        wanting = self._coverage.wanting()
        gone = {*wanting, *self._manifests.partitions()} - present
        deleted = {partition for partition in gone if not self._partitions.exists(partition)}
        try:
            await self._upload(sorted(present), wanting)
        except Exception:
            if has_adopted:
                self._adopted_s = self._seconds()
            raise
        for partition in sorted(deleted):
            await self._load_deleted(partition)
        await self._wal.barrier()
        garbage = self._count_stored()
        self._coverage.forget(deleted)
        for partition in sorted(deleted):
            garbage += await self._delete(partition)
        for partition in sorted(gone - deleted - set(self._partitions.all())):
            await self._leave(partition)
        await self._delete_parts(garbage)
        await self._collect()

    async def _delete_parts(self, keys: Sequence[str]) -> None:
        """Delete parts that no manifest names any more. While a backup may need them they stay, and a later
        search for orphans finds them. Raises Refused.
        """
        if keys and not await is_pinned(self._reads, self._now_ms()):
            await self._deletions.delete(keys)

    def _count_stored(self) -> list[str]:
        """Let manifests count that were stored before the barrier; return the keys that nothing needs now."""
        uploaded, self._stored = self._stored, []
        for each in uploaded:
            key = each.manifest.key
            self._coverage.counts(each.manifest)
            if self._manifests.of(key) == each.manifest and key not in self._unsure:
                self._counted[key] = each.manifest
            self._uploads.counts(each)
        return [part_key(each.manifest.key, name) for each in uploaded for name in each.garbage]

    async def hand_over(self, log: PartitionLog) -> None:
        """Upload all that a log has, and return once the manifest counts: another gateway may then lead the
        partition from it alone.

        The caller has ended all appends. Call `released` when another gateway leads the partition. Waits
        until the store answers.

        Raises HandOverFailed, LogError, OSError, CorruptPart, IncompatibleFormat, NoLongerLed, Overtaken,
        SessionFenced, Refused.
        """
        for _ in range(MOST_TRIES):
            await self._partitions.flushed(log)
            # An upload itself may flush side files, which are in the session's log then and in no manifest.
            manifest = await self._upload_and_count(log)
            if manifest.end_offset == log.log_end_offset and not self._coverage.has_rows(manifest.key):
                return
        raise HandOverFailed(f"{log.topic}-{log.partition} changes while it is handed over")

    async def _upload_and_count(self, log: PartitionLog) -> Manifest:
        """Upload a log and pass the barrier; return the manifest, which counts. Raises as `hand_over`."""
        partition = PartitionKey(log.topic_id, log.partition)
        async with self._busy.setdefault(partition, asyncio.Lock()):
            uploaded = await self._upload_log(log)
        await self._wal.barrier()
        self._coverage.counts(uploaded.manifest)
        await self._delete_parts([part_key(partition, name) for name in uploaded.garbage])
        return uploaded.manifest

    def counting(self, partition: PartitionKey) -> Manifest | None:
        """Return the newest known manifest that counts of a partition that is led here, or None."""
        return self._counted.get(partition) or self._restored.get(partition)

    def local_manifests(self) -> dict[PartitionKey, Manifest]:
        """Return the manifests by which the local segment files go, at the end of a session that was in force
        to its end. An ended session may have replaced one of them since, by one with other bytes.
        """
        session = self._wal.session.session
        own = map(self._manifests.of, self._manifests.partitions())
        uploaded = {each.key: each for each in own if each is not None and each.session == session}
        known = {**self._restored, **uploaded}
        return {key: manifest for key, manifest in known.items() if self._partitions.exists(key)}

    def released(self, partition: PartitionKey) -> None:
        self._uploads.forget(partition)
        self._counted.pop(partition, None)
        self._manifests.forget(partition)
        if not self._is_busy(partition):
            self._busy.pop(partition, None)
            self._unsure.discard(partition)

    async def _leave(self, partition: PartitionKey) -> None:
        """Forget a partition that others lead: its manifest may cover what our log has. Raises Refused. One
        that comes back during the round keeps its mark for the next round.
        """
        if partition in self._back or self._is_busy(partition) or self._partitions.is_withheld(partition):
            return
        self.released(partition)
        if not self._coverage.has_rows(partition):
            self._coverage.has_nothing(partition)
            return
        try:
            manifest = await self._manifests.present(partition)
        except (CorruptPart, IncompatibleFormat) as error:
            logger.warning("the manifest of a partition that was led here before can't be read: %s", error)
            return
        if manifest is not None and partition not in self._back:
            self._coverage.counts(manifest)

    def _is_busy(self, partition: PartitionKey) -> bool:
        lock = self._busy.get(partition)
        return lock is not None and lock.locked()

    async def sweep(self) -> int:
        """Delete old objects nothing needs; return how many. Raises as `find_orphans`, and SessionFenced."""
        if await is_pinned(self._reads, self._now_ms()):
            return 0
        found = await self.find_orphans(int(self._limits.orphan_age_s * 1000))
        await self.remove(found)
        if found:
            logger.info("deleted %d objects of the bucket that nothing needs", len(found))
        return len(found)

    async def find_orphans(self, min_age_ms: int) -> list[Entry]:
        """Return the objects of at least this age that nothing needs. Of some partitions a search can't tell
        orphans; the next round uploads these, and so replaces their manifests. Raises StoreFailed,
        StorageFailed, CorruptPart, CorruptWalObject, IncompatibleFormat, Refused.
        """
        session = self._wal.session
        orphans: list[Entry] = []
        unsure: dict[PartitionKey, set[str]] = {}
        """The names of old objects, by partitions whose manifest this session has not replaced yet."""
        # An object of an upload under way has no manifest yet.
        async with self._turn:
            created_before_ms = self._now_ms() - min_age_ms
            old = [
                entry async for entry in self._objects.list(PREFIX) if entry.modified_ms < created_before_ms
            ]
            # Whoever created an object knew its topic. So the metadata has it after this, or it is deleted.
            await self._partitions.catch_up()
            # Seqgate did not write an object whose key names no partition.
            placed = ((*place, entry) for entry in old if (place := partition_of(entry.key)) is not None)
            for partition, objects in groupby(placed, key=itemgetter(0)):
                await asyncio.sleep(0)  # a bucket may have a million objects; let requests run
                manifest = self._counted.get(partition)
                if not self._partitions.exists(partition):
                    orphans += [entry for _, _, entry in objects]
                elif manifest is None:
                    names = {name for _, name, _ in objects if name is not None}
                    if names:
                        unsure.setdefault(partition, set()).update(names)
                else:
                    named = {None, *manifest.objects}  # None is the manifest itself
                    orphans += [entry for _, name, entry in objects if name not in named]
            led = set(self._partitions.all())
            for partition, names in unsure.items():
                if partition in led:
                    manifest = await self._manifests.present(partition)
                    if manifest is None or not names <= manifest.objects:
                        self._coverage.begin([partition])
            running = session.node_id, session.session
            return orphans + await find_collected(self._objects, created_before_ms, running=running)

    async def remove(self, orphans: Sequence[Entry]) -> None:
        """Delete orphans. Waits until the store answers. Raises SessionFenced, Refused also while a backup of
        the bucket may need them.
        """
        if orphans:
            if await is_pinned(self._reads, self._now_ms()):
                raise Refused("a backup of the bucket is under way; sweep again when it has ended")
            await self._wal.barrier()
            await self._deletions.delete(orphan.key for orphan in orphans)

    async def _upload(self, partitions: Iterable[PartitionKey], wanting: Collection[PartitionKey]) -> None:
        """Upload the partitions that want it, or whose files have changed, as far as that is possible now."""
        turns = asyncio.Semaphore(UPLOADED_AT_ONCE)

        async def one(partition: PartitionKey) -> None:
            async with turns:
                await self._upload_one(partition, is_wanting=partition in wanting)

        ending = await asyncio.gather(
            *(one(each) for each in partitions if each in wanting or self._uploads.knows(each)),
            return_exceptions=True,
        )
        for end in ending:
            if isinstance(end, BaseException):
                raise end

    async def _upload_one(self, partition: PartitionKey, *, is_wanting: bool) -> None:
        try:
            async with self._busy.setdefault(partition, asyncio.Lock()):
                await self._upload_now(partition, is_wanting=is_wanting)
        except (OSError, LogError, IncompatibleFormat, CorruptPart, ValueError, NoLongerLed) as error:
            self._rounds.left_out(f"partition {partition.partition} of topic {partition.topic_id}: {error}")
            logger.warning(
                "partition %d of the topic %s can't be uploaded now, so the bucket keeps its part of the "
                "write-ahead log: %s",
                partition.partition,
                partition.topic_id,
                error,
            )

    async def _upload_now(self, partition: PartitionKey, *, is_wanting: bool) -> None:
        """Raises as `PartitionUploads.upload`."""
        log = await self._partitions.open_log(partition)
        if log is None:
            if not self._coverage.has_rows(partition):
                self._coverage.has_nothing(partition)
            return
        if not is_wanting and not self._uploads.is_changed(log):
            return
        self._stored.append(await self._upload_log(log))

    async def _upload_log(self, log: PartitionLog) -> Uploaded:
        """Upload a log. Raises as `PartitionUploads.upload`. From now on the bucket may have another
        manifest, even if the upload fails. What only that one names is no orphan.
        """
        partition = PartitionKey(log.topic_id, log.partition)
        self._counted.pop(partition, None)
        self._unsure.add(partition)
        uploaded = await self._uploads.upload(log)
        self._unsure.discard(partition)
        return uploaded

    async def _load_deleted(self, partition: PartitionKey) -> None:
        """Read the manifest of a deleted partition, for the names of its objects. Raises Refused."""
        try:
            await self._manifests.load(partition)
        except (CorruptPart, IncompatibleFormat) as error:
            logger.warning(
                "the manifest of a deleted partition can't be read, so a search for orphans deletes its "
                "parts: %s",
                error,
            )

    async def _delete(self, partition: PartitionKey) -> list[str]:
        """Delete a deleted partition's manifest; return the keys of the objects it named. Raises Refused."""
        manifest = self._manifests.of(partition)
        await self._manifests.delete(partition)
        self.released(partition)
        return [] if manifest is None else [part_key(partition, name) for name in manifest.objects]

    async def _collect(self) -> None:
        """Delete the objects of write-ahead logs that nobody needs. Raises Refused."""
        if await is_pinned(self._reads, self._now_ms(), logs=True) or self._wal.is_fenced:
            return  # a fenced session does not know how far its log goes, and its seal must stay
        session = self._wal.session
        needed = self._coverage.first_needed(self._wal.confirmed_end)
        deleted = await self._deletions.collect(session.node_id, session.session, needed)
        self._collected_end = needed
        logger.debug("objects of the write-ahead log deleted: %d", deleted)
        await self._collect_ended()

    async def _collect_ended(self) -> None:
        """Collect the logs of ended sessions, if it is this gateway's turn. Raises as `EndedLogs.collect`."""
        self._collected_s = self._seconds()
        if self._sessions.collects() and not await is_pinned(self._reads, self._now_ms(), logs=True):
            await self.ended.collect()
