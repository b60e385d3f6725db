"""The rounds in which a session uploads the history of its partitions, and deletes what the bucket needs no more.

A round uploads the partitions whose rows no manifest covers, or whose files a compaction or retention has changed. Then it passes the
session's barrier: after it the new manifests count, because a gateway that takes over from now on reads these or later ones. Only then
the objects that they replace are deleted, and the objects of write-ahead logs that they cover.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.cluster.objects.objects import Entry, ObjectStore, Refused, StoreFailed
from gateway.cluster.parts.keys import PartitionKey, part_key
from gateway.cluster.parts.manifest import Manifest
from gateway.cluster.parts.manifests import Manifests, Overtaken
from gateway.cluster.parts.part_object import CorruptPart
from gateway.cluster.uploads.collection import Collection as Deletions
from gateway.cluster.uploads.coverage import Coverage
from gateway.cluster.uploads.orphans import find_collected, find_orphans
from gateway.cluster.uploads.partition_uploads import PartitionUploads, Uploaded, UploadPorts
from gateway.cluster.uploads.progress import UploadProgress
from gateway.cluster.wal.sealing import SealedWal
from gateway.cluster.wal.session_wal import SessionFenced, SessionWal
from gateway.cluster.wal.sessions import RegisteredSession
from log import IncompatibleFormat, LogError, PartitionLog, Storage

logger = logging.getLogger(__name__)

UPLOADED_AT_ONCE: Final = 2
LOOKED_EVERY_S: Final = 1.0
ADOPTED_AFTER_S: Final = 60.0
"""The time after a start at which the first round begins if logs of earlier sessions are left. A gateway that never runs for a whole interval
uploads, too; otherwise these logs would grow for ever, and each start would read all of them."""


class EarlierWal(NamedTuple):
    """The log of an earlier session, which has ended."""

    node_id: int
    session: int
    end_seq: int


def with_objects(sealed: Iterable[tuple[RegisteredSession, SealedWal]]) -> list[EarlierWal]:
    """Return the logs that still have objects."""
    return [
        EarlierWal(known.node_id, known.session, log.end_seq)
        for known, log in sealed
        if log.first_seq < log.end_seq
    ]


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of the gateway, as uploads see them."""

    all: Callable[[], Iterable[PartitionKey]]
    """Returns all partitions of the metadata as far as it is durable, and those whose logs are open."""
    open_log: Callable[[PartitionKey], Awaitable[PartitionLog | None]]
    """Returns the log of a partition, opened if necessary; None without records and files. Raises OSError, LogError, IncompatibleFormat."""
    flushed: Callable[[PartitionLog], Awaitable[None]]
    """Makes everything now in a log durable. Raises StorageFailed."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """When a round begins."""

    interval_s: float
    """The seconds after the one before."""
    wal_max_bytes: int
    """The bytes put into the session's write-ahead log since the last round, at which the next one begins at once."""
    orphan_age_s: float
    """The age from which an object that no manifest names is an orphan, and the seconds between two searches."""


class Uploads:
    """The uploads of one session."""

    def __init__(
        self,
        objects: ObjectStore,
        storage: Storage,
        wal: SessionWal,
        coverage: Coverage,
        find_earlier: Callable[[], Awaitable[Sequence[EarlierWal]]],
        partitions: Partitions,
        limits: UploadLimits,
        seconds: Callable[[], float],
        now_ms: Callable[[], int],
        restored: Mapping[PartitionKey, Manifest] | None = None,
    ) -> None:
        """`find_earlier` returns the logs of earlier sessions that still have objects. `seconds` is a clock that is never set.

        `restored` are the manifests from which the local files were made.
        """
        self._wal = wal
        self._coverage = coverage
        self._find_earlier = find_earlier
        self._earlier: Sequence[EarlierWal] | None = None
        """The logs of earlier sessions that still have objects; None before they are known, and when they are gone."""
        self._knows_earlier = False
        self._has_asked = False
        """Whether the session has asked for the logs of earlier sessions before its first round."""
        self._held_bytes = 0
        """The bytes of the session's write-ahead log that were not covered after the last round."""
        self._partitions = partitions
        self._limits = limits
        self._seconds = seconds
        self._now_ms = now_ms
        self._objects = objects
        self._counted: dict[PartitionKey, Manifest] = {}
        """The manifests that this session has written and that count, but for those that an upload may have replaced since."""
        self._stored: list[Uploaded] = []
        """The uploads whose manifests do not count yet. A round that ends early leaves them to the next one."""
        self._searched_s = seconds()
        self._manifests = Manifests(objects, restored=restored)
        self._deletions = Deletions(objects)
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
        self._left_out: list[str] = []
        """Why the present round, or the last one, could not upload partitions; one reason for each."""
        self._begun_s: float | None = None
        """When the present round began."""
        self._ended_s: float | None = None
        self._took_s = 0.0
        self._error: str | None = None

    def start(self) -> None:
        """Begin to run rounds in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="uploads")

    async def stop(self) -> None:
        """End the rounds. What is unfinished is left to the next session."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        begun_s = self._seconds()
        while True:
            await asyncio.sleep(min(LOOKED_EVERY_S, self._limits.interval_s))
            try:
                if not await self._is_due(self._seconds() - begun_s):
                    continue
                begun_s = self._seconds()
                try:
                    await self.round()
                finally:
                    self._held_bytes = self._coverage.size_bytes
            except (SessionFenced, Overtaken):
                return  # the end of the session stops the gateway
            except (Refused, StoreFailed) as error:
                logger.warning("A round of uploads ended early, and the next one goes on: %s", error)
            except Exception:
                logger.exception("a round of uploads failed in an unexpected way; the next one begins later")

    async def _is_due(self, waited_s: float) -> bool:
        """Return whether a round must begin, so many seconds after the one before or after the start. Raises as `find_earlier`."""
        # What the last round could not upload, say of a partition that is offline, would begin one round after the other.
        grown_bytes = self._coverage.size_bytes - self._held_bytes
        if waited_s >= self._limits.interval_s or grown_bytes >= self._limits.wal_max_bytes:
            return True
        if self._has_asked or waited_s < ADOPTED_AFTER_S:
            return False
        self._has_asked = True
        await self._learn_earlier()
        return bool(self._earlier)

    async def _learn_earlier(self) -> None:
        """Learn which logs of earlier sessions still have objects; then each partition needs a manifest of this session."""
        if not self._knows_earlier:
            self._earlier = await self._find_earlier()
            self._knows_earlier = True
            if self._earlier:
                self._coverage.begin(self._partitions.all())

    async def round(self) -> None:
        """Upload the history that the bucket lacks, and delete the objects that are then not needed any more. Waits until the store answers.

        Raises SessionFenced, Overtaken, StoreFailed, Refused.
        """
        try:
            async with self._turn:
                self._begun_s, self._left_out = self._seconds(), []
                await self._round()
        except Exception as error:
            self._note_end(str(error) or type(error).__name__)
            raise
        self._note_end(self._why_left_out())
        if self._seconds() - self._searched_s >= self._limits.orphan_age_s:
            self._searched_s = self._seconds()
            await self.sweep()

    def rewritten(self, log: PartitionLog) -> None:
        """Upload a log in the next round, because its segments were replaced; this session may not have uploaded the log yet."""
        self._coverage.begin([PartitionKey(log.topic_id, log.partition)])

    def progress(self) -> UploadProgress:
        """Return how far the uploads are."""
        now_s, oldest_s = self._seconds(), self._coverage.oldest_s
        return UploadProgress(
            wal_objects=self._wal.next_seq - self._collected_end,
            wal_bytes=self._coverage.size_bytes,
            oldest_ms=None if oldest_s is None else _ms(now_s - oldest_s),
            round_ended_ms_ago=None if self._ended_s is None else _ms(now_s - self._ended_s),
            round_took_ms=_ms(self._took_s),
            error=self._error,
            running_ms=None if self._begun_s is None else _ms(now_s - self._begun_s),
        )

    def _note_end(self, error: str | None) -> None:
        """Note that the present round has ended."""
        now_s = self._seconds()
        self._took_s = 0.0 if self._begun_s is None else now_s - self._begun_s
        self._begun_s, self._ended_s, self._error = None, now_s, error

    def _why_left_out(self) -> str | None:
        reasons = self._left_out
        if not reasons:
            return None
        return f"partitions that can't be uploaded now: {len(reasons)}; for example, {reasons[0]}"

    async def _round(self) -> None:
        await self._learn_earlier()
        present = set(self._partitions.all())
        wanting = self._coverage.wanting()
        deleted = {*wanting, *self._manifests.partitions()} - present
        await self._upload(sorted(present), wanting)
        for partition in sorted(deleted):
            await self._load_deleted(partition)
        await self._wal.barrier()
        uploaded, self._stored = self._stored, []
        garbage = [part_key(each.manifest.key, name) for each in uploaded for name in each.garbage]
        for each in uploaded:
            self._coverage.counts(each.manifest)
            self._counted[each.manifest.key] = each.manifest
            self._uploads.counts(each)
        self._coverage.forget(deleted)
        for partition in sorted(deleted):
            garbage += await self._delete(partition)
        await self._deletions.delete(garbage)
        await self._collect()

    async def sweep(self) -> int:
        """Delete old objects that nothing needs; return how many. Raises as `find_orphans`, and SessionFenced."""
        found = await self.find_orphans(int(self._limits.orphan_age_s * 1000))
        await self.remove(found)
        if found:
            logger.info("deleted %d objects of the bucket that nothing needs", len(found))
        return len(found)

    async def find_orphans(self, min_age_ms: int) -> list[Entry]:
        """Return the objects of at least this age that nothing needs.

        Raises StoreFailed, CorruptPart, CorruptWalObject, IncompatibleFormat, Refused.
        """
        created_before_ms = self._now_ms() - min_age_ms
        # An object of an upload under way has no manifest yet.
        async with self._turn:
            found = await find_orphans(
                self._objects, lambda: set(self._partitions.all()), self._counted.get, created_before_ms
            )
            for partition, names in found.unsure.items():
                if not await self._manifests.names_all(partition, names):
                    # The next round replaces the manifest; then a search can tell orphans.
                    self._coverage.begin([partition])
        session = self._wal.session
        return found.entries + await find_collected(
            self._objects, created_before_ms, running=(session.node_id, session.session)
        )

    async def remove(self, orphans: Sequence[Entry]) -> None:
        """Delete orphans. Waits until the store answers. Raises SessionFenced, Refused."""
        if orphans:
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
        """Upload one partition, if that is needed and possible now."""
        try:
            log = await self._partitions.open_log(partition)
            if log is None:
                self._coverage.has_nothing(partition)
                return
            if not is_wanting and not self._uploads.is_changed(log):
                return
            # From now on the bucket may have another manifest, even if the upload fails. What only that one names is no orphan.
            self._counted.pop(partition, None)
            self._stored.append(await self._uploads.upload(log))
        except (OSError, LogError, IncompatibleFormat, CorruptPart, ValueError) as error:
            self._left_out.append(f"partition {partition.partition} of topic {partition.topic_id}: {error}")
            logger.warning(
                "partition %d of the topic %s can't be uploaded now, so the bucket keeps its part of the write-ahead log: %s",
                partition.partition,
                partition.topic_id,
                error,
            )

    async def _load_deleted(self, partition: PartitionKey) -> None:
        """Read the manifest of a deleted partition, for the names of its objects. Raises Refused."""
        try:
            await self._manifests.load(partition)
        except (CorruptPart, IncompatibleFormat) as error:
            logger.warning(
                "the manifest of a deleted partition can't be read, so a search for orphans deletes its parts: %s",
                error,
            )

    async def _delete(self, partition: PartitionKey) -> list[str]:
        """Delete the manifest of a deleted partition; return the keys of the objects that it named. Raises Refused."""
        manifest = self._manifests.of(partition)
        self._uploads.forget(partition)
        self._counted.pop(partition, None)
        await self._manifests.delete(partition)
        return [] if manifest is None else [part_key(partition, name) for name in manifest.objects]

    async def _collect(self) -> None:
        """Delete the objects of write-ahead logs that no start needs. Raises Refused."""
        session = self._wal.session
        needed = self._coverage.first_needed(self._wal.confirmed_end)
        deleted = await self._deletions.collect(session.node_id, session.session, needed)
        self._collected_end = needed
        if self._coverage.covers_earlier_sessions and self._earlier is not None:
            for earlier in self._earlier:
                deleted += await self._deletions.collect_sealed(*earlier)
            await self._deletions.end_sessions(session.session)
            self._earlier = None
        logger.debug("objects of write-ahead logs deleted: %d", deleted)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
